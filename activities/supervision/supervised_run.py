"""A run as its worker sees it: what the command says, how it ends, and how it is stopped.

Any number of workers may look at one run at a time. Whoever reads or waits also attends: the lease goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from holdfast.activities.process.command import kill_tree
from holdfast.activities.process.proc import read_start_time
from holdfast.activities.supervision import run_folder as files
from holdfast.activities.supervision.launch import reap_ended
from holdfast.activities.supervision.run_status import RunEnd, RunRecord, RunStatus, read_status

CHUNK_SIZE = 65_536
READ_SECONDS = 0.1
"""How often new output is looked for."""
ATTEND_SECONDS = 0.5
BLIND_SECONDS = 0.02
"""How often the end is looked for where the kernel does not tell us."""
STOP_SECONDS = 15.0
"""How long a supervisor may take to stop its command before it is killed itself. More than its own limits."""
NO_GROUP = -1


class SupervisedRun:
    """One run, found in its folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._attended = 0.0
        self._run: RunRecord | None = None

    @property
    def status(self) -> RunStatus:
        """How it stands."""
        return read_status(self._folder)

    @property
    def record(self) -> RunRecord:
        """Who supervises what. It does not change once it is known."""
        if self._run is None:
            now = self.status
            if now.state not in ("running", "ended"):
                return now.run
            self._run = now.run
        return self._run

    @property
    def is_alive(self) -> bool:
        """Does it run, or is it about to?"""
        return files.is_held(str(self._folder))

    async def stream_output(self, offset: int = 0) -> AsyncIterator[bytes]:
        """What the command says, from this byte on and as it comes, until it has ended and all of it was read."""
        while True:
            living = self.is_alive  # looked at first: what it said last is read all the same
            while data := self.read(offset):
                offset += len(data)
                yield data
                await asyncio.sleep(0)
            if not living:
                return
            self.renew_lease()
            await self._wait_for_supervisor(READ_SECONDS)

    async def wait_for_end(self) -> RunEnd:
        """How it ended, once it has. When nobody can know, nothing of it is left either."""
        while self.is_alive:
            self.renew_lease()
            await self._wait_for_supervisor(ATTEND_SECONDS)
        reap_ended()
        ended = self.status.ended or RunEnd(why="lost", error="the folder of the run is gone")
        if ended.why == "lost":
            await self.clean_up()
        return ended

    async def stop(self) -> RunEnd:
        """End the whole tree: asked first, then killed. A command that had ended by then keeps its end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + STOP_SECONDS
            while self.is_alive and time.monotonic() < deadline:
                self._send_signal(number)
                await self._wait_for_supervisor(ATTEND_SECONDS)
        if self.is_alive:
            return RunEnd(why="lost", error="its supervisor cannot be reached from here, and may still run")
        return await self.wait_for_end()

    async def clean_up(self) -> None:
        """End what a supervisor that was killed left behind. Its command went with it; that one's children did not."""
        await kill_tree(NO_GROUP, self._key)

    def read(self, offset: int, limit: int = CHUNK_SIZE) -> bytes:
        """What it has said from this byte on, as far as it is there."""
        if offset > self.size:
            return b""  # a file system may refuse to go there
        try:
            with (self._folder / files.OUTPUT_FILE).open("rb", buffering=0) as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    @property
    def size(self) -> int:
        """Bytes of output that are kept so far."""
        with suppress(FileNotFoundError):
            return (self._folder / files.OUTPUT_FILE).stat().st_size
        return 0

    def is_of_chain(self, first_run: str) -> bool:
        """Is this the first run of the workflow that owns it? The first that is asked about is taken for that."""
        place = self._folder / files.CHAIN_FILE
        with suppress(FileExistsError), place.open("x") as file:
            file.write(first_run)
        return place.read_text() in (first_run, "")

    def renew_lease(self) -> None:
        """Let the lease go on."""
        if time.monotonic() - self._attended >= ATTEND_SECONDS / 2:
            self._attended = time.monotonic()
            with suppress(OSError):
                os.utime(self._folder / files.LEASE_FILE)

    def _send_signal(self, number: signal.Signals) -> None:
        supervisor = self._find_supervisor()
        if supervisor is not None:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(supervisor, number)
            os.close(supervisor)

    def _find_supervisor(self) -> int | None:
        """The supervisor's process itself, not whoever has its number by now."""
        run = self.record
        try:
            supervisor = os.pidfd_open(run.supervisor)
        except (OSError, ValueError):
            return None
        if read_start_time(run.supervisor) == run.born:
            return supervisor
        os.close(supervisor)
        return None

    async def _wait_for_supervisor(self, seconds: float) -> None:
        """Wait so long, or until the supervisor ends."""
        supervisor = self._find_supervisor()
        if supervisor is None:
            await asyncio.sleep(min(seconds, BLIND_SECONDS))
            return
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.add_reader(supervisor, over.set)
        try:
            async with asyncio.timeout(seconds):
                await over.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(supervisor)
            os.close(supervisor)
