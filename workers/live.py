"""Following a turn on a terminal: its calls with their states, live, and approvals asked in place.

The screen is a function of the board. Questions are printed above it in full; only the keys that answer are on it, so
an approval that is decided elsewhere meanwhile simply stops being asked.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.client import Holdfast, Turn
from holdfast.content import plain
from holdfast.errors import HoldfastError
from holdfast.events import Event
from holdfast.views import ApprovalView
from holdfast.workers import render
from holdfast.workers.board import Board
from holdfast.workers.following import QUIET_SECONDS, interruption, unless

FRAME_SECONDS = 0.15
RETRY_SECONDS = 1.0
KEYS = "[y] yes, run it   [n] no   [N] no, and stop the turn   [s] skip, decide later or elsewhere"
ANSWERS = {
    "y": ("proceed_once", False),
    "n": ("cancel", False),
    "N": ("cancel", True),
}


async def follow_live(holdfast: Holdfast, turn: Turn) -> bool:
    """Show the turn until it ends; False when the viewer left before."""
    console = render.console()
    screen = Screen(holdfast, turn, console)
    with interruption() as left, keys(screen.press):
        return await unless(left, screen.run())


class Screen:
    """One viewer of one turn."""

    def __init__(self, holdfast: Holdfast, turn: Turn, console: Console) -> None:
        self._holdfast = holdfast
        self._turn = turn
        self._console = console
        self._board = Board()
        self._asked: ApprovalView | None = None
        self._skipped: set[str] = set()
        self._mine: set[str] = set()
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._began = asyncio.get_running_loop().time()

    def press(self, key: str) -> None:
        """Somebody pressed a key."""
        self._keys.put_nowait(key)

    def _forget_keys(self) -> None:
        """Drop what was typed before a question was shown: it was not meant for it."""
        while not self._keys.empty():
            self._keys.get_nowait()

    async def run(self) -> None:
        """Watch, draw and ask until the turn ends."""
        with Live(
            console=self._console, get_renderable=self._draw, auto_refresh=False, transient=True, redirect_stderr=False
        ) as live:
            helpers = [asyncio.create_task(self._redraw(live)), asyncio.create_task(self._ask())]
            try:
                async for item in self._turn.watch():
                    self._board.take(item)
                    if isinstance(item, Event):
                        self._notice(item)
                    for helper in helpers:
                        if helper.done():
                            helper.result()
            finally:
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)

    def _notice(self, event: Event) -> None:
        """Stop asking about what somebody else has decided."""
        if self._asked and event.kind == "call" and event.call == _call_of(self._asked):
            if self._asked.approval_id not in self._mine:
                who = f" by {render.line(event.by, 80)}" if event.by else ""
                self._console.print(Text(f"Decided elsewhere{who}: {event.after.replace('_', ' ')}.", "dim"))
            self._asked = None

    async def _redraw(self, live: Live) -> None:
        while True:
            live.refresh()
            await asyncio.sleep(FRAME_SECONDS)

    def _draw(self) -> RenderableType:
        board = self._board
        parts: list[RenderableType] = []
        if board.active:
            room = max(3, self._console.height - 8)
            shown = board.of_batch(board.active)
            if len(shown) > room:
                shown = [row for row in shown if not row.terminal][:room]
                parts.append(Text("  ".join(f"{count} {name}" for name, count in board.counts().items()), "dim"))
            parts.append(render.rows(shown, datetime.now(UTC)))
        parts.append(self._footer())
        return Group(*parts)

    def _footer(self) -> Text:
        board = self._board
        if self._asked:
            return Text(KEYS, "bold yellow")
        if board.waiting and all(row.approval_id in self._skipped | self._mine for row in board.waiting):
            return Text(
                f"{len(board.waiting)} waiting for a decision: press [a] to be asked, or use `holdfast approve`",
                "yellow",
            )
        if not board.events:
            quiet = asyncio.get_running_loop().time() - self._began > QUIET_SECONDS
            hint = ": does a worker run? Start one with `holdfast worker` or `holdfast up`" if quiet else ""
            return Text(f"waiting for a worker{hint}", "dim")
        return Text("the model thinks …" if board.thinking else "Ctrl-C leaves; the turn goes on", "dim")

    async def _ask(self) -> None:
        """Ask about one waiting call after another, for as long as we are watched."""
        while True:
            if self._asked is None:
                await self._next_question()
            try:
                async with asyncio.timeout(FRAME_SECONDS):
                    key = await self._keys.get()
            except TimeoutError:
                continue
            if self._asked:
                await self._answer(self._asked, key)
            elif key == "a":
                self._skipped.clear()

    async def _next_question(self) -> None:
        open_rows = [row for row in self._board.waiting if row.approval_id not in self._skipped | self._mine]
        if not open_rows:
            return
        row = open_rows[0]
        try:
            approval = render.whole_approval(self._turn.id, await self._turn.call(row.call))
        except HoldfastError:
            await asyncio.sleep(RETRY_SECONDS)
            return
        if row.status != "awaiting_approval" or row.approval_id != approval.approval_id:
            return
        heading = f"\nApprove call {row.place} of {row.of}? {render.line(approval.title)}"
        self._console.print(render.question(approval, heading=heading))
        self._forget_keys()
        self._asked = approval

    async def _answer(self, approval: ApprovalView, key: str) -> None:
        if key == "s":
            self._skipped.add(approval.approval_id)
            self._asked = None
            self._console.print(Text(f"Skipped; later: holdfast approve {plain(approval.approval_id)}", "dim"))
        if key not in ANSWERS:
            return
        outcome, stop_turn = ANSWERS[key]
        self._mine.add(approval.approval_id)
        self._asked = None
        try:
            counted = await self._holdfast.decide(
                approval.approval_id, outcome, digest=approval.digest, stop_turn=stop_turn
            )
        except HoldfastError as error:
            self._console.print(Text(f"That did not count: {plain(str(error))}", "red"))
            return
        words = {"y": "Approved.", "n": "Refused.", "N": "Refused, and the turn stops."}[key]
        signal = "" if counted else " No worker answered, so it was left as a signal for the next one."
        self._console.print(Text(words + signal, "dim"))


@contextmanager
def keys(press: Callable[[str], None]) -> Iterator[None]:
    """Single keys from the terminal, until the end of the block; Ctrl-C stays a signal."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        data = os.read(descriptor, 1024).decode("utf-8", "ignore")
        if not data:
            loop.remove_reader(descriptor)
        elif not data.startswith("\x1b"):  # arrows and function keys are no answers
            press(data[0])

    tty.setcbreak(descriptor)  # which also drops what was typed before
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _call_of(approval: ApprovalView) -> str:
    return approval.approval_id.rsplit("/", 2)[1]
