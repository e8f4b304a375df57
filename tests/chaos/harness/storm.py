"""What befalls the workers, the server, the network and the disk while calls run, one thing after the other.

What comes next is dealt from a deck, after each has happened once, so that a short run has of everything too. Deaths at
named points are not here: workers see to those themselves.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum

from holdfast.activities.process.proc import is_supervisor
from holdfast.workers.embedded.temporal_server import EmbeddedServer
from tests.chaos.harness.attempts import Attempts
from tests.chaos.harness.cleaning import descendants, is_local, kill_if
from tests.chaos.harness.deaths import Death, Deaths
from tests.chaos.harness.disk import HOSTS, LedgerDisk
from tests.chaos.harness.fleet import Fleet
from tests.chaos.harness.proxy import Proxy
from tests.chaos.harness.services.remote import Remote
from tests.chaos.harness.tools import HEARTBEAT_SECONDS
from tests.chaos.starvation import busy_machine

PAUSE = (0.2, 0.9)
"""Seconds between two blows."""
SHORT = (0.2, 1.5)
"""Seconds that a line is cut or a disk is full."""
LONG = (HEARTBEAT_SECONDS + 0.5, HEARTBEAT_SECONDS + 2.5)
"""Long enough for the calls beyond the line to count as lost, though their worker lives."""

FROZEN = (1.0, 1.0, 2.0, 3.0, 5.0, 30.0)
"""Seconds that a process is stopped (SIGSTOP), as a laptop or a container is."""
STARVED = (3.0, 8.0)

LOOK_SECONDS = 2.0
"""How long a command is looked for that runs."""


class Blow(StrEnum):
    """What can happen."""

    WORKER = "worker killed"
    SERVER = "server killed"
    SUPERVISOR = "supervisor of a command killed"
    TERM = "worker told to end"
    CUT = "network cut"
    SILENCE = "network silent"
    FULL = "disk full"
    MCP = "MCP server killed"
    FREEZE = "worker stopped for a while"
    FREEZE_SERVER = "server stopped for a while"
    STARVE = "worker starved of processor time"


DECK = [*list(Blow), *[Blow.WORKER] * 9, Blow.TERM, Blow.CUT, Blow.MCP]


class Storm:
    """Blows, until it is told to stop. Then everything is mended."""

    def __init__(
        self,
        seed: int,
        *,
        fleet: Fleet,
        server: EmbeddedServer,
        proxies: list[Proxy],
        disk: LedgerDisk,
        deaths: Deaths,
        attempts: Attempts,
        remote: Remote,
    ) -> None:
        self._chance = random.Random(seed)
        self._fleet = fleet
        self._server = server
        self._proxies = proxies
        self._disk = disk
        self._deaths = deaths
        self._attempts = attempts
        self._remote = remote
        self._left = self._chance.sample(list(Blow), len(Blow))
        self._aside: set[asyncio.Task[None]] = set()
        self.counts: Counter[Blow] = Counter()
        self.stubborn = 0
        """Workers that did not end when told to, and had to be killed."""

    async def rage(self, due: Callable[[], bool], enough: Callable[[], bool]) -> None:
        """Blow after blow, each when it is due, until it is enough."""
        blows: dict[Blow, Callable[[], Awaitable[None]]] = {
            Blow.WORKER: self._kill_worker,
            Blow.SERVER: self._kill_server,
            Blow.SUPERVISOR: self._kill_supervisor,
            Blow.TERM: self._end_worker,
            Blow.CUT: self._cut,
            Blow.SILENCE: self._silence,
            Blow.FULL: self._fill,
            Blow.MCP: self._kill_mcp,
            Blow.FREEZE: self._freeze_worker,
            Blow.FREEZE_SERVER: self._freeze_server,
            Blow.STARVE: self._starve_worker,
        }
        while not enough():
            await asyncio.sleep(self._chance.uniform(*PAUSE))
            if due():
                await blows[self._next()]()
        await asyncio.gather(*self._aside)

    @property
    def missing(self) -> list[Blow]:
        """What has not happened yet, kills aside: those are counted elsewhere."""
        return [blow for blow in Blow if blow not in (Blow.WORKER, Blow.SERVER) and not self.counts[blow]]

    def _next(self) -> Blow:
        if not self._left:
            deck = self.missing or DECK
            self._left = self._chance.sample(deck, len(deck))
        return self._left.pop()

    async def _kill_worker(self) -> None:
        if (pid := self._busy()) is not None:
            await self._kill(pid)

    async def _kill(self, pid: int) -> None:
        death = Death(whom="worker", pid=pid, running=self._attempts.of_worker(pid))
        if await self._fleet.kill(pid):
            self._deaths.note(death)

    async def _kill_server(self) -> None:
        process = self._server.process
        self._deaths.note(Death(whom="server", pid=process.pid, running=self._attempts.running()))
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.sleep(self._chance.uniform(0, 1))
        await self._server.restart()

    async def _kill_supervisor(self) -> None:
        """Nobody knows then what became of its command, which ends with it."""
        deadline = time.monotonic() + LOOK_SECONDS
        while not (found := [*filter(is_supervisor, descendants())]) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await asyncio.sleep(self._chance.uniform(0, 0.5))
        self.counts[Blow.SUPERVISOR] += bool(found) and kill_if(found[0], is_supervisor)

    async def _kill_mcp(self) -> None:
        """The one that all reach, or one that a worker started; rather one that is at work."""
        servers = [self._remote.pid, *filter(is_local, descendants())]
        busy = [pid for pid in servers if pid in self._attempts.of_servers()]
        pid = self._chance.choice(busy or servers)
        self.counts[Blow.MCP] += 1
        if pid == self._remote.pid:
            self._set_aside(self._remote.kill())
        else:
            kill_if(pid, is_local)

    async def _end_worker(self) -> None:
        if (pid := self._busy()) is None:
            return
        self.counts[Blow.TERM] += 1
        self._set_aside(self._wait_for_end(pid))

    async def _wait_for_end(self, pid: int) -> None:
        self.stubborn += not await self._fleet.terminate(pid)

    async def _cut(self) -> None:
        proxy = self._line()
        proxy.cut()
        self.counts[Blow.CUT] += 1
        self._set_aside(self._mend_later(proxy))

    async def _silence(self) -> None:
        proxy = self._line()
        proxy.silence()
        self.counts[Blow.SILENCE] += 1
        self._set_aside(self._mend_later(proxy))

    async def _mend_later(self, proxy: Proxy) -> None:
        try:
            await asyncio.sleep(self._chance.uniform(*self._chance.choice((SHORT, LONG))))
        finally:
            proxy.mend()

    async def _freeze_worker(self) -> None:
        if (pid := self._busy()) is not None:
            self.counts[Blow.FREEZE] += 1
            self._set_aside(self._freeze(pid))

    async def _freeze_server(self) -> None:
        self.counts[Blow.FREEZE_SERVER] += 1
        await self._freeze(self._server.process.pid)

    async def _freeze(self, pid: int) -> None:
        """Stop a process and let it go on. It may be killed meanwhile, and then there is nothing to let go on."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(self._chance.choice(FROZEN))
            finally:
                os.kill(pid, signal.SIGCONT)

    async def _starve_worker(self) -> None:
        if (pid := self._busy()) is not None:
            self.counts[Blow.STARVE] += 1
            with suppress(FileNotFoundError, ProcessLookupError), busy_machine(pid):
                await asyncio.sleep(self._chance.uniform(*STARVED))

    async def _fill(self) -> None:
        """Every other time a whole host dies meanwhile: its workers open their ledger on a disk that is full."""
        self.counts[Blow.FULL] += 1
        try:
            await asyncio.to_thread(self._disk.fill)
            if self._chance.random() < 0.5:
                host = self._chance.choice(HOSTS)
                pids = [pid for pid in self._fleet.pids if self._fleet.host_of(pid) == host]
                await asyncio.gather(*map(self._kill, pids))
            await asyncio.sleep(self._chance.uniform(*SHORT))
        finally:
            self._disk.free()

    def _busy(self) -> int | None:
        """A worker, mostly one that runs something."""
        pids = self._fleet.pids
        busy = [pid for pid in pids if self._attempts.of_worker(pid)]
        among = busy if busy and self._chance.random() < 0.9 else pids
        return self._chance.choice(among) if among else None

    def _line(self) -> Proxy:
        busy = self._busy()
        return self._proxies[self._fleet.slot_of(busy)] if busy else self._chance.choice(self._proxies)

    def _set_aside(self, work: Awaitable[None]) -> None:
        """It takes its time, and the next blow does not wait for it."""
        task = asyncio.ensure_future(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
