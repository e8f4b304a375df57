"""One at a time, of all processes of a host: a lock on a file beside the one that is changed."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import HoldfastError

POLL_SECONDS = 0.02


@contextmanager
def hold_lock(file: Path, seconds: float, busy: str) -> Iterator[None]:
    """Hold the lock of a file. OSError when there can be none; HoldfastError, `busy`, when others hold it too long."""
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
