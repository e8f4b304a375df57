"""The workspace: the one folder that file tools can touch, by paths that a model gives.

Paths may be relative or absolute; they are walked by the kernel and never leave the folder (`safe_open.py`). What is
opened stays what it was, whatever is renamed or linked meanwhile: writing goes through the open folder, not its name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from holdfast.activities.files.safe_open import OutsideError, find_real_path, open_beneath

READ_LIMIT = 20_000_000
"""Bytes of a file that a tool reads or changes as a whole."""


@dataclass(frozen=True)
class Workspace:
    """A folder, and what is in it."""

    root: Path

    def to_relative(self, path: str) -> str:
        """`path` as seen from the root. ValueError for what is no path, or lies elsewhere at first sight."""
        if not path or "\0" in path:
            raise ValueError("a path has at least one character, and no NUL")
        if not os.path.isabs(path):
            return path
        for base in dict.fromkeys((self.root, self.root.resolve())):
            if Path(path).is_relative_to(base):
                return str(Path(path).relative_to(base))
        raise OutsideError(path)

    def resolve_path(self, path: str) -> str:
        """Where `path` really is, relative to the root, links followed; it need not exist. ValueError when outside."""
        if not self.root.is_dir():
            raise ValueError("the workspace folder is gone")
        wanted = Path(self.to_relative(path))
        missing: list[str] = []
        while True:
            try:
                with self.open_descriptor(str(wanted), os.O_PATH) as found:
                    real = find_real_path(found, self.root / wanted)
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
        """A descriptor of `path` for the length of a block."""
        wanted = self.to_relative(path)
        try:
            descriptor = open_beneath(self.root, wanted, flags)
        except OutsideError:
            descriptor = open_beneath(self.root, self._resolve_links(wanted), flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read_status(self, path: str) -> os.stat_result | None:
        """What `path` is; None when there is nothing."""
        try:
            with self.open_descriptor(path, os.O_PATH) as found:
                return os.fstat(found)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str, limit: int) -> bytes:
        """Up to `limit` bytes of a file. OSError for a folder; never waits for a pipe."""
        with self.open_descriptor(path, os.O_RDONLY | os.O_NONBLOCK) as found, os.fdopen(os.dup(found), "rb") as file:
            return file.read(limit) or b""

    def list_names(self, path: str) -> list[str]:
        """What is in a folder, sorted; folders end in a slash."""
        with self.open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as found, os.scandir(found) as entries:
            return sorted(format_name(entry.name) + ("/" if entry.is_dir() else "") for entry in entries)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file by a temporary one and a rename: readers see the old or the new, a repeat changes nothing.

        `path` is one that `resolve_path` gave. OSError when a link in it leads elsewhere since.
        """
        place = Path(path)
        with self._open_folder(place.parent) as folder:
            if find_real_path(folder, self.root / place.parent) != self.root.resolve() / place.parent:
                raise OSError(errno.ELOOP, "a link leads elsewhere by now")
            temporary = f".holdfast-{uuid4().hex}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)  # the umask has its say
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
        """A folder, made as needed, held open: what happens to its name afterwards does not matter."""
        made = Path()
        for name in place.parts:
            with self.open_descriptor(str(made), os.O_RDONLY | os.O_DIRECTORY) as parent, suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)
            made /= name
        with self.open_descriptor(str(place), os.O_RDONLY | os.O_DIRECTORY) as folder:
            yield folder

    def _resolve_links(self, wanted: str) -> str:
        """The kernel refuses absolute links even where they lead inside: then the path they lead to is walked."""
        base = self.root.resolve()
        try:
            return str((base / wanted).resolve().relative_to(base))
        except (ValueError, RuntimeError):  # elsewhere, or a loop of links
            raise OutsideError(wanted) from None

    def _is_link(self, wanted: Path) -> bool:
        with (
            suppress(OSError, ValueError),
            self.open_descriptor(str(wanted.parent), os.O_RDONLY | os.O_DIRECTORY) as parent,
        ):
            return stat.S_ISLNK(os.stat(wanted.name, dir_fd=parent, follow_symlinks=False).st_mode)
        return False


def _read_mode(name: str, folder: int) -> int | None:
    """Who may do what with the file that is replaced, but not run as its owner; None when there is none."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
    return None


def format_name(name: str) -> str:
    """A name as text: what is no UTF-8 is replaced."""
    return os.fsencode(name).decode("utf-8", "replace")
