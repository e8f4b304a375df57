"""Commands of ours as child processes: each says by a line that it is ready, and is stopped with its grace."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.process_secrets import hand_over_environment
from holdfast.settings import Settings
from holdfast.workers.children import describe_exit, start_child, stop_child


class Service:
    """A command of ours as a child process, on the embedded server of the data folder."""

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
        """The process."""
        assert self._process, f"the {self.name} was not started"
        return self._process

    @property
    def pid(self) -> int:
        """Its process id; 0 before it was started."""
        return self._process.pid if self._process else 0

    def build_arguments(self) -> list[str]:
        """The command and its options."""
        return [self.name, "--embedded"]

    async def start(self) -> str:
        """Start it; the line with which it says that it is ready."""
        settings = self._settings
        # -P: a file in the current folder, which may be the workspace, is no module of ours.
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
        # SIGTERM: without us it still stops its calls, so that no command of theirs is left behind.
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
        """End it: what it is doing gets its grace."""
        if self._process:
            await stop_child(self._process, self._stop_seconds)

    async def _read_ready_line(self) -> str:
        """The line that says it is ready; empty when it ends before. Modules it imports may print anything."""
        assert self.process.stdout
        while data := await self.process.stdout.readline():
            line = data.decode("utf-8", "replace").strip()
            if line.startswith(self._ready):
                return line
        return ""

    async def _discard_output(self) -> None:
        """A full pipe would block it."""
        assert self.process.stdout
        while await self.process.stdout.read(65_536):
            pass


def _build_config_options(settings: Settings) -> list[str]:
    """What we read, a child reads, and nothing else: a call of its own may have changed the file since."""
    if settings.file is None:
        return ["--no-config"]
    return ["--config", str(settings.file), "--config-digest", settings.file_digest or ""]
