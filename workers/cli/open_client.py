"""A connected `Holdfast` for one command, the key that signs its decisions, and its event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from holdfast.client.client import Holdfast
from holdfast.client.owner_key import find_owner_signer
from holdfast.client.signing_keys import Signer, load_signer
from holdfast.config.settings import Settings
from holdfast.workers.cli.resolve_settings import resolve_client_settings
from holdfast.workers.runtime import log_setup
from holdfast.workers.runtime.connect import connect_client

T = TypeVar("T")


def find_signer(settings: Settings) -> Signer | None:
    """The key that signs the decisions of this command: the one that HOLDFAST_KEY names, else the data folder's."""
    named = os.environ.get("HOLDFAST_KEY", "").strip()
    return load_signer(named, settings.approvers) if named else find_owner_signer(settings)


async def open_holdfast(data: Path | None, address: str | None) -> Holdfast:
    """A connected client for one command."""
    log_setup.silence_logging()
    settings = resolve_client_settings(data)
    signer = find_signer(settings)
    client = await connect_client(settings, address=address)
    return Holdfast(client, task_queue=settings.task_queue, signer=signer)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in an event loop of its own."""
    with asyncio.Runner() as runner:
        return runner.run(work)
