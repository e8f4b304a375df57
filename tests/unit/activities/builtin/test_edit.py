"""`edit` and `write_file`: exactly what was asked, in exactly one place, or nothing at all."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.activities.builtin import edit as editing
from holdfast.activities.builtin import write_file
from holdfast.activities.builtin.edit import Edit
from holdfast.activities.builtin.write_file import WriteFile
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.gate.approval_checks import is_as_shown
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.registry.registry import Registry
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, Invocation, ToolFailure, ToolRef
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Reject, Verdict
from holdfast.domain.content import Result
from holdfast.testing import FakeRun
from holdfast.util.text_replacement import fit_line_endings
from tests.support.tools import build


def edit(workspace: Path, old: str, new: str, *, path: str = "a.txt", **more: Any) -> Invocation:
    return build(Edit(), workspace, path=path, old_text=old, new_text=new, **more)


async def edited(workspace: Path, before: bytes, old: str, new: str, **more: Any) -> bytes:
    (workspace / "a.txt").write_bytes(before)
    await edit(workspace, old, new, **more).execute(FakeRun())
    return (workspace / "a.txt").read_bytes()


def refusal(workspace: Path, before: bytes, old: str, new: str, **more: Any) -> str:
    (workspace / "a.txt").write_bytes(before)
    with pytest.raises(ValueError, match=r"\w") as error:
        asyncio.run(edit(workspace, old, new, **more).should_confirm())
    assert (workspace / "a.txt").read_bytes() == before
    return str(error.value)


async def failure(invocation: Invocation, run: FakeRun | None = None) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await invocation.execute(run or FakeRun())
    return failed.value


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# What is replaced


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one two\n", "two", "three", b"one three\n"),
        (b"one two\n", "one two\n", "", b""),
        (b"one two\n", " two", "", b"one\n"),
        (b"a\nb\nc\n", "a\nb", "x", b"x\nc\n"),
        (b"a\nb\nc\n", "b\n", "b\nb2\n", b"a\nb\nb2\nc\n"),
        (b"no end", "end", "newline", b"no newline"),
        (b"x", "x", "y\n", b"y\n"),
        (b"a.c abc\n", "a.c", "X", b"X abc\n"),
        (b"\\1 $0 %s {}\n", "\\1", "\\g<0>", b"\\g<0> $0 %s {}\n"),
        ("é ✓ 日本\n".encode(), "✓", "✗", "é ✗ 日本\n".encode()),
        (b"tab\there\n", "\t", "  ", b"tab  here\n"),
    ],
)
async def test_exact_text_is_replaced(workspace: Path, before: bytes, old: str, new: str, after: bytes) -> None:
    assert await edited(workspace, before, old, new) == after


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nb2", b"a\r\nb\r\nb2\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x", b"x\r\n"),
        (b"a\rb\rc", "b", "x", b"a\rx\rc"),
        (b"a\rb\r", "a\rb", "x\ry", b"x\ry\r"),
        (b"a\nb\r\nc\n", "a\nb", "x\ny", b"x\ny\r\nc\n"),
        (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n"),
        (b"a\r\nb", "b", "c", b"a\r\nc"),
        (b"a\nb", "b", "c\n", b"a\nc\n"),
        (codecs.BOM_UTF8 + b"a\nb\n", "a", "x", codecs.BOM_UTF8 + b"x\nb\n"),
        (codecs.BOM_UTF8 + b"a\r\nb\r\n", "a\nb", "x", codecs.BOM_UTF8 + b"x\r\n"),
        (b"caf\xe9 one\xff\n\xfe", "one", "two", b"caf\xe9 two\xff\n\xfe"),
        (b"a\x0cb\x0b\n\xc2\x85c", "b", "x", b"a\x0cx\x0b\n\xc2\x85c"),
    ],
)
async def test_what_is_not_touched_stays_as_it_is(
    workspace: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    assert await edited(workspace, before, old, new) == after


ORDINARY = st.text(alphabet="ab \n", max_size=12)


@given(head=ORDINARY, old=ORDINARY.filter(bool), tail=ORDINARY, new=ORDINARY, ending=st.sampled_from(["\n", "\r\n"]))
def test_edit_of_any_text_is_a_plain_replacement(head: str, old: str, tail: str, new: str, ending: str) -> None:
    whole = head + old + tail
    content = whole.replace("\n", ending).encode()
    found, put = fit_line_endings(content, old, new)
    assert content.count(found) == whole.count(old)
    expected = whole.replace(old, new)
    if "\n" in whole:
        assert content.replace(found, put) == expected.replace("\n", ending).encode()


# How often


@pytest.mark.parametrize("count", [2, 3])
async def test_each_occurrence_is_replaced_when_as_many_are_there(workspace: Path, count: int) -> None:
    assert await edited(workspace, b"x " * count, "x", "y", expected_count=count) == b"y " * count


def test_S6_text_that_occurs_more_often_is_refused_with_its_lines(workspace: Path) -> None:
    told = refusal(workspace, b"a\nx\nb\nx\nx x\n", "x", "y")
    assert told.startswith("old_text occurs 4 times in 'a.txt' (at line 2, 4, 5, 5), not 1: ")
    assert "expected_count" in told


def test_S6_text_that_occurs_less_often_is_refused(workspace: Path) -> None:
    assert "old_text occurs 1 time in" in refusal(workspace, b"x\n", "x", "y", expected_count=2)


def test_S6_of_many_lines_the_first_are_told(workspace: Path) -> None:
    told = refusal(workspace, b"x\n" * 5_000, "x", "y")
    assert "5,000 times" in told
    assert "(at line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)" in told


async def test_overlapping_occurrences_are_counted_from_the_left(workspace: Path) -> None:
    assert await edited(workspace, b"aaa\n", "aa", "b") == b"ba\n"
    assert await edited(workspace, b"aaaa\n", "aa", "b", expected_count=2) == b"bb\n"


@pytest.mark.parametrize(
    ("before", "old", "hint"),
    [
        (b"def f():\n\treturn 1\n", "def f():\n    return 1", True),
        (b"a  b\n", "a b", True),
        (b"a\nb\n", "a b", True),
        (b"a\rb\r", "a\nb", True),
        (b"nothing alike\n", "a b", False),
        (b"", "a", False),
    ],
)
def test_S6_text_that_does_not_occur_is_refused_with_a_hint(
    workspace: Path, before: bytes, old: str, hint: bool
) -> None:
    told = refusal(workspace, before, old, "x")
    assert told.startswith("old_text does not occur in 'a.txt'")
    assert ("with other white space" in told) is hint
    assert "read the file" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"old_text": "x", "new_text": "x"}, "the same"),
        ({"old_text": "", "new_text": "x"}, "at least 1 character"),
        ({"old_text": "x", "new_text": "y", "expected_count": 0}, "greater than or equal to 1"),
        ({"old_text": "x", "new_text": "y", "path": "missing.txt"}, "does not exist: use write_file"),
        ({"old_text": "x", "new_text": "y", "path": "folder"}, "is not a file"),
        ({"old_text": "x", "new_text": "y", "path": "pipe"}, "is not a file"),
        ({"old_text": "x", "new_text": "y", "path": "binary"}, "is not text"),
        ({"old_text": "x", "new_text": "y", "path": "../outside.txt"}, "outside the workspace"),
        ({"old_text": "x", "new_text": "y", "path": "/etc/passwd"}, "outside the workspace"),
        ({"old_text": "x", "new_text": "y", "path": "link-out"}, "outside the workspace"),
        ({"old_text": "x", "new_text": "y", "path": "nul\0"}, "NUL"),
    ],
)
async def test_S6_edit_that_cannot_be_is_refused_before_anybody_is_asked(
    workspace: Path, arguments: dict[str, Any], words: str
) -> None:
    (workspace / "a.txt").write_text("x")
    (workspace / "folder").mkdir()
    (workspace / "binary").write_bytes(b"x\0")
    os.mkfifo(workspace / "pipe")
    (workspace.parent / "outside.txt").write_text("x")
    (workspace / "link-out").symlink_to(workspace.parent / "outside.txt")
    request = CallRequest(tool="edit", arguments={"path": "a.txt", **arguments})
    verdict, _, _ = await Gate(Registry([Edit()]), workspace).judge(request)
    assert isinstance(verdict, Reject)
    assert verdict.error.type == "invalid_tool_params"
    assert words in verdict.error.message
    assert (workspace.parent / "outside.txt").read_text() == "x"


def test_file_too_large_to_edit_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editing, "READ_LIMIT", 10)
    assert "over 10 bytes" in refusal(workspace, b"x" + b"y" * 10, "x", "z")


# What is shown and told


async def test_S20_edit_shows_its_diff_and_writes_nothing(workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    request = CallRequest(tool="edit", arguments={"path": "./a.txt", "old_text": "two", "new_text": "2"})
    verdict, _, _ = await Gate(Registry([Edit()]), workspace).judge(request)
    assert isinstance(verdict, Ask)
    shown = verdict.confirmation
    assert (shown.kind, shown.title, shown.path) == ("edit", "Edit a.txt", "a.txt")
    assert shown.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one␍\n-two␍\n+2␍\n"
    assert verdict.bound.basis == {"a.txt": digest(b"one\r\ntwo\r\n")}
    assert (workspace / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


async def test_result_says_how_many_and_remembers_the_file(workspace: Path) -> None:
    (workspace / "a.txt").write_text("x x\n")
    (workspace / "a.txt").chmod(0o751)
    result = await edit(workspace, "x", "y", expected_count=2).execute(FakeRun())
    assert result.parts[0].text == "Edited a.txt (2 replacements)."
    assert result.seen == {"a.txt": digest(b"y y\n")}
    assert result.display is not None
    assert "+y y" in result.display
    assert stat.S_IMODE((workspace / "a.txt").stat().st_mode) == 0o751
    assert os.listdir(workspace) == ["a.txt"]


def test_S31_edit_is_not_repeated_by_itself() -> None:
    assert Edit.effect is Effect.ONCE
    assert WriteFile.effect is Effect.IDEMPOTENT


# A file that changed meanwhile


def tools(workspace: Path) -> dict[str, Invocation]:
    return {
        "edit": edit(workspace, "x", "y"),
        "write_file": build(WriteFile(), workspace, path="a.txt", content="y\n"),
    }


ARGUMENTS: dict[str, dict[str, JsonValue]] = {
    "edit": {"path": "a.txt", "old_text": "x", "new_text": "y"},
    "write_file": {"path": "a.txt", "content": "y\n"},
}


async def judged(workspace: Path, name: str, seen: dict[str, str]) -> Verdict:
    gate = Gate(Registry([Edit(), WriteFile()]), workspace)
    return (await gate.judge(CallRequest(tool=name, arguments=ARGUMENTS[name]), CallContext(seen=seen))).verdict


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_S37_file_that_changed_since_the_turn_saw_it_is_refused_before_anybody_is_asked(
    workspace: Path, name: str
) -> None:
    (workspace / "a.txt").write_text("x\nand more\n")
    verdict = await judged(workspace, name, {"a.txt": digest(b"x\n")})
    assert isinstance(verdict, Reject)
    assert verdict.error.type == "file_changed"
    assert "read it again" in verdict.error.message


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("seen", [{}, {"a.txt": digest(b"x\n")}, {"./a.txt": "other"}, {"b.txt": "other"}])
async def test_S37_file_that_is_as_the_turn_saw_it_is_asked_about(
    workspace: Path, name: str, seen: dict[str, str]
) -> None:
    (workspace / "a.txt").write_text("x\n")
    assert isinstance(await judged(workspace, name, seen), Ask)


async def test_S31_second_attempt_of_a_write_finds_its_own_work_and_needs_no_approval(workspace: Path) -> None:
    """The first attempt wrote and was lost: what is there is not what the turn saw, but what is wanted."""
    (workspace / "a.txt").write_text("y\n")
    verdict = await judged(workspace, "write_file", {"a.txt": digest(b"x\n")})
    assert isinstance(verdict, Allow)
    assert verdict.bound.basis == {}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_file_seen_by_a_link_is_known_by_its_place(workspace: Path, name: str) -> None:
    (workspace / "real.txt").write_text("x\n")
    (workspace / "a.txt").symlink_to("real.txt")
    verdict = await judged(workspace, name, {"real.txt": digest(b"older")})
    assert isinstance(verdict, Reject)
    assert verdict.error.type == "file_changed"


@pytest.mark.parametrize(
    ("approved", "now", "seen", "same"),
    [
        ({}, {}, {}, True),
        ({"a": "1"}, {"a": "1"}, {}, True),
        ({"a": "1"}, {"a": "2"}, {}, False),
        ({"a": "1"}, {"a": "2"}, {"a": "2"}, True),
        ({"a": "1"}, {"a": "2"}, {"a": "1"}, False),
        ({"a": ""}, {"a": "1"}, {}, False),
        ({"a": "1"}, {"b": "1"}, {}, False),
        ({"a": "1"}, {}, {}, True),
    ],
)
def test_S22_an_approval_is_about_the_files_as_they_were_shown_or_as_the_turn_left_them(
    approved: dict[str, str], now: dict[str, str], seen: dict[str, str], same: bool
) -> None:
    assert is_as_shown(a_bound(approved), a_bound(now), seen) is same


def a_bound(basis: dict[str, str]) -> BoundCall:
    tool = ToolRef(name="edit", effect=Effect.ONCE, definition="d")
    return BoundCall(
        tool=tool, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1, basis=basis
    )


async def test_text_that_vanished_after_the_question_is_a_failure(workspace: Path) -> None:
    (workspace / "a.txt").write_text("x\n")
    invocation = edit(workspace, "x", "y")
    (workspace / "a.txt").write_text("z\n")
    failed = await failure(invocation)
    assert failed.type == "edit_failed"
    assert (workspace / "a.txt").read_text() == "z\n"


async def test_file_that_vanished_after_the_question_is_a_failure(workspace: Path) -> None:
    (workspace / "a.txt").write_text("x\n")
    invocation = edit(workspace, "x", "y")
    (workspace / "a.txt").unlink()
    assert (await failure(invocation)).type in ("edit_failed", "file_not_readable")
    assert os.listdir(workspace) == []


async def test_failed_edit_leaves_nothing_behind(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "a.txt").write_text("x\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failed = await failure(edit(workspace, "x", "y"))
    assert (failed.type, "No space left" in str(failed)) == ("file_not_writable", True)
    assert (workspace / "a.txt").read_text() == "x\n"
    assert os.listdir(workspace) == ["a.txt"]


# Links


async def test_S37_link_inside_is_followed_and_kept(workspace: Path) -> None:
    (workspace / "real.txt").write_text("x\n")
    (workspace / "a.txt").symlink_to("real.txt")
    result = await edit(workspace, "x", "y").execute(FakeRun())
    assert (workspace / "a.txt").is_symlink()
    assert (workspace / "real.txt").read_text() == "y\n"
    assert result.parts[0].text == "Edited real.txt (1 replacement)."
    assert list(result.seen) == ["real.txt"]


@pytest.mark.parametrize("name", ["edit", "write_file"])
async def test_S37_file_swapped_for_a_link_after_the_question_leads_nowhere(
    workspace: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("x\n")
    (workspace / "a.txt").write_text("x\n")
    invocation = tools(workspace)[name]
    (workspace / "a.txt").unlink()
    (workspace / "a.txt").symlink_to(outside)
    with pytest.raises((ValueError, ToolFailure)):
        await invocation.execute(FakeRun())
    assert outside.read_text() == "x\n"


@pytest.mark.parametrize("name", ["edit", "write_file"])
async def test_S37_folder_swapped_for_a_link_during_the_write_leads_nowhere(
    workspace: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("x\n")
    (workspace / "folder").mkdir()
    (workspace / "folder/a.txt").write_text("x\n")
    invocation = {
        "edit": edit(workspace, "x", "y", path="folder/a.txt"),
        "write_file": build(WriteFile(), workspace, path="folder/a.txt", content="y\n"),
    }[name]
    write = Workspace.write

    def swapped(self: Workspace, path: str, content: bytes) -> None:
        (workspace / "folder").rename(workspace / "moved")
        (workspace / "folder").symlink_to(outside)
        write(self, path, content)

    monkeypatch.setattr(Workspace, "write", swapped)
    with pytest.raises((ValueError, ToolFailure)):
        await invocation.execute(FakeRun())
    assert (outside / "a.txt").read_text() == "x\n"
    assert os.listdir(outside) == ["a.txt"]


async def test_file_swapped_for_a_link_while_it_is_renamed_is_replaced_itself(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("x\n")
    (workspace / "a.txt").write_text("x\n")
    invocation = edit(workspace, "x", "y")
    replace = os.replace

    def swapped(*args: Any, **kwargs: Any) -> None:
        (workspace / "a.txt").unlink()
        (workspace / "a.txt").symlink_to(outside)
        replace(*args, **kwargs)

    monkeypatch.setattr(os, "replace", swapped)
    await invocation.execute(FakeRun())
    assert outside.read_text() == "x\n"
    assert not (workspace / "a.txt").is_symlink()
    assert (workspace / "a.txt").read_text() == "y\n"


# Writing a whole file


async def test_written_file_is_remembered_by_its_place(workspace: Path) -> None:
    result = await build(WriteFile(), workspace, path="./a.txt", content="ä\n").execute(FakeRun())
    assert result.seen == {"a.txt": digest("ä\n".encode())}
    assert isinstance(result, Result)


async def test_diff_of_a_file_over_the_limit_says_so(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_file, "READ_LIMIT", 10)
    (workspace / "a.txt").write_bytes(b"x" * 11)
    shown = await build(WriteFile(), workspace, path="a.txt", content="y").should_confirm()
    assert shown is not None
    assert shown.diff == "(too long for a diff: 11 bytes become 1)"
