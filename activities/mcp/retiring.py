"""Connections that are done with: closed in the background once nothing runs on them, and all before the end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.activities.mcp.connecting import Connection
from holdfast.activities.mcp.logged import redact_problem

_LOGGER = logging.getLogger(__name__)


class ConnectionCloser:
    """The connections of one server that are being closed."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    def retire(self, connection: Connection, *, is_known: bool) -> asyncio.Task[None]:
        """Close it, once what runs on it has finished. `is_known`: why it ended is known to whoever looks after it."""
        task = asyncio.create_task(self._close_when_idle(connection, is_known=is_known))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def close_all(self) -> None:
        """Close all of them now. Returns when nothing that they started is left."""
        self._ending.set()
        while self._closing:
            await asyncio.wait(self._closing)

    async def _close_when_idle(self, connection: Connection, *, is_known: bool) -> None:
        while connection.calls and not connection.gone.is_set() and not self._ending.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # calls have limits of their own
        await connection.close()
        if connection.broken and not is_known:  # by the call that noticed it, and to nobody else
            _LOGGER.warning("MCP server %s: %s", connection.name, redact_problem(connection.reason))
