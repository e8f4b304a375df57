"""Following a turn on a terminal: what its model writes, its calls with their states, and approvals asked in place.

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

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import Event
from holdfast.errors import HoldfastError
from holdfast.util.text import strip_controls
from holdfast.workers.terminal import render
from holdfast.workers.terminal.follow_lines import QUIET_SECONDS, catch_interrupt, run_unless_left
from holdfast.workers.terminal.input import Keyboard, open_keyboard
from holdfast.workers.terminal.live.answer_input import format_keys
from holdfast.workers.terminal.live.approval_prompt import Asker, ExtraKeys
from holdfast.workers.terminal.live.delegated_turns import DelegatedWatchers
from holdfast.workers.terminal.turn_board import Board, Row

FRAME_SECONDS = 0.15


async def follow_live(holdfast: Holdfast, turn: Turn) -> bool:
    """Show the turn until it ends; False when the viewer left before."""
    console = render.build_console()
    screen = Screen(holdfast, turn, console)
    with catch_interrupt() as left, open_keyboard(screen.asker.press_key) as keyboard:
        return await run_unless_left(left, screen.run(keyboard))


class Screen:
    """One viewer of one turn."""

    hint = "Ctrl-C leaves; the turn goes on"
    """What can be done while nothing is asked."""

    def __init__(self, holdfast: Holdfast, turn: Turn, console: Console, extra_keys: ExtraKeys | None = None) -> None:
        """`besides`: what keys do that answer nothing."""
        self._turn = turn
        self._console = console
        self._board = Board()
        self._held_back: dict[str, str] = {}
        self._away = False
        self._unsaid: list[RenderableType] = []
        self._heard_at = self._now()
        self._deserted = False
        """Does no worker answer, in the middle of the turn?"""
        self.asker = Asker(holdfast, turn, self._board, self, extra_keys)
        self._delegated = DelegatedWatchers(holdfast, self.asker)
        self._live = self._build_live()

    async def run(self, keyboard: Keyboard) -> None:
        """Watch, draw and ask until the turn ends."""
        self._live.start()
        work = (self._redraw(), self.asker.run(keyboard), self._look_for_worker())
        helpers = [asyncio.create_task(part) for part in work]
        try:
            async for item in self._turn.watch():
                self._heard_at, self._deserted = self._now(), False
                if isinstance(item, Event):
                    await self.print_event(item)
                self._board.apply_item(item)
                if isinstance(item, Event):
                    self.asker.notice_event(item, self._turn.id)
                    self._delegated.notice_event(self._turn.id, item)
                for helper in helpers:
                    if helper.done():
                        helper.result()
            await self.asker.free.wait()
        finally:
            await self._delegated.close()
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            self._live.stop()

    async def print_event(self, event: Event) -> None:
        """Say above the board what it will no longer show; here nothing is."""

    @property
    def batch(self) -> str | None:
        """The batch on the board."""
        return self._board.active

    async def _look_for_worker(self) -> None:
        """When nothing was heard for a while: is anybody there?"""
        while True:
            await asyncio.sleep(QUIET_SECONDS)
            if self._board.events and self._now() - self._heard_at >= QUIET_SECONDS:
                try:
                    await self._turn.fetch_view(live=False)
                    self._deserted = False
                except HoldfastError:
                    self._deserted = True

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _build_live(self) -> Live:
        return Live(
            console=self._console,
            get_renderable=self._draw_board,
            auto_refresh=False,
            transient=True,
            redirect_stderr=False,
        )

    async def _redraw(self) -> None:
        while True:
            if not self._away:
                self._live.refresh()
            await asyncio.sleep(FRAME_SECONDS)

    def _draw_board(self) -> RenderableType:
        board, batch = self._board, self.batch
        parts: list[RenderableType] = self._render_reply()
        if batch:
            self._held_back = board.find_held_back(batch)
            every = board.list_batch_rows(batch)
            shown = self._fit_rows(every)
            if len(shown) < len(every):
                counts = (f"{count} {name.replace('_', ' ')}" for name, count in board.count_by_status().items())
                parts.append(Text("  ".join(counts), "dim"))
            parts.append(self._render_rows(shown))
        if self.asker.asked_call_id:
            parts.append(Text(self.asker.which, "bold", no_wrap=True, overflow="ellipsis"))
        parts.append(self._render_footer())
        return Group(*parts)

    def _render_reply(self) -> list[RenderableType]:
        """The last lines of what the model writes."""
        text = Text(strip_controls(self._board.model_text).rstrip())
        lines = text.wrap(self._console, self._console.width)[-max(3, self._console.height // 3) :] if text else ()
        return list(lines)

    def _fit_rows(self, rows: list[Row]) -> list[Row]:
        """The calls that there is room for: all of them, or the first of those that have not ended."""
        room = max(3, self._console.height - 9)
        if len(rows) > room or self._measure_rows(rows) > room:
            rows = [row for row in rows if not row.is_terminal][:room]
            while len(rows) > 1 and self._measure_rows(rows) > room:
                rows = rows[:-1]
        return rows

    def _measure_rows(self, rows: list[Row]) -> int:
        return len(self._console.render_lines(self._render_rows(rows), pad=False))

    def _render_rows(self, rows: list[Row]) -> RenderableType:
        return render.render_rows(
            rows, datetime.now(UTC), asked_call_id=self.asker.asked_call_id, held_back=self._held_back
        )

    def _render_footer(self) -> Text:
        if self.asker.asked_call_id:
            nobody = "no worker answers: what you say is kept for the next one\n" if self._deserted else ""
            return Text(nobody + format_keys(self.asker.prompt, self._console.width), "bold yellow")
        if self._deserted:
            return Text("no worker answers: waiting for one", "yellow")
        if self.asker.stopped:
            return Text("the turn stops …", "dim")
        if rest := self.asker.waiting_summary:
            return Text(rest, "yellow")
        return Text("  ".join(filter(None, (self._describe_activity(), self.hint))), "dim")

    def _describe_activity(self) -> str:
        """What the turn does, where no row shows it."""
        board = self._board
        if not board.events:
            quiet = self._now() - self._heard_at > QUIET_SECONDS
            hint = ": does a worker run? Start one with `holdfast worker` or `holdfast up`" if quiet else ""
            return f"waiting for a worker{hint}"
        if board.is_thinking:
            return "the model still writes …" if board.active in board.growing else "the model thinks …"
        return ""

    @contextmanager
    def lend_terminal(self, keyboard: Keyboard) -> Iterator[None]:
        """The board makes room: the terminal is another's, until the end of the block."""
        self._live.stop()
        self._away = True
        try:
            with keyboard.lend_terminal():
                yield
        finally:
            self._away = False
            for item in self._unsaid:
                self._console.print(item)
            self._unsaid.clear()
            self.asker.forget_keys()
            self._live = self._build_live()  # a used one would erase what stands above it
            self._live.start()

    def print_above(self, item: RenderableType) -> None:
        """Print above the board, once the terminal is ours again."""
        if self._away:
            self._unsaid.append(item)
        else:
            self._console.print(item)
