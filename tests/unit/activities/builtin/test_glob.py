"""`glob`, run without an engine: what it lists, in which order, and that it stays inside the workspace and stops."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.activities.builtin import glob
from holdfast.activities.builtin.glob import Glob
from holdfast.activities.files.walk import Walk
from holdfast.domain.calls.tool import Effect, Invocation, ToolFailure
from holdfast.testing import FakeRun

PATIENCE = 10.0
"""Seconds any wait may take before the test fails."""


def make(root: Path, *paths: str) -> None:
    """The first is the oldest."""
    for age, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
        os.utime(root / path, (1_000_000 + age, 1_000_000 + age))


def build(workspace: Path, **arguments: Any) -> Invocation:
    return Glob().build(Glob.Parameters.model_validate(arguments), workspace)


async def found(workspace: Path, pattern: str, **more: Any) -> str:
    result = await build(workspace, pattern=pattern, **more).execute(FakeRun())
    return "\n".join(str(getattr(part, "text", "")) for part in result.parts)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)


def test_S31_finding_changes_nothing_and_runs_beside_others(workspace: Path) -> None:
    assert Glob.effect is Effect.READ
    assert build(workspace, pattern="*").is_concurrency_safe()
    assert build(workspace, pattern="*.py", path=".").describe() == "Find *.py in ."


async def test_files_are_listed_newest_first(workspace: Path) -> None:
    make(workspace, "old.py", "src/middle.py", "new.py", "new.txt")
    assert await found(workspace, "**/*.py") == "new.py\nsrc/middle.py\nold.py"
    assert await found(workspace, "*.py") == "new.py\nold.py"
    assert await found(workspace, "./*.{py,txt}") == "new.txt\nnew.py\nold.py"


async def test_files_of_the_same_age_are_listed_by_name(workspace: Path) -> None:
    make(workspace, "b", "a", "c")
    for name in "abc":
        os.utime(workspace / name, (1, 1))
    assert await found(workspace, "*") == "a\nb\nc"


async def test_pattern_is_seen_from_the_path_and_files_are_named_from_the_workspace(workspace: Path) -> None:
    make(workspace, "src/a/x.py", "src/x.py", "x.py")
    assert await found(workspace, "*.py", path="src") == "src/x.py"
    assert await found(workspace, "*.py", path=str(workspace / "src/a")) == "src/a/x.py"
    assert await found(workspace, "src/*.py", path="./src/..") == "src/x.py"


async def test_folders_and_pipes_are_not_listed_and_links_say_so(workspace: Path) -> None:
    make(workspace, "folder/file")
    os.mkfifo(workspace / "pipe")
    (workspace / "link").symlink_to("folder")
    assert await found(workspace, "*") == "link -> folder"


async def test_what_git_ignores_is_left_out_unless_asked_for(workspace: Path) -> None:
    make(workspace, "a.log", "build/b.log", "c.txt")
    (workspace / ".gitignore").write_text("*.log\nbuild/\n")
    assert "a.log" not in await found(workspace, "**")
    assert await found(workspace, "**/*.log", include_ignored=True) == "build/b.log\na.log"
    assert await found(workspace, "**/*.log") == (
        "No files in '.' match '**/*.log'. What git ignores was left out: set include_ignored to find that as well."
    )
    assert "'build' is ignored by git: set include_ignored" in await found(workspace, "*", path="build")


async def test_nothing_found_is_said_with_what_to_try(workspace: Path) -> None:
    make(workspace, "src/a.py")
    text = await found(workspace, "*.py")
    assert text == "No files in '.' match '*.py'. To look in folders below as well: '**/*.py'."
    assert await found(workspace, "src/*.c") == "No files in '.' match 'src/*.c'."


async def test_long_list_is_cut_and_says_so(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "FILES_SHOWN", 2)
    make(workspace, "a", "b", "c", "d")
    assert await found(workspace, "*") == "d\nc\n… 2 more"


async def test_early_end_is_said(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.activities.files.walk.MAX_ENTRIES", 3)
    make(workspace, *"abcdef")
    assert "(stopped after 3 entries" in await found(workspace, "*")


async def test_twenty_thousand_files_are_found_in_time(workspace: Path) -> None:
    for folder in range(20):
        (workspace / f"{folder}").mkdir()
        for number in range(1_000):
            (workspace / f"{folder}" / f"{number}.txt").touch()
    began = time.monotonic()
    text = await found(workspace, "**/*.txt")
    assert text.endswith("… 19,000 more")
    assert time.monotonic() - began < PATIENCE


async def test_names_that_are_no_utf8_are_listed(workspace: Path) -> None:
    make(workspace, os.fsdecode(b"caf\xe9.txt"), "two\nlines.txt")
    assert await found(workspace, "*.txt") == "two␊lines.txt\ncaf\ufffd.txt"


# What is refused


@pytest.mark.parametrize("arguments", [{}, {"pattern": ""}, {"pattern": "*", "path": ""}, {"pattern": "*", "x": 1}])
def test_S6_arguments_outside_the_schema_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Glob.Parameters.model_validate(arguments)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("/etc/*", "relative"),
        ("../*", "relative"),
        ("a/../../*", "relative"),
        ("[a", "bracket"),
        ("{a,b}" * 20, "braces"),
    ],
)
def test_pattern_that_cannot_be_is_refused(workspace: Path, pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(workspace, pattern=pattern)


@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "link", "link/x", "nul\0byte", ".git", ".git/refs"])
def test_S37_path_that_leads_out_of_the_workspace_is_refused(workspace: Path, path: str) -> None:
    make(workspace, "a/x", ".git/refs/x")
    (workspace / "link").symlink_to("/")
    with pytest.raises(ValueError, match=r"outside the workspace|NUL|belongs to git"):
        build(workspace, pattern="**", path=path)


@pytest.mark.parametrize("path", ["missing", "file.txt"])
async def test_what_is_no_folder_is_a_failure(workspace: Path, path: str) -> None:
    make(workspace, "file.txt")
    with pytest.raises(ToolFailure, match="cannot be looked into") as failure:
        await found(workspace, "*", path=path)
    assert failure.value.type == "folder_not_readable"


async def test_S37_folder_swapped_for_a_link_after_the_question_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside/secret")
    make(workspace, "a/b/x")
    invocation = build(workspace, pattern="**", path="a/b")
    (workspace / "a").rename(workspace / "c")
    (workspace / "a").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/b").mkdir()
    with pytest.raises(ToolFailure, match="cannot be looked into"):
        await invocation.execute(FakeRun())


async def test_S37_links_inside_are_followed_to_where_the_path_says(workspace: Path) -> None:
    make(workspace, "real/x")
    (workspace / "link").symlink_to("real")
    assert await found(workspace, "*", path="link") == "real/x"


# Stopping


async def test_S17_stop_ends_the_thread(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(workspace, "a", "b", "c")
    inside, ended = threading.Event(), threading.Event()
    entries = Walk.list_entries

    def slow(self: Walk) -> Any:
        for entry in entries(self):
            inside.set()
            assert self._stop.wait(PATIENCE), "nobody told the walk to stop"
            yield entry
        ended.set()

    monkeypatch.setattr(Walk, "list_entries", slow)
    task = asyncio.create_task(build(workspace, pattern="*").execute(FakeRun()))
    await until(inside.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(ended.is_set)
