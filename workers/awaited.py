"""A line that says which servers are waited for, while they are: on standard error, and gone afterwards.

Only for somebody who looks at a terminal. A program that reads our output, or a log, never sees it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from holdfast.activities.mcp.servers import Servers
from holdfast.activities.mcp.status import ServerStatus
from holdfast.content import shorten

FIRST_SECONDS = 0.5
"""Whoever answers sooner is not talked of."""
FRAME_SECONDS = 0.2
CLEAR = "\r\x1b[K"


async def looked(servers: Servers, *, quietly: bool = False) -> list[ServerStatus]:
    """Connect to servers, hear what they have, and say meanwhile whom that waits for."""
    if quietly or not _watched():
        return await servers.look()
    async with _telling(lambda: _words(servers)):
        return await servers.look()


def _watched() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _words(servers: Servers) -> str:
    untried = [name for name in servers.names if (server := servers.get(name)) and not server.tried.is_set()]
    return waiting_for(untried, shutil.get_terminal_size().columns - 1)


def waiting_for(names: Sequence[str], room: int) -> str:
    """What is waited for, in one line: as many names as there is room for."""
    if not names:
        return "ending the servers"
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        words = f"waiting for: {', '.join(names[:count])}{more}"
        if len(words) <= room:
            return words
    return shorten(f"waiting for {len(names)} servers", room)


@asynccontextmanager
async def _telling(words: Callable[[], str]) -> AsyncIterator[None]:
    task = asyncio.create_task(_tell(words))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _tell(words: Callable[[], str]) -> None:
    await asyncio.sleep(FIRST_SECONDS)
    said = ""
    try:
        while True:
            if (now := words()) != said:
                _write(CLEAR + now)
                said = now
            await asyncio.sleep(FRAME_SECONDS)
    finally:
        _write(CLEAR)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
