"""Files of the workspace: `read_file`, `list_directory`, `write_file`."""

from __future__ import annotations

import asyncio
import difflib
import os
import stat
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from holdfast.activities.workspace import Workspace
from holdfast.approvals import Confirmation
from holdfast.content import Result
from holdfast.tools import Effect, Invocation, Run, Tool, ToolFailure

READ_LIMIT = 20_000_000
"""Bytes `read_file` reads at most."""
DIFF_LIMIT = 200_000
"""Characters of either side above which no diff is drawn."""
ENTRIES_SHOWN = 2_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReadFile(Tool):
    """Reads text."""

    name = "read_file"
    description = "Read a text file of the workspace, whole or from a line on."
    effect = Effect.READ
    timeout_seconds = 60

    class Parameters(_Strict):
        """Arguments."""

        path: str = Field(description="Path of the file, relative to the workspace", min_length=1)
        start_line: int = Field(default=1, ge=1, description="First line to read, counted from 1")
        line_count: int | None = Field(default=None, ge=1, description="How many lines to read; all when left out")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a path inside the workspace."""
        room = Workspace(workspace)
        room.place(arguments.path)
        return _Reading(arguments, room)


class _Reading(Invocation):
    def __init__(self, arguments: ReadFile.Parameters, workspace: Workspace) -> None:
        self._arguments = arguments
        self._workspace = workspace

    def describe(self) -> str:
        return f"Read {self._arguments.path}"

    def concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        text = await asyncio.to_thread(self._read)
        start = self._arguments.start_line - 1
        if start == 0 and self._arguments.line_count is None:
            return Result.of(text)
        lines = text.splitlines(keepends=True)
        end = None if self._arguments.line_count is None else start + self._arguments.line_count
        return Result.of("".join(lines[start:end]))

    def _read(self) -> str:
        path = self._arguments.path
        try:
            if problem := _unreadable(self._workspace.status(path)):
                raise ToolFailure("file_not_readable", f"{path!r} {problem}")
            data = self._workspace.read(path, READ_LIMIT + 1)
        except OSError as error:
            raise ToolFailure("file_not_readable", f"{path!r} cannot be read: {error.strerror or error}") from error
        if len(data) > READ_LIMIT:
            raise ToolFailure("file_too_large", f"{path!r} is over {READ_LIMIT:,} bytes: read part of it by shell")
        if b"\0" in data[:8_192]:
            raise ToolFailure("file_is_binary", f"{path!r} is not text ({len(data):,} bytes)")
        return data.decode("utf-8", "replace")


def _unreadable(status: os.stat_result | None) -> str | None:
    """Why what is there cannot be read as a file."""
    if status is None:
        return "does not exist"
    if stat.S_ISDIR(status.st_mode):
        return "is a folder: use list_directory"
    return None if stat.S_ISREG(status.st_mode) else "is a pipe, socket or device, not a file"


class ListDirectory(Tool):
    """Lists a folder."""

    name = "list_directory"
    description = "List the entries of a folder of the workspace; folders end in a slash."
    effect = Effect.READ
    timeout_seconds = 60

    class Parameters(_Strict):
        """Arguments."""

        path: str = Field(default=".", description="Path of the folder, relative to the workspace", min_length=1)

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a folder inside the workspace."""
        room = Workspace(workspace)
        room.place(arguments.path)
        return _Listing(arguments.path, room)


class _Listing(Invocation):
    def __init__(self, path: str, workspace: Workspace) -> None:
        self._path = path
        self._workspace = workspace

    def describe(self) -> str:
        return f"List {self._path}"

    def concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        names = await asyncio.to_thread(self._names)
        left_out = len(names) - ENTRIES_SHOWN
        lines = names[:ENTRIES_SHOWN] + ([f"… {left_out:,} more"] if left_out > 0 else [])
        return Result.of("\n".join(lines) or "(empty)")

    def _names(self) -> list[str]:
        try:
            return self._workspace.names(self._path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ToolFailure("folder_not_readable", f"{self._path!r} cannot be listed: {reason}") from error


def difference(path: str, before: bytes | None, after: str) -> str:
    """What replacing a file's content would change, as a person should see it: nothing that changes is left unsaid."""
    if before == after.encode("utf-8", "surrogatepass"):
        return "(no change)"
    if before is None and not after:
        return "(a new, empty file)"
    if before is not None and b"\0" in before:
        return f"(a binary file of {len(before):,} bytes becomes text of {len(after):,} characters)"
    old = (before or b"").decode("utf-8", "backslashreplace")
    if max(len(old), len(after)) > DIFF_LIMIT:
        return f"(too long for a diff: {len(old):,} characters become {len(after):,})"
    names = ("/dev/null" if before is None else f"a/{path}", f"b/{path}")
    lines = difflib.unified_diff(_lines(old), _lines(after), *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines whose endings can be told apart: a carriage return is part of its line."""
    return text.replace("\r\n", "␍\n").replace("\r", "␍").splitlines(keepends=True)


class WriteFile(Tool):
    """Writes a whole file, after showing what would change."""

    name = "write_file"
    description = "Write a text file of the workspace, replacing what it holds; folders are made as needed."
    effect = Effect.IDEMPOTENT
    timeout_seconds = 60

    class Parameters(_Strict):
        """Arguments."""

        path: str = Field(description="Path of the file, relative to the workspace", min_length=1)
        content: str = Field(description="The whole new content")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a path inside the workspace."""
        room = Workspace(workspace)
        place = room.place(arguments.path)
        status = room.status(place)
        if status and not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{arguments.path!r} is not a file, but a folder, pipe or device")
        return _Writing(place, room, arguments.content)


class _Writing(Invocation):
    def __init__(self, path: str, workspace: Workspace, content: str) -> None:
        self._path = path
        self._workspace = workspace
        self._content = content

    def describe(self) -> str:
        return f"Write {self._path} ({len(self._content):,} characters)"

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(
            kind="edit", title=self.describe(), path=self._path, diff=await asyncio.to_thread(self._diff)
        )

    async def execute(self, run: Run) -> Result:
        existed = self._workspace.status(self._path) is not None
        diff = await asyncio.to_thread(self._diff)
        try:
            await asyncio.to_thread(self._workspace.write, self._path, self._content.encode("utf-8", "surrogatepass"))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ToolFailure("file_not_writable", f"{self._path!r} cannot be written: {reason}") from error
        verb = "Replaced" if existed else "Created"
        return Result.of(f"{verb} {self._path} ({len(self._content):,} characters).", display=diff)

    def _diff(self) -> str:
        try:
            status = self._workspace.status(self._path)
            if status is None:
                return difference(self._path, None, self._content)
            if status.st_size > 4 * DIFF_LIMIT:
                return f"(too long for a diff: {status.st_size:,} bytes become {len(self._content):,} characters)"
            return difference(self._path, self._workspace.read(self._path, 4 * DIFF_LIMIT), self._content)
        except OSError as error:
            return f"(the present content cannot be read: {error.strerror or error})"
