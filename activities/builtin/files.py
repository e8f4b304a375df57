"""Files of the workspace: `read_file`, `list_directory`, `write_file`."""

from __future__ import annotations

import asyncio
import difflib
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from holdfast.activities.workspace import inside, shown
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
        return _Reading(arguments, inside(workspace, arguments.path))


class _Reading(Invocation):
    def __init__(self, arguments: ReadFile.Parameters, target: Path) -> None:
        self._arguments = arguments
        self._target = target

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
            if not self._target.is_file():
                problem = "is a folder: use list_directory" if self._target.is_dir() else "does not exist"
                raise ToolFailure("file_not_readable", f"{path!r} {problem}")
            if self._target.stat().st_size > READ_LIMIT:
                raise ToolFailure("file_too_large", f"{path!r} is over {READ_LIMIT:,} bytes: read part of it by shell")
            data = self._target.read_bytes()
        except OSError as error:
            raise ToolFailure("file_not_readable", f"{path!r} cannot be read: {error.strerror or error}") from error
        if b"\0" in data[:8_192]:
            raise ToolFailure("file_is_binary", f"{path!r} is not text ({len(data):,} bytes)")
        return data.decode("utf-8", "replace")


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
        return _Listing(arguments.path, inside(workspace, arguments.path))


class _Listing(Invocation):
    def __init__(self, path: str, target: Path) -> None:
        self._path = path
        self._target = target

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
            with os.scandir(self._target) as entries:
                return sorted(
                    os.fsencode(entry.name).decode("utf-8", "replace") + ("/" if entry.is_dir() else "")
                    for entry in entries
                )
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
        target = inside(workspace, arguments.path)
        if target.exists() and not target.is_file():
            raise ValueError(f"{arguments.path!r} is not a file, but a folder, pipe or device")
        return _Writing(shown(workspace, target), target, arguments.content)


class _Writing(Invocation):
    def __init__(self, path: str, target: Path, content: str) -> None:
        self._path = path
        self._target = target
        self._content = content

    def describe(self) -> str:
        return f"Write {self._path} ({len(self._content):,} characters)"

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(
            kind="edit", title=self.describe(), path=self._path, diff=await asyncio.to_thread(self._diff)
        )

    async def execute(self, run: Run) -> Result:
        existed = self._target.exists()
        diff = await asyncio.to_thread(self._diff)
        try:
            await asyncio.to_thread(self._write)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ToolFailure("file_not_writable", f"{self._path!r} cannot be written: {reason}") from error
        verb = "Replaced" if existed else "Created"
        return Result.of(f"{verb} {self._path} ({len(self._content):,} characters).", display=diff)

    def _diff(self) -> str:
        try:
            if not self._target.exists():
                return difference(self._path, None, self._content)
            if (size := self._target.stat().st_size) > 4 * DIFF_LIMIT:
                return f"(too long for a diff: {size:,} bytes become {len(self._content):,} characters)"
            return difference(self._path, self._target.read_bytes(), self._content)
        except OSError as error:
            return f"(the present content cannot be read: {error.strerror or error})"

    def _write(self) -> None:
        """By a temporary file and a rename: a reader sees the old content or the new, and a repeat changes nothing."""
        self._target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".holdfast-", dir=self._target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
                file.write(self._content)
                file.flush()
                os.fsync(file.fileno())
            mode = self._target.stat().st_mode & 0o777 if self._target.exists() else 0o644
            os.chmod(name, mode)
            os.replace(name, self._target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
