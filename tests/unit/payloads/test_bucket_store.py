"""A connection is opened once, shared, and closed when nobody needs it; also when its event loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.payloads.bucket_store import CachedConnection


class Line:
    """Counts how often it was opened and closed."""

    def __init__(self, *, fails: int = 0) -> None:
        self.opened = self.closed = 0
        self.fails = fails

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        if self.fails:
            self.fails -= 1
            raise OSError("nobody there")
        self.opened += 1
        try:
            yield self.opened
        finally:
            self.closed += 1


async def used(kept: CachedConnection[int]) -> int:
    async with kept.use_connection() as connection:
        await asyncio.sleep(0)
        return connection


async def closed(line: Line, times: int) -> None:
    async with asyncio.timeout(20):
        while line.closed < times:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.01)


async def test_all_share_one_that_is_closed_when_idle_and_opened_again_when_needed() -> None:
    line = Line()
    kept = CachedConnection(line.open, idle_seconds=0.01)
    assert await asyncio.gather(*(used(kept) for _ in range(50))) == [1] * 50
    await closed(line, 1)
    assert await used(kept) == 2
    await closed(line, 2)


async def test_it_is_not_closed_while_somebody_uses_it() -> None:
    line = Line()
    kept = CachedConnection(line.open, idle_seconds=0.01)
    async with kept.use_connection():
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert line.closed == 0
    await closed(line, 1)


def test_it_is_closed_with_its_loop_and_another_loop_has_its_own() -> None:
    line = Line()
    kept = CachedConnection(line.open)
    assert asyncio.run(used(kept)) == 1
    assert line.closed == 1
    assert asyncio.run(used(kept)) == 2
    assert line.closed == 2


async def test_one_that_cannot_be_opened_is_tried_again() -> None:
    line = Line(fails=1)
    kept = CachedConnection(line.open, idle_seconds=0.01)
    with pytest.raises(OSError, match="nobody there"):
        await used(kept)
    assert await used(kept) == 1
    await closed(line, 1)
