"""How much of our time a server gets for what nobody asked of it.

A server may say what it likes, and as fast as it can. Beyond a share of the time it is not listened to: what it says
then waits with it, and everybody else is served.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

TIME_SHARE = 0.2
"""Of the time, in the long run."""
BURST_SECONDS = 0.5
"""Seconds that it may take before it waits."""
MESSAGE_SECONDS = 0.0002
"""What a message costs those who get it, roughly."""


class Pace:
    """The time of one server."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._left = BURST_SECONDS
        self._seen = now()

    async def spend(self, seconds: float) -> None:
        """So much was spent. Returns when there is time again."""
        now = self._now()
        self._left = min(BURST_SECONDS, self._left + (now - self._seen) * TIME_SHARE) - seconds
        self._seen = now
        if self._left < 0:
            await self._sleep(-self._left / TIME_SHARE)
