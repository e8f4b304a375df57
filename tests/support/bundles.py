"""Bundles of real turns: made from a server, then handed to commands that have neither server nor data."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.client.signing_keys import Signer
from holdfast.workers.audit.bundle.bundle import Manifest
from holdfast.workers.audit.bundle.export import export_bundle
from holdfast.workers.audit.bundle.tar import Container, ContainerWriter, inspect_container
from holdfast.workers.audit.read.stored_payloads import build_read_only_converter, build_storage_fetch
from holdfast.workers.audit.read.workflow_runs import gather_runs
from tests.support.engine import Engine

COMMAND = [sys.executable, "-m", "holdfast.workers.cli"]

Members = list[tuple[str, bytes]]


async def exported(engine: Engine, workflow: str, file: Path, *, signer: Signer | None = None) -> Manifest:
    """The bundle of a turn or a session."""
    converter = engine.client.data_converter
    fetch = build_storage_fetch(converter)
    gathered = await gather_runs(engine.client, workflow)
    return await export_bundle(
        gathered, build_read_only_converter(converter, fetch), fetch, engine.settings, file, signer=signer
    )


async def elsewhere(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in an empty folder, with no server and no data."""
    os.makedirs(folder, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "HOLDFAST_"))}
    own = {"HOME": str(folder), "HOLDFAST_DATA": str(folder / "data"), "HOLDFAST_WORKSPACE": str(folder)}
    return await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, *arguments],
        cwd=folder,
        env={**kept, **own, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


async def answered(folder: Path, *arguments: str) -> Any:
    """What a command says as JSON."""
    done = await elsewhere(folder, *arguments, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def members(file: Path) -> Members:
    """What is in a bundle, in its order."""
    container: Container = inspect_container(file)
    return [(name, container.read(name)) for name in container.members]


def archive(found: Members) -> bytes:
    """The same as an archive."""
    written = io.BytesIO()
    writer = ContainerWriter(written)
    for name, data in found:
        writer.add(name, data)
    writer.close()
    return written.getvalue()
