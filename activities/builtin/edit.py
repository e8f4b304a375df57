"""`edit`: replace a text in a file by another, exactly as often as the caller says that it occurs.

It works on bytes, so what is not touched stays as it is: line endings, encoding, a missing newline at the end. A model
writes lines with a newline; in a file whose lines end otherwise both pieces are taken to do so too.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from holdfast.activities.builtin.write_file import build_write_result, write_content
from holdfast.activities.files.diff import build_diff
from holdfast.activities.files.workspace import READ_LIMIT, Workspace, digest_content
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import Effect, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import Result
from holdfast.util.text_replacement import WHOLE_LIMIT, fit_line_endings

LINES_SHOWN = 10
HINT_LIMIT = 1_000_000
"""Bytes of a file that is searched a second time, for a hint."""


class Edit(Tool):
    """Replaces text in a file, matched exactly."""

    name = "edit"
    description = (
        "Replace a piece of text in a file of the workspace by another. `old_text` must occur exactly "
        "`expected_count` times, character for character, white space included: give enough lines around it."
    )
    effect = Effect.ONCE
    timeout_seconds = 60
    edits = "new_text"

    class Parameters(StrictParameters):
        """Arguments."""

        path: str = Field(description="Path of the file, relative to the workspace", min_length=1)
        old_text: str = Field(description="The text as it is in the file", min_length=1)
        new_text: str = Field(description="The text to put in its place")
        expected_count: int = Field(default=1, ge=1, description="How often `old_text` occurs; each is replaced")

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a file that exists. Whether it holds the text is checked when the change is shown, and made."""
        room = Workspace(workspace)
        place = room.resolve_path(arguments.path)
        if arguments.old_text == arguments.new_text:
            raise ValueError("old_text and new_text are the same: nothing would change")
        status = room.read_status(place)
        if status is None:
            raise ValueError(f"{arguments.path!r} does not exist: use write_file to create it, in a batch before this")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{arguments.path!r} is not a file, but a folder, pipe or device")
        return _EditInvocation(arguments, place, room)


class _FileChange(NamedTuple):
    before: bytes
    after: bytes


class _EditInvocation(Invocation):
    def __init__(self, arguments: Edit.Parameters, place: str, workspace: Workspace) -> None:
        self._arguments = arguments
        self._place = place
        self._workspace = workspace

    def describe(self) -> str:
        return f"Edit {self._place}"

    def digest_before(self) -> Mapping[str, str]:
        return {self._place: digest_content(self._workspace.read_present(self._place))}

    def digest_after(self) -> Mapping[str, str]:
        return {self._place: digest_content(self.compute_change().after)}

    async def should_confirm(self) -> Confirmation | None:
        change = await asyncio.to_thread(self.compute_change)
        fields = ("path", "old_text", "new_text", "expected_count")
        diff = await asyncio.to_thread(_build_diff, self._place, change)
        return Confirmation(
            kind="edit",
            title=self.describe(),
            path=self._place,
            diff=diff,
            told=fields,
            current=_decode_editable(change.before),
        )

    async def execute(self, run: Run) -> Result:
        try:
            change = await asyncio.to_thread(self.compute_change)
        except ValueError as error:
            raise ToolFailure("edit_failed", str(error)) from error
        await asyncio.to_thread(write_content, self._workspace, self._place, change.after)
        count = self._arguments.expected_count
        words = f"Edited {self._place} ({count:,} replacement{'s' * (count > 1)})."
        diff = await asyncio.to_thread(_build_diff, self._place, change)
        return build_write_result(self._place, change.after, words, diff)

    def compute_change(self) -> _FileChange:
        """The file before and after the change; ValueError when the text does not occur as often as expected."""
        try:
            before = self._workspace.read(self._place, READ_LIMIT + 1)
        except OSError as error:
            raise ValueError(f"{self._place!r} cannot be read: {error.strerror or error}") from error
        if len(before) > READ_LIMIT:
            raise ValueError(f"{self._place!r} is over {READ_LIMIT:,} bytes: edit it by shell")
        if b"\0" in before:
            raise ValueError(f"{self._place!r} is not text")
        given, expected = self._arguments, self._arguments.expected_count
        old, new = fit_line_endings(before, given.old_text, given.new_text)
        found = before.count(old)
        if found != expected:
            raise ValueError(_describe_count(self._place, before, old, found, expected))
        return _FileChange(before, before.replace(old, new))


def _describe_count(place: str, content: bytes, old: bytes, found: int, expected: int) -> str:
    if found == 0:
        return (
            f"old_text does not occur in {place!r}{_find_hint(content, old)}: read the file, and copy the text exactly "
            "(calls of one batch are checked before any of them runs)"
        )
    lines = ", ".join(str(content.count(b"\n", 0, position) + 1) for position in _find_positions(content, old))
    more = ", …" if found > LINES_SHOWN else ""
    return (
        f"old_text occurs {found:,} time{'s' * (found > 1)} in {place!r} (at line {lines}{more}), not {expected:,}: "
        "give more of the text around it, or set expected_count"
    )


def _find_positions(content: bytes, old: bytes) -> list[int]:
    found: list[int] = []
    position = content.find(old)
    while position >= 0 and len(found) < LINES_SHOWN:
        found.append(position)
        position = content.find(old, position + len(old))
    return found


def _find_hint(content: bytes, old: bytes) -> str:
    """A hint why the text was not found: it occurs with other white space."""
    if len(content) <= HINT_LIMIT and b" ".join(old.split()) in b" ".join(content.split()):
        return ", though it does with other white space"
    return ""


def _decode_editable(content: bytes) -> str | None:
    """The content for a person's editor; None when it is too long, or when an editor would change it."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= WHOLE_LIMIT else None


def _build_diff(place: str, change: _FileChange) -> str:
    return build_diff(place, change.before, change.after)
