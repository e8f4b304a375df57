"""The list of all checks, in the order of the report. Each check is a function beside what it checks.

A check changes nothing, reveals no secret, and says for each problem what to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.client import Client

from holdfast.activities.files.workspace import check_workspace
from holdfast.activities.gate.approval_checks import check_rules
from holdfast.activities.hooks.load_hooks import check_hooks
from holdfast.activities.ledger.open import check_ledger
from holdfast.activities.load_registry import check_tools
from holdfast.activities.mcp.servers import check_servers
from holdfast.activities.models.providers import check_models
from holdfast.activities.policy.grant_sources import check_saved_grants
from holdfast.activities.supervision.runs import check_sandbox, check_supervision
from holdfast.config.settings import Settings
from holdfast.payloads.bucket_store import check_stores
from holdfast.payloads.keyring import check_keyring
from holdfast.plugin.host_worker import check_host
from holdfast.telemetry.exporter import check_collector
from holdfast.util.findings import Finding
from holdfast.workers.gateway.tokens import check_tokens
from holdfast.workers.lookup.check_queues import check_hosts, check_workers
from holdfast.workers.lookup.check_server import check_clock, check_latency, check_namespace, check_search_attributes
from holdfast.workers.runtime.connect import check_environment
from holdfast.workers.runtime.data_folder import check_folders
from holdfast.workers.storage.check_payloads import check_payloads
from holdfast.workers.versions.check_versions import check_versions

Findings = Iterable[Finding]


def read_clock() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Check:
    """A check of this machine. A function that is not async may block."""

    name: str
    look: Callable[[Settings], Findings | Awaitable[Findings]]
    seconds: float = 10.0
    correct: str = "correct it: until then workers do not start"
    """What to do if the check raises a HoldfastError."""


@dataclass(frozen=True)
class ServerCheck:
    """A check of the server."""

    name: str
    look: Callable[[Client, Settings, Callable[[], datetime]], Awaitable[Findings]]
    """The last argument is this machine's clock."""
    seconds: float = 20.0
    correct: str = "correct it: until then turns cannot be started"


SERVER = ServerCheck("server", lambda client, *_: check_namespace(client))
"""Runs first: if it fails, the other server checks are skipped."""
SERVER_CHECKS = (
    ServerCheck("latency", lambda client, *_: check_latency(client)),
    ServerCheck("search attributes", lambda client, *_: check_search_attributes(client)),
    ServerCheck("clocks", lambda client, settings, clock: check_clock(client, clock)),
    ServerCheck("workers", lambda client, settings, clock: check_workers(client, settings.task_queue, clock())),
    ServerCheck("hosts", lambda client, settings, clock: check_hosts(client, settings.task_queue, clock())),
    ServerCheck("versions", lambda client, settings, clock: check_versions(client, settings, clock())),
    ServerCheck("payloads", lambda client, settings, clock: check_payloads(client, settings.task_queue)),
)
CHECKS = (
    Check("temporal configuration", lambda _: check_environment()),
    Check("host", lambda settings: check_host(settings.host_file)),
    Check("disk", check_folders),
    Check("encryption", check_keyring, seconds=30),
    Check("stores", check_stores, seconds=30),
    Check("ledger", check_ledger, seconds=15),
    Check("sandbox", check_sandbox, seconds=15),
    Check("supervisors", lambda _: check_supervision()),
    Check("workspace", lambda settings: check_workspace(settings.workspace)),
    Check("tools", check_tools, seconds=60),  # commands that declare tools have limits of their own
    Check("policy", check_rules, correct="correct it: until then workers do not start; see `holdfast policy check`"),
    Check("grants", check_saved_grants),
    Check("hooks", check_hooks),
    Check("mcp", check_servers, seconds=30),
    Check("models", lambda settings: check_models(settings.models), seconds=60),
    Check(
        "gateway",
        lambda settings: check_tokens(settings.tokens_file, read_clock()),
        correct="correct it, or move it away: until then no token is accepted",
    ),
    Check("traces", lambda settings: check_collector(settings.telemetry)),
)
