"""The exchange of the worker and the supervisor of a run: the request, the files of its folder, the final folder.

The request goes through memory and nowhere else, because words and environments may hold secrets. The folder of a run:

    lock          held by the supervisor as long as it lives, however it ends
    lease         touched by the worker that attends; when that stops for too long, the command is ended
    run.json      who supervises what; written before the command begins, so without it nothing has begun
    output        the output as it came
    status.json   how the command ended; written whole at the very end
    chain         the first run of the workflow that owns a background command, once a worker has asked for it
    run.new       run.json before it counts
    status.new    space for the status, allocated at the start: a disk that is full by then does not lose the end

The lock is an open file description lock (fcntl(2)): it can be tested without taking it, so nobody who only looks is
in the way. This module imports little: every supervisor loads it, and one is started for each command.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress

LOCK_FILE = "lock"
LEASE_FILE = "lease"
RUN_FILE = "run.json"
PREPARED_FILE = "run.new"
OUTPUT_FILE = "output"
STATUS_FILE = "status.json"
CHAIN_FILE = "chain"
RESERVED_FILE = "status.new"
RESERVED_BYTES = 4_096
TAKEN_ANSWER = "taken"
"""The supervisor's answer when the run exists already."""
FOLDER_DESCRIPTOR = 240
"""The descriptor at which the shell of a command reports its final folder; no other program uses it."""
FOLDER_LIMIT = 1_000
"""Bytes of the path of a folder; a longer one counts as none."""
_LOCK_STRUCT = struct.Struct("@hhqqi4x")
_FOLDER_COMMANDS = re.compile(r"(?<![\w-])(cd|pushd|popd)(?![\w-])")
# A failure in the trap changes neither the output nor the exit code. It is on the first line of the command, so that
# the numbers of its lines stay the same.
_FOLDER_TRAP = "trap '{{ set +x; builtin pwd -P; }} 2>/dev/null >&{} || :' EXIT; "


class Request:
    """One command, and the limits under which it runs."""

    def __init__(
        self,
        *,
        key: str,
        digest: str,
        words: Sequence[str],
        directory: str,
        environment: Mapping[str, str],
        seconds: float,
        lease_seconds: float,
        grace_seconds: float,
        most_bytes: int,
        sandboxed: bool = False,
        follow: bool = False,
        input: bytes = b"",
        owner: Mapping[str, str] | None = None,
    ) -> None:
        self.key = key
        self.digest = digest
        self.words = list(words)
        self.directory = directory
        self.environment = dict(environment)
        self.seconds = seconds
        self.lease_seconds = lease_seconds
        self.grace_seconds = grace_seconds
        self.most_bytes = most_bytes
        self.sandboxed = sandboxed
        self.follow = follow
        self.input = input
        self.owner = dict(owner or {})
        """The fields of the `CommandOwner` of a background command."""

    def pack(self) -> bytes:
        """The request as bytes: a line of JSON, then the input of the command."""
        fields = {name: value for name, value in vars(self).items() if name != "input"}
        return json.dumps(fields).encode() + b"\n" + self.input

    @classmethod
    def unpack(cls, data: bytes) -> Request:
        """The request in these bytes."""
        head, _, input = data.partition(b"\n")
        return cls(**{**json.loads(head), "input": input})


def take_lock(folder: str) -> int | None:
    """Make the folder if need be, and lock it; the descriptor with the lock, or None when another process has it."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            _sync_folder(os.path.dirname(folder))
        with suppress(FileNotFoundError):  # the folder is being removed: make it again
            lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
            if not _try_lock(lock):
                os.close(lock)
                return None
            if _is_same_file(lock, folder):
                return lock
            os.close(lock)


def is_held(folder: str) -> bool:
    """Does a supervisor hold the lock of this folder?"""
    try:
        lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDONLY)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _LOCK_STRUCT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(_LOCK_STRUCT.unpack(answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(lock)


def reserve_status(folder: str) -> None:
    """Allocate the space for the status. OSError when there is none; nothing has begun then."""
    _write_file(os.path.join(folder, RESERVED_FILE), bytes(RESERVED_BYTES))


def write_status(folder: str, status: dict[str, object]) -> None:
    """Write how the command ended into the allocated space, durably."""
    data = json.dumps(status).encode()
    if len(data) > RESERVED_BYTES:
        data = json.dumps({**status, "error": str(status.get("error"))[:500], "directory": ""}).encode()
    file = os.open(os.path.join(folder, RESERVED_FILE), os.O_WRONLY)
    try:
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(os.path.join(folder, RESERVED_FILE), os.path.join(folder, STATUS_FILE))
    _sync_folder(folder)


def prepare_run(folder: str, run: dict[str, object]) -> None:
    """Write who supervises what, under a name that nobody reads yet. OSError when there is no space."""
    _write_file(os.path.join(folder, PREPARED_FILE), json.dumps(run).encode())


def begin_run(folder: str) -> None:
    """Give that file its final name. From here on the command may have begun."""
    os.rename(os.path.join(folder, PREPARED_FILE), os.path.join(folder, RUN_FILE))
    _sync_folder(folder)


def read_file(folder: str, name: str) -> dict[str, object] | None:
    """The JSON object in a file of the folder; None when the file does not exist, empty when it is damaged."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            value = json.loads(file.read(1_000_000))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def clear_run(folder: str) -> None:
    """Remove a run. Only for the process that holds its lock."""
    for name in (RUN_FILE, STATUS_FILE, RESERVED_FILE, PREPARED_FILE, OUTPUT_FILE, LEASE_FILE, CHAIN_FILE, LOCK_FILE):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    with suppress(OSError):  # another process may have begun the run again meanwhile
        os.rmdir(folder)


def may_move(command: str) -> bool:
    """May a shell command change its working directory, so that its final folder has to be known (S47)?"""
    return _FOLDER_COMMANDS.search(command) is not None


def add_folder_report(command: str) -> str:
    """The command for bash, reporting its final folder when it exits.

    A command that sets a trap of its own for EXIT, or becomes another program, reports nothing.
    """
    return _FOLDER_TRAP.format(FOLDER_DESCRIPTOR) + command


def read_folder(receiving: int) -> str:
    """The final folder that was reported on a descriptor; empty without a valid report."""
    report = b""
    with suppress(BlockingIOError):
        report = os.read(receiving, FOLDER_LIMIT + 1)
    path = report.removesuffix(b"\n")
    with suppress(UnicodeDecodeError):
        return path.decode() if path.startswith(b"/") and len(report) <= FOLDER_LIMIT else ""
    return ""


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK_STRUCT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_same_file(descriptor: int, folder: str) -> bool:
    """Is the locked file still the one with that name?"""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(os.path.join(folder, LOCK_FILE)))
    except FileNotFoundError:
        return False


def _write_file(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
