"""The turns that calls of a watched turn run: each is watched for what it asks, and that is asked in the same place."""

from __future__ import annotations

import asyncio

from holdfast.client import Holdfast, Turn
from holdfast.delegating import DELEGATE
from holdfast.errors import NoWorker, TurnNotFound
from holdfast.events import Event
from holdfast.families import turn_of_call
from holdfast.workers.asking import Asker
from holdfast.workers.board import Board

RETRY_SECONDS = 0.5


class Delegated:
    """The watchers of delegated turns."""

    def __init__(self, holdfast: Holdfast, asker: Asker) -> None:
        self._holdfast = holdfast
        self._asker = asker
        self._watchers: dict[str, asyncio.Task[None]] = {}

    def notice(self, turn_id: str, event: Event) -> None:
        """Watch the turn of a call that has just begun one."""
        if event.kind == "call" and event.tool == DELEGATE and event.after == "executing" and event.call:
            child = turn_of_call(turn_id, event.call)
            if child not in self._watchers:
                self._watchers[child] = asyncio.create_task(self._watch(self._holdfast.turn(child)))

    async def _watch(self, turn: Turn) -> None:
        board = self._asker.boards[turn.id] = Board()
        try:
            while True:
                try:
                    return await self._to_the_end(turn, board)
                except TurnNotFound:  # it is about to begin
                    await asyncio.sleep(RETRY_SECONDS)
                except NoWorker:  # it has ended, and nobody tells how it came to that
                    return None
        finally:
            del self._asker.boards[turn.id]

    async def _to_the_end(self, turn: Turn, board: Board) -> None:
        async for item in turn.watch():
            board.take(item)
            if isinstance(item, Event):
                self._asker.notice(item, turn.id)
                self.notice(turn.id, item)

    async def close(self) -> None:
        """Watch no more."""
        for watcher in self._watchers.values():
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
