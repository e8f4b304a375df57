"""The workspace: the one folder that file tools may touch, by relative or absolute paths that a model gives.

No `..`, no link and no race leads out of it. The kernel resolves every path (`openat2` with RESOLVE_BENEATH), so a link
that is swapped meanwhile is refused as well. Where the kernel cannot (Linux before 5.6, other systems), links are
resolved first and the result is checked; a swap in between can defeat that.

An open file stays the same file, whatever is renamed or linked meanwhile: writing goes through the open folder.

Why: docs/decisions/0014-files-open-beneath-the-workspace.md.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from holdfast.domain.calls.tool import ToolFailure
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning

READ_LIMIT = 20_000_000
"""Bytes of a file that a tool reads or changes as a whole."""
_OPENAT2 = 437
_BENEATH = 0x08
_NO_MAGIC_LINKS = 0x02
_OUTSIDE = {errno.EXDEV, errno.ELOOP}


class OutsideError(ValueError):
    """A path leads out of the workspace."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the path {path!r} is outside the workspace")


@dataclass(frozen=True)
class Workspace:
    """A folder and everything below it."""

    root: Path

    def to_relative(self, path: str) -> str:
        """`path` relative to the root. ValueError for an empty path, one with NUL, or an absolute one elsewhere."""
        if not path or "\0" in path:
            raise ValueError("a path has at least one character, and no NUL")
        if not os.path.isabs(path):
            return path
        for base in dict.fromkeys((self.root, self.root.resolve())):
            if Path(path).is_relative_to(base):
                return str(Path(path).relative_to(base))
        raise OutsideError(path)

    def resolve_path(self, path: str) -> str:
        """The real place of `path` from the root, links followed. It need not exist. ValueError when it is outside."""
        if not self.root.is_dir():
            raise ValueError("the workspace folder is gone")
        wanted = Path(self.to_relative(path))
        missing: list[str] = []
        while True:
            try:
                with self.open_descriptor(str(wanted), os.O_PATH) as found:
                    real = _find_real_path(found, self.root / wanted)
                break
            except FileNotFoundError:
                if wanted.name in ("", "..") or self._is_link(wanted):
                    raise OutsideError(path) from None
                missing.insert(0, wanted.name)
                wanted = wanted.parent
            except OSError as error:
                raise ValueError(f"the path {path!r} cannot be used: {error.strerror or error}") from error
        return str(Path(os.path.relpath(real, self.root.resolve()), *missing))

    @contextmanager
    def open_descriptor(self, path: str, flags: int) -> Iterator[int]:
        """A descriptor of `path` for the length of a block. OutsideError, or OSError as `os.open` raises it."""
        wanted = self.to_relative(path)
        try:
            descriptor = _open_beneath(self.root, wanted, flags)
        except OutsideError:
            descriptor = _open_beneath(self.root, self._resolve_links(wanted), flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read_status(self, path: str) -> os.stat_result | None:
        """The status of a file or folder; None when it does not exist."""
        try:
            with self.open_descriptor(path, os.O_PATH) as found:
                return os.fstat(found)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str, limit: int) -> bytes:
        """Up to `limit` bytes of a file. OSError for a folder; never waits for a pipe."""
        with self.open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK) as found, os.fdopen(os.dup(found), "rb") as file:
            return file.read(limit) or b""

    def read_present(self, path: str) -> bytes | None:
        """The present content of a file; None when it does not exist, ToolFailure when it cannot be read."""
        try:
            return self.read(path, READ_LIMIT + 1) if self.read_status(path) else None
        except OSError as error:
            raise ToolFailure("file_not_readable", f"{path!r} cannot be read: {error.strerror or error}") from error

    def list_names(self, path: str) -> list[str]:
        """The sorted names in a folder; those of folders end in a slash."""
        with self.open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as found, os.scandir(found) as entries:
            return sorted(format_name(entry.name) + ("/" if entry.is_dir() else "") for entry in entries)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file by way of a temporary one: readers see the old or the new content, a second call changes none.

        `path` comes from `resolve_path`. OSError when a link in it leads elsewhere by now.
        """
        place = Path(path)
        with self._open_folder(place.parent) as folder:
            if _find_real_path(folder, self.root / place.parent) != self.root.resolve() / place.parent:
                raise OSError(errno.ELOOP, "a link leads elsewhere by now")
            temporary = f".holdfast-{uuid4().hex}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)  # the umask applies
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    if (mode := _read_mode(place.name, folder)) is not None:
                        os.fchmod(file.fileno(), mode)
                    os.fsync(file.fileno())
                os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    @contextmanager
    def _open_folder(self, place: Path) -> Iterator[int]:
        """A folder, made if need be, and held open: renaming it meanwhile does no harm."""
        made = Path()
        for name in place.parts:
            with self.open_descriptor(str(made), os.O_RDONLY | os.O_DIRECTORY) as parent, suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)
            made /= name
        with self.open_descriptor(str(place), os.O_RDONLY | os.O_DIRECTORY) as folder:
            yield folder

    def _resolve_links(self, wanted: str) -> str:
        """The path with its links resolved: the kernel refuses absolute links also where they lead inside."""
        base = self.root.resolve()
        try:
            return str((base / wanted).resolve().relative_to(base))
        except (ValueError, RuntimeError):  # outside, or a loop of links
            raise OutsideError(wanted) from None

    def _is_link(self, wanted: Path) -> bool:
        with (
            suppress(OSError, ValueError),
            self.open_descriptor(str(wanted.parent), os.O_RDONLY | os.O_DIRECTORY) as parent,
        ):
            return stat.S_ISLNK(os.stat(wanted.name, dir_fd=parent, follow_symlinks=False).st_mode)
        return False


def digest_content(content: bytes | None) -> str:
    """The SHA-256 of the content of a file; empty when there is no file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def format_name(name: str) -> str:
    """A file name as text; bytes that are no UTF-8 are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


@cache
def has_openat2() -> bool:
    """Does this kernel have `openat2`?"""
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


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _open_beneath(root: Path, path: str, flags: int) -> int:
    """A descriptor of `path` below `root`. OutsideError when it leads out, OSError as `os.open` raises it."""
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


def _openat2(folder: int, path: str, flags: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGIC_LINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(8):  # EAGAIN: something was renamed during the walk (openat2(2))
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


def _find_real_path(descriptor: int, path: Path) -> Path:
    """The real path of an open file: from its descriptor where /proc exists, else from its name."""
    with suppress(OSError):
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    return path.resolve()


def _read_mode(name: str, folder: int) -> int | None:
    """The permissions of the file that is replaced, without setuid and setgid; None when there is none."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
    return None


def check_workspace(folder: Path) -> Iterator[Finding]:
    """Is it there, and can files be kept beneath it?"""
    if not folder.is_dir():
        yield report_problem(f"the workspace {folder} is not a folder", "make it, or set HOLDFAST_WORKSPACE")
    elif has_openat2():
        yield report_ok(f"the kernel resolves all paths beneath {folder}")
    else:
        do = "run workers on Linux 5.6 or newer, where nothing in a sandbox of the system forbids openat2"
        yield report_warning("paths are checked before they are used, which a swapped link can defeat", do)
