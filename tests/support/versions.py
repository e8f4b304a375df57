"""Workers of several versions of the code at once: real processes, each with a copy of the package of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import IO
from uuid import uuid4

from temporalio.api.enums.v1 import RoutingConfigUpdateState
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest
from temporalio.service import RPCError

from holdfast import Settings, Tool
from holdfast.config.sections import DeploymentSettings
from holdfast.testing import wait_until
from holdfast.util.installed_programs import find_program
from holdfast.workers.runtime.worker import READY_LINE
from holdfast.workers.versions.deployments import Version, build_version_query, fetch_deployment, is_known
from tests.support.engine import Engine
from tests.support.processes import ROOT, WorkerProcess

PATIENCE = 60.0
OTHER_STEPS = (
    ("workflows/turn.py", "        state, step = self._state, None\n", "        await workflow.sleep(0.001)\n"),
    ("workflows/session.py", "        state, input = self._state, ", "        await workflow.sleep(0.001)\n"),
)
"""Where code takes a step that ours does not: a timer, before anything else. None can replay what the other did."""
PATCHED = (
    ("workflows/batch_runner.py", "        validation = self._start_validation()\n        self._state.apply_limits()\n",
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


async def run_temporal(address: str, *words: str) -> tuple[int, str]:
    """How `temporal WORDS` ends, and what it says."""
    program = find_program("temporal")
    assert program
    process = await asyncio.create_subprocess_exec(
        *(program, *words, "--address", address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def make_current(engine: Engine, deployment: str, build: str, *options: str) -> None:
    """What docs/how-to/upgrading.md says, until the server takes it, and every part of the server knows."""
    words = ("worker", "deployment", "set-current-version", "--deployment-name", deployment, "--build-id", build)

    async def taken() -> bool:
        return (await run_temporal(engine.address, *words, *options, "--yes"))[0] == 0

    await wait_until(taken, seconds=PATIENCE)

    async def spread() -> bool:
        request = DescribeWorkerDeploymentRequest(namespace=engine.client.namespace, deployment_name=deployment)
        try:
            found = (await engine.client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
        except RPCError:  # busy with the same deployment
            return False
        state = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
        return found.routing_config_update_state != state

    await wait_until(spread, seconds=PATIENCE)


async def wake_sessions(engine: Engine, deployment: str, build: str) -> None:
    """Send them to the current version, as docs/how-to/upgrading.md says."""
    query = f'{build_version_query(deployment, build)} AND WorkflowType = "holdfast.session"'
    words = ("workflow", "signal", "--name", "move", "--reason", "test", "--yes", "--query", query)
    code, said = await run_temporal(engine.address, *words)
    assert code == 0, said


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

    async def make_current(self, build: str) -> None:
        """Let new turns begin on it."""
        await make_current(self.engine, self.name, build)

    async def move(self, id: str, build: str) -> None:
        """Have a turn go on with it, as docs/how-to/upgrading.md says."""
        override = ("--versioning-override-deployment-name", self.name, "--versioning-override-build-id", build)
        words = ("workflow", "update-options", "--workflow-id", id, "--versioning-override-behavior", "one_time")
        code, said = await run_temporal(self.engine.address, *words, *override)
        assert code == 0, said

    async def version(self, build: str) -> Version:
        """How one of them stands."""
        found = (await fetch_deployment(self.engine.client, self.name, self.engine.queue)).find_version(build)
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
            await make_current(engine, deployment, build)
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
