"""Services as child processes: started, watched and restarted.

One step at a time, because whoever ends the leftovers of a dead child must know all the living ones. But no child waits
for the pause of another: a gateway that keeps dying delays no worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.util.process_secrets import hand_over_environment
from holdfast.workers.exit_codes import USAGE
from holdfast.workers.runtime.child_processes import describe_exit, start_child, stop_child


class Service:
    """A `holdfast` command as a child process, on the embedded server of the data folder."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        ready: str,
        ready_seconds: float,
        stop_seconds: float,
        log: Path | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._ready = ready
        self._ready_seconds = ready_seconds
        self._stop_seconds = stop_seconds
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._echo: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Its process. Only after `start`."""
        assert self._process, f"the {self.name} was not started"
        return self._process

    @property
    def pid(self) -> int:
        """Its process id; 0 before it was started."""
        return self._process.pid if self._process else 0

    def build_arguments(self) -> list[str]:
        """Build the command and its options."""
        return [self.name, "--embedded"]

    async def start(self) -> str:
        """Start it and return the line that says it is ready. HoldfastError when it is not ready in time."""
        settings = self._settings
        # -P: a file in the current folder, which may be the workspace, must not be imported as a module of ours.
        command = [
            sys.executable,
            "-P",
            "-m",
            "holdfast.workers.cli",
            *_build_config_options(settings),
            *self.build_arguments(),
        ]
        env = {
            **os.environ,
            "HOLDFAST_DATA": str(settings.data),
            "HOLDFAST_WORKSPACE": str(settings.workspace),
            "HOLDFAST_TASK_QUEUE": settings.task_queue,
        }
        # When we die it gets SIGTERM, so that it still stops its calls and leaves no command behind.
        with ExitStack() as files:
            log = files.enter_context(self._log.open("ab")) if self._log else None
            shown, rest = hand_over_environment(env)
            self._process = await start_child(
                command,
                death=signal.SIGTERM,
                env=shown,
                stdin=files.enter_context(rest).fileno(),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        line = ""
        try:
            async with asyncio.timeout(self._ready_seconds):
                line = await self._read_ready_line()
        except TimeoutError:
            pass
        finally:
            if not line.startswith(self._ready):
                await self.stop()
        if not line:
            raise HoldfastError(f"the {self.name} was not ready: it {describe_exit(self._process.returncode)}")
        self._echo = asyncio.create_task(self._discard_output())
        return line

    async def stop(self) -> None:
        """Stop it; what it is doing gets its grace."""
        if self._process:
            await stop_child(self._process, self._stop_seconds)

    async def _read_ready_line(self) -> str:
        """The line that says it is ready; empty when it ends before. Imported modules may print anything."""
        assert self.process.stdout
        while data := await self.process.stdout.readline():
            line = data.decode("utf-8", "replace").strip()
            if line.startswith(self._ready):
                return line
        return ""

    async def _discard_output(self) -> None:
        """Read its output for ever: a full pipe would block it."""
        assert self.process.stdout
        while await self.process.stdout.read(65_536):
            pass


def _build_config_options(settings: Settings) -> list[str]:
    """The same settings as ours: a child refuses a settings file that has changed since."""
    if settings.file is None:
        return ["--no-config"]
    return ["--config", str(settings.file), "--config-digest", settings.file_digest or ""]


FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
HEALTHY_SECONDS = 60.0
"""A child that ran this long restarts without a pause; else the pause doubles."""
Say = Callable[[str], None]
T = TypeVar("T")


class RestartingChild:
    """A child process that is restarted when it dies."""

    def __init__(
        self,
        name: str,
        process: Callable[[], asyncio.subprocess.Process],
        start: Callable[[], Coroutine[Any, Any, str]],
        *,
        restart_text: str = "starting another",
        give_up_text: str = "",
        clean_up: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`start` returns what to say after a restart; `clean_up` ends what a dead process left behind.

        With a `give_up_text`, a child that exits because of its settings is not restarted, and the text is printed.
        """
        self._name = name
        self._process = process
        self._start = start
        self._restart_text = restart_text
        self._give_up_text = give_up_text
        self._clean_up = clean_up
        self._pause = FIRST_PAUSE
        self._last = time.monotonic()
        self._given_up = False
        self.due: float | None = None
        """When it is to be restarted."""

    @property
    def living_process(self) -> asyncio.subprocess.Process | None:
        """Its process, while it runs."""
        process = self._process()
        return process if process.returncode is None else None

    @property
    def has_fallen(self) -> bool:
        """Whether it has died and that has not been handled."""
        return not self.living_process and self.due is None and not self._given_up

    async def look_after(self, stopping: asyncio.Event, say: Say) -> None:
        """Report its death; restart it when its pause is over."""
        if self.has_fallen:
            await self._report_death(say)
        if self.due is not None and time.monotonic() >= self.due:
            self.due = None
            await self._restart_child(stopping, say)

    async def _report_death(self, say: Say) -> None:
        code = self._process().returncode
        if self._give_up_text and code == USAGE:
            self._given_up = True
            say(self._give_up_text)
            return
        say(f"The {self._name} {describe_exit(code)}; {self._restart_text}.")
        if self._clean_up:
            await self._clean_up()
        now = time.monotonic()
        self._pause = FIRST_PAUSE if now - self._last > HEALTHY_SECONDS else self._pause
        self.due = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._last = self.due

    async def _restart_child(self, stopping: asyncio.Event, say: Say) -> None:
        try:
            found = await run_unless_stopping(stopping, self._start())
        except HoldfastError as error:
            say(f"Restarting failed: {error}")
        else:
            if found:
                say(found)


async def supervise_children(children: Sequence[RestartingChild], stopping: asyncio.Event, say: Say) -> None:
    """Keep the children alive until `stopping` is set."""
    while not stopping.is_set():
        await _wait_for_event(children, stopping)
        for child in children:
            if not stopping.is_set():
                await child.look_after(stopping, say)


async def _wait_for_event(children: Sequence[RestartingChild], stopping: asyncio.Event) -> None:
    """Return when a child dies or is due, or when `stopping` is set."""
    if any(child.has_fallen for child in children):
        return
    waits = [stopping.wait(), *(process.wait() for child in children if (process := child.living_process))]
    due = [child.due for child in children if child.due is not None]
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(wait) for wait in waits]
    patience = max(0.0, min(due) - time.monotonic()) if due else None
    await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def run_unless_stopping(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`, or None when `stopping` is set first; `work` is then cancelled."""
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
