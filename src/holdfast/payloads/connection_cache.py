"""A connection that is opened when it is first needed, shared, and closed when nobody has needed it for a while.

Whoever writes and reads payloads is not told when a client or a worker ends. So a task of the event loop holds the
connection: it closes it after a pause, and when the loop ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

IDLE_SECONDS = 30.0
_KEEPER_TASKS: set[asyncio.Task[None]] = set()
"""A loop itself refers to its tasks only weakly."""


class CachedConnection(Generic[T]):
    """One connection of each event loop that asks for it."""

    def __init__(
        self, opening: Callable[[], AbstractAsyncContextManager[T]], idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._opening = opening
        self._idle_seconds = idle_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Future[T] | None = None
        self._users = 0
        self._used = asyncio.Event()

    @asynccontextmanager
    async def use_connection(self) -> AsyncIterator[T]:
        """The connection, open until the end of the block."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._opened is None:
            self._loop, self._opened, self._users, self._used = loop, loop.create_future(), 0, asyncio.Event()
            keeper = loop.create_task(self._keep_open(self._opened))
            _KEEPER_TASKS.add(keeper)
            keeper.add_done_callback(_KEEPER_TASKS.discard)
        opened = self._opened
        self._users += 1
        try:
            yield await asyncio.shield(opened)
        finally:
            if self._opened is opened:
                self._users -= 1
                self._used.set()

    async def _keep_open(self, opened: asyncio.Future[T]) -> None:
        try:
            async with self._opening() as connection:
                opened.set_result(connection)
                await self._wait_until_idle(opened)
        except Exception as error:
            if opened.done():
                _LOGGER.warning("A connection did not close well: %s", type(error).__name__)
            else:
                opened.set_exception(error)
                opened.exception()  # nobody may be waiting any more
        finally:
            self._forget_connection(opened)
            opened.cancel()

    async def _wait_until_idle(self, opened: asyncio.Future[T]) -> None:
        """Return when nobody has used it for a while; from then on nobody can any more."""
        while self._opened is opened:
            self._used.clear()
            try:
                async with asyncio.timeout(self._idle_seconds):
                    await self._used.wait()
            except TimeoutError:
                if self._users == 0:
                    self._forget_connection(opened)

    def _forget_connection(self, opened: asyncio.Future[T]) -> None:
        if self._opened is opened:
            self._opened = None
