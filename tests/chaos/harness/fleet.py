"""The workers: as many as there are slots, and whichever dies is started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.workers.runtime import tether
from holdfast.workers.runtime.child_processes import stop_child
from tests.chaos.harness.attempts import Attempts
from tests.chaos.harness.worker import Orders

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 60.0
PAUSE_SECONDS = 0.3
"""Before a worker is started that ended by itself: the server may be away."""
TERM_SECONDS = 30.0
"""How long a worker may take that was told to end."""


class HarnessBroken(Exception):
    """The harness itself did not do its work: nothing was proven."""


class Fleet:
    """All workers, by their slots."""

    def __init__(self, orders: Sequence[Orders], attempts: Attempts, log: Path) -> None:
        self._orders = tuple(orders)
        self._attempts = attempts
        self._log = log
        self._nursery: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._restarts: set[asyncio.Task[None]] = set()
        self._slots: dict[int, int] = {}
        """The slot of every living worker, by its process id."""
        self._ended: dict[int, asyncio.Event] = {}
        self._expected: set[int] = set()
        self._open = True
        self.by_themselves = 0
        """Workers that ended though nobody had killed them or told them to."""
        self.broken = False
        """Is the nursery dead? Then nothing goes on."""

    @property
    def pids(self) -> list[int]:
        """The living workers."""
        return sorted(self._slots, key=self._slots.__getitem__)

    @property
    def nursery(self) -> int:
        """The process that all of them are children of."""
        return self._nursery.pid if self._nursery else 0

    async def start(self) -> None:
        """Start the nursery and everybody."""
        with self._log.open("ab") as log:
            tied = [sys.executable, "-S", str(tether.__file__), str(os.getpid()), str(int(signal.SIGKILL))]
            self._nursery = await asyncio.create_subprocess_exec(
                *(*tied, sys.executable, "-m", "tests.chaos.harness.nursery"),
                env={**os.environ, "PYTHONPATH": import_path(), "PYTHONUNBUFFERED": "1"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._nursery.stdout
        async with asyncio.timeout(READY_SECONDS):
            if not await self._nursery.stdout.readline():
                raise HarnessBroken(f"the nursery did not start: see {self._log}")
        self._reading = asyncio.create_task(self._read(self._nursery.stdout))
        for orders in self._orders:
            self._tell(orders)
        await self._until(lambda: len(self._slots) == len(self._orders))

    async def stop(self) -> None:
        """End everybody, the gentle way first: whoever lives longer than that is killed."""
        self._open = False
        for task in self._restarts:
            task.cancel()
        ending = [self.terminate(pid) for pid in self.pids]
        await asyncio.gather(*ending)

    async def close(self) -> None:
        """End the nursery, and with it whoever is left. Also when something went wrong before."""
        self._open = False
        for task in [*self._restarts, *([self._reading] if self._reading else [])]:
            task.cancel()
        if self._nursery:
            with suppress(ProcessLookupError):
                self._nursery.kill()
            await stop_child(self._nursery, 5)

    def slot_of(self, pid: int) -> int:
        """Its slot."""
        return self._slots[pid]

    def host_of(self, pid: int) -> str:
        """Where it runs."""
        return self._orders[self._slots[pid]].host

    async def kill(self, pid: int) -> bool:
        """SIGKILL, and wait until it is gone; False when it was."""
        if pid not in self._slots:
            return False
        gone = self._ended[pid]
        self._expected.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await gone.wait()
        return True

    async def terminate(self, pid: int) -> bool:
        """SIGTERM, and wait until it is gone; False when it had to be killed."""
        if pid not in self._slots:
            return True
        gone = self._ended[pid]
        self._expected.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(TERM_SECONDS):
                await gone.wait()
        except TimeoutError:
            await self.kill(pid)
            return False
        return True

    async def _read(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            said = json.loads(line)
            if "slot" in said:
                self._slots[said["pid"]] = said["slot"]
                self._ended[said["pid"]] = asyncio.Event()
            else:
                self._gone(said["pid"], said["status"])
        self.broken = self._open

    def _gone(self, pid: int, status: int) -> None:
        slot = self._slots.pop(pid)
        self._ended.pop(pid).set()
        self._attempts.forget(pid)
        killed = status == -signal.SIGKILL
        self.by_themselves += not killed and pid not in self._expected
        if self._open:
            task = asyncio.create_task(self._again(slot, 0.0 if killed else PAUSE_SECONDS))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)

    async def _again(self, slot: int, pause: float) -> None:
        await asyncio.sleep(pause)
        self._tell(self._orders[slot])

    def _tell(self, orders: Orders) -> None:
        assert self._nursery
        assert self._nursery.stdin
        self._nursery.stdin.write(orders.model_dump_json().encode() + b"\n")

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(READY_SECONDS):
            while not condition():  # noqa: ASYNC110 - bounded, and over at once
                await asyncio.sleep(0.01)


def import_path() -> str:
    """Where a process of the harness finds its modules."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
