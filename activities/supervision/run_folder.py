"""The folder of one run: what lies in it, how it is written, and the lock that says whether its supervisor lives.

    lock          held by the supervisor as long as it lives, whatever ends it
    lease         touched by the worker that attends; when that stops for too long, the run is ended
    run.json      who supervises what; written before the command begins, so without it nothing has begun
    output        what the command said, as it came
    status.json   how it ended; written whole at the very end
    chain         of a background command: the first run of the workflow that owns it, once a worker has asked for it
    run.new       the same before it counts
    status.new    room for the status, taken at the start: a disk that is full by then does not lose the end

A lock of the kind that can be looked at without taking it: whoever only wants to know never stands in the way.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
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
_LOCK_STRUCT = struct.Struct("@hhqqi4x")


def take_lock(folder: str) -> int | None:
    """Lock the folder, made if need be; the descriptor that holds the lock, or None when somebody else does."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            _sync_folder(os.path.dirname(folder))
        with suppress(FileNotFoundError):  # it is being removed: make it anew
            lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o600)
            if not _try_lock(lock):
                os.close(lock)
                return None
            if _is_same_file(lock, folder):
                return lock
            os.close(lock)


def is_held(folder: str) -> bool:
    """Does a supervisor live here?"""
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
    """Take the room for the status. OSError when there is none: then nothing has begun yet."""
    _write_file(os.path.join(folder, RESERVED_FILE), bytes(RESERVED_BYTES))


def write_status(folder: str, status: dict[str, object]) -> None:
    """Write how it ended into the room that was taken for it."""
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
    """Write who supervises what, where nobody looks yet. OSError when there is no room."""
    _write_file(os.path.join(folder, PREPARED_FILE), json.dumps(run).encode())


def begin_run(folder: str) -> None:
    """Let it count. From here on the command may have begun."""
    os.rename(os.path.join(folder, PREPARED_FILE), os.path.join(folder, RUN_FILE))
    _sync_folder(folder)


def read_file(folder: str, name: str) -> dict[str, object] | None:
    """What a file of the folder says; None when it is not there, empty when it says nothing we wrote."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            said = json.loads(file.read(1_000_000))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def clear_run(folder: str) -> None:
    """Remove a run, by whoever holds its lock."""
    for name in (RUN_FILE, STATUS_FILE, RESERVED_FILE, PREPARED_FILE, OUTPUT_FILE, LEASE_FILE, CHAIN_FILE, LOCK_FILE):
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    with suppress(OSError):  # somebody may have begun anew in the same moment
        os.rmdir(folder)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK_STRUCT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_same_file(descriptor: int, folder: str) -> bool:
    """Is the file that we locked still the one that is there?"""
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
    """Make names durable, not only what they name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
