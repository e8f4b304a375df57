"""The turns that calls of a watched turn run: each is watched for what it asks, and that is asked in the same place."""

from __future__ import annotations

import asyncio

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.calls.events import Event
from holdfast.domain.turn.delegation import DELEGATE
from holdfast.domain.turn.ids import format_call_turn_id
from holdfast.errors import NoWorker, TurnNotFound
from holdfast.workers.terminal.live.approval_prompt import Asker
from holdfast.workers.terminal.turn_board import Board

RETRY_SECONDS = 0.5


class DelegatedWatchers:
    """The watchers of delegated turns."""

    def __init__(self, holdfast: Holdfast, asker: Asker) -> None:
        self._holdfast = holdfast
        self._asker = asker
        self._watchers: dict[str, asyncio.Task[None]] = {}

    def notice_event(self, turn_id: str, event: Event) -> None:
        """Watch the turn of a call that has just begun one."""
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
                    await asyncio.sleep(RETRY_SECONDS)
                except NoWorker:  # it has ended, and nobody tells how it came to that
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
        """Watch no more."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
