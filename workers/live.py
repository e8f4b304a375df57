"""Following a turn on a terminal: its calls with their states, live, and approvals asked in place.

The screen is a function of the board. Questions are printed above it in full; only the keys that answer are on it, so
an approval that is decided elsewhere meanwhile simply stops being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.client import Holdfast, Turn
from holdfast.events import Event
from holdfast.workers import render
from holdfast.workers.asking import Asker
from holdfast.workers.board import Board, Row
from holdfast.workers.following import QUIET_SECONDS, interruption, unless
from holdfast.workers.keyboard import Keyboard, keys

FRAME_SECONDS = 0.15


async def follow_live(holdfast: Holdfast, turn: Turn) -> bool:
    """Show the turn until it ends; False when the viewer left before."""
    console = render.console()
    screen = Screen(holdfast, turn, console)
    with interruption() as left, keys(screen.asker.press) as keyboard:
        return await unless(left, screen.run(keyboard))


class Screen:
    """One viewer of one turn."""

    def __init__(self, holdfast: Holdfast, turn: Turn, console: Console) -> None:
        self._turn = turn
        self._console = console
        self._board = Board()
        self._held_back: dict[str, str] = {}
        self._away = False
        self._unsaid: list[RenderableType] = []
        self._began = asyncio.get_running_loop().time()
        self.asker = Asker(holdfast, turn, self._board, self)
        self._live = self._new_live()

    async def run(self, keyboard: Keyboard) -> None:
        """Watch, draw and ask until the turn ends."""
        self._live.start()
        helpers = [asyncio.create_task(self._redraw()), asyncio.create_task(self.asker.run(keyboard))]
        try:
            async for item in self._turn.watch():
                self._board.take(item)
                if isinstance(item, Event):
                    self.asker.notice(item)
                for helper in helpers:
                    if helper.done():
                        helper.result()
            await self.asker.free.wait()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            self._live.stop()

    def _new_live(self) -> Live:
        return Live(
            console=self._console, get_renderable=self._draw, auto_refresh=False, transient=True, redirect_stderr=False
        )

    async def _redraw(self) -> None:
        while True:
            if not self._away:
                self._live.refresh()
            await asyncio.sleep(FRAME_SECONDS)

    def _draw(self) -> RenderableType:
        board = self._board
        parts: list[RenderableType] = []
        if board.active:
            self._held_back = board.held_back(board.active)
            every = board.of_batch(board.active)
            shown = self._fitting(every)
            if len(shown) < len(every):
                counts = (f"{count} {name.replace('_', ' ')}" for name, count in board.counts().items())
                parts.append(Text("  ".join(counts), "dim"))
            parts.append(self._rows(shown))
        if self.asker.call:
            parts.append(Text(self.asker.which, "bold", no_wrap=True, overflow="ellipsis"))
        parts.append(self._footer())
        return Group(*parts)

    def _fitting(self, rows: list[Row]) -> list[Row]:
        """The calls that there is room for: all of them, or the first of those that have not ended."""
        room = max(3, self._console.height - 9)
        if len(rows) > room or self._height(rows) > room:
            rows = [row for row in rows if not row.terminal][:room]
            while len(rows) > 1 and self._height(rows) > room:
                rows = rows[:-1]
        return rows

    def _height(self, rows: list[Row]) -> int:
        return len(self._console.render_lines(self._rows(rows), pad=False))

    def _rows(self, rows: list[Row]) -> RenderableType:
        return render.rows(rows, datetime.now(UTC), asked=self.asker.call, held_back=self._held_back)

    def _footer(self) -> Text:
        board = self._board
        if self.asker.call:
            return Text(self.asker.prompt, "bold yellow")
        if self.asker.stopped:
            return Text("the turn stops …", "dim")
        if rest := self.asker.rest:
            return Text(rest, "yellow")
        if not board.events:
            quiet = asyncio.get_running_loop().time() - self._began > QUIET_SECONDS
            hint = ": does a worker run? Start one with `holdfast worker` or `holdfast up`" if quiet else ""
            return Text(f"waiting for a worker{hint}", "dim")
        if board.thinking:
            return Text("the model still writes …" if board.active in board.growing else "the model thinks …", "dim")
        return Text("Ctrl-C leaves; the turn goes on", "dim")

    @contextmanager
    def aside(self, keyboard: Keyboard) -> Iterator[None]:
        """The board makes room: the terminal is another's, until the end of the block."""
        self._live.stop()
        self._away = True
        try:
            with keyboard.released():
                yield
        finally:
            self._away = False
            for item in self._unsaid:
                self._console.print(item)
            self._unsaid.clear()
            self.asker.forget_keys()
            self._live = self._new_live()  # a used one would erase what stands above it
            self._live.start()

    def say(self, item: RenderableType) -> None:
        """Print above the board, once the terminal is ours again."""
        if self._away:
            self._unsaid.append(item)
        else:
            self._console.print(item)
