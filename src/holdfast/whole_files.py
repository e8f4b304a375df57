"""Files that are there whole or not at all: written beside their place, synced, and renamed into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast


@contextmanager
def replace_file(file: Path) -> Iterator[BinaryIO]:
    """A new file, for its owner alone, that takes this one's place when the block ends well."""
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
    """Put this in the file's place."""
    with replace_file(file) as opened:
        opened.write(data)
