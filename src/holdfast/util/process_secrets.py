"""Hides the environment of this process from other processes of the same user.

`/proc/PID/environ` and `ps e` show the memory in which a process received its environment, for as long as it lives, and
every command that a tool runs can read that. So our programs copy their variables, blank the original, pass them to
their children through a socket, and refuse to be dumped or traced.

Linux only; elsewhere nothing happens. Not protected: the time until `protect_process` runs, and anything from root.
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
"""Tells a child process that the rest of its environment is on standard input."""
_OPEN_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "HOLDFAST_CALL")
"""Variables that stay visible: no secrets, needed before our code runs, or a mark that others look for."""
_OPEN_PREFIXES = ("LC_", "LD_", "DYLD_", "PYTHON")
_ENV_START, _ENV_END = 47, 48
"""Fields of /proc/PID/stat, counted from the one behind the name (proc(5): env_start, env_end)."""


def protect_process() -> None:
    """Receive variables from a parent process, blank the others in memory, and refuse to be dumped.

    To be called once, before any thread starts. A second call changes nothing.
    """
    refuse_dumps()
    if os.environ.pop(ENVIRONMENT_VARIABLE, None):
        os.environ.update(_receive_environment())
    if sys.platform == "linux":
        _blank_block()


def refuse_dumps() -> None:
    """Let no other process of the same user read our memory, descriptors or environment, or trace us.

    An exec lifts this, so it does not extend to child processes. Files of /proc/self that only their owner may read
    belong to root from then on. Root itself is not affected.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def open_environment() -> dict[str, str]:
    """The variables of this process that are no secret."""
    return {name: value for name, value in os.environ.items() if _is_open(name)}


def hand_over_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], socket.socket]:
    """The visible environment for a child process, and a socket with the rest of it to be its standard input.

    A socket, because it cannot be opened through /proc. The caller closes it when the child has started.
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
    """The variables on standard input, which is /dev/null afterwards."""
    data = bytearray()
    while more := os.read(0, 1_000_000):
        data += more
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return {str(name): str(value) for name, value in json.loads(data).items()}


def _blank_block() -> None:
    """Overwrite every secret variable in the memory that /proc shows, after libc has copied it."""
    import ctypes

    for address, entry in _list_entries():
        name = os.fsdecode(entry.partition(b"=")[0])
        if not _is_open(name):
            if name in os.environ:
                os.putenv(name, os.environ[name])  # libc still points to the memory that is about to be blanked
            ctypes.memset(address, 0, len(entry))


def _list_entries() -> Iterator[tuple[int, bytes]]:
    """The address and text of each variable in the original block; none where the kernel does not show it."""
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
    """Is this memory writable? Kernels that imitate Linux may give any numbers in `stat`."""
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            where, rights = line.split()[:2]
            low, _, high = where.partition(b"-")
            if int(low, 16) <= start and end <= int(high, 16):
                return rights.startswith(b"rw")
    return False
