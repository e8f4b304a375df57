"""Walks the workspace: every file below a folder, in the order of its path, without those that git ignores.

Links are never followed. A folder is opened by its name in the open folder above it and left by `..`, which must be the
folder that we came from. So a folder that is swapped for a link leads nowhere, and two descriptors are enough for any
depth. `.git` is never entered. A folder with its own `.git` is a repository of its own: the rules above do not apply.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.activities.files.ignore_rules import IgnoreRules
from holdfast.activities.files.workspace import Workspace, format_name
from holdfast.util.text import escape_controls

MAX_ENTRIES = 500_000
"""Entries looked at before a walk ends early."""
RULES_LIMIT = 1_000_000
"""Bytes of a .gitignore that are read."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
GIT_FOLDER = ".git"

EntryKind: TypeAlias = Literal["file", "link", "folder", "other"]
PlacedRules: TypeAlias = tuple[tuple[int, IgnoreRules], ...]
"""Rules with the length of the path of their folder. The last ones decide first."""


def format_path(path: str) -> str:
    """A path as one line of text: controls are escaped, and bytes that are no UTF-8 are replaced."""
    return escape_controls(os.fsencode(path).decode("utf-8", "replace")).replace("\n", "␊").replace("\t", "␉")


@dataclass(frozen=True)
class WalkEntry:
    """One entry of a folder. `folder` is the descriptor of that folder, open until the walk goes on."""

    path: str
    """Relative to the root of the workspace."""
    name: str
    kind: EntryKind
    folder: int

    def read_status(self) -> os.stat_result:
        """The status of the entry; of a link, that of the link itself."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)

    def open_file(self) -> int:
        """A descriptor for reading; never waits for a pipe. OSError for a link."""
        return os.open(self.name, FILE_FLAGS, dir_fd=self.folder)


class Walk:
    """Yields everything below `start` that is no folder, once. When `start` is a file, only that.

    `start` comes from `Workspace.resolve_path`, so it holds no links. OSError when it cannot be opened.
    """

    def __init__(
        self,
        workspace: Workspace,
        start: str = ".",
        *,
        include_ignored: bool = False,
        enter: Callable[[str], bool] = lambda _: True,
        stop: threading.Event | None = None,
    ) -> None:
        self._workspace = workspace
        self._start = [name for name in start.split("/") if name not in ("", ".")]
        self._include_ignored = include_ignored
        self._enter = enter
        self._stop = stop or threading.Event()
        self.visited = 0
        self.ignored = 0
        """Entries that were left out; the content of an ignored folder is not counted."""
        self.unreadable = 0
        """Folders that could not be read, or were moved away meanwhile."""
        self.start_ignored = False
        self.ended_early = False
        """There were more than `MAX_ENTRIES`."""

    def list_entries(self) -> Generator[WalkEntry, None, None]:
        """The entries in the order of their paths. Close the generator when you stop early: it holds folders open."""
        with self._workspace.open_descriptor(".", os.O_RDONLY | os.O_DIRECTORY) as root:
            trail = _Trail(root)
            try:
                yield from self._walk_start(trail)
            finally:
                trail.close()

    def _walk_start(self, trail: _Trail) -> Iterator[WalkEntry]:
        rules = self._load_rules(trail, ())
        for index, name in enumerate(self._start):
            kind = _find_kind(os.stat(name, dir_fd=trail.here, follow_symlinks=False).st_mode)
            if kind == "file" and index == len(self._start) - 1:
                yield WalkEntry("/".join(self._start), name, kind, trail.here)
                return
            self.start_ignored |= self._is_ignored("/".join([*trail.names, name]), rules, is_folder=True)
            trail.enter(name)
            rules = self._load_rules(trail, rules)
        if not self.start_ignored:
            yield from self._walk_below(trail, rules)

    def _walk_below(self, trail: _Trail, rules: PlacedRules) -> Iterator[WalkEntry]:
        """Walk with a list as the stack: a deep tree would exceed the recursion limit."""
        levels = [self._build_level(trail, rules)]
        while levels and not self._stop.is_set():
            level = levels[-1]
            entry = next(level.entries, None)
            if entry is None:
                levels.pop()
                if levels and not trail.leave():
                    self.unreadable += 1
                    levels[-1].entries = iter(())
            elif self._is_ignored(level.path + entry[0], level.rules, is_folder=entry[1] == "folder"):
                self.ignored += 1
            elif entry[1] != "folder":
                yield WalkEntry(level.path + entry[0], *entry, trail.here)
            elif not self.ended_early and self._enter(level.path + entry[0]):
                self._enter_folder(trail, entry[0], levels)

    def _enter_folder(self, trail: _Trail, name: str, levels: list[_Level]) -> None:
        try:
            trail.enter(name)
        except OSError:
            self.unreadable += 1
        else:
            levels.append(self._build_level(trail, self._load_rules(trail, levels[-1].rules)))

    def _build_level(self, trail: _Trail, rules: PlacedRules) -> _Level:
        found: list[tuple[str, EntryKind]] = []
        try:
            with os.scandir(trail.here) as entries:
                for entry in entries:
                    if self.visited == MAX_ENTRIES or self._stop.is_set():
                        self.ended_early = not self._stop.is_set()
                        break
                    self.visited += 1
                    if entry.name != GIT_FOLDER:
                        found.append((entry.name, _find_entry_kind(entry)))
        except OSError:
            self.unreadable += 1
        found.sort(key=lambda one: os.fsencode(one[0]))
        return _Level(trail.path, rules, iter(found))

    def _load_rules(self, trail: _Trail, above: PlacedRules) -> PlacedRules:
        if self._include_ignored:
            return ()
        length = len(trail.path)
        if _has_entry(GIT_FOLDER, trail.here):
            above = ()
            if excluded := _read_excluded(trail.here):
                above = ((length, excluded),)
        rules = _read_rules(".gitignore", trail.here)
        return (*above, (length, rules)) if rules else above

    def _is_ignored(self, path: str, rules: PlacedRules, *, is_folder: bool) -> bool:
        for length, one in reversed(rules):
            verdict = one.find_verdict(path[length:], is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False


def list_ignored(workspace: Workspace, folder: str) -> set[str]:
    """The names in a folder that git ignores, as `Workspace.list_names` has them; none when the folder is ignored."""
    listed: set[str] = set()

    def skip_folder(path: str) -> bool:
        listed.add(path.rpartition("/")[2])
        return False

    walk = Walk(workspace, folder, enter=skip_folder)
    listed.update(entry.name for entry in walk.list_entries())
    if walk.start_ignored:
        return set()
    return {name.removesuffix("/") for name in workspace.list_names(folder)} - {format_name(name) for name in listed}


@dataclass
class _Level:
    path: str
    rules: PlacedRules
    entries: Iterator[tuple[str, EntryKind]]


class _Trail:
    """The current folder of a walk, and the folders above it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.names: list[str] = []
        self.here = os.open(".", FOLDER_FLAGS, dir_fd=root)
        self._passed = [_read_identity(self.here)]

    @property
    def path(self) -> str:
        """The path of the folder with a slash at its end; empty for the root."""
        return "".join(f"{name}/" for name in self.names)

    def enter(self, name: str) -> None:
        """Enter a folder. OSError, without moving, when it cannot be opened."""
        self._stand_in(os.open(name, FOLDER_FLAGS, dir_fd=self.here))
        self.names.append(name)
        self._passed.append(_read_identity(self.here))

    def leave(self) -> bool:
        """Go up; False when the folder above was moved, so that nothing in it can be reached."""
        self.names.pop()
        self._passed.pop()
        return self._arrive_at(lambda: os.open("..", FOLDER_FLAGS, dir_fd=self.here)) or self._arrive_at(
            self._reopen_folder
        )

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.here)

    def _arrive_at(self, way: Callable[[], int]) -> bool:
        try:
            folder = way()
        except OSError:
            return False
        if _read_identity(folder) != self._passed[-1]:
            os.close(folder)
            return False
        self._stand_in(folder)
        return True

    def _reopen_folder(self) -> int:
        """Open the folder from the root: the one that we were in was moved, so `..` leads elsewhere."""
        folder = os.open(".", FOLDER_FLAGS, dir_fd=self._root)
        for name in self.names:
            try:
                below = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            finally:
                os.close(folder)
            folder = below
        return folder

    def _stand_in(self, folder: int) -> None:
        os.close(self.here)
        self.here = folder


def _read_identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _find_kind(mode: int) -> EntryKind:
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _find_entry_kind(entry: os.DirEntry[str]) -> EntryKind:
    """Read the kind from the folder itself: a stat of each file takes several times as long."""
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "link" if entry.is_symlink() else "other"


def _has_entry(name: str, folder: int) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _read_excluded(folder: int) -> IgnoreRules | None:
    """The rules in .git/info/exclude, opened without following a link."""
    with suppress(OSError), _open_below(GIT_FOLDER, folder) as git, _open_below("info", git) as info:
        return _read_rules("exclude", info)
    return None


@contextmanager
def _open_below(name: str, folder: int) -> Iterator[int]:
    descriptor = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_rules(name: str, folder: int) -> IgnoreRules | None:
    with suppress(OSError):
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
        with open(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                data = file.read(RULES_LIMIT + 1)
                whole = data if len(data) <= RULES_LIMIT else data[:RULES_LIMIT].rpartition(b"\n")[0]
                return IgnoreRules(whole.decode("utf-8", "surrogateescape")) or None
    return None
