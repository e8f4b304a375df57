"""Processes as Linux shows them below /proc: states, start times, descendants.

Imports nothing but `os`: every supervisor loads this file, and one is started for each command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_ACTIVITIES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAIN_SCRIPT = os.path.join(_ACTIVITIES, "supervision", "main.py")
"""The script of a supervisor: `python -I -S MAIN_SCRIPT FOLDER`."""


def list_pids() -> Iterator[int]:
    """Every process that /proc lists, threads excluded."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def read_state(pid: int) -> str | None:
    """The state letter of a process (`R`, `S`, `Z` …); None when it does not exist."""
    fields = _read_stat(pid)
    return fields[0].decode() if fields else None


def read_start_time(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot; None when it does not exist.

    A reused process id has another start time.
    """
    fields = _read_stat(pid)
    return int(fields[19]) if fields else None


def list_descendants(root: int) -> dict[int, int]:
    """Every process below `root`, with its parent. Zombies are included: their threads may still run."""
    children: dict[int, list[int]] = {}
    for pid in list_pids():
        if fields := _read_stat(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        for pid in children.get(parent, ()):
            found[pid] = parent
            waiting.append(pid)
    return found


def is_supervisor(pid: int) -> bool:
    """Is this process a supervisor of Holdfast? Whoever kills what a dead worker left behind must leave those alone.

    Read from the command line, which stays readable for a process that refuses to be dumped.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[-5:-2] == [b"-I", b"-S", os.fsencode(MAIN_SCRIPT)]
    except OSError:
        return False


def _read_stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; empty when there is no such process.

    Counted from the last bracket: the name of a program may hold blanks and brackets itself.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
