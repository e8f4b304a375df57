"""`holdfast run`: follow one turn to its end, or stop it, and print its result."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.client.client import Holdfast
from holdfast.client.session import Session
from holdfast.client.turn import Turn
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.errors import HoldfastError, NoWorker, RequestRefused, TurnNotFound
from holdfast.util.text import strip_controls
from holdfast.workers.exit_codes import FAILED, INTERRUPTED, OK
from holdfast.workers.terminal import render
from holdfast.workers.terminal.follow_turn import (
    ApprovalPrinter,
    LinePrinter,
    catch_interrupt,
    run_unless_left,
    watch_turn,
)
from holdfast.workers.terminal.live.live_screen import Screen
from holdfast.workers.terminal.live.prompt import Prompt
from holdfast.workers.terminal.output import print_json, print_note, print_text
from holdfast.workers.terminal.session_text import describe_ending

POLL_SECONDS = 0.2
STOP_SECONDS = 30.0
"""How long a stopped turn may take to end."""
TAKEN_SECONDS = 5.0
WITHDRAWN = "The message was withdrawn before its turn started"


@dataclass
class SingleTurnRun:
    """One turn that is followed to its end, with or without a person."""

    holdfast: Holdfast
    turn: Turn
    session: Session | None = None
    """The session of the turn, whose earlier turns may have to end first."""
    message: str | None = None
    """The id of the queued message that the turn will start from."""
    is_verbose: bool = False
    """Print progress on standard error."""
    is_live: bool = False
    """Ask the person at the terminal."""
    seconds: float | None = None
    """The time limit."""

    async def run(self, json: bool) -> int:
        """Follow the turn to its end and print the result; the exit code."""
        result: TurnResult | None = None
        with catch_interrupt() as left:
            try:
                code = OK if await run_unless_left(left, self._follow_in_time(left)) else INTERRUPTED
            except TimeoutError:
                print_note(f"holdfast: turn {strip_controls(self.turn.id)} took longer than {self.seconds:g} seconds")
                code = FAILED
            if code == OK:
                result = await self.turn.result()
                await self._wait_for_session()
                code = OK if result.status == "completed" else FAILED
            else:
                left.clear()
                result = await self._stop_turn(left)
        self._print_result(result, json)
        return code

    async def _follow_in_time(self, left: asyncio.Event) -> None:
        async with asyncio.timeout(self.seconds):
            await self._follow_turn(left)

    async def _follow_turn(self, left: asyncio.Event) -> None:
        while True:
            try:
                return await (self._follow_asking(left) if self.is_live else self._follow_watching())
            except TurnNotFound:
                if self.session is None:
                    raise
                await self.session.wait_for_turn(self.turn.id)
            except NoWorker:
                return None  # it has ended, and no worker has its events

    async def _follow_asking(self, left: asyncio.Event) -> None:
        prompt = Prompt(render.build_console(), left.set)
        screen = Screen(self.holdfast, self.turn, prompt)
        screen.hint = "Ctrl-C cancels the turn"
        async with prompt.open():
            await screen.run()

    async def _follow_watching(self) -> None:
        lines = LinePrinter(render.build_console(to_stderr=True)) if self.is_verbose else ApprovalPrinter()
        await watch_turn(self.turn, lines.print_item)

    async def _wait_for_session(self) -> None:
        """Wait until the session has the messages of the turn, so that the next command finds them."""
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(TAKEN_SECONDS):
                while self.session and (await self.session.fetch_view()).turn == self.turn.id:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)

    async def _stop_turn(self, left: asyncio.Event) -> TurnResult | None:
        """Stop the turn; its result, if it ends within STOP_SECONDS. Ctrl-C ends the wait."""
        found: list[TurnResult] = []

        async def stop_and_read() -> None:
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    if await self._was_withdrawn():
                        found.append(TurnResult(status="cancelled", reason=WITHDRAWN))
                    else:
                        await self.turn.cancel()
                        found.append(await self.turn.result())

        await run_unless_left(left, stop_and_read())
        if not found:
            print_note(f"holdfast: turn {strip_controls(self.turn.id)} has not stopped yet: see `holdfast turn show`")
        return found[0] if found else None

    async def _was_withdrawn(self) -> bool:
        """Withdraw the message; whether that succeeded before its turn started."""
        if self.session is None or self.message is None:
            return False
        try:
            await self.session.withdraw(self.message)
        except RequestRefused:
            return False
        return True

    def _print_result(self, result: TurnResult | None, json: bool) -> None:
        if json:
            print_json(self._result_as_json(result))
        elif result and result.text:
            print_text(strip_controls(result.text))
        if result and result.status != "completed":
            print_note(f"holdfast: {describe_ending(result)}")

    def _result_as_json(self, result: TurnResult | None) -> dict[str, Any]:
        return {
            "session": self.session.id if self.session else None,
            "turn": self.turn.id,
            "status": result.status if result else None,
            "text": result.text if result else None,
            "reason": result.reason if result else None,
            "usage": result.usage.model_dump(mode="json") if result else None,
        }
