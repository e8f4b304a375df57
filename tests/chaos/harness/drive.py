"""The turns of a run: started so many at a time, waited for, and taken as hung when they do not end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast import Holdfast, HoldfastError, RequestRefused, Turn
from tests.chaos.harness.deaths import Deaths
from tests.chaos.harness.effects import prepare_file
from tests.chaos.harness.judging import EndedTurn
from tests.chaos.harness.person import Person
from tests.chaos.harness.plan import PlannedTurn, input_of

RETRY_SECONDS = 0.2
FEW = 3
"""Turns at the same time, when there have been calls enough."""


class Drive:
    """Starts turns while there is something to do, and keeps what came of them."""

    def __init__(
        self, holdfast: Holdfast, person: Person, deaths: Deaths, *, workspace: Path, act: Path, at_once: int
    ) -> None:
        self._holdfast = holdfast
        self._person = person
        self._deaths = deaths
        self._workspace = workspace
        self._act = str(act)
        self._at_once = at_once
        self._running: dict[asyncio.Task[None], PlannedTurn] = {}
        self.ended: list[EndedTurn] = []
        self.started: list[PlannedTurn] = []

    @property
    def calls(self) -> int:
        """Of turns that were started."""
        return sum(len(turn.calls) for turn in self.started)

    @property
    def running(self) -> int:
        """Turns that have not ended."""
        return len(self._running)

    @property
    def answered(self) -> int:
        """Calls of turns that have ended."""
        return sum(len(ended.turn.calls) for ended in self.ended)

    async def go(self, turns: Iterator[PlannedTurn], calls: int, enough: Callable[[], bool]) -> None:
        """Start one after the other until it is enough. After so many calls only few at a time: the storm is behind."""
        while not enough():
            if len(self._running) < (self._at_once if self.calls < calls else FEW):
                self._begin(next(turns))
            else:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED, timeout=RETRY_SECONDS)

    async def finish(self, seconds: float) -> None:
        """Wait for those that run; what has not ended by then is hung."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        for task, turn in tuple(self._running.items()):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.ended.append(EndedTurn(turn=turn, problem=await self._standing(turn, seconds)))

    def stop(self) -> None:
        """Wait for nobody."""
        for task in self._running:
            task.cancel()

    def _begin(self, turn: PlannedTurn) -> None:
        for call in turn.calls:
            prepare_file(call, self._workspace)
            self._deaths.plan(call)
            self._person.expect(call)
        self.started.append(turn)
        task = asyncio.create_task(self._take(turn))
        self._running[task] = turn
        task.add_done_callback(self._running.pop)

    async def _take(self, planned: PlannedTurn) -> None:
        turn = await self._started(planned)
        while True:
            try:
                result = await turn.result()
                if not result.unread:
                    self.ended.append(EndedTurn(turn=planned, result=result))
                    return
            except HoldfastError as error:
                if " failed: " in str(error):
                    self.ended.append(EndedTurn(turn=planned, problem=str(error)))
                    return
            await asyncio.sleep(RETRY_SECONDS)  # the server or every worker is away

    async def _started(self, planned: PlannedTurn) -> Turn:
        """Started once, however often that takes: when it is there already, only the answer was lost."""
        while True:
            try:
                return await self._holdfast.start(input_of(planned, self._act), turn_id=planned.id)
            except RequestRefused:
                return self._holdfast.get_turn(planned.id)
            except HoldfastError:
                await asyncio.sleep(RETRY_SECONDS)

    async def _standing(self, planned: PlannedTurn, seconds: float) -> str:
        """How a turn stands that does not end."""
        began = time.monotonic()
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(10):
                view = await self._holdfast.get_turn(planned.id).fetch_view(live=False)
            calls = view.batch.calls if view.batch else ()
            return f"no end after {seconds:g} quiet seconds: " + ", ".join(f"{call.id} {call.status}" for call in calls)
        return f"no end after {seconds:g} quiet seconds, and no answer in {time.monotonic() - began:.0f} more"
