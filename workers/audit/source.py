"""The subject of an audit: a turn or a session on a server, or a bundle in a file. Both are read in the same way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from temporalio.converter import DataConverter

from holdfast.config.settings import Settings
from holdfast.payloads.converter import build_converter
from holdfast.workers.audit.bundle.bundle import open_bundle
from holdfast.workers.audit.bundle.verify import verify_bundle
from holdfast.workers.audit.read.stored_payloads import Fetch, build_read_only_converter, build_storage_fetch
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, ReportProgress, gather_runs
from holdfast.workers.runtime.connect import connect_client


@dataclass(frozen=True)
class AuditSubject:
    """The runs of a subject, and what decodes their payloads."""

    gathered: GatheredRuns
    converter: DataConverter
    fetch: Fetch
    namespace: str = ""
    findings: tuple[str, ...] = ()
    """Of a bundle: what has been changed since it was made."""


def is_file(named: str) -> bool:
    """Whether a bundle is meant: a path holds a slash and exists, or ends in `.tar`."""
    return ("/" in named and os.path.lexists(named)) or named.endswith(".tar")


async def open_subject(
    named: str, settings: Settings, *, address: str | None = None, tell: ReportProgress
) -> AuditSubject:
    """Open a bundle by its path, or what a server has under an id. Raises BadInput, TurnNotFound, ServerUnavailable."""
    if not is_file(named):
        return await gather_from_server(named, settings, address=address, tell=tell)
    tell("verifying")
    findings = verify_bundle(Path(named)).findings
    bundle = open_bundle(Path(named))
    converter = build_read_only_converter(build_converter(settings), bundle.fetch)
    return AuditSubject(bundle.read_runs(), converter, bundle.fetch, bundle.manifest.namespace, findings)


async def gather_from_server(
    named: str, settings: Settings, *, address: str | None = None, tell: ReportProgress
) -> AuditSubject:
    """Gather what a server has under an id."""
    client = await connect_client(settings, address=address)
    fetch = build_storage_fetch(client.data_converter)
    gathered = await gather_runs(client, named, tell)
    return AuditSubject(gathered, build_read_only_converter(client.data_converter, fetch), fetch, client.namespace)
