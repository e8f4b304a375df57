"""Watching a turn on a terminal: the model's reply, the calls with their states, and approvals asked in place.

The board is a function of the events. Questions are printed above it in full and only their keys are on it, so an
approval that is decided elsewhere simply disappears.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import Event
from holdfast.domain.turn.delegation import DELEGATE
from holdfast.domain.turn.ids import format_call_turn_id
from holdfast.errors import HoldfastError, NoWorker, TurnNotFound
from holdfast.util.text import strip_controls
from holdfast.workers.terminal import render
from holdfast.workers.terminal.follow_turn import QUIET_SECONDS, catch_interrupt, run_unless_left
from holdfast.workers.terminal.live.approval_prompt import Asker
from holdfast.workers.terminal.live.prompt import Prompt
from holdfast.workers.terminal.turn_board import Board, Row

FRAME_SECONDS = 0.15
DELEGATED_RETRY_SECONDS = 0.5


async def follow_live(holdfast: Holdfast, turn: Turn) -> bool:
    """Show the turn until it ends; False when the viewer left before."""
    with catch_interrupt() as left:
        prompt = Prompt(render.build_console(), left.set)
        async with prompt.open():
            return await run_unless_left(left, Screen(holdfast, turn, prompt).run())


class Screen:
    """One viewer of one turn; the `View` of a prompt while it runs."""

    hint = "Ctrl-C leaves; the turn goes on"
    """The keys that work while nothing is asked."""

    def __init__(self, holdfast: Holdfast, turn: Turn, prompt: Prompt, *, in_chat: bool = False) -> None:
        self._turn = turn
        self._prompt = prompt
        self._console = prompt.console
        self._board = Board()
        self._held_back: dict[str, str] = {}
        self._heard_at = self._now()
        self._deserted = False
        """Whether no worker answers, during the turn."""
        self.asker = Asker(holdfast, turn, self._board, prompt, in_chat=in_chat)
        self._delegated = _DelegatedWatchers(holdfast, self.asker)

    async def run(self) -> None:
        """Watch, draw and ask until the turn ends."""
        before, self._prompt.view = self._prompt.view, self
        helpers = [asyncio.create_task(part) for part in (self._redraw(), self.asker.run(), self._look_for_worker())]
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
            self._prompt.view = before
            self._prompt.refresh()

    def accepts_key(self, key: str) -> bool:
        """Whether the key answers anything now."""
        return self.asker.accepts_key(key)

    def press_key(self, key: str) -> None:
        """Take a key that answers."""
        self.asker.press_key(key)

    async def print_event(self, event: Event) -> None:
        """Print what the board will not show any more. Nothing here; subclasses override it."""

    @property
    def batch(self) -> str | None:
        """The batch on the board."""
        return self._board.active

    async def _look_for_worker(self) -> None:
        """Query the turn when no event came for a while: only a worker can answer."""
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

    async def _redraw(self) -> None:
        while True:
            self._prompt.refresh()
            await asyncio.sleep(FRAME_SECONDS)

    def draw_board(self) -> RenderableType:
        """The end of the model's reply, the calls, and the keys that answer."""
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
            parts += self._render_keys()
        return Group(*parts)

    def draw_hint(self) -> RenderableType:
        """What the turn does, and the keys that work."""
        if self._deserted:
            hint = (
                ": your answer is sent as a signal for the next one"
                if self.asker.asked_call_id
                else ": waiting for one"
            )
            return Text(f"no worker answers{hint}", "yellow")
        if self.asker.stopped:
            return Text("the turn stops …", "dim")
        if rest := self.asker.waiting_summary:
            return Text(rest, "yellow")
        if self.asker.asked_call_id:
            return Text()
        return Text("  ".join(filter(None, (self._describe_activity(), self.hint))), "dim")

    def _render_keys(self) -> list[Text]:
        keys = "" if self._prompt.is_answering else self.asker.format_keys(self._console.width)
        if keys and self._prompt.text:
            return [Text("send or clear your message; then a key answers this", "yellow")]
        return [Text(keys, "bold yellow")] if keys else []

    def _render_reply(self) -> list[RenderableType]:
        """The last lines of the model's reply."""
        text = Text(strip_controls(self._board.model_text).rstrip())
        lines = text.wrap(self._console, self._console.width)[-max(3, self._console.height // 3) :] if text else ()
        return list(lines)

    def _fit_rows(self, rows: list[Row]) -> list[Row]:
        """The calls that fit on the screen: all, or the first of those that have not ended."""
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

    def _describe_activity(self) -> str:
        """What the turn does, if no row shows it."""
        board = self._board
        if not board.events:
            quiet = self._now() - self._heard_at > QUIET_SECONDS
            hint = ": does a worker run? Start one with `holdfast worker` or `holdfast up`" if quiet else ""
            return f"waiting for a worker{hint}"
        if board.is_thinking:
            return "the model still writes …" if board.active in board.growing else "the model thinks …"
        return ""


class _DelegatedWatchers:
    """Watches the turns that calls of a watched turn delegate to, for their approvals."""

    def __init__(self, holdfast: Holdfast, asker: Asker) -> None:
        self._holdfast = holdfast
        self._asker = asker
        self._watchers: dict[str, asyncio.Task[None]] = {}

    def notice_event(self, turn_id: str, event: Event) -> None:
        """Watch the turn of a call that has just started one."""
        if event.kind == "call" and event.tool == DELEGATE and event.after == "executing" and event.call:
            child = format_call_turn_id(turn_id, event.call)
            if child not in self._watchers:
                self._watchers[child] = asyncio.create_task(self._watch_turn(self._holdfast.get_turn(child)))

    async def _watch_turn(self, turn: Turn) -> None:
        board = self._asker.boards[turn.id] = Board()
        try:
            while True:
                try:
                    return await self._follow_turn(turn, board)
                except TurnNotFound:  # it is about to begin
                    await asyncio.sleep(DELEGATED_RETRY_SECONDS)
                except NoWorker:  # it has ended, and no worker has its events
                    return None
        finally:
            del self._asker.boards[turn.id]

    async def _follow_turn(self, turn: Turn, board: Board) -> None:
        async for item in turn.watch():
            board.apply_item(item)
            if isinstance(item, Event):
                self._asker.notice_event(item, turn.id)
                self.notice_event(turn.id, item)

    async def close(self) -> None:
        """Stop watching."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
