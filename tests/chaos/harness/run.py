"""One run: a server, its workers, the storm, and at the end the judgement. Whatever happens, nothing is left."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from holdfast import Holdfast, HoldfastPlugin, Settings
from holdfast.workers.embedded.temporal_server import EmbeddedServer
from holdfast.workers.runtime.child_processes import adopt_orphans
from tests.chaos.harness.cleaning import end, left_behind, see_off
from tests.chaos.harness.deaths import Deaths
from tests.chaos.harness.disk import HOSTS, LedgerDisk
from tests.chaos.harness.drive import FEW, Drive
from tests.chaos.harness.effects import Effects, Looking
from tests.chaos.harness.fleet import Fleet, HarnessBroken
from tests.chaos.harness.hurry import Hurry
from tests.chaos.harness.judging import judge
from tests.chaos.harness.person import Person
from tests.chaos.harness.plan import Kind, Point, turns
from tests.chaos.harness.proxy import Proxy
from tests.chaos.harness.report import Report, answered_of, asked_of, kills_of, wrong_of
from tests.chaos.harness.sabotage import How, Sabotage
from tests.chaos.harness.services.counter import Counter
from tests.chaos.harness.services.remote import Remote
from tests.chaos.harness.storm import Blow, Storm
from tests.chaos.harness.worker import QUEUE, Orders

PROGRESS_SECONDS = 5.0
AT_POINTS = 0.65
"""The share of all kills that is planned at named points; the rest comes at random."""
SABOTAGED = (Kind.APPEND, Kind.POST, Kind.ROW, Kind.KEYED)


@dataclass(frozen=True)
class Options:
    """How much of it."""

    seed: int
    calls: int = 520
    kills: int = 300
    workers: int = 4
    at_once: int = 24
    """Turns that run at the same time."""
    limit_seconds: float = 900
    """How long the storm may take."""
    quiet_seconds: float = 90
    """How long turns may take to end after it."""
    sabotage: tuple[How, ...] = ()

    @property
    def deadly(self) -> float:
        """The share of calls under which a worker is to die."""
        return min(0.9, AT_POINTS * self.kills / self.calls)


class Run:
    """One run in a folder of its own."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._outside = folder / "outside"
        self._workspace = folder / "workspace"
        self._folder = folder
        self._disk = LedgerDisk(folder / "disk")
        self._deaths = Deaths(self._outside)
        self._effects = Effects(self._outside)
        self._began = time.monotonic()
        self._shortcomings: list[str] = []

    async def run(self) -> Report:
        """All of it."""
        adopt_orphans()
        self._workspace.mkdir(parents=True)
        self._deaths.prepare()
        self._effects.prepare()
        self._disk.prepare()
        try:
            with Counter() as counter:
                return await self._with(counter)
        finally:
            await end(known=set())
            self._disk.release()

    async def _with(self, counter: Counter) -> Report:
        looking = Looking(self._effects, counter, self._workspace)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(_server(self._folder / "server"))
            port = int(server.address.rpartition(":")[2])
            proxies = [await stack.enter_async_context(_proxy(port)) for _ in range(self._options.workers)]
            remote = await stack.enter_async_context(_remote(self._outside, self._folder / "remote.log"))
            orders = [self._orders(slot, proxy, counter.port, remote.url) for slot, proxy in enumerate(proxies)]
            fleet = Fleet(orders, self._effects.attempts, self._folder / "workers.log")
            stack.push_async_callback(fleet.close)
            await fleet.start()
            holdfast = await self._client(server.address)
            person = Person(holdfast, looking)
            drive = Drive(
                holdfast, person, self._deaths,
                workspace=self._workspace, act=self._effects.act, at_once=self._options.at_once,
            )  # fmt: skip
            storm = Storm(
                self._options.seed, fleet=fleet, server=server.server, proxies=proxies, disk=self._disk,
                deaths=self._deaths, attempts=self._effects.attempts, remote=remote,
            )  # fmt: skip
            stack.callback(drive.stop)

            def children() -> set[int]:
                return {server.server.pid, fleet.nursery, remote.pid}

            await self._weather(stack, fleet, person, drive, storm, children)
            await fleet.stop()
            await fleet.close()
            await remote.stop()
            self._shortcomings += [f"left behind: {name}" for name in await left_behind({server.server.pid})]
        return self._report(drive, person, storm, fleet, looking)

    async def _weather(
        self,
        stack: AsyncExitStack,
        fleet: Fleet,
        person: Person,
        drive: Drive,
        storm: Storm,
        children: Callable[[], set[int]],
    ) -> None:
        """The storm, and the quiet after it."""
        options = self._options
        deadline = time.monotonic() + options.limit_seconds

        def enough() -> bool:
            """There were as many calls and kills, a death at every point and every other fault; or time is up."""
            kills = kills_of(self._deaths.all())
            reached = drive.calls >= options.calls and kills.all >= options.kills
            reached = reached and (not options.kills or (all(kills.at_points.values()) and not storm.missing))
            return reached or time.monotonic() > deadline or fleet.broken

        def due() -> bool:
            """Not more at random than their share: turns that never get on would tell nothing. At the end, the rest."""
            kills = kills_of(self._deaths.all())
            share = (1 - AT_POINTS) * options.kills * min(1.0, drive.calls / options.calls)
            left = kills.all < options.kills or (options.kills > 0 and bool(storm.missing))
            rest = drive.calls >= options.calls and drive.running <= FEW and left
            return kills.at_random + kills.server < share or rest

        storming = asyncio.create_task(storm.rage(due, enough))
        beside = [asyncio.create_task(work) for work in (person.sit(), self._tell(drive, children))]
        for task in (storming, *beside):
            stack.callback(task.cancel)
        stack.push_async_callback(person.leave)
        await drive.go(turns(options.seed, options.deadly), options.calls, lambda: storming.done() or enough())
        await storming
        await drive.finish(options.quiet_seconds)
        if fleet.broken:
            raise HarnessBroken("the nursery of the workers died: see workers.log")
        for task in beside:
            if task.done():
                task.result()

    async def _tell(self, drive: Drive, children: Callable[[], set[int]]) -> None:
        """How far it is, on standard error; and orphans that have ended are let go."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            options = self._options
            see_off(children())
            print(
                f"{time.monotonic() - self._began:5.0f} s  {drive.answered} of {options.calls} calls answered, "
                f"{len(self._deaths.all())} of {options.kills} kills, {drive.running} turns run",
                file=sys.stderr,
            )

    def _orders(self, slot: int, proxy: Proxy, counter: int, remote: str) -> Orders:
        host = HOSTS[slot % len(HOSTS)]
        return Orders(
            slot=slot,
            address=proxy.address,
            host=host,
            data=self._folder / f"host-{host}",
            ledger=self._disk.of(host),
            workspace=self._workspace,
            outside=self._outside,
            counter=counter,
            remote=remote,
            sabotage=self._sabotage(),
        )

    def _sabotage(self) -> Sabotage:
        """Each in a turn of its own: one that hangs answers nothing."""
        options = self._options
        found: dict[str, How] = {}
        wanted = list(reversed(options.sabotage))
        for turn in turns(options.seed, options.deadly):
            if not wanted:
                break
            labels = [call.label for call in turn.calls if call.kind in SABOTAGED and not call.deaths]
            if labels:
                found[labels[0]] = wanted.pop()
        return Sabotage(calls=found)

    async def _client(self, address: str) -> Holdfast:
        settings = Settings(data=self._folder / "host-a", workspace=self._workspace, task_queue=QUEUE)
        client = await Client.connect(address, plugins=[HoldfastPlugin(settings)], interceptors=[Hurry()])
        return Holdfast(client, task_queue=QUEUE)

    def _report(self, drive: Drive, person: Person, storm: Storm, fleet: Fleet, looking: Looking) -> Report:
        options = self._options
        truths = {call.label: looking.truth(call) for turn in drive.started for call in turn.calls}
        findings = judge(drive.ended, truths, person.questions)
        kills = kills_of(self._deaths.all())
        short = [f"only {kills.all} of {options.kills} kills"] if kills.all < options.kills else []
        short += [f"only {drive.calls} of {options.calls} calls"] if drive.calls < options.calls else []
        short += [f"nobody died {point.value}" for point in Point if options.kills and not kills.at_points[point]]
        short += [f"never: {blow.value}" for blow in storm.missing if options.kills]
        short += [f"{storm.stubborn} workers did not end when told to"] if storm.stubborn else []
        others = {blow.value: storm.counts[blow] for blow in Blow if blow not in (Blow.WORKER, Blow.SERVER)}
        return Report(
            seed=options.seed,
            seconds=time.monotonic() - self._began,
            turns=len(drive.started),
            calls=drive.calls,
            answered=answered_of(drive.ended),
            kills=kills,
            other_faults=others,
            disk="a real disk" if self._disk.real else "a disk that said so",
            approved=person.approved,
            asked=asked_of(person.questions, len(person.unsettled)),
            workers_ended_by_themselves=fleet.by_themselves,
            wrong=wrong_of(findings),
            findings=findings,
            shortcomings=short + self._shortcomings,
        )


@dataclass(frozen=True)
class _Serving:
    server: EmbeddedServer
    address: str


@asynccontextmanager
async def _server(data: Path) -> AsyncIterator[_Serving]:
    server = EmbeddedServer(Settings(data=data), port=0)
    try:
        yield _Serving(server, (await server.start()).address)
    finally:
        await server.stop()


@asynccontextmanager
async def _remote(outside: Path, log: Path) -> AsyncIterator[Remote]:
    remote = Remote(outside, log)
    try:
        await remote.start()
        yield remote
    finally:
        await remote.stop()


@asynccontextmanager
async def _proxy(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
