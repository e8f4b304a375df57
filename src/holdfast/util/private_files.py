"""Files that decide what runs or hold secrets: read without waiting and only when nobody else could have changed or
read them, changed by one process at a time.

The reader opens first and looks at what it has opened, so nobody can swap the file in between.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from holdfast.errors import BadInput
from holdfast.util.files import write_whole
from holdfast.util.text import escape_controls

POLL_SECONDS = 0.02
Check = Callable[[os.stat_result], str | None]
"""Returns why a file with this status is not used, as a clause such as `belongs to another user`; None if it is."""


class UnfitFile(Exception):
    """Why a file is not used, as a clause: `is not a regular file`."""


@contextmanager
def open_regular_file(file: Path, *, follow: bool = True) -> Iterator[BufferedReader]:
    """Open a file for reading. UnfitFile for a folder, a pipe or a device, OSError as the system raises it.

    Without `follow`, a symbolic link is an OSError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)  # a pipe would wait
    descriptor = os.open(file, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UnfitFile("is a folder, not a file" if stat.S_ISDIR(mode) else "is not a regular file")
        with open(descriptor, "rb", closefd=False) as opened:
            yield opened
    finally:
        os.close(descriptor)


def read_regular_file(file: Path, limit: int, check: Check, *, follow: bool = True) -> bytes:
    """Return the content of a file that passes `check`. FileNotFoundError without one; UnfitFile for one that cannot
    be read, does not pass, or is over `limit` bytes.
    """
    try:
        with open_regular_file(file, follow=follow) as opened:
            if problem := check(os.fstat(opened.fileno())):
                raise UnfitFile(problem)
            data = opened.read(limit + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UnfitFile(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > limit:
        raise UnfitFile(f"is over {limit:,} bytes")
    return data


def check_secret(status: os.stat_result) -> str | None:
    """Refuse a file that other users may read or write."""
    if status.st_mode & 0o077:
        return "may be read or written by other users, who may have copied it: replace it, or chmod 600"
    return None


def check_own_secret(status: os.stat_result) -> str | None:
    """Refuse a file of another user, and one that other users may read or write."""
    return _check_owner(status) or check_secret(status)


def check_own(status: os.stat_result) -> str | None:
    """Refuse a file of another user, and one that other users may write."""
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return _check_owner(status) or "may be written by other users: check its content, then chmod 600"
    return _check_owner(status)


def _check_owner(status: os.stat_result) -> str | None:
    return None if status.st_uid == os.geteuid() else "belongs to another user"


@contextmanager
def lock_file(file: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file for the block; its folder is made if there is none, for its owner alone.

    BadInput when another process holds it for longer than `seconds`, or when it cannot be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file.with_suffix(".lock"), flags, 0o600)
    except OSError as error:
        raise _build_write_error(file, error) from None
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise BadInput(f"{_format_name(file)} is being changed by another process: try again")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def replace_private(file: Path, data: bytes) -> None:
    """Replace a file as a whole, for its owner alone. BadInput when it cannot be written."""
    try:
        write_whole(file, data)
    except OSError as error:
        raise _build_write_error(file, error) from None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _build_write_error(file: Path, error: OSError) -> BadInput:
    return BadInput(f"{_format_name(file)} cannot be written: {error.strerror or error}")


def _format_name(file: Path) -> str:
    return repr(escape_controls(str(file)))
