"""Servers that outlived their worker: a worker that is killed cannot end them, so the next one does.

Everything a server starts carries a mark in its environment that names the worker. One that also cleans its environment
is not found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from holdfast.activities.process.command import MARKER, kill_tree

_MARK_PREFIX = "mcp/"


def build_mark(server: str) -> str:
    """The mark of a server that this process starts now."""
    pid = os.getpid()
    return f"{_MARK_PREFIX}{pid}-{_read_start_time(pid)}/{server}/{uuid4().hex}"


async def end_leftovers() -> int:
    """End what workers left that are no more; how many servers that were."""
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
    """Does the worker live that this mark names? One that names none is nobody's business."""
    worker = mark.removeprefix(_MARK_PREFIX).partition("/")[0]
    pid, _, began = worker.partition("-")
    return not pid.isdigit() or _read_start_time(int(pid)) == began


def _read_start_time(pid: int) -> str:
    """When a process began, as its host counts; nothing when there is none."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[19].decode()
    return ""
