"""Opening files beneath a folder, and nowhere else: no `..`, no link and no race leads out of it.

The kernel does the walking (`openat2` with RESOLVE_BENEATH), so a link that is swapped while we look is refused as
well. Where the kernel cannot (before Linux 5.6, or another system) links are resolved first and the result is checked,
which a swap in between can fool.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

_OPENAT2 = 437
_BENEATH = 0x08
_NO_MAGIC_LINKS = 0x02
_OUTSIDE = {errno.EXDEV, errno.ELOOP}


class OutsideError(ValueError):
    """A path leads out of the workspace."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the path {path!r} is outside the workspace")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: Path, path: str, flags: int) -> int:
    """A descriptor of `path`, which is relative to `root`; OutsideError when it leads out, OSError as `open` raises."""
    if not has_openat2():
        return _open_resolved(root, path, flags)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _openat2(folder, path, flags)
    except OSError as error:
        if error.errno in _OUTSIDE:
            raise OutsideError(path) from error
        raise
    finally:
        os.close(folder)


@cache
def has_openat2() -> bool:
    """Can this kernel walk for us?"""
    if sys.platform != "linux":
        return False
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(folder, ".", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _openat2(folder: int, path: str, flags: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGIC_LINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(8):  # EAGAIN: something was renamed under the walk
        found = libc.syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        if ctypes.get_errno() != errno.EAGAIN:
            break
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), path)


def _open_resolved(root: Path, path: str, flags: int) -> int:
    base = root.resolve()
    target = (base / path).resolve()
    if not target.is_relative_to(base):
        raise OutsideError(path)
    return os.open(target, flags | os.O_CLOEXEC)


def find_real_path(descriptor: int, path: Path) -> Path:
    """Where an open file really is: by its descriptor where the system tells, else by its name."""
    with suppress(OSError):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return path.resolve()
