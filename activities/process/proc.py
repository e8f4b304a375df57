"""Processes as /proc tells them: who descends from whom, and which process a number meant."""

from __future__ import annotations

import os

_ACTIVITIES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAIN_SCRIPT = os.path.join(_ACTIVITIES, "supervision", "main.py")
"""The program that a supervisor is: `python -I -S MAIN FOLDER`."""


def read_start_time(pid: int) -> int | None:
    """When a process was started, in the kernel's count: a number that is used again has another. None: not there."""
    fields = _read_stat(pid)
    return int(fields[19]) if fields else None


def list_descendants(root: int) -> dict[int, int]:
    """Every process below `root`, with its parent. Dead ones too: one that looks dead may still have threads."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read_stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        for pid in children.get(parent, ()):
            found[pid] = parent
            waiting.append(pid)
    return found


def _read_stat(pid: int) -> list[bytes]:
    """Of /proc/PID/stat, from the state on: a name may hold spaces and brackets. Empty when there is no process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def is_supervisor(pid: int) -> bool:
    """Is this a supervisor? Its command line says so, which everybody can read of a process that refuses to be dumped.

    Whoever ends what a dead worker left behind leaves supervisors alone: they end by themselves.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[-5:-2] == [b"-I", b"-S", os.fsencode(MAIN_SCRIPT)]
    except OSError:
        return False
