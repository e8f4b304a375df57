"""`write_file`: replace a whole file, after showing what would change; and what all tools that write share."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from holdfast.activities.files.diff import build_diff
from holdfast.activities.files.workspace import READ_LIMIT, Workspace, digest_content
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import Effect, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import Result, TextPart


def write_content(workspace: Workspace, path: str, content: bytes) -> None:
    """Write a file; ToolFailure when it cannot be written."""
    try:
        workspace.write(path, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ToolFailure("file_not_writable", f"{path!r} cannot be written: {reason}") from error


def build_write_result(path: str, content: bytes, words: str, diff: str) -> Result:
    """The result of a tool that wrote a file."""
    seen = {path: digest_content(content)}
    return Result(parts=(TextPart(text=words),), display=diff, seen=seen)


class WriteFile(Tool):
    """Replaces or creates a whole file, after showing what would change."""

    name = "write_file"
    description = "Write a text file of the workspace, replacing what it holds; folders are made as needed."
    effect = Effect.IDEMPOTENT
    timeout_seconds = 60
    edits = "content"

    class Parameters(StrictParameters):
        """Arguments."""

        path: str = Field(description="Path of the file, relative to the workspace", min_length=1)
        content: str = Field(description="The whole new content")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a path inside the workspace. ValueError when it is outside, or no regular file."""
        room = Workspace(workspace)
        place = room.resolve_path(arguments.path)
        status = room.read_status(place)
        if status and not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{arguments.path!r} is not a file, but a folder, pipe or device")
        return _WriteInvocation(place, room, arguments.content)


class _WriteInvocation(Invocation):
    def __init__(self, path: str, workspace: Workspace, content: str) -> None:
        self._path = path
        self._workspace = workspace
        self._content = content
        self._bytes = content.encode("utf-8", "surrogatepass")

    def describe(self) -> str:
        return f"Write {self._path} ({len(self._content):,} characters)"

    def digest_before(self) -> Mapping[str, str]:
        before = self._workspace.read_present(self._path)
        return {} if before == self._bytes else {self._path: digest_content(before)}

    def digest_after(self) -> Mapping[str, str]:
        return {self._path: digest_content(self._bytes)}

    async def should_confirm(self) -> Confirmation | None:
        if not await asyncio.to_thread(self.digest_before):
            return None  # the file holds it already
        return Confirmation(
            kind="edit",
            title=self.describe(),
            path=self._path,
            diff=await asyncio.to_thread(self._build_diff),
            told=("path", "content"),
        )

    async def execute(self, run: Run) -> Result:
        existed = self._workspace.read_status(self._path) is not None
        diff = await asyncio.to_thread(self._build_diff)
        await asyncio.to_thread(write_content, self._workspace, self._path, self._bytes)
        verb = "Replaced" if existed else "Created"
        return build_write_result(
            self._path, self._bytes, f"{verb} {self._path} ({len(self._content):,} characters).", diff
        )

    def _build_diff(self) -> str:
        content = self._bytes
        try:
            status = self._workspace.read_status(self._path)
            if status is None:
                return build_diff(self._path, None, content)
            if status.st_size > READ_LIMIT:
                return f"(too long for a diff: {status.st_size:,} bytes become {len(content):,})"
            return build_diff(self._path, self._workspace.read(self._path, READ_LIMIT), content)
        except OSError as error:
            return f"(the present content cannot be read: {error.strerror or error})"
