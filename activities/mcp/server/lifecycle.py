"""The lifetime of a server: its states, the pauses between attempts, closing connections, ending leftover processes."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.activities.mcp.transport.server_log import redact_problem
from holdfast.activities.process.command import MARKER, kill_tree
from holdfast.domain.base import Data

if TYPE_CHECKING:
    from holdfast.activities.mcp.server.connection import Connection

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 30.0
"""A connection that lasted this long resets the pause."""
LOOK_SECONDS = 1.0
"""How often to check for a new login."""


class RetryPauses:
    """The pauses between attempts to connect: each longer than the last, and cut short when a call wants the server."""

    def __init__(self, may_retry_now: Callable[[], Awaitable[bool]]) -> None:
        """`may_retry_now` says whether something has changed that may help, such as a new login."""
        self.wanted = asyncio.Event()
        self._may_retry_now = may_retry_now
        self._pause = FIRST_PAUSE
        self._began = time.monotonic()

    def start_attempt(self) -> None:
        """Note the beginning of an attempt."""
        self._began = time.monotonic()

    async def wait(self) -> None:
        """Wait until the next attempt."""
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
    """How long to wait before reading a changed list: the longer, the more often it changes."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pause = FIRST_PAUSE
        self._last = float("-inf")

    def choose_pause(self) -> float:
        """Choose the pause after a notice of change."""
        now = self._now()
        if now - self._last > 2 * self._pause:
            self._pause = FIRST_PAUSE
        found, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        self._last = now + found
        return found


_LOGGER = logging.getLogger(__name__)


class ConnectionCloser:
    """Closes the connections of one server in the background."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    def retire(self, connection: Connection, *, is_known: bool) -> asyncio.Task[None]:
        """Close a connection once its calls have finished. `is_known`: the reason why it broke has been reported."""
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
            await asyncio.sleep(0.1)  # calls have time limits of their own
        await connection.close()
        if connection.broken and not is_known:  # so far only the call that noticed it knows
            _LOGGER.warning("MCP server %s: %s", connection.name, redact_problem(connection.reason))


class ServerState(StrEnum):
    """The state of a server."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"
    """It could not be reached or was lost, and is tried again."""
    UNAUTHORIZED = "unauthorized"
    """Access was denied. It is tried again, at once after a new login."""
    REFUSED = "refused"
    """Its settings are unusable."""
    CLOSED = "closed"


class ServerStatus(Data):
    """The state of a server, for people."""

    name: str
    state: ServerState
    place: str | None = None
    protocol: str | None = None
    server: str | None = None
    """The name that it gives itself."""
    tools: int = 0
    problem: str | None = None
    left_out: tuple[str, ...] = ()
    """Why some of its tools are left out."""
    remarks: tuple[str, ...] = ()
    """Settings that match none of its tools."""


class McpServerUnavailable(Exception):
    """A server is not connected; the message says why."""


_MARK_PREFIX = "mcp/"


def build_mark(server: str) -> str:
    """Build the mark in the environment of a server that this process starts: it names this worker."""
    pid = os.getpid()
    return f"{_MARK_PREFIX}{pid}-{_read_start_time(pid)}/{server}/{uuid4().hex}"


async def end_leftovers() -> int:
    """End the servers that dead workers left behind, and return how many there were.

    A worker that is killed cannot end its servers, so the next one does. A server that clears its environment is not
    found.
    """
    marks = {mark for mark in _list_marks() if not _is_worker_alive(mark)}
    for mark in marks:
        await kill_tree(-1, mark)
    return len(marks)


def _list_marks() -> Iterator[str]:
    start = f"{MARKER}={_MARK_PREFIX}".encode()
    for entry in os.scandir("/proc") if Path("/proc/self/environ").exists() else ():
        if entry.name.isdigit():
            with suppress(OSError):
                for one in Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0"):
                    if one.startswith(start):
                        yield one.decode("utf-8", "replace").partition("=")[2]


def _is_worker_alive(mark: str) -> bool:
    """Whether the worker that this mark names is alive; True for a mark of another form."""
    worker = mark.removeprefix(_MARK_PREFIX).partition("/")[0]
    pid, _, began = worker.partition("-")
    return not pid.isdigit() or _read_start_time(int(pid)) == began


def _read_start_time(pid: int) -> str:
    """The start time of a process in clock ticks; empty if there is none."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[19].decode()
    return ""
