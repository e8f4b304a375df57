"""Following a turn on a terminal: its calls with their states, live, and approvals asked in place.

The screen is a function of the board. Questions are printed above it in full; only the keys that answer are on it, so
an approval that is decided elsewhere meanwhile simply stops being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.client import Holdfast, Turn
from holdfast.content import plain
from holdfast.errors import HoldfastError
from holdfast.events import Event
from holdfast.views import ApprovalView
from holdfast.workers import questions, render
from holdfast.workers.board import Board
from holdfast.workers.following import QUIET_SECONDS, interruption, unless
from holdfast.workers.keyboard import Keyboard, keys, page, pager

FRAME_SECONDS = 0.15
RETRY_SECONDS = 1.0
KEYS = "[y] yes  [n] no  [N] no, stop turn  [s] skip  [v] view all"
ANSWERING = "an empty line skips, /no declines, /stop declines and stops the turn"
ANSWERS = {
    "y": ("proceed_once", False),
    "n": ("cancel", False),
    "N": ("cancel", True),
}


async def follow_live(holdfast: Holdfast, turn: Turn) -> bool:
    """Show the turn until it ends; False when the viewer left before."""
    console = render.console()
    screen = Screen(holdfast, turn, console)
    with interruption() as left, keys(screen.press) as keyboard:
        return await unless(left, screen.run(keyboard))


class Screen:
    """One viewer of one turn."""

    def __init__(self, holdfast: Holdfast, turn: Turn, console: Console) -> None:
        self._holdfast = holdfast
        self._turn = turn
        self._console = console
        self._board = Board()
        self._asked: ApprovalView | None = None
        self._which = ""
        self._stopped = False
        self._paged = False
        self._unsaid: list[RenderableType] = []
        self._skipped: set[str] = set()
        self._mine: set[str] = set()
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._began = asyncio.get_running_loop().time()
        self._live = self._new_live()

    def press(self, key: str) -> None:
        """Somebody pressed a key."""
        self._keys.put_nowait(key)

    def _forget_keys(self) -> None:
        """Drop what was typed before a question was shown: it was not meant for it."""
        while not self._keys.empty():
            self._keys.get_nowait()

    async def run(self, keyboard: Keyboard) -> None:
        """Watch, draw and ask until the turn ends."""
        self._live.start()
        helpers = [asyncio.create_task(self._redraw()), asyncio.create_task(self._ask(keyboard))]
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
            self._live.stop()

    def _new_live(self) -> Live:
        return Live(
            console=self._console, get_renderable=self._draw, auto_refresh=False, transient=True, redirect_stderr=False
        )

    def _notice(self, event: Event) -> None:
        """Stop asking about what somebody else has decided."""
        if self._asked and event.kind == "call" and event.call == _call_of(self._asked):
            if self._asked.approval_id not in self._mine:
                self._say(Text(_meanwhile(event), "dim"))
            self._asked = None

    async def _redraw(self) -> None:
        while True:
            if not self._paged:
                self._live.refresh()
            await asyncio.sleep(FRAME_SECONDS)

    def _draw(self) -> RenderableType:
        board = self._board
        parts: list[RenderableType] = []
        if board.active:
            room = max(3, self._console.height - 9)
            shown = board.of_batch(board.active)
            if len(shown) > room:
                shown = [row for row in shown if not row.terminal][:room]
                parts.append(
                    Text(
                        "  ".join(f"{count} {name.replace('_', ' ')}" for name, count in board.counts().items()), "dim"
                    )
                )
            asked = _call_of(self._asked) if self._asked else None
            parts.append(render.rows(shown, datetime.now(UTC), asked=asked))
        if self._asked:
            parts.append(Text(self._which, "bold", no_wrap=True, overflow="ellipsis"))
        parts.append(self._footer())
        return Group(*parts)

    def _footer(self) -> Text:
        board = self._board
        if self._asked:
            return Text(KEYS, "bold yellow")
        if self._stopped:
            return Text("the turn stops …", "dim")
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

    async def _ask(self, keyboard: Keyboard) -> None:
        """Ask about one waiting call after another, for as long as we are watched."""
        while True:
            if self._asked is None:
                await self._next_question()
            if self._asked and self._asked.kind == questions.QUESTION:
                await self._respond(self._asked, keyboard)
                continue
            try:
                async with asyncio.timeout(FRAME_SECONDS):
                    key = await self._keys.get()
            except TimeoutError:
                continue
            if self._asked and key == "v":
                await self._view(self._asked, keyboard)
            elif self._asked:
                await self._answer(self._asked, key)
            elif key == "a":
                self._skipped.clear()

    async def _next_question(self) -> None:
        open_rows = [row for row in self._board.waiting if row.approval_id not in self._skipped | self._mine]
        if not open_rows or self._stopped:
            return
        row = open_rows[0]
        try:
            approval = questions.whole_approval(self._turn.id, await self._turn.call(row.call))
        except HoldfastError:
            await asyncio.sleep(RETRY_SECONDS)
            return
        if row.status != "awaiting_approval" or row.approval_id != approval.approval_id:
            return
        asking = approval.kind == questions.QUESTION
        title = "" if asking else f"Approve call {row.place} of {row.of}? {render.line(approval.title)}"
        heading = f"\n{title or f'Call {row.place} of {row.of} asks you:'}"
        self._say(questions.question(approval, heading=heading, more="[v] shows all"))
        self._forget_keys()
        self._which = f"call {row.place} of {row.of}, {questions.subject(approval)}:"
        self._asked = approval

    async def _view(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """All of the question in the viewer's pager; without one, all of it is printed."""
        text = questions.whole(approval)
        command = pager()
        with self._aside(keyboard):
            shown = bool(command) and await page(command, text)
        if not shown:
            self._say(Text(text))

    async def _respond(self, approval: ApprovalView, keyboard: Keyboard) -> None:
        """Let the person answer a question in a line of their own: single keys would be the start of an answer."""
        numbered = "a number chooses, " if approval.options else ""
        self._say(Text(f"({numbered}{ANSWERING})", "dim"))
        with self._aside(keyboard):
            typed = asyncio.create_task(keyboard.line("answer> "))
            while not typed.done() and self._asked is approval:
                await asyncio.wait({typed}, timeout=FRAME_SECONDS)
            typed.cancel()
        if self._asked is not approval:
            return
        await self._answer_in_words(approval, questions.chosen(approval, typed.result()))

    async def _answer_in_words(self, approval: ApprovalView, answer: str) -> None:
        if not answer:
            await self._answer(approval, "s")
        elif answer in ("/no", "/stop"):
            await self._answer(approval, "n" if answer == "/no" else "N")
        else:
            await self._decide(approval, "respond", "Answered.", content=answer)

    @contextmanager
    def _aside(self, keyboard: Keyboard) -> Iterator[None]:
        """The board makes room: the terminal is another's, until the end of the block."""
        self._live.stop()
        self._paged = True
        try:
            with keyboard.released():
                yield
        finally:
            self._paged = False
            for item in self._unsaid:
                self._console.print(item)
            self._unsaid.clear()
            self._forget_keys()
            self._live = self._new_live()  # a used one would erase what stands above it
            self._live.start()

    def _say(self, item: RenderableType) -> None:
        """Print above the board, once no pager covers it."""
        if self._paged:
            self._unsaid.append(item)
        else:
            self._console.print(item)

    async def _answer(self, approval: ApprovalView, key: str) -> None:
        if key == "s":
            self._skipped.add(approval.approval_id)
            self._asked = None
            later = questions.how_to_decide(approval.approval_id, approval.kind)
            self._console.print(Text(f"Skipped; later: {later}", "dim"))
        if key not in ANSWERS:
            return
        outcome, stop_turn = ANSWERS[key]
        words = {"y": "Approved.", "n": "Refused.", "N": "Refused, and the turn stops."}[key]
        self._stopped = stop_turn
        await self._decide(approval, outcome, words, stop_turn=stop_turn)

    async def _decide(self, approval: ApprovalView, outcome: str, words: str, **details: Any) -> None:
        self._mine.add(approval.approval_id)
        self._asked = None
        try:
            counted = await self._holdfast.decide(approval.approval_id, outcome, digest=approval.digest, **details)
        except HoldfastError as error:
            self._stopped = False
            self._console.print(Text(f"That did not count: {plain(str(error))}", "red"))
            return
        signal = "" if counted else " No worker answered, so it was left as a signal for the next one."
        self._console.print(Text(words + signal, "dim"))


def _meanwhile(event: Event) -> str:
    """What happened to a call that was being asked about."""
    if event.by or event.after != "cancelled":
        who = f" by {render.line(event.by, 80)}" if event.by else ""
        return f"Decided elsewhere{who}: {event.after.replace('_', ' ')}."
    return "Call stopped with the turn." if "the turn" in (event.error or "").lower() else "Call stopped elsewhere."


def _call_of(approval: ApprovalView) -> str:
    return approval.approval_id.rsplit("/", 2)[1]
