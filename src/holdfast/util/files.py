"""Atomic replacement of files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast


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
