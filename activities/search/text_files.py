"""Opens the text files of a walk, a batch at a time; files that are too large or unreadable are counted."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Generator, Iterable

from holdfast.activities.files.walk import WalkEntry

FILE_LIMIT = 50_000_000
"""Bytes of a file that is still searched."""
BINARY_PROBE = 8_192
"""Bytes at the start of a file that decide whether it is text, as for `read_file`."""
FIRST_BATCH = 32
"""Files in the first batch; each after it holds more, so that both few and many are searched quickly."""
MAX_OPEN = 1_024


class TextFiles:
    """Files worth searching, by descriptor."""

    def __init__(self) -> None:
        self.too_large = 0
        self.unreadable = 0

    def open_batches(self, entries: Iterable[WalkEntry]) -> Generator[dict[int, str], None, None]:
        """The path of each open file by its descriptor; they are closed when the next batch is asked for.

        The first batch is empty: an invalid pattern is found before the walk begins.
        """
        files: dict[int, str] = {}
        size, most = FIRST_BATCH, find_open_limit()
        try:
            yield files
            for entry in entries:
                self._add_file(entry, files)
                if len(files) >= min(size, most):
                    yield files
                    _close_files(files)
                    size *= 4
            if files:
                yield files
        finally:
            _close_files(files)

    def _add_file(self, entry: WalkEntry, files: dict[int, str]) -> None:
        try:
            descriptor = entry.open_file()
        except OSError:
            self.unreadable += 1
            return
        if self._is_text(descriptor):
            files[descriptor] = entry.path
        else:
            os.close(descriptor)

    def _is_text(self, descriptor: int) -> bool:
        status = os.fstat(descriptor)
        if status.st_size > FILE_LIMIT:
            self.too_large += 1
            return False
        try:
            return stat.S_ISREG(status.st_mode) and b"\0" not in os.pread(descriptor, BINARY_PROBE, 0)
        except OSError:
            self.unreadable += 1
            return False


def find_open_limit() -> int:
    """A share of what this process may have open, for other calls need theirs."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(MAX_OPEN, allowed // 8))


def read_descriptor(descriptor: int) -> bytes:
    """Read a whole file, whatever the position of its descriptor, which others share."""
    parts: list[bytes] = []
    offset = 0
    while part := os.pread(descriptor, FILE_LIMIT + 1 - offset, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _close_files(files: dict[int, str]) -> None:
    while files:
        os.close(files.popitem()[0])
