"""One Temporal plugin for client, worker and replayer: the same converter, workflows and options everywhere.

client = await Client.connect("localhost:7233", plugins=[HoldfastPlugin()])
worker = Worker(client, task_queue="holdfast")          # the client's plugin configures the worker too
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig, WorkerDeploymentConfig

from holdfast.activities.execution.ask_person import QuestionSender
from holdfast.activities.execution.effect_runner import EffectRunner
from holdfast.activities.execution.live_run import LiveRuns
from holdfast.activities.execution.run_tool import run_with_heartbeats
from holdfast.activities.gate.approval_checks import check_roles
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.records import RecordFolder
from holdfast.activities.hooks.load_hooks import find_misspelt_tools, load_hooks
from holdfast.activities.ledger.ledger import Ledger
from holdfast.activities.ledger.open import open_ledger
from holdfast.activities.load_registry import load_registry
from holdfast.activities.mcp.auth.bearer import LoginAuthorizer
from holdfast.activities.mcp.auth.shared_logins import open_login_store
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.model_activities import ModelActivities
from holdfast.activities.policy.find_protected import build_protected, check_places
from holdfast.activities.policy.grant_sources import AllGrants, open_saved_grants
from holdfast.activities.policy.load_policy import list_sources, load_policy
from holdfast.activities.policy.policy import Policy
from holdfast.activities.policy.saved_grants import SavedGrants
from holdfast.activities.process.command import withhold_variables
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import Registry
from holdfast.activities.supervision.attendant import Attendant
from holdfast.activities.supervision.launch import Placement, explain_unsupported
from holdfast.activities.supervision.runs import open_runs, open_sandbox
from holdfast.activities.tool_activities import ToolActivities
from holdfast.activities.turn_starts import TurnStarts
from holdfast.client.owner_key import find_approvers, find_owner_signer
from holdfast.config.settings import Settings
from holdfast.domain.calls.tool import Tool
from holdfast.errors import BadInput, HoldfastError
from holdfast.payloads.converter import build_converter
from holdfast.payloads.file_store import note_namespace
from holdfast.payloads.keyring import Keyring, load_keyring
from holdfast.payloads.shared_outputs import SharedOutputs, build_object_stores
from holdfast.plugin.host_worker import HostOptions, HostWorker, build_host_queue, build_process_queue
from holdfast.plugin.neighbours import Neighbours
from holdfast.plugin.search_attributes import ensure_search_attributes
from holdfast.plugin.telemetry import TelemetryInterceptor
from holdfast.temporal_private import lift_deadlock_limit
from holdfast.util.redaction import Redacted
from holdfast.workflows.session import SessionWorkflow
from holdfast.workflows.turn import TurnWorkflow

if TYPE_CHECKING:
    from holdfast.activities.models.providers import Models
    from holdfast.client.signing_keys import Signer

_LOGGER = logging.getLogger(__name__)

HOST_GRACE = timedelta(seconds=3)
"""How long a call of the host may run on when its worker ends, unless the settings say otherwise."""
SWEEP_EVERY = timedelta(days=1)
"""How often a worker removes old entries: it may run for months."""
STICKY_TIMEOUT = timedelta(seconds=3)
"""How long a turn waits for a dead worker that had it in its cache."""


def _build_version(settings: Settings) -> WorkerDeploymentConfig | None:
    """The version of our workers. Workflows that start on it stay with it (pinned).

    The behaviour is not set on the workflow classes: the server refuses a worker without a version that sets it. Queues
    of hosts and processes have no versions, as their calls must run there.
    """
    name, build = settings.deployment.name, settings.deployment.build
    if build is None:
        return None
    return WorkerDeploymentConfig(WorkerDeploymentVersion(name, build), True, VersioningBehavior.PINNED)


class _QueueOfWorkers(NamedTuple):
    """The parts that the workers of this process on one task queue share."""

    host_queue: str
    execute: Callable[..., object]
    neighbours: Neighbours
    host: HostWorker


class HoldfastPlugin(SimplePlugin):
    """The Temporal plugin of Holdfast: pass it to `Client.connect`, and workers of that client run turns and sessions.

    `settings` are those of this process; None reads none and uses the defaults. `tools` are added to the built-in ones.
    An error in the settings (a key, a rule, a hook, a tool) raises BadInput when it is first needed: at the latest when
    a worker is made.
    """

    def __init__(self, settings: Settings | None = None, *, tools: Iterable[Tool] = ()) -> None:
        self.settings = settings or Settings()
        limits = self.settings.limits
        self.outputs = OutputStore(self.settings.outputs_folder, limits.output_characters, limits.saved_output_bytes)
        self._given = tuple(tools)
        self._live = LiveRuns(build_process_queue(self.settings.task_queue))
        self._queues: dict[str, _QueueOfWorkers] = {}
        self.observing = TelemetryInterceptor(self.settings.telemetry)
        super().__init__(
            "holdfast.Plugin",
            interceptors=[self.observing],
            data_converter=lambda existing: build_converter(self.settings, existing, keyring=self.keyring),
            workflows=[TurnWorkflow, SessionWorkflow],
        )

    @cached_property
    def keyring(self) -> Keyring:
        """The keys that payloads are encrypted with. BadInput when one is unusable."""
        return load_keyring(self.settings)

    @cached_property
    def signer(self) -> Signer | None:
        """The signer with the key of the data folder; None without one."""
        return find_owner_signer(self.settings)

    @cached_property
    def registry(self) -> Registry:
        """The tools of this process. Loading them may run commands and other people's code, so only workers do it.

        From then on commands do not get the variables that the settings refer to for other purposes.
        """
        withhold_variables(
            *self.settings.models.key_variables, *self.settings.storage.secret_variables, *self.servers.secret_variables
        )
        return load_registry(self.settings, self.outputs, self._given, self.servers)

    @cached_property
    def servers(self) -> McpServers:
        """The MCP servers of this process, connected while a worker runs."""
        folder = self.settings.mcp_tools_folder
        return McpServers(self.settings.mcp, folder, authorize=self.authorizing)

    @cached_property
    def authorizing(self) -> LoginAuthorizer:
        """The logins at MCP servers: of this host, or of all hosts that share a ledger."""
        return LoginAuthorizer(open_login_store(self.settings, self.keyring))

    @cached_property
    def policy(self) -> Policy:
        """The rules of this process. BadInput for an invalid policy file."""
        return load_policy(list_sources(self.settings))

    @cached_property
    def models(self) -> Models:
        """The models of this process. Importing the packages of providers takes a second."""
        from holdfast.activities.models.providers import Models

        return Models(self.settings.models)

    @cached_property
    def saved(self) -> SavedGrants | AllGrants:
        """The saved grants of this host, and those of a shared ledger."""
        return open_saved_grants(self.settings, self.keyring)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger of calls that must not run twice."""
        return open_ledger(self.settings)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows and activities, and options by which stops and recovery are fast. BadInput for invalid
        settings.
        """
        config = super().configure_worker(config)
        self.observing.start_observing(config["client"])
        ours = self.build_activities(config["client"], config["task_queue"])
        config["activities"] = [*config.get("activities", []), *ours]
        config["identity"] = self._queues[config["task_queue"]].neighbours.mark_identity(
            config.get("identity") or config["client"].identity
        )
        config["max_heartbeat_throttle_interval"] = self._heartbeat_throttle
        config["default_heartbeat_throttle_interval"] = self._heartbeat_throttle
        config["sticky_queue_schedule_to_start_timeout"] = STICKY_TIMEOUT
        config["deployment_config"] = config.get("deployment_config") or _build_version(self.settings)
        config["max_concurrent_activities"] = (
            config.get("max_concurrent_activities") or self.settings.limits.concurrent_calls
        )
        return config

    def build_activities(self, client: Client, task_queue: str | None = None) -> list[Callable[..., object]]:
        """Build the activities of a worker, with the tools, rules, hooks and approvers of this process.

        BadInput when one of them is invalid. The task queue is the worker's own, whatever the settings say: workers on
        other queues may have other tools and rules on the same data folder, and must not get each other's calls.
        """
        queue = task_queue or self.settings.task_queue
        on_host = build_host_queue(queue, self.settings.host_file)
        settings = self.settings
        check_places(settings)
        codec = client.data_converter.payload_codec
        self.outputs.shared_outputs = SharedOutputs(build_object_stores(settings), codec, client.namespace)
        approvers = find_approvers(settings)
        check_roles(self.policy, approvers)
        hooks, known = load_hooks(settings), [entry.declaration.name for entry in self.registry.entries]
        for hook in hooks.all_hooks:
            for why in find_misspelt_tools(hook.tools, known):
                _LOGGER.warning("The hook %r: %s", hook.name, why)
        gate = Gate(
            self.registry,
            settings.workspace,
            self.policy,
            settings.permitted_modes,
            approvers=approvers,
            saved=self.saved,
            protected=build_protected(settings),
            hooks=hooks,
            host_queue=on_host,
            keeps_once=not self.ledger.is_shared,
            confirm=settings.confirm,
        )
        once = EffectRunner(self.ledger, run_with_heartbeats)
        beside = (QuestionSender(client), RecordFolder(settings.records_folder), TurnStarts(client))
        tools = ToolActivities(gate, self.outputs, self._live, once, *beside)
        neighbours = Neighbours(queue, gate.digest)
        gate.explain_missing_tool = neighbours.explain_missing_tool
        self._queues.setdefault(queue, _QueueOfWorkers(on_host, tools.execute, neighbours, HostWorker(self._live)))
        if self.observing.counting:
            self.observing.counting.expect_tools(entry.declaration.name for entry in self.registry.entries)
        asking = ModelActivities(client, lambda: self.models, lambda: self.registry, self.outputs.shared_outputs)
        return [tools.validate, tools.execute, asking.request_reply, asking.compact_conversation]

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run a worker, and beside it the queues of its host, MCP servers, telemetry and sweeping."""
        lift_deadlock_limit(worker)
        await ensure_search_attributes(worker.client)
        queue = self._queues[worker.task_queue]
        concurrent, grace = self.settings.limits.concurrent_calls, self._find_host_grace()
        runs = open_runs(self.settings)
        attendant = Attendant(worker.client, runs, queue.host_queue) if runs else None
        activities = [queue.execute, *([attendant.list_running] if attendant else [])]
        options = HostOptions(queue.host_queue, activities, concurrent, self._heartbeat_throttle, grace)
        await asyncio.to_thread(note_namespace, self.settings.data, worker.client.namespace)
        await self._check_commands()
        async with (
            self._resting(),
            self.observing.observe_worker(worker.client, worker.task_queue),
            self.servers.keep_connected(),
            queue.host.poll_queues(worker.client, options),
        ):
            beside = [
                asyncio.create_task(self._sweep_repeatedly()),
                asyncio.create_task(queue.neighbours.watch(worker.client)),
            ]
            if attendant:
                beside.append(asyncio.create_task(attendant.attend()))
            try:
                await super().run_worker(worker, next)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                if "models" in self.__dict__:
                    await self.models.close()
                    del self.models

    @asynccontextmanager
    async def _resting(self) -> AsyncIterator[None]:
        """Close the connections to the ledger's database at the end of the block."""
        try:
            yield
        finally:
            for part in (self.ledger, self.saved, self.authorizing):
                await part.disconnect()

    async def drain(self) -> None:
        """Start no more calls of the host. Call it with the worker's shutdown, so that both grace periods overlap."""
        await asyncio.gather(*(queue.host.drain() for queue in self._queues.values()))

    @property
    def _heartbeat_throttle(self) -> timedelta:
        """Temporal's default lets a stop take half a minute to reach a tool (docs/decisions/0020-heartbeats.md)."""
        return timedelta(seconds=self.settings.worker.heartbeat_seconds)

    def _find_host_grace(self) -> timedelta:
        seconds = self.settings.worker.grace_seconds
        return HOST_GRACE if seconds is None else timedelta(seconds=seconds)

    async def _check_commands(self) -> None:
        """BadInput when the configured sandbox is not available. Logs what may end commands with their worker."""
        sandbox = open_sandbox(self.settings)
        if sandbox and (why := await sandbox.explain_missing()):
            kind = self.settings.tools.shell.sandbox
            raise BadInput(f"commands are to run in a sandbox (tools.shell.sandbox = {kind!r}), but {why}")
        runs = open_runs(self.settings)
        placement = await runs.get_placement() if runs else Placement(worry=f"{explain_unsupported()}")
        if placement.worry:
            _LOGGER.warning("Commands may not outlive their worker: %s", placement.worry)
        if placement.note:
            _LOGGER.info("Commands outlive their worker, but %s", placement.note)

    async def _sweep_repeatedly(self) -> None:
        """Remove old entries of the ledger and of commands, once a day."""
        while True:
            await self._sweep_once()
            await asyncio.sleep(SWEEP_EVERY.total_seconds())

    async def _sweep_once(self) -> None:
        retention = timedelta(days=self.settings.ledger_days)
        try:
            await self.ledger.sweep(retention)
            if runs := open_runs(self.settings):
                await runs.sweep(retention.total_seconds())
        except (HoldfastError, OSError) as error:
            _LOGGER.warning("Old entries of the ledger were not removed: %s", Redacted(error))
