"""Walking the workspace: every file below a folder, in the order of its path, and what git ignores left out.

Links are never followed. Folders are opened by name from the open folder above them and left by `..`, which must be
the folder we came from, so that one swapped for a link leads nowhere, and however deep a tree is, two descriptors are
open. `.git` is never entered. A folder with a `.git` of its own is a repository of its own: the rules above end there.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.activities.files.patterns import IgnoreRules
from holdfast.activities.files.workspace import Workspace, printable
from holdfast.content import visible

MOST_ENTRIES = 500_000
"""Entries looked at before a walk ends early."""
RULES_LIMIT = 1_000_000
"""Bytes of a .gitignore that are read."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
GIT = ".git"

Kind: TypeAlias = Literal["file", "link", "folder", "other"]
Rules: TypeAlias = tuple[tuple[int, IgnoreRules], ...]
"""Each with how much of a path is before it: the length of its folder's. The last decides first."""


def shown(path: str) -> str:
    """A path as text: on one line, nothing in it hidden, and what is no UTF-8 replaced."""
    return visible(os.fsencode(path).decode("utf-8", "replace")).replace("\n", "␊").replace("\t", "␉")


@dataclass(frozen=True)
class Entry:
    """Something in a folder. `folder` is the descriptor of that folder, open until the walk goes on."""

    path: str
    """From the root of the workspace."""
    name: str
    kind: Kind
    folder: int

    def status(self) -> os.stat_result:
        """What it is; of a link, the link."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)

    def opened(self) -> int:
        """A descriptor to read it by; never waits for a pipe. OSError for a link."""
        return os.open(self.name, FILE, dir_fd=self.folder)


class Walk:
    """Everything below `start` that is no folder, once; `start` may be a file, which is then all there is.

    `start` is a place as `Workspace.place` gives it: no links. OSError when it cannot be opened.
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
        """Entries left out; what an ignored folder holds is not counted."""
        self.unreadable = 0
        """Folders that could not be read, or were moved away meanwhile."""
        self.start_ignored = False
        self.ended_early = False
        """There was more than `MOST_ENTRIES`."""

    def entries(self) -> Generator[Entry, None, None]:
        """In the order of their paths. Close it when you stop early: it holds folders open."""
        with self._workspace.opened(".", os.O_RDONLY | os.O_DIRECTORY) as root:
            trail = _Trail(root)
            try:
                yield from self._from_start(trail)
            finally:
                trail.close()

    def _from_start(self, trail: _Trail) -> Iterator[Entry]:
        rules = self._rules(trail, ())
        for index, name in enumerate(self._start):
            kind = _kind(os.stat(name, dir_fd=trail.here, follow_symlinks=False).st_mode)
            if kind == "file" and index == len(self._start) - 1:
                yield Entry("/".join(self._start), name, kind, trail.here)
                return
            self.start_ignored |= self._is_ignored("/".join([*trail.names, name]), rules, is_folder=True)
            trail.enter(name)
            rules = self._rules(trail, rules)
        if not self.start_ignored:
            yield from self._below(trail, rules)

    def _below(self, trail: _Trail, rules: Rules) -> Iterator[Entry]:
        """A stack of our own: Python's would end in a deep tree."""
        levels = [self._level(trail, rules)]
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
                yield Entry(level.path + entry[0], *entry, trail.here)
            elif not self.ended_early and self._enter(level.path + entry[0]):
                self._descend(trail, entry[0], levels)

    def _descend(self, trail: _Trail, name: str, levels: list[_Level]) -> None:
        try:
            trail.enter(name)
        except OSError:
            self.unreadable += 1
        else:
            levels.append(self._level(trail, self._rules(trail, levels[-1].rules)))

    def _level(self, trail: _Trail, rules: Rules) -> _Level:
        found: list[tuple[str, Kind]] = []
        try:
            with os.scandir(trail.here) as entries:
                for entry in entries:
                    if self.visited == MOST_ENTRIES or self._stop.is_set():
                        self.ended_early = not self._stop.is_set()
                        break
                    self.visited += 1
                    if entry.name != GIT:
                        found.append((entry.name, _entry_kind(entry)))
        except OSError:
            self.unreadable += 1
        found.sort(key=lambda one: os.fsencode(one[0]))
        return _Level(trail.path, rules, iter(found))

    def _rules(self, trail: _Trail, above: Rules) -> Rules:
        if self._include_ignored:
            return ()
        length = len(trail.path)
        if _exists(GIT, trail.here):
            above = ()
            if excluded := _excluded(trail.here):
                above = ((length, excluded),)
        rules = _read_rules(".gitignore", trail.here)
        return (*above, (length, rules)) if rules else above

    def _is_ignored(self, path: str, rules: Rules, *, is_folder: bool) -> bool:
        for length, one in reversed(rules):
            verdict = one.verdict(path[length:], is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False


def ignored_in(workspace: Workspace, folder: str) -> set[str]:
    """The names in a folder that git ignores, as `Workspace.names` gives them; none when the folder itself is."""
    kept: set[str] = set()

    def pass_by(path: str) -> bool:
        kept.add(path.rpartition("/")[2])
        return False

    walk = Walk(workspace, folder, enter=pass_by)
    kept.update(entry.name for entry in walk.entries())
    if walk.start_ignored:
        return set()
    return {name.removesuffix("/") for name in workspace.names(folder)} - {printable(name) for name in kept}


@dataclass
class _Level:
    path: str
    rules: Rules
    entries: Iterator[tuple[str, Kind]]


class _Trail:
    """The folder we stand in, and the way we came."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.names: list[str] = []
        self.here = os.open(".", FOLDER, dir_fd=root)
        self._passed = [_identity(self.here)]

    @property
    def path(self) -> str:
        """Of the folder, with a slash at its end; empty for the root."""
        return "".join(f"{name}/" for name in self.names)

    def enter(self, name: str) -> None:
        """Go down. OSError, and we stay, when it is no folder that we may read."""
        self._stand(os.open(name, FOLDER, dir_fd=self.here))
        self.names.append(name)
        self._passed.append(_identity(self.here))

    def leave(self) -> bool:
        """Go up; False when the folder above is no longer where it was, and then nothing in it can be reached."""
        self.names.pop()
        self._passed.pop()
        return self._arrive(lambda: os.open("..", FOLDER, dir_fd=self.here)) or self._arrive(self._again)

    def close(self) -> None:
        """Let go."""
        os.close(self.here)

    def _arrive(self, way: Callable[[], int]) -> bool:
        try:
            folder = way()
        except OSError:
            return False
        if _identity(folder) != self._passed[-1]:
            os.close(folder)
            return False
        self._stand(folder)
        return True

    def _again(self) -> int:
        """The whole way from the root: what we stood in was moved, so that `..` is another folder."""
        folder = os.open(".", FOLDER, dir_fd=self._root)
        for name in self.names:
            try:
                below = os.open(name, FOLDER, dir_fd=folder)
            finally:
                os.close(folder)
            folder = below
        return folder

    def _stand(self, folder: int) -> None:
        os.close(self.here)
        self.here = folder


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _kind(mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _entry_kind(entry: os.DirEntry[str]) -> Kind:
    """As the folder itself tells; asking for each file would take several times as long."""
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "link" if entry.is_symlink() else "other"


def _exists(name: str, folder: int) -> bool:
    with suppress(OSError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _excluded(folder: int) -> IgnoreRules | None:
    """The rules in .git/info/exclude, each step opened without following a link."""
    with suppress(OSError), _below(GIT, folder) as git, _below("info", git) as info:
        return _read_rules("exclude", info)
    return None


@contextmanager
def _below(name: str, folder: int) -> Iterator[int]:
    descriptor = os.open(name, FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_rules(name: str, folder: int) -> IgnoreRules | None:
    with suppress(OSError):
        descriptor = os.open(name, FILE, dir_fd=folder)
        with open(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                data = file.read(RULES_LIMIT + 1)
                whole = data if len(data) <= RULES_LIMIT else data[:RULES_LIMIT].rpartition(b"\n")[0]
                return IgnoreRules(whole.decode("utf-8", "surrogateescape")) or None
    return None
