"""Workers of several versions of the code at once: real processes, each with a copy of the package of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from holdfast import Settings, Tool
from holdfast.config.sections import DeploymentSettings
from holdfast.testing import wait_until
from holdfast.workers.runtime.worker import READY_LINE
from holdfast.workers.versions.deployments import fetch_fleet, is_known, set_current
from holdfast.workers.versions.fleet import Fleet, Version
from tests.support.engine import Engine
from tests.support.processes import ROOT, WorkerProcess

PATIENCE = 60.0
OTHER_STEPS = (
    ("workflows/turn.py", "        state, thinking = self._state, None\n", "        await workflow.sleep(0.001)\n"),
    ("workflows/session.py", "        state, input = self._state, ", "        await workflow.sleep(0.001)\n"),
)
"""Where code takes a step that ours does not: a timer, before anything else. None can replay what the other did."""
PATCHED = (
    ("workflows/turn.py", "        judging = self._start_validation()\n        self._state.apply_limits()\n",
     '        if workflow.patched("one-more-step"):\n            await workflow.sleep(0.001)\n'),
)  # fmt: skip
"""The same, as it is done where old turns go on with new code."""

Change = tuple[str, str, str]
"""A file, a text in it, and what is put before that."""


def other_code(folder: Path, changes: tuple[Change, ...] = OTHER_STEPS) -> Path:
    """A copy of the package that is not like ours; the folder to put on Python's path."""
    package = folder / "holdfast"
    shutil.copytree(ROOT / "src" / "holdfast", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, more in changes:
        file = package / name
        text = file.read_text()
        assert text.count(before) == 1, f"{name} has changed: choose another place"
        file.write_text(text.replace(before, more + before))
    return folder


class Rollout:
    """A deployment of its own on an engine's task queue."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.name = f"d-{uuid4().hex[:8]}"
        self.file = folder / "holdfast.toml"
        self.file.write_text(f'[deployment]\nname = "{self.name}"\n')
        self._folder = folder

    @asynccontextmanager
    async def worker(
        self,
        build: str | None,
        code: Path | None = None,
        *options: str,
        data: Path | None = None,
        ready: bool = True,
    ) -> AsyncIterator[WorkerProcess]:
        """`holdfast worker` of a version, polling, or about to if it need not be `ready`.

        With a data folder of its own it is another host.
        """
        words = ("worker", "--workspace", str(self.engine.workspace), *options)
        with self.log(build).open("ab") as errors:
            process = await self._command(*words, build=build, code=code, data=data, errors=errors)
        try:
            if ready:
                await _ready(process)
            yield WorkerProcess(process)
        finally:
            await WorkerProcess(process).kill()

    def log(self, build: str | None) -> Path:
        """What workers of a version say beside."""
        return self._folder / f"{build or 'unversioned'}.log"

    async def remarked(self, build: str, words: str) -> bool:
        """Did one say this?"""
        return words in await asyncio.to_thread(self.log(build).read_text)

    async def command(self, *words: str) -> Any:
        """What `holdfast WORDS --json` answers."""
        process = await self._command(*words, "--json")
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)

    async def refused(self, *words: str) -> str:
        """Why a command cannot be done."""
        process = await self._command(*words)
        async with asyncio.timeout(PATIENCE):
            _, err = await process.communicate()
        assert process.returncode == 1, err.decode()
        return err.decode()

    async def fleet(self) -> Fleet:
        """How it stands."""
        return await fetch_fleet(self.engine.client, self.name, self.engine.queue)

    async def version(self, build: str) -> Version:
        """How one of them stands."""
        found = (await self.fleet()).find_version(build)
        assert found
        return found

    async def drained(self, build: str) -> None:
        """Wait until nothing is open on it."""

        async def empty() -> bool:
            return not (await self.version(build)).open

        await wait_until(empty, seconds=PATIENCE)

    async def _command(
        self,
        *words: str,
        build: str | None = None,
        code: Path | None = None,
        data: Path | None = None,
        errors: IO[bytes] | None = None,
    ) -> asyncio.subprocess.Process:
        path = [str(code)] if code else []
        more = {"HOLDFAST_BUILD": build} if build else {}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.workers.cli", "--config", str(self.file), *words),
            *("--address", self.engine.address, "--data", str(data or self.engine.settings.data)),
            cwd=self._folder,
            env={**os.environ, "HOLDFAST_TASK_QUEUE": self.engine.queue, "PYTHONPATH": os.pathsep.join(path), **more},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors or asyncio.subprocess.PIPE,
        )


async def _ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout
    async with asyncio.timeout(PATIENCE):
        line = (await process.stdout.readline()).decode()
    assert line.startswith(READY_LINE), line


@asynccontextmanager
async def versioned(
    engine: Engine, deployment: str, build: str, *tools: Tool, current: bool = True
) -> AsyncIterator[Settings]:
    """A worker of a version in this process, that the server knows, and gives new turns to; its settings."""
    other = copy(engine)
    other.settings = replace(engine.settings, deployment=DeploymentSettings(name=deployment, build=build))
    async with other.worker(*tools):
        assert await is_known(engine.client, deployment, build, wait=PATIENCE)
        if current:
            await set_current(engine.client, deployment, build)
        yield other.settings


async def end(worker: WorkerProcess) -> int:
    """Tell it to end, and wait; how it did."""
    os.kill(worker.pid, signal.SIGTERM)
    return await worker.died()


async def versions_in(engine: Engine, id: str, run_id: str | None = None) -> set[str]:
    """The builds that completed workflow tasks of a run."""
    history = engine.client.get_workflow_handle(id, run_id=run_id).fetch_history_events()
    return {
        event.workflow_task_completed_event_attributes.deployment_version.build_id
        async for event in history
        if event.HasField("workflow_task_completed_event_attributes")
    }
