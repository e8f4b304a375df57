"""`glob`: files of the workspace by the pattern of their path, the newest first."""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from pydantic import Field

from holdfast.activities.files.walk import GIT_FOLDER, Walk, WalkEntry, format_path
from holdfast.activities.files.workspace import Workspace
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import Result
from holdfast.util.globs import PathPattern
from holdfast.util.text import shorten_text

FILES_SHOWN = 1_000
TARGET_SHOWN = 200
"""Characters that are shown of a link's target."""


def resolve_searchable(workspace: Workspace, path: str) -> str:
    """Resolve `path` in the workspace. ValueError when it is outside, or inside of `.git`."""
    place = workspace.resolve_path(path)
    if GIT_FOLDER in Path(place).parts:
        raise ValueError(f"{path!r} belongs to git and is not searched: use git for it")
    return place


def list_walk_notes(walk: Walk, path: str) -> Iterator[str]:
    """Notes for a model about a walk that did not see everything."""
    if walk.start_ignored:
        yield f"({path!r} is ignored by git: set include_ignored to look into it)"
    if walk.ended_early:
        yield f"(stopped after {walk.visited:,} entries: there are more. Give a folder further down as path)"
    if walk.unreadable:
        yield f"({walk.unreadable:,} folders could not be read)"


class Glob(Tool):
    """Finds files by a pattern of their path."""

    name = "glob"
    description = (
        "Find files of the workspace whose path matches a pattern, newest first. `*` stays within a name, `**` spans "
        "folders: `**/*.py` is every Python file, `*.py` those directly in `path`. What git ignores is left out."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 60

    class Parameters(StrictParameters):
        """Arguments."""

        pattern: str = Field(
            description="Pattern of the path as seen from `path`: * ? [a-z] [!a-z] {a,b} **, backslash to escape",
            min_length=1,
            max_length=1_000,
        )
        path: str = Field(default=".", description="Folder to look in, relative to the workspace", min_length=1)
        include_ignored: bool = Field(default=False, description="Also find what git ignores")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a folder inside the workspace. ValueError when the pattern is invalid."""
        wanted = arguments.pattern.removeprefix("./")
        if wanted.startswith("/") or ".." in wanted.split("/"):
            raise ValueError(f"the pattern {arguments.pattern!r} must be relative to path, and without '..'")
        room = Workspace(workspace)
        return _GlobInvocation(arguments, PathPattern(wanted), room, resolve_searchable(room, arguments.path))


class _GlobInvocation(Invocation):
    def __init__(self, arguments: Glob.Parameters, pattern: PathPattern, workspace: Workspace, place: str) -> None:
        self._arguments = arguments
        self._pattern = pattern
        self._workspace = workspace
        self._place = place
        self._below = 0 if place == "." else len(place) + 1

    def describe(self) -> str:
        return f"Find {self._arguments.pattern} in {self._arguments.path}"

    def is_concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        stop = threading.Event()
        try:
            return Result.from_text(await asyncio.to_thread(self._find_files, stop))
        finally:
            stop.set()  # the thread of a call that was stopped ends with its next entry

    def _find_files(self, stop: threading.Event) -> str:
        walk = Walk(
            self._workspace,
            self._place,
            include_ignored=self._arguments.include_ignored,
            enter=lambda folder: self._pattern.may_reach(folder[self._below :]),
            stop=stop,
        )
        try:
            with closing(walk.list_entries()) as entries:
                found = list(self._list_found(entries))
        except OSError as error:
            message = f"{self._arguments.path!r} cannot be looked into: {error.strerror or error}"
            raise ToolFailure("folder_not_readable", message) from error
        return "\n".join(
            [
                *(self._format_files(found) or [self._describe_nothing(walk)]),
                *list_walk_notes(walk, self._arguments.path),
            ]
        )

    def _list_found(self, entries: Iterator[WalkEntry]) -> Iterator[tuple[int, str, str]]:
        """List each file: its negated time of change (the newest sorts first), its path, and how it is shown."""
        for entry in entries:
            if entry.path == self._place:
                raise NotADirectoryError(0, "it is a file: give it to read_file or grep")
            if entry.kind in ("file", "link") and self._pattern.matches(entry.path[self._below :]):
                with suppress(OSError):  # deleted meanwhile
                    yield -entry.read_status().st_mtime_ns, entry.path, _format_entry(entry)

    def _format_files(self, found: list[tuple[int, str, str]]) -> list[str]:
        lines = [line for _, _, line in heapq.nsmallest(FILES_SHOWN, found)]
        left_out = len(found) - len(lines)
        return [*lines, f"… {left_out:,} more"] if left_out else lines

    def _describe_nothing(self, walk: Walk) -> str:
        pattern, path = self._arguments.pattern, self._arguments.path
        hints = [f"No files in {path!r} match {pattern!r}."]
        if "/" not in pattern and "**" not in pattern:
            hints.append(f"To look in folders below as well: '**/{pattern}'.")
        if walk.ignored:
            hints.append("What git ignores was left out: set include_ignored to find that as well.")
        return " ".join(hints)


def _format_entry(entry: WalkEntry) -> str:
    if entry.kind != "link":
        return format_path(entry.path)
    target = format_path(os.readlink(entry.name, dir_fd=entry.folder))
    return f"{format_path(entry.path)} -> {shorten_text(target, TARGET_SHOWN)}"
