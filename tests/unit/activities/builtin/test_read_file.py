"""`read_file`, `list_directory` and `write_file`, run without an engine, and kept inside the workspace."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.activities.builtin import read_file
from holdfast.activities.builtin.read_file import ListDirectory, ReadFile
from holdfast.activities.builtin.write_file import WriteFile
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.tool import Effect, Tool, ToolFailure
from holdfast.domain.content import BlobPart, Result
from holdfast.testing import FakeRun
from tests.support.tools import build


class Quiet(FakeRun):
    """A run nobody watches."""

    def write(self, text: str) -> None:
        raise AssertionError("files have no live output")

    def report_process(self, pid: int) -> None:
        raise AssertionError("files have no process")


async def execute(tool: Tool, workspace: Path, **arguments: Any) -> Result:
    return await build(tool, workspace, **arguments).execute(Quiet())


async def text_of(tool: Tool, workspace: Path, **arguments: Any) -> str:
    [part] = (await execute(tool, workspace, **arguments)).parts
    return part.text


async def failure_of(tool: Tool, workspace: Path, **arguments: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await execute(tool, workspace, **arguments)
    return failure.value


# Reading


async def test_file_is_read_whole(workspace: Path) -> None:
    (workspace / "a.txt").write_bytes("eins\r\nzwei ✓\n".encode())
    assert await text_of(ReadFile(), workspace, path="a.txt") == "eins\r\nzwei ✓\n"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ({"start_line": 1, "line_count": 1}, "1\n"),
        ({"start_line": 2}, "2\n3\n4"),
        ({"start_line": 2, "line_count": 2}, "2\n3\n"),
        ({"start_line": 4, "line_count": 100}, "4"),
        ({"line_count": 2}, "1\n2\n"),
    ],
)
async def test_range_of_lines_is_read(workspace: Path, lines: dict[str, int], text: str) -> None:
    (workspace / "a.txt").write_text("1\n2\n3\n4")
    assert await text_of(ReadFile(), workspace, path="a.txt", **lines) == text


@pytest.mark.parametrize(
    ("content", "start_line", "words"),
    [("1\n2\n3\n4", 5, "'a.txt' has 4 lines, not 5"), ("1\n", 2, "has 1 lines, not 2"), ("1", 10**9, "1,000,000,000")],
)
async def test_line_beyond_the_end_is_a_failure(workspace: Path, content: str, start_line: int, words: str) -> None:
    (workspace / "a.txt").write_text(content)
    failure = await failure_of(ReadFile(), workspace, path="a.txt", start_line=start_line)
    assert failure.type == "no_such_line"
    assert words in str(failure)


async def test_empty_file_is_read_from_any_line(workspace: Path) -> None:
    (workspace / "a.txt").touch()
    assert await text_of(ReadFile(), workspace, path="a.txt", start_line=7) == ""


@pytest.mark.parametrize("mark", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028"])
async def test_lines_are_counted_as_grep_and_diffs_count_them(workspace: Path, mark: str) -> None:
    (workspace / "a.txt").write_bytes(f"1{mark}still 1\n2\n".encode())
    assert await text_of(ReadFile(), workspace, path="a.txt", start_line=2) == "2\n"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"path": ""}, {"path": "a", "start_line": 0}, {"path": "a", "line_count": 0}, {"path": "a", "lines": 3}],
)
def test_S6_arguments_outside_the_schema_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReadFile.Parameters.model_validate(arguments)


@pytest.mark.parametrize(
    ("path", "type", "words"),
    [
        ("missing.txt", "file_not_readable", "does not exist"),
        ("folder", "file_not_readable", "list_directory"),
        ("pipe", "file_not_readable", "is a pipe"),
    ],
)
async def test_what_cannot_be_read_is_a_failure_in_words(workspace: Path, path: str, type: str, words: str) -> None:
    (workspace / "folder").mkdir()
    os.mkfifo(workspace / "pipe")
    failure = await failure_of(ReadFile(), workspace, path=path)
    assert failure.type == type
    assert words in str(failure)


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a\x01\0", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8", "image/webp"),
        (b"%PDF-1.7\n", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x7fELF\0\0", "application/octet-stream"),
        (b"text\0text", "application/octet-stream"),
    ],
)
async def test_S34_binary_file_is_read_as_it_is(workspace: Path, content: bytes, media_type: str) -> None:
    (workspace / "folder").mkdir()
    (workspace / "folder/file").write_bytes(content)
    result = await execute(ReadFile(), workspace, path="./folder/file")
    assert result.parts == (BlobPart.from_bytes(content, media_type, name="folder/file"),)
    assert result.parts[0].text == f"[folder/file, {media_type}, {len(content)} bytes]"


@pytest.mark.parametrize("text", ["ID3 tags, explained\n", "GIF89a is a format\n", "RIFF\n", "%\n", "x" * 9_000])
async def test_text_that_begins_like_something_else_is_text(workspace: Path, text: str) -> None:
    (workspace / "a.txt").write_text(text)
    assert await text_of(ReadFile(), workspace, path="a.txt") == text


async def test_file_that_was_read_is_remembered_whole_by_its_place(workspace: Path) -> None:
    (workspace / "real.txt").write_bytes(b"1\r\n2\xff\n")
    (workspace / "link").symlink_to("real.txt")
    result = await execute(ReadFile(), workspace, path="./link", start_line=2)
    assert result.seen == {"real.txt": hashlib.sha256(b"1\r\n2\xff\n").hexdigest()}


async def test_too_large_file_is_a_failure(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_file, "READ_LIMIT", 10)
    (workspace / "a.txt").write_text("x" * 11)
    assert (await failure_of(ReadFile(), workspace, path="a.txt")).type == "file_too_large"


async def test_bytes_that_are_no_utf8_are_replaced(workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(b"caf\xe9\n")
    assert await text_of(ReadFile(), workspace, path="a.txt") == "caf\ufffd\n"


# Listing


async def test_folder_is_listed_by_name_with_a_slash_after_folders(workspace: Path) -> None:
    (workspace / "b.txt").touch()
    (workspace / "a").mkdir()
    (workspace / ".hidden").touch()
    assert await text_of(ListDirectory(), workspace) == ".hidden\na/\nb.txt"
    assert await text_of(ListDirectory(), workspace, path="a") == "(empty)"


@pytest.mark.parametrize("path", ["missing", "file.txt"])
async def test_what_is_no_folder_is_a_failure(workspace: Path, path: str) -> None:
    (workspace / "file.txt").touch()
    assert (await failure_of(ListDirectory(), workspace, path=path)).type == "folder_not_readable"


async def test_long_list_is_cut_and_says_so(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_file, "ENTRIES_SHOWN", 3)
    for number in range(5):
        (workspace / f"{number}").touch()
    assert await text_of(ListDirectory(), workspace) == "0\n1\n2\n… 2 more"


async def test_name_that_is_no_utf8_can_be_listed_and_written_to_the_history(workspace: Path) -> None:
    (workspace / os.fsdecode(b"caf\xe9")).touch()
    result = await execute(ListDirectory(), workspace)
    assert "caf" in result.model_dump_json()


# Writing


async def test_new_file_is_created_with_its_folders(workspace: Path) -> None:
    text = await text_of(WriteFile(), workspace, path="new/deep/a.txt", content="hallo\r\n✓")
    assert (workspace / "new/deep/a.txt").read_bytes() == "hallo\r\n✓".encode()
    assert text == "Created new/deep/a.txt (8 characters)."


async def test_file_is_replaced_at_once_and_keeps_its_mode(workspace: Path) -> None:
    target = workspace / "a.sh"
    target.write_text("old\n")
    target.chmod(0o750)
    before = target.stat().st_ino
    result = await execute(WriteFile(), workspace, path="a.sh", content="new\n")
    assert result.parts[0].text == "Replaced a.sh (4 characters)."
    assert result.display == "--- a/a.sh\n+++ b/a.sh\n@@ -1 +1 @@\n-old\n+new\n"
    assert target.read_text() == "new\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert target.stat().st_ino != before, "a reader must see the old file or the new one"
    assert os.listdir(workspace) == ["a.sh"]


async def test_S31_writing_twice_is_writing_once(workspace: Path) -> None:
    assert WriteFile.effect is Effect.IDEMPOTENT
    for _ in range(2):
        await execute(WriteFile(), workspace, path="a.txt", content="same")
    assert (workspace / "a.txt").read_text() == "same"


async def test_write_that_fails_leaves_nothing_behind(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "a.txt").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failure = await failure_of(WriteFile(), workspace, path="a.txt", content="new")
    assert (failure.type, str(failure)) == (
        "file_not_writable",
        "'a.txt' cannot be written: No space left on device",
    )
    assert (workspace / "a.txt").read_text() == "old"
    assert os.listdir(workspace) == ["a.txt"]


@pytest.mark.parametrize("path", ["a.txt/b", "x" * 5_000, "x" * 300])
@pytest.mark.parametrize("tool", [ReadFile(), ListDirectory(), WriteFile()], ids=lambda tool: tool.name)
def test_path_that_cannot_be_is_refused_before_anybody_is_asked(workspace: Path, tool: Tool, path: str) -> None:
    (workspace / "a.txt").touch()
    with pytest.raises(ValueError, match="cannot be used"):
        build(tool, workspace, path=path, **({"content": ""} if tool.name == "write_file" else {}))


async def test_S37_link_swapped_between_question_and_write_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    """The folder is checked when the call is asked about, and replaced by a link out of the workspace after."""
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (workspace / "folder").mkdir()
    invocation = build(WriteFile(), workspace, path="folder/a.txt", content="x")
    await invocation.should_confirm()
    (workspace / "folder").rmdir()
    (workspace / "folder").symlink_to(outside)
    with pytest.raises(ValueError, match="outside the workspace"):
        await invocation.execute(Quiet())
    assert list(outside.iterdir()) == []


async def test_S37_link_swapped_between_question_and_read_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (workspace / "a.txt").write_text("harmless")
    invocation = build(ReadFile(), workspace, path="a.txt")
    (workspace / "a.txt").unlink()
    (workspace / "a.txt").symlink_to(secret)
    with pytest.raises(ValueError, match="outside the workspace"):
        await invocation.execute(Quiet())


async def test_S37_absolute_links_inside_are_followed(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "link").symlink_to((workspace / "folder").absolute())
    await execute(WriteFile(), workspace, path="link/a.txt", content="here")
    assert await text_of(ReadFile(), workspace, path="link/a.txt") == "here"
    assert (workspace / "folder" / "a.txt").read_text() == "here"


async def test_S37_absolute_paths_inside_are_taken(workspace: Path) -> None:
    (workspace / "a.txt").write_text("here")
    assert await text_of(ReadFile(), workspace, path=str(workspace / "a.txt")) == "here"


@pytest.mark.parametrize("path", [".", "folder", "folder/", "folder/.."])
def test_folder_is_not_written(workspace: Path, path: str) -> None:
    (workspace / "folder").mkdir()
    with pytest.raises(ValueError, match="is not a file"):
        build(WriteFile(), workspace, path=path, content="")


async def test_writing_what_a_file_holds_already_needs_no_approval(workspace: Path) -> None:
    (workspace / "a.txt").write_text("a\n")
    assert await build(WriteFile(), workspace, path="a.txt", content="a\n").should_confirm() is None


@pytest.mark.parametrize(
    ("before", "after", "diff"),
    [
        (None, "a\nb\n", "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n"),
        ("a\nb\n", "a\nc\n", "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"),
        ("a", "", "--- a/a.txt\n+++ b/a.txt\n@@ -1 +0,0 @@\n-a\n\\ No newline at end of file\n"),
        ("a\r\n", "a\n", "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a␍\n+a\n"),
        ("a\r", "a\n", "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a␍\n\\ No newline at end of file\n+a\n"),
        (None, "", "(a new, empty file)"),
        ("\0" * 9, "text", "(a binary file of 9 bytes becomes one of 4)"),
    ],
)
async def test_S20_confirmation_shows_the_diff(workspace: Path, before: str | None, after: str, diff: str) -> None:
    if before is not None:
        (workspace / "a.txt").write_bytes(before.encode())
    shown = await build(WriteFile(), workspace, path="./a.txt", content=after).should_confirm()
    assert shown is not None
    assert (shown.kind, shown.path, shown.diff) == ("edit", "a.txt", diff)
    assert (workspace / "a.txt").exists() is (before is not None), "asking writes nothing"


async def test_S20_diff_of_what_is_too_long_says_so(workspace: Path) -> None:
    shown = await build(WriteFile(), workspace, path="a.txt", content="x\n" * 500_000).should_confirm()
    assert shown is not None
    assert shown.diff == "(too long for a diff: 0 characters become 1,000,000, from line 1 on)"


@pytest.fixture
def pipe(workspace: Path) -> Iterator[Path]:
    path = workspace / "pipe"
    os.mkfifo(path)
    yield path
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK), "wb"):  # lets a thread go that waits for a writer
        pass


def test_pipe_is_not_written(workspace: Path, pipe: Path) -> None:
    with pytest.raises(ValueError, match="is not a file"):
        build(WriteFile(), workspace, path="pipe", content="x")


# Confinement


OUTSIDE = [
    "/etc/passwd",
    "..",
    "../outside/secret.txt",
    "a/../../outside/secret.txt",
    "link-to-file",
    "link-to-folder/secret.txt",
    "link-to-folder/new.txt",
    "link-to-missing",
    "chain",
    "nul\0byte",
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("tool", [ReadFile(), ListDirectory(), WriteFile()], ids=lambda tool: tool.name)
def test_path_that_leads_out_of_the_workspace_is_refused(workspace: Path, tool: Tool, path: str) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (workspace / "a").mkdir()
    (workspace / "link-to-file").symlink_to(outside / "secret.txt")
    (workspace / "link-to-folder").symlink_to(outside)
    (workspace / "link-to-missing").symlink_to(outside / "missing")
    (workspace / "chain").symlink_to("link-to-file")
    content = {"content": "x"} if isinstance(tool, WriteFile) else {}
    with pytest.raises(ValueError, match=r"outside the workspace|NUL"):
        build(tool, workspace, path=path, **content)


def test_neighbour_with_the_same_beginning_is_outside(workspace: Path) -> None:
    neighbour = workspace.with_name(workspace.name + "-2")
    neighbour.mkdir()
    with pytest.raises(ValueError, match="outside the workspace"):
        build(ReadFile(), workspace, path=f"../{neighbour.name}/x")


async def test_loop_of_links_is_refused_or_fails(workspace: Path) -> None:
    (workspace / "loop").symlink_to("loop")
    with pytest.raises((ValueError, ToolFailure)):
        await execute(ReadFile(), workspace, path="loop")


async def test_paths_that_stay_inside_are_taken(workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a/b.txt").write_text("b")
    (workspace / "link").symlink_to("a/b.txt")
    for path in ("a/b.txt", "./a/../a/b.txt", "link", str(workspace / "a/b.txt")):
        assert await text_of(ReadFile(), workspace, path=path) == "b"


async def test_writing_through_a_link_inside_keeps_the_link(workspace: Path) -> None:
    (workspace / "real.txt").write_text("old")
    (workspace / "link").symlink_to("real.txt")
    await execute(WriteFile(), workspace, path="link", content="new")
    assert (workspace / "link").is_symlink()
    assert (workspace / "real.txt").read_text() == "new"


async def test_workspace_behind_a_link_is_a_workspace(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(workspace)
    await execute(WriteFile(), tmp_path / "alias", path="a.txt", content="x")
    assert (workspace / "a.txt").read_text() == "x"


async def test_a_new_file_heeds_the_umask_and_a_replaced_one_loses_the_right_to_run_as_its_owner(
    workspace: Path,
) -> None:
    (workspace / "old.txt").write_text("x")
    (workspace / "old.txt").chmod(0o4755)
    before = os.umask(0o077)
    try:
        await execute(WriteFile(), workspace, path="new.txt", content="n")
        await execute(WriteFile(), workspace, path="old.txt", content="o")
    finally:
        os.umask(before)
    assert stat.S_IMODE((workspace / "new.txt").stat().st_mode) == 0o600
    assert stat.S_IMODE((workspace / "old.txt").stat().st_mode) == 0o755


def test_a_workspace_that_is_gone_is_called_so(workspace: Path) -> None:
    workspace.rmdir()
    with pytest.raises(ValueError, match="the workspace folder is gone"):
        build(ListDirectory(), workspace)


# Saved outputs


async def test_S37_outputs_that_were_saved_are_outside_the_workspace(workspace: Path, tmp_path: Path) -> None:
    whole = OutputStore(tmp_path / "outputs").save("x")
    with pytest.raises(ValueError, match="outside the workspace"):
        build(ReadFile(), workspace, path=whole)
