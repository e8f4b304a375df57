"""Nothing is left behind: every process that a run started, however deep, is ours while it lives, and is ended.

The harness is the one to whom orphans come, so what its workers left behind is found among its own descendants.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SECONDS = 10.0
"""How long what is ending by itself may take: a supervisor that has just seen its command's end."""


def descendants() -> list[int]:
    """Everybody below us who lives."""
    parents = dict(_processes())
    found, level = [], {os.getpid()}
    while level := {pid for pid, parent in parents.items() if parent in level}:
        found += sorted(level)
    return found


def named(pid: int) -> str:
    """A process in words."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    return f"process {pid}: {b' '.join(words).decode('utf-8', 'replace').strip()[:200]}"


def is_local(pid: int) -> bool:
    """Is this an MCP server that a worker started?"""
    return "mcp_local.py" in named(pid)


def kill_if(pid: int, condition: Callable[[int], bool]) -> bool:
    """SIGKILL for this very process, and not for whoever has its number by now; whether it was there."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        right = condition(pid)
        if right:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return right


def see_off(known: set[int]) -> None:
    """Let orphans that have ended leave the table of processes; not our own children, whom others wait for."""
    for pid, parent in _processes(dead=True):
        if parent == os.getpid() and pid not in known:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


async def left_behind(known: set[int]) -> list[str]:
    """Who is still there after a while, though nobody should be; they are ended."""
    deadline = time.monotonic() + SECONDS
    while (left := [pid for pid in descendants() if pid not in known]) and time.monotonic() < deadline:
        see_off(known)
        await asyncio.sleep(0.05)
    names = [named(pid) for pid in left]
    await end(known)
    return names


async def end(known: set[int]) -> None:
    """SIGKILL for everybody below us, until there is nobody."""
    deadline = time.monotonic() + SECONDS
    while (left := [pid for pid in descendants() if pid not in known]) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        see_off(known)
        await asyncio.sleep(0.02)
    see_off(known)


def _processes(*, dead: bool = False) -> list[tuple[int, int]]:
    """Every process with its parent; those that have ended and are still in the table only if wanted."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if (fields[0] == "Z") <= dead:
                    found.append((int(entry), int(fields[1])))
    return found
