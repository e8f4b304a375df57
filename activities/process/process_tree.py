"""Ending a process tree: everything in the command's process group, and everything that carries its mark.

The mark is an environment variable that children inherit, so a process that left the group (setsid, double fork) is
found as well. One that also cleans its environment is not: only a PID namespace would hold that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

MARKER = "HOLDFAST_CALL"
TERM_SECONDS = 2.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.02
_EXECUTOR = ThreadPoolExecutor(4, "holdfast-processes")
"""Not the threads that everything else shares: a stop must not wait for slow files."""


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` however often we are cancelled meanwhile: half a clean-up leaves something behind."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


async def kill_tree(group: int, key: str) -> None:
    """SIGTERM to all of it, SIGKILL to what is left after two seconds. Returns when nothing is left."""
    if await _signal_until_gone(group, key, signal.SIGTERM, TERM_SECONDS):
        return
    await _signal_until_gone(group, key, signal.SIGKILL, KILL_SECONDS)


async def _signal_until_gone(group: int, key: str, number: signal.Signals, seconds: float) -> bool:
    """Send the signal until nobody is left or time is up: SIGKILL also to whoever appears meanwhile.

    Not so SIGTERM: what appears then is how a command cleans up.
    """
    told: set[int] = set()
    deadline = time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    while members := await loop.run_in_executor(_EXECUTOR, _list_members, group, key):
        if time.monotonic() > deadline:
            return False
        for pid in members - told if number == signal.SIGKILL or not told else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        told |= members
        await asyncio.sleep(POLL_SECONDS)
    return True


def _list_members(group: int, key: str) -> set[int]:
    """Living processes of the group or with the mark."""
    if not Path("/proc/self/environ").exists():
        return _list_group(group)
    mark = f"{MARKER}={key}".encode()
    return {
        pid
        for pid in _list_pids()
        if _read_state(pid) not in (None, "Z") and (_is_in_group(pid, group) or _has_mark(pid, mark))
    }


def _list_group(group: int) -> set[int]:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)
        return {-group}
    return set()


def _list_pids() -> Iterator[int]:
    own = os.getpid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != own:
            yield int(entry.name)


def _read_state(pid: int) -> str | None:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    return None


def _is_in_group(pid: int, group: int) -> bool:
    with suppress(OSError):
        return os.getpgid(pid) == group
    return False


def _has_mark(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
