"""`read_file` and `list_directory`: one file as text, and the entries of one folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
from pathlib import Path

from pydantic import Field

from holdfast.activities.files.media_types import find_binary_type
from holdfast.activities.files.walk import list_ignored
from holdfast.activities.files.workspace import READ_LIMIT, Workspace
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import BlobPart, Result, TextPart

ENTRIES_SHOWN = 2_000
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""Line ends, as editors, diffs and `grep` count them."""


class _PathInvocation(Invocation):
    """A read of one path inside the workspace. ValueError when it is outside."""

    def __init__(self, path: str, workspace: Path) -> None:
        self._path = path
        self._workspace = Workspace(workspace)
        self._place = self._workspace.resolve_path(path)

    def is_concurrency_safe(self) -> bool:
        return True


class ReadFile(Tool):
    """Reads a text file, or some of its lines."""

    name = "read_file"
    description = (
        "Read a file of the workspace: text, whole or from a line on; an image or another binary file as it is."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 60

    class Parameters(StrictParameters):
        """Arguments."""

        path: str = Field(description="Path of the file, relative to the workspace", min_length=1)
        start_line: int = Field(default=1, ge=1, description="First line to read, counted from 1")
        line_count: int | None = Field(default=None, ge=1, description="How many lines to read; all when left out")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a path inside the workspace. ValueError when it is outside."""
        return _ReadInvocation(arguments, workspace)


class _ReadInvocation(_PathInvocation):
    def __init__(self, arguments: ReadFile.Parameters, workspace: Path) -> None:
        super().__init__(arguments.path, workspace)
        self._start, self._count = arguments.start_line - 1, arguments.line_count

    def describe(self) -> str:
        return f"Read {self._path}"

    async def execute(self, run: Run) -> Result:
        data = await asyncio.to_thread(self._read_bytes)
        seen = {self._place: hashlib.sha256(data).hexdigest()}
        if kind := find_binary_type(data):
            return Result(parts=(BlobPart.from_bytes(data, kind, name=self._place),), seen=seen)
        return Result(parts=(TextPart(text=self._select_lines(data.decode("utf-8", "replace"))),), seen=seen)

    def _select_lines(self, text: str) -> str:
        """The requested lines; ToolFailure when the file has none of them."""
        start, count = self._start, self._count
        if start == 0 and count is None:
            return text
        lines = _LINE.findall(text)
        if start >= len(lines) > 0:
            raise ToolFailure("no_such_line", f"{self._path!r} has {len(lines):,} lines, not {start + 1:,}")
        return "".join(lines[start : None if count is None else start + count])

    def _read_bytes(self) -> bytes:
        path = self._path
        try:
            if problem := _explain_unreadable(self._workspace.read_status(self._place)):
                raise ToolFailure("file_not_readable", f"{path!r} {problem}")
            data = self._workspace.read(self._place, READ_LIMIT + 1)
        except OSError as error:
            raise ToolFailure("file_not_readable", f"{path!r} cannot be read: {error.strerror or error}") from error
        if len(data) > READ_LIMIT:
            raise ToolFailure("file_too_large", f"{path!r} is over {READ_LIMIT:,} bytes: use grep or shell")
        return data


def _explain_unreadable(status: os.stat_result | None) -> str | None:
    """Explain why a path cannot be read as a file; None when it can."""
    if status is None:
        return "does not exist"
    if stat.S_ISDIR(status.st_mode):
        return "is a folder: use list_directory"
    return None if stat.S_ISREG(status.st_mode) else "is a pipe, socket or device, not a file"


class ListDirectory(Tool):
    """Lists the entries of a folder."""

    name = "list_directory"
    description = (
        "List the entries of a folder of the workspace; folders end in a slash. What .gitignore ignores is left out."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 60

    class Parameters(StrictParameters):
        """Arguments."""

        path: str = Field(default=".", description="Path of the folder, relative to the workspace", min_length=1)
        include_ignored: bool = Field(default=False, description="List what .gitignore ignores as well")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a folder inside the workspace. ValueError when it is outside."""
        return _ListInvocation(arguments, workspace)


class _ListInvocation(_PathInvocation):
    def __init__(self, arguments: ListDirectory.Parameters, workspace: Path) -> None:
        super().__init__(arguments.path, workspace)
        self._include_ignored = arguments.include_ignored

    def describe(self) -> str:
        return f"List {self._path}"

    async def execute(self, run: Run) -> Result:
        names, ignored = await asyncio.to_thread(self._list_names)
        left_out = len(names) - ENTRIES_SHOWN
        lines = names[:ENTRIES_SHOWN] + ([f"… {left_out:,} more"] if left_out > 0 else [])
        lines = lines or ["(empty)"]
        return Result.from_text("\n".join(lines + ([f"({ignored:,} ignored by git)"] if ignored else [])))

    def _list_names(self) -> tuple[list[str], int]:
        """The entries that fit, and how many do not."""
        try:
            names = self._workspace.list_names(self._place)
            ignored = set() if self._include_ignored else list_ignored(self._workspace, self._place)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ToolFailure("folder_not_readable", f"{self._path!r} cannot be listed: {reason}") from error
        shown = [name for name in names if name.removesuffix("/") not in ignored]
        return shown, len(names) - len(shown)
