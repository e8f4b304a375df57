"""A status line on standard error while servers are being connected. It disappears afterwards.

Only for a person at a terminal: neither a program that reads the output nor a log sees it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from holdfast.activities.mcp.server.lifecycle import ServerStatus
from holdfast.activities.mcp.servers import McpServers
from holdfast.util.text import shorten_text

FIRST_SECONDS = 0.5
"""How long to wait before the line appears."""
FRAME_SECONDS = 0.2
CLEAR_LINE = "\r\x1b[K"


async def connect_with_progress(servers: McpServers, *, quietly: bool = False) -> list[ServerStatus]:
    """Connect to the servers and return their statuses, with a status line meanwhile."""
    if quietly or not _is_watched():
        return await servers.fetch_statuses()
    async with _show_progress(lambda: _describe_untried(servers)):
        return await servers.fetch_statuses()


def _is_watched() -> bool:
    return sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _describe_untried(servers: McpServers) -> str:
    untried = [name for name in servers.names if (server := servers.get(name)) and not server.first_attempt.is_set()]
    return format_waiting(untried, shutil.get_terminal_size().columns - 1)


def format_waiting(names: Sequence[str], room: int) -> str:
    """Format the status line: as many names as fit."""
    if not names:
        return "stopping the servers"
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        words = f"waiting for: {', '.join(names[:count])}{more}"
        if len(words) <= room:
            return words
    return shorten_text(f"waiting for {len(names)} servers", room)


@asynccontextmanager
async def _show_progress(words: Callable[[], str]) -> AsyncIterator[None]:
    task = asyncio.create_task(_write_progress(words))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _write_progress(words: Callable[[], str]) -> None:
    await asyncio.sleep(FIRST_SECONDS)
    shown = ""
    try:
        while True:
            if (line := words()) != shown:
                _write_stderr(CLEAR_LINE + line)
                shown = line
            await asyncio.sleep(FRAME_SECONDS)
    finally:
        _write_stderr(CLEAR_LINE)


def _write_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
