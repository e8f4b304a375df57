"""`holdfast up`: the embedded server and a worker, as child processes that live and die with it (S46).

Either is started again when it dies. A stop ends the worker first, so that running calls are still answered, then the
server; everything durable is in the data folder, and the next `up` goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.workers.address import ServerAddress
from holdfast.workers.children import adopt_orphans, end_orphans, how_it_ended, spawn, stop
from holdfast.workers.commands.codes import USAGE
from holdfast.workers.connecting import environment_address
from holdfast.workers.server import EmbeddedServer
from holdfast.workers.worker import READY, STOP_SECONDS, stop_on_signals

READY_SECONDS = 60.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HEALTHY_SECONDS = 60.0
"""A child that lived this long died by accident; sooner, it may die again, and the pause grows."""
Say = Callable[[str], None]
T = TypeVar("T")


class WorkerProcess:
    """A worker as a child process, on the embedded server of the data folder."""

    def __init__(self, settings: Settings, *, options: tuple[str, ...] = (), log: Path | None = None) -> None:
        self._settings = settings
        self._log = log
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._echo: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process."""
        assert self._process, "the worker was not started"
        return self._process

    async def start(self) -> str:
        """Start it; the line with which it says that it polls."""
        settings = self._settings
        # -P: a file in the current folder, which may be the workspace, is no module of ours.
        command = [sys.executable, "-P", "-m", "holdfast.workers.cli", *_same_file(settings)]
        command += ["worker", "--embedded", *self._options]
        env = {
            **os.environ,
            "HOLDFAST_DATA": str(settings.data),
            "HOLDFAST_WORKSPACE": str(settings.workspace),
            "HOLDFAST_TASK_QUEUE": settings.task_queue,
        }
        # SIGTERM: without us it still stops its calls, so that no command of theirs is left behind.
        with ExitStack() as files:
            log = files.enter_context(self._log.open("ab")) if self._log else None
            self._process = await spawn(
                command, death=signal.SIGTERM, env=env, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        line = ""
        discovering = max((source.timeout_seconds for source in settings.discovery), default=0)
        try:
            async with asyncio.timeout(READY_SECONDS + discovering):
                line = await self._ready_line()
        except TimeoutError:
            pass
        finally:
            if not line.startswith(READY):
                await self.stop()
        if not line:
            raise HoldfastError(f"the worker was not ready: it {how_it_ended(self._process.returncode)}")
        self._echo = asyncio.create_task(self._discard_output())
        return line

    async def stop(self) -> None:
        """End it: running calls get their grace."""
        if self._process:
            await stop(self._process, STOP_SECONDS + 2)

    async def _ready_line(self) -> str:
        """The line that says it polls; empty when it ends before. Modules it imports may print anything."""
        assert self.process.stdout
        while data := await self.process.stdout.readline():
            line = data.decode("utf-8", "replace").strip()
            if line.startswith(READY):
                return line
        return ""

    async def _discard_output(self) -> None:
        """A full pipe would block it."""
        assert self.process.stdout
        while await self.process.stdout.read(65_536):
            pass


def _same_file(settings: Settings) -> list[str]:
    """What we read, a worker reads, and nothing else: a call of its own may have changed the file since."""
    if settings.file is None:
        return ["--no-config"]
    return ["--config", str(settings.file), "--config-digest", settings.file_digest or ""]


async def run_up(
    settings: Settings,
    *,
    port: int | None = None,
    ui_port: int | None = None,
    verbose: bool = False,
    say: Say = print,
    welcome: Callable[[Settings, ServerAddress, int], None],
) -> None:
    """Run until SIGTERM or SIGINT. `welcome` is told where the server is and the worker's process id."""
    stopping = stop_on_signals(2 * STOP_SECONDS)
    adopt_orphans()
    server = EmbeddedServer(settings, port=port, ui_port=ui_port)
    worker = WorkerProcess(settings, options=("--verbose",) if verbose else ())
    try:
        where = await _unless(stopping, server.start())
        ready = await _unless(stopping, worker.start()) if where else None
        if where and ready:
            welcome(settings, where, worker.process.pid)
            await _supervise(server, worker, stopping, say)
            say("Stopping the worker, then the server …")
    finally:
        await worker.stop()
        await end_orphans(known={server.pid})
        await server.stop()
    say("Stopped. The next `holdfast up` goes on from here.")


async def _supervise(server: EmbeddedServer, worker: WorkerProcess, stopping: asyncio.Event, say: Say) -> None:
    """Start again whichever child dies, until we are told to stop."""
    server_pause, worker_pause = _Pause(), _Pause()
    while not stopping.is_set():
        ends = [asyncio.create_task(wait) for wait in (stopping.wait(), server.process.wait(), worker.process.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if server.process.returncode is not None and not stopping.is_set():
            say(f"The server {how_it_ended(server.process.returncode)}; starting it again.")
            await server_pause.take(stopping)
            await _again(server.restart(), stopping, say)
        if worker.process.returncode == USAGE and not stopping.is_set():
            say("No worker starts with these settings; turns wait. Start `holdfast up` again once they are right.")
            await stopping.wait()
        if worker.process.returncode is not None and not stopping.is_set():
            say(f"The worker {how_it_ended(worker.process.returncode)}; starting another.")
            await end_orphans(known={server.pid})
            await worker_pause.take(stopping)
            await _again(worker.start(), stopping, say)


async def _again(starting: Coroutine[Any, Any, ServerAddress | str], stopping: asyncio.Event, say: Say) -> None:
    try:
        found = await _unless(stopping, starting)
    except HoldfastError as error:
        say(f"That did not work: {error}")
    else:
        if found:
            say(found if isinstance(found, str) else f"The server answers again at {found.address}.")


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when we are told to stop before it is there."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return task.result()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return None


class _Pause:
    """Grows while a child keeps dying soon after its start."""

    def __init__(self) -> None:
        self._seconds = FIRST_PAUSE
        self._last = time.monotonic()

    async def take(self, stopping: asyncio.Event) -> None:
        if time.monotonic() - self._last > HEALTHY_SECONDS:
            self._seconds = FIRST_PAUSE
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await stopping.wait()
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE)
        self._last = time.monotonic()


def greeting(settings: Settings, where: ServerAddress, worker: int) -> str:
    """Where everything is, and what to try next."""
    elsewhere = environment_address()
    first = [f"  export HOLDFAST_DATA={shlex.quote(str(settings.data))}"] if settings.data != Settings().data else []
    lines = [
        "Holdfast is up. Ctrl-C stops it; the next `holdfast up` goes on where it stopped.",
        "",
        f"  server     {where.address}  (process {where.pid})",
        f"  web UI     {where.ui}",
        f"  worker     process {worker}, task queue {settings.task_queue!r}",
        f"  workspace  {settings.workspace}",
        f"  data       {settings.data}",
        *([f"  settings   {settings.file}"] if settings.file else []),
        "",
        "Try, in another terminal:",
        "",
        *first,
        """  echo '[{"tool": "shell", "arguments": {"command": "date"}}]' | holdfast turn start --calls - --id hello""",
        "  holdfast inbox",
        "  holdfast approve hello/b1c1/1",
        "  holdfast turn show hello",
    ]
    if elsewhere:
        lines += ["", f"Temporal's configuration names {elsewhere}: commands in that environment go there, not here."]
    return "\n".join(lines)
