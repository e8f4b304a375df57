"""Atomic replacement of files, and locks between the processes of a host."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from holdfast.errors import HoldfastError

POLL_SECONDS = 0.02


@contextmanager
def hold_lock(file: Path, seconds: float, busy: str) -> Iterator[None]:
    """Hold the lock of a file for a block. OSError when it cannot be made, HoldfastError(`busy`) after `seconds`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file.with_suffix(".lock"), flags, 0o600)
    try:
        _wait_for_lock(descriptor, time.monotonic() + seconds, busy)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, deadline: float, busy: str) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise HoldfastError(busy) from None
        time.sleep(POLL_SECONDS)


@contextmanager
def replace_file(file: Path) -> Iterator[BinaryIO]:
    """A new file, readable by its owner alone, that replaces this one when the block ends without an exception."""
    descriptor, draft = tempfile.mkstemp(prefix=".new-", dir=file.parent)
    try:
        with cast(BinaryIO, os.fdopen(descriptor, "w+b")) as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(draft, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def write_whole(file: Path, data: bytes) -> None:
    """Replace the file atomically by one with this content. OSError as the system raises it."""
    with replace_file(file) as opened:
        opened.write(data)
