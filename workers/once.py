"""One turn for a script: it is followed to its end, or stopped, and answers with how it ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.client import Holdfast, Session, Turn
from holdfast.content import plain
from holdfast.errors import HoldfastError, NoWorker, RequestRefused, TurnNotFound
from holdfast.events import Event
from holdfast.turns import TurnResult
from holdfast.workers import render
from holdfast.workers.commands.codes import FAILED, INTERRUPTED, OK
from holdfast.workers.commands.options import emit, note, say
from holdfast.workers.following import Lines, interruption, mention_silence, unless
from holdfast.workers.keyboard import keys
from holdfast.workers.live import Screen
from holdfast.workers.questions import how_to_decide
from holdfast.workers.spoken import not_completed

POLL_SECONDS = 0.2
STOP_SECONDS = 30.0
"""How long a turn that was told to stop may take to answer."""
TAKEN_SECONDS = 5.0
WITHDRAWN = "The message was withdrawn before it had its turn"


@dataclass
class Once:
    """One turn, and who looks on."""

    holdfast: Holdfast
    turn: Turn
    session: Session | None = None
    """Whose turn it is: it may have to wait for those before it,"""
    message: str | None = None
    """and until then is only a message, with this id."""
    told: bool = False
    """Are lines of progress wanted, on standard error?"""
    live: bool = False
    """Is a person at the terminal who is asked?"""
    seconds: float | None = None
    """How long it may take."""

    async def run(self, json: bool) -> int:
        """Follow it to its end and tell how it ended; the exit code."""
        result: TurnResult | None = None
        with interruption() as left:
            try:
                code = OK if await unless(left, self._in_time()) else INTERRUPTED
            except TimeoutError:
                note(f"holdfast: turn {plain(self.turn.id)} took longer than {self.seconds:g} seconds")
                code = FAILED
            if code == OK:
                result = await self.turn.result()
                await self._taken()
                code = OK if result.status == "completed" else FAILED
            else:
                left.clear()
                result = await self._stop(left)
        self._tell(result, json)
        return code

    async def _in_time(self) -> None:
        async with asyncio.timeout(self.seconds):
            await self._follow()

    async def _follow(self) -> None:
        while True:
            try:
                return await (self._ask() if self.live else self._watch())
            except TurnNotFound:
                if self.session is None:
                    raise
                await self.session.begun(self.turn.id)
            except NoWorker:
                return None  # it has ended, and nobody tells how it came to that

    async def _ask(self) -> None:
        screen = Screen(self.holdfast, self.turn, render.console())
        screen.hint = "Ctrl-C cancels the turn"
        with keys(screen.asker.press) as keyboard:
            await screen.run(keyboard)

    async def _watch(self) -> None:
        lines = Lines(render.console(aside=True)) if self.told else None
        asked: set[str] = set()
        silence = asyncio.create_task(mention_silence(self.turn))
        try:
            async for item in self.turn.watch():
                silence.cancel()
                if lines:
                    lines.show(item)
                if not isinstance(item, Event) or not item.approval_id:
                    continue
                if not lines and item.approval_id not in asked:
                    asked.add(item.approval_id)
                    note(f"waits: {how_to_decide(item.approval_id, item.asks)}")
        finally:
            silence.cancel()

    async def _taken(self) -> None:
        """Wait until the session has what its turn left: whoever asks it next is to find that."""
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(TAKEN_SECONDS):
                while self.session and (await self.session.view()).turn == self.turn.id:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)

    async def _stop(self, left: asyncio.Event) -> TurnResult | None:
        """Stop the turn; how it ended, if that is known soon. Ctrl-C waits no longer."""
        found: list[TurnResult] = []

        async def work() -> None:
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    if await self._withdrawn():
                        found.append(TurnResult(status="cancelled", reason=WITHDRAWN))
                    else:
                        await self.turn.cancel()
                        found.append(await self.turn.result())

        await unless(left, work())
        if not found:
            note(f"holdfast: turn {plain(self.turn.id)} has not stopped yet: see `holdfast turn show`")
        return found[0] if found else None

    async def _withdrawn(self) -> bool:
        """Was it taken back before it had its turn?"""
        if self.session is None or self.message is None:
            return False
        try:
            await self.session.withdraw(self.message)
        except RequestRefused:
            return False
        return True

    def _tell(self, result: TurnResult | None, json: bool) -> None:
        if json:
            emit(self._body(result))
        elif result and result.text:
            say(plain(result.text))
        if result and result.status != "completed":
            note(f"holdfast: {not_completed(result)}")

    def _body(self, result: TurnResult | None) -> dict[str, Any]:
        return {
            "session": self.session.id if self.session else None,
            "turn": self.turn.id,
            "status": result.status if result else None,
            "text": result.text if result else None,
            "reason": result.reason if result else None,
            "usage": result.usage.model_dump(mode="json") if result else None,
        }
