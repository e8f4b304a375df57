"""What an audit is of: a turn or a session of a server, or a bundle in a file. Both are read the same way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from temporalio.converter import DataConverter

from holdfast.conversion import data_converter
from holdfast.settings import Settings
from holdfast.workers.audit.bundle import Bundle, open_bundle
from holdfast.workers.audit.runs import Gathered, Tell, gather
from holdfast.workers.audit.stored import Fetch, from_storage, looking
from holdfast.workers.connecting import connect


@dataclass(frozen=True)
class Subject:
    """Runs, and what reads their payloads."""

    gathered: Gathered
    converter: DataConverter
    fetch: Fetch
    namespace: str = ""
    bundle: Bundle | None = None


def is_file(named: str) -> bool:
    """Is a bundle meant? A path holds a slash or ends in .tar, or there is a file of that name."""
    return ("/" in named and os.path.lexists(named)) or named.endswith(".tar") or Path(named).is_file()


async def subject_of(named: str, settings: Settings, *, address: str | None = None, tell: Tell) -> Subject:
    """A bundle by its path, or what a server has under an id. BadInput, TurnNotFound or ServerUnavailable."""
    if is_file(named):
        bundle = open_bundle(Path(named))
        converter = looking(data_converter(None, settings.payloads), bundle.fetch)
        return Subject(bundle.gathered(), converter, bundle.fetch, bundle.manifest.namespace, bundle)
    client = await connect(settings, address=address)
    fetch = from_storage(client.data_converter)
    gathered = await gather(client, named, tell)
    return Subject(gathered, looking(client.data_converter, fetch), fetch, client.namespace)
