"""How long is waited: before a server that was lost is tried again, and before a list that keeps changing is read."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 30.0
"""A connection that lasted so long was a good one: the next pause is short again."""
LOOK_SECONDS = 1.0
"""How often is looked whether somebody has logged in."""


class RetryPauses:
    """The pauses between attempts to connect: longer each time, and short when somebody wants it now."""

    def __init__(self, may_retry_now: Callable[[], Awaitable[bool]]) -> None:
        """`may_retry_now` is asked whether anything has changed that may help."""
        self.wanted = asyncio.Event()
        self._may_retry_now = may_retry_now
        self._pause = FIRST_PAUSE
        self._began = time.monotonic()

    def start_attempt(self) -> None:
        """An attempt begins."""
        self._began = time.monotonic()

    async def wait(self) -> None:
        """The pause after an attempt."""
        if time.monotonic() - self._began > STEADY_SECONDS:
            self._pause = FIRST_PAUSE
        await asyncio.sleep(FIRST_PAUSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._pause * random.uniform(0.8, 1.2) - FIRST_PAUSE)):
                while not self.wanted.is_set() and not await self._may_retry_now():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.wanted.wait(), LOOK_SECONDS)
        self.wanted.clear()
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class ListPauses:
    """What a server gets to finish changing its list before that is read: the more, the more often it changes."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pause = FIRST_PAUSE
        self._last = float("-inf")

    def choose_pause(self) -> float:
        """How long to wait, now that the server says that it has changed."""
        now = self._now()
        if now - self._last > 2 * self._pause:
            self._pause = FIRST_PAUSE
        found, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        self._last = now + found
        return found
