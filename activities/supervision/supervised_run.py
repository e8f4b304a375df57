"""A run, for the worker: its state, the output of its command, how it ended, and stopping it.

Any number of workers may read one run at a time. Whoever reads or waits also renews the lease.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from holdfast.activities.process.command import kill_tree
from holdfast.activities.process.proc import read_start_time
from holdfast.activities.supervision.launch import reap_ended
from holdfast.activities.supervision.run_protocol import (
    CHAIN_FILE,
    LEASE_FILE,
    OUTPUT_FILE,
    RUN_FILE,
    STATUS_FILE,
    is_held,
    read_file,
)
from holdfast.domain.base import Data

EndReason = Literal["exited", "stopped", "timed_out", "abandoned", "not_started", "lost"]
"""`abandoned`: no worker attended in time. `not_started`: nothing ran. `lost`: the supervisor was killed, so it is
unknown how far the command got."""
RunState = Literal["absent", "starting", "running", "ended"]
"""`absent`: no trace, so it has not begun. `starting`: a supervisor has the lock and nothing has begun."""


class CommandOwner(Data):
    """The owner of a background command: what it ends with, and who may read and stop it."""

    namespace: str
    queue: str
    """The task queue of the host that it runs on."""
    family: str
    """The session, or a turn without one, whose calls may read and stop it."""
    workflow: str = ""
    """The session or turn that it ends with; empty when it outlives both."""


class RunRecord(Data):
    """The content of run.json: who supervises what."""

    key: str = ""
    digest: str = ""
    supervisor: int = 0
    born: int = 0
    """The start time of the supervisor, which tells it from a later process with the same id."""
    command: int = 0
    started: float = 0.0
    owner: CommandOwner | None = None
    """The owner of a background command; None for any other."""


class RunEnd(Data):
    """The content of status.json: how a run ended."""

    why: EndReason
    code: int | None = None
    """Exit code, negative for a signal."""
    started: float | None = None
    ended: float | None = None
    bytes: int = 0
    """Bytes of output."""
    stored: int = 0
    """Bytes of output on disk, from the beginning."""
    error: str = ""
    """The error in starting or ending the command, or in keeping its output."""
    directory: str = ""
    """The final folder of its shell, if that was reported."""


class RunStatus(NamedTuple):
    """A run at one moment."""

    state: RunState
    run: RunRecord = RunRecord()
    ended: RunEnd | None = None


def read_status(folder: Path) -> RunStatus:
    """The state of the run in this folder. The lock is read first: without a holder, no file changes any more."""
    living = is_held(str(folder))
    status, run = read_file(str(folder), STATUS_FILE), read_file(str(folder), RUN_FILE)
    traced = _parse_record(run)
    if status is not None:
        return RunStatus("ended", traced, _parse_end(status, traced))
    if living:
        return RunStatus("running" if run is not None else "starting", traced)
    if run is None:
        return RunStatus("absent")
    gone = "its supervisor has ended without recording how the command ended"
    return RunStatus("ended", traced, RunEnd(why="lost", started=traced.started, error=gone))


def _parse_record(run: dict[str, object] | None) -> RunRecord:
    try:
        return RunRecord.model_validate(run or {})
    except ValidationError:
        return RunRecord()


def _parse_end(status: dict[str, object], run: RunRecord) -> RunEnd:
    try:
        return RunEnd.model_validate(status)
    except ValidationError:
        return RunEnd(why="lost", started=run.started, error="the record of how the command ended cannot be read")


CHUNK_SIZE = 65_536
READ_SECONDS = 0.1
"""The interval for reading new output."""
ATTEND_SECONDS = 0.5
BLIND_SECONDS = 0.02
"""The interval for testing the end when there is no process descriptor to wait for."""
STOP_SECONDS = 15.0
"""The time for a supervisor to stop its command before it is killed. More than its own limits."""
NO_GROUP = -1


class SupervisedRun:
    """One run, by its folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._attended = 0.0
        self._run: RunRecord | None = None

    @property
    def status(self) -> RunStatus:
        """The present state, read from the folder."""
        return read_status(self._folder)

    @property
    def record(self) -> RunRecord:
        """Who supervises what; cached, since it does not change."""
        if self._run is None:
            now = self.status
            if now.state not in ("running", "ended"):
                return now.run
            self._run = now.run
        return self._run

    @property
    def is_alive(self) -> bool:
        """Does a supervisor hold the lock: does the command run, or is about to?"""
        return is_held(str(self._folder))

    async def stream_output(self, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield the output from this byte on, as it comes, until the command has ended and all of it was read."""
        while True:
            living = self.is_alive  # before reading, so that the last output is read as well
            while data := self.read(offset):
                offset += len(data)
                yield data
                await asyncio.sleep(0)
            if not living:
                return
            self.renew_lease()
            await self._wait_for_supervisor(READ_SECONDS)

    async def wait_for_end(self) -> RunEnd:
        """Wait for the end. When the run is lost, what is left of its process tree is killed."""
        while self.is_alive:
            self.renew_lease()
            await self._wait_for_supervisor(ATTEND_SECONDS)
        reap_ended()
        ended = self.status.ended or RunEnd(why="lost", error="the folder of the run is gone")
        if ended.why == "lost":
            await self.clean_up()
        return ended

    async def stop(self) -> RunEnd:
        """End the process tree by way of the supervisor; how the command ended. One that ended before keeps its end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + STOP_SECONDS
            while self.is_alive and time.monotonic() < deadline:
                self._send_signal(number)
                await self._wait_for_supervisor(ATTEND_SECONDS)
        if self.is_alive:
            return RunEnd(why="lost", error="its supervisor cannot be reached from here, and may still run")
        return await self.wait_for_end()

    async def clean_up(self) -> None:
        """Kill what a killed supervisor left behind: the children of its command."""
        await kill_tree(NO_GROUP, self._key)

    def read(self, offset: int, limit: int = CHUNK_SIZE) -> bytes:
        """The output from this byte on, up to a limit; empty when there is none yet."""
        if offset > self.size:
            return b""  # some file systems refuse to seek there
        try:
            with (self._folder / OUTPUT_FILE).open("rb", buffering=0) as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    @property
    def size(self) -> int:
        """Bytes of output on disk so far."""
        with suppress(FileNotFoundError):
            return (self._folder / OUTPUT_FILE).stat().st_size
        return 0

    def is_of_chain(self, first_run: str) -> bool:
        """Is this the workflow chain that owns the command? The first one that asks is recorded as its owner."""
        place = self._folder / CHAIN_FILE
        with suppress(FileExistsError), place.open("x") as file:
            file.write(first_run)
        return place.read_text() in (first_run, "")

    def renew_lease(self) -> None:
        """Touch the lease, unless that was done a moment ago."""
        if time.monotonic() - self._attended >= ATTEND_SECONDS / 2:
            self._attended = time.monotonic()
            with suppress(OSError):
                os.utime(self._folder / LEASE_FILE)

    def _send_signal(self, number: signal.Signals) -> None:
        supervisor = self._find_supervisor()
        if supervisor is not None:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(supervisor, number)
            os.close(supervisor)

    def _find_supervisor(self) -> int | None:
        """A process descriptor of the supervisor; None when it is gone, also if its id was reused."""
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
        """Wait for the end of the supervisor, or this long."""
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
