"""Keeps what this process was given in its environment out of what other processes of the same user can read.

`/proc/PID/environ` and `ps e` show the memory in which a process got its environment, for as long as it lives. Every
command that a tool runs can read that. So the command line moves its variables to memory of its own and blanks the
original, hands them to its children through a socket, and refuses to be dumped or traced.

Linux alone; elsewhere nothing happens. Not protected: the moment until `protect_process` runs, and anything from root,
who reads the memory of every process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

PR_SET_DUMPABLE = 4
ENVIRONMENT_VARIABLE = "HOLDFAST_ENVIRONMENT"
"""Set for a child of ours that reads the rest of its environment from standard input."""
_OPEN_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "HOLDFAST_CALL")
"""Variables that stay where they are: no secrets, needed before our code runs, or a mark that others look for."""
_OPEN_PREFIXES = ("LC_", "LD_", "DYLD_", "PYTHON")
_ENV_START, _ENV_END = 47, 48
"""Fields of /proc/PID/stat, counted from the one behind the name."""


def protect_process() -> None:
    """Take over the variables that a parent of ours hands over, blank the rest in memory, and refuse to be read.

    To be called once, before there are threads. A second call does nothing new.
    """
    refuse_dumps()
    if os.environ.pop(ENVIRONMENT_VARIABLE, None):
        os.environ.update(_receive_environment())
    if sys.platform == "linux":
        _blank_block()


def refuse_dumps() -> None:
    """Other processes of the same user may not read our memory, descriptors or environment, nor trace us.

    Until the next exec: what we start is open again. The files of /proc/self that only their owner may read become
    root's. For root itself nothing changes.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def open_environment() -> dict[str, str]:
    """The variables of this process that everybody may see."""
    return {name: value for name, value in os.environ.items() if _is_open(name)}


def hand_over_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], socket.socket]:
    """What a child of ours is started with, and the socket that is its standard input, with the rest of `environment`.

    A socket, since nobody can open one through /proc. To be closed here once the child has it.
    """
    import socket
    import threading

    shown = {name: value for name, value in environment.items() if _is_open(name)}
    rest = {name: value for name, value in environment.items() if name not in shown}
    reading, writing = socket.socketpair()

    def write() -> None:
        with writing, suppress(OSError):  # the child may be gone
            writing.sendall(json.dumps(rest).encode())

    threading.Thread(target=write, daemon=True).start()  # it may be more than a socket holds
    return {**shown, ENVIRONMENT_VARIABLE: "stdin"}, reading


def _is_open(name: str) -> bool:
    return name in _OPEN_NAMES or name.startswith(_OPEN_PREFIXES)


def _receive_environment() -> dict[str, str]:
    """What came on standard input, which is empty from here on."""
    data = bytearray()
    while more := os.read(0, 1_000_000):
        data += more
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return {str(name): str(value) for name, value in json.loads(data).items()}


def _blank_block() -> None:
    """Overwrite every variable in the memory that /proc shows, once libc has a copy of it elsewhere."""
    import ctypes

    for address, entry in _list_entries():
        name = os.fsdecode(entry.partition(b"=")[0])
        if not _is_open(name):
            if name in os.environ:
                os.putenv(name, os.environ[name])  # libc still points to the memory that is about to be blanked
            ctypes.memset(address, 0, len(entry))


def _list_entries() -> Iterator[tuple[int, bytes]]:
    """Each variable of the block as it was at the start, with its address; none where the kernel does not tell."""
    import ctypes

    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        if not start < end or not _is_writable(start, end):
            return
    except (OSError, ValueError, IndexError):
        return
    address = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        yield address, entry
        address += len(entry) + 1


def _is_writable(start: int, end: int) -> bool:
    """Is this memory ours to write? Kernels that only look like Linux may say anything in `stat`."""
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            where, rights = line.split()[:2]
            low, _, high = where.partition(b"-")
            if int(low, 16) <= start and end <= int(high, 16):
                return rights.startswith(b"rw")
    return False
