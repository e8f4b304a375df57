"""The data folder of a process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import HoldfastError


def prepare_folder(data: Path) -> None:
    """Make the data folder, readable by its owner only.

    One that is there must be ours, and nobody else's to write: whoever may replace files in it signs with its key.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = data.stat()
        if status.st_uid == os.geteuid() and status.st_mode & stat.S_IWOTH:
            data.chmod(stat.S_IMODE(status.st_mode) & ~stat.S_IWOTH)
    except OSError as error:
        raise HoldfastError(f"the data folder {str(data)!r} cannot be made: {error.strerror or error}") from error
    if status.st_uid not in (os.geteuid(), 0):
        raise HoldfastError(
            f"the data folder {str(data)!r} belongs to somebody else, who could replace what is in it: choose another "
            "with --data, or give it to yourself (chown)"
        )
    if not os.access(data, os.W_OK | os.X_OK):
        raise HoldfastError(f"the data folder {str(data)!r} cannot be written")
