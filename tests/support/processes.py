"""Real processes for tests: started, waited for, killed with SIGKILL, never left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from holdfast.workers.runtime.worker import READY_LINE
from tests.support.engine import Engine

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def died(self) -> int:
        """Wait until it ends by itself; how it did."""
        async with asyncio.timeout(30):
            return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def worker_process(engine: Engine) -> AsyncIterator[WorkerProcess]:
    """A worker with the tools of `tests.chaos.worker_process`, polling."""
    folders = (str(engine.settings.data), str(engine.workspace))
    async with _polling("tests.chaos.worker_process", engine.address, engine.queue, *folders) as worker:
        yield worker


@asynccontextmanager
async def command_line_worker(
    engine: Engine, file: Path, *, module: str = "holdfast.workers.cli"
) -> AsyncIterator[WorkerProcess]:
    """`holdfast worker` with a settings file, polling."""
    folders = ("--data", str(engine.settings.data), "--workspace", str(engine.workspace))
    command = ("--config", str(file), "worker", "--address", engine.address, *folders)
    async with _polling(module, *command, HOLDFAST_TASK_QUEUE=engine.queue) as worker:
        yield worker


@asynccontextmanager
async def hurried_worker(engine: Engine, file: Path) -> AsyncIterator[WorkerProcess]:
    """The same, with its death noticed in two seconds."""
    async with command_line_worker(engine, file, module="tests.support.hurried") as worker:
        yield worker


@asynccontextmanager
async def _polling(module: str, *arguments: str, **environment: str) -> AsyncIterator[WorkerProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    worker = WorkerProcess(process)
    try:
        assert process.stdout
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        assert line.decode().startswith(READY_LINE), line
        yield worker
    finally:
        await worker.kill()
