"""What an audit is of: a turn or a session of a server, or a bundle in a file. Both are read the same way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from temporalio.converter import DataConverter

from holdfast.conversion import converter_of
from holdfast.settings import Settings
from holdfast.workers.audit.bundle import open_bundle
from holdfast.workers.audit.runs import Gathered, Tell, gather
from holdfast.workers.audit.stored import Fetch, from_storage, looking
from holdfast.workers.audit.verifying import verify
from holdfast.workers.connecting import connect


@dataclass(frozen=True)
class Subject:
    """Runs, and what reads their payloads."""

    gathered: Gathered
    converter: DataConverter
    fetch: Fetch
    namespace: str = ""
    findings: tuple[str, ...] = ()
    """Of a bundle: what is not as it was made."""


def is_file(named: str) -> bool:
    """Is a bundle meant? A path holds a slash, or ends in .tar."""
    return ("/" in named and os.path.lexists(named)) or named.endswith(".tar")


async def subject_of(named: str, settings: Settings, *, address: str | None = None, tell: Tell) -> Subject:
    """A bundle by its path, or what a server has under an id. BadInput, TurnNotFound or ServerUnavailable."""
    if not is_file(named):
        return await on_server(named, settings, address=address, tell=tell)
    tell("verifying")
    findings = verify(Path(named)).findings
    bundle = open_bundle(Path(named))
    converter = looking(converter_of(settings), bundle.fetch)
    return Subject(bundle.gathered(), converter, bundle.fetch, bundle.manifest.namespace, findings)


async def on_server(named: str, settings: Settings, *, address: str | None = None, tell: Tell) -> Subject:
    """What a server has under an id."""
    client = await connect(settings, address=address)
    fetch = from_storage(client.data_converter)
    gathered = await gather(client, named, tell)
    return Subject(gathered, looking(client.data_converter, fetch), fetch, client.namespace)
