"""`grep`, by both engines: what they find, that they agree, and that neither gets out or is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.builtin import grep
from holdfast.activities.builtin.grep import Grep
from holdfast.activities.search import engines, text_files
from holdfast.activities.search.engines import CONCURRENT_SEARCHES, Engine, OwnEngine, Ripgrep, installed_engine
from holdfast.domain.calls.tool import Effect, Invocation, ToolFailure
from holdfast.domain.content import Result
from holdfast.testing import FakeRun
from tests.support.marks import PATIENCE, marked, until

HOSTILE = "(a+)+$"
RG = shutil.which("rg")
needs_rg = pytest.mark.needs("rg")


@pytest.fixture(params=["own", pytest.param("rg", marks=needs_rg)])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Ripgrep(RG or "rg") if request.param == "rg" else OwnEngine()


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


def build(engine: Engine | None, workspace: Path, **arguments: Any) -> Invocation:
    return Grep(engine).build(Grep.Parameters.model_validate(arguments), workspace)


def text_of(result: Result) -> str:
    return "\n".join(str(getattr(part, "text", "")) for part in result.parts)


async def found(engine: Engine | None, workspace: Path, pattern: str, **more: Any) -> str:
    return text_of(await build(engine, workspace, pattern=pattern, **more).execute(FakeRun()))


async def failure_of(engine: Engine, workspace: Path, **arguments: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await build(engine, workspace, **arguments).execute(FakeRun())
    return failure.value


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# What is found


def test_S31_searching_changes_nothing_and_runs_beside_others(workspace: Path) -> None:
    assert Grep.effect is Effect.READ
    invocation = build(None, workspace, pattern="x")
    assert invocation.is_concurrency_safe()
    assert invocation.describe() == "Search . for x"


async def test_lines_are_found_in_the_order_of_their_path(engine: Engine, workspace: Path) -> None:
    make(workspace, b_txt="one\ntwo\nthree two\n", a__z_txt="two", a_txt="no\n\ntwo\n")
    assert await found(engine, workspace, "t.o") == "a/z.txt:1:two\na.txt:3:two\nb.txt:2:two\nb.txt:3:three two"


async def test_files_and_counts_can_be_had_instead(engine: Engine, workspace: Path) -> None:
    make(workspace, a="x\nx x\n", b="y\n", c="x")
    assert await found(engine, workspace, "x", output="files") == "a\nc"
    assert await found(engine, workspace, "x", output="count") == "a:2\nc:1"


async def test_context_is_shown_and_groups_are_kept_apart(engine: Engine, workspace: Path) -> None:
    make(workspace, a="1\n2\nx\n4\n5\n6\n7\nx\nx\n10\n", b="x\n")
    assert await found(engine, workspace, "x", context=1) == (
        "a-2-2\na:3:x\na-4-4\n--\na-7-7\na:8:x\na:9:x\na-10-10\n--\nb:1:x"
    )


async def test_contexts_that_meet_are_one_group(engine: Engine, workspace: Path) -> None:
    make(workspace, a="x\n2\n3\nx")
    assert await found(engine, workspace, "x", context=20) == "a:1:x\na-2-2\na-3-3\na:4:x"


async def test_case_and_plain_text_are_minded_as_asked(engine: Engine, workspace: Path) -> None:
    make(workspace, a="Straße a.b\nSTRASSE AxB\n")
    assert await found(engine, workspace, "A.B", ignore_case=True, output="count") == "a:2"
    assert await found(engine, workspace, "a.b", literal=True) == "a:1:Straße a.b"
    assert await found(engine, workspace, "A.B", literal=True, ignore_case=True) == "a:1:Straße a.b"
    assert await found(engine, workspace, "A.B", literal=True) == "No matches."


async def test_pattern_that_looks_like_an_option_is_a_pattern(engine: Engine, workspace: Path) -> None:
    make(workspace, a="--files\n")
    put(workspace, "-e", "--files\n")
    assert await found(engine, workspace, "--files") == "-e:1:--files\na:1:--files"
    assert await found(engine, workspace, "-f", path="-e") == "-e:1:--files"


async def test_glob_chooses_files(engine: Engine, workspace: Path) -> None:
    make(workspace, a_py="x", a_txt="x", src__b_py="x", src__deep__c_py="x")
    assert await found(engine, workspace, "x", glob="*.py", output="files") == "a.py\nsrc/b.py\nsrc/deep/c.py"
    assert await found(engine, workspace, "x", glob="src/*.{py,txt}", output="files") == "src/b.py"
    assert await found(engine, workspace, "x", glob="deep/*", path="src", output="files") == "src/deep/c.py"
    assert await found(engine, workspace, "x", glob="*.txt", path="a.py") == "No matches."


async def test_one_file_or_folder_can_be_searched(engine: Engine, workspace: Path) -> None:
    make(workspace, a="x", b__c="x", b__d="y")
    assert await found(engine, workspace, "x", path="b") == "b/c:1:x"
    assert await found(engine, workspace, "x", path="b/../b/c") == "b/c:1:x"
    assert await found(engine, workspace, "x", path=str(workspace / "a")) == "a:1:x"


async def test_what_git_ignores_is_left_out_unless_asked_for(engine: Engine, workspace: Path) -> None:
    make(workspace, a_log="x", sub__a_log="x", sub__b="x", out__c="x", _hidden="x")
    put(workspace, ".gitignore", "*.log\nout/\n")
    put(workspace, ".git/config", "x")
    assert await found(engine, workspace, "^x", output="files") == ".hidden\nsub/b"
    assert await found(engine, workspace, "^x", path="sub", output="files") == "sub/b"
    assert await found(engine, workspace, "^x", path="sub/a.log") == "sub/a.log:1:x", "a file that is named is wanted"
    everything = ".hidden\na.log\nout/c\nsub/a.log\nsub/b"
    assert await found(engine, workspace, "^x", include_ignored=True, output="files") == everything
    assert await found(engine, workspace, "x", path="out") == (
        "No matches.\n('out' is ignored by git: set include_ignored to look into it)"
    )


async def test_limit_is_kept_and_said(engine: Engine, workspace: Path) -> None:
    make(workspace, a="x\n" * 3, b="x\n" * 3)
    note = "(stopped at the limit of {}: there are more. Narrow the search, or raise limit)"
    assert await found(engine, workspace, "x", limit=2) == "a:1:x\na:2:x\n" + note.format(2)
    assert await found(engine, workspace, "x", limit=3) == "a:1:x\na:2:x\na:3:x\n" + note.format(3)
    assert await found(engine, workspace, "x", limit=1, output="files") == "a\n" + note.format(1)
    assert "limit" not in await found(engine, workspace, "x", limit=6)
    assert "limit" not in await found(engine, workspace, "x", limit=2, output="count")


async def test_answer_is_bounded(engine: Engine, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "TEXT_LIMIT", 100)
    make(workspace, a=("x" * 40 + "\n") * 2, b="x" * 40, c="x" * 40, d="x")
    text = await found(engine, workspace, "x")
    assert [line[0] for line in text.splitlines()] == ["a", "a", "b", "("]
    assert "there may be more" in text


async def test_nothing_found_is_said(engine: Engine, workspace: Path) -> None:
    assert await found(engine, workspace, "x") == "No matches."
    make(workspace, a="y", empty="")
    assert await found(engine, workspace, "x") == "No matches."


async def test_line_endings_of_windows_are_no_part_of_a_line(engine: Engine, workspace: Path) -> None:
    make(workspace, a="foo\r\nbar\r\n")
    assert await found(engine, workspace, "foo$", context=1) == "a:1:foo\na-2-bar"


async def test_giant_line_is_cut_around_its_match(engine: Engine, workspace: Path) -> None:
    make(workspace, a="é" * 400_000 + "needle" + "ü" * 400_000 + "\nnext\n")
    [line, after] = (await found(engine, workspace, "needle", context=1)).splitlines()
    assert after == "a-2-next"
    assert "needle" in line
    assert line.startswith("a:1:…é")
    assert line.endswith("ü…")
    assert "\ufffd" not in line
    assert len(line) < 600


async def test_what_is_no_utf8_is_found_and_shown(engine: Engine, workspace: Path) -> None:
    put(workspace, os.fsdecode(b"caf\xe9"), b"ma\xf1ana\nx\n")
    assert await found(engine, workspace, "ana") == "caf\ufffd:1:ma\ufffdana"


async def test_binary_and_large_files_are_not_searched(
    engine: Engine, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "FILE_LIMIT", 100)
    make(workspace, binary=b"x\n\0\nx\n", large="x\n" * 51, small="x")
    os.mkfifo(workspace / "pipe")
    assert await found(engine, workspace, "x") == "small:1:x\n(1 files over 50,000,000 bytes were not searched)"


async def test_forty_megabytes_are_searched(engine: Engine, workspace: Path) -> None:
    line = b"the quick brown fox jumps over the lazy dog, and does so again and again and again\n"
    put(workspace, "big", line * (40_000_000 // len(line)) + b"needle 42\n")
    assert await found(engine, workspace, "needle", literal=True) == "big:481928:needle 42"
    assert await found(engine, workspace, "^needle [0-9]+$", output="count") == "big:1"
    assert (await found(engine, workspace, "fox", limit=1)).startswith("big:1:the quick")


async def test_twenty_thousand_files_are_searched(engine: Engine, workspace: Path) -> None:
    for folder in range(20):
        (workspace / f"{folder:02}").mkdir()
        for number in range(1_000):
            (workspace / f"{folder:02}" / f"{number:03}.txt").write_text(f"file {number}\n")
    before = descriptors()
    began = time.monotonic()
    lines = (await found(engine, workspace, "file 7$")).splitlines()
    assert lines == [f"{folder:02}/007.txt:1:file 7" for folder in range(20)]
    assert time.monotonic() - began < PATIENCE
    assert descriptors() <= before


# Both engines


PIECES = ["a", "b", "é", "x", ".", "a*", "b+", "[ab]", "[^a]", "(a|b)", "\\w", "\\s", "\\b", "a?"]
PATTERNS = st.tuples(
    st.sampled_from(["", "^"]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
    st.sampled_from(["", "$"]),
).map("".join)
"""Expressions that mean the same to both."""
OPTIONS = st.fixed_dictionaries(
    {
        "context": st.integers(0, 3),
        "output": st.sampled_from(["lines", "files", "count"]),
        "limit": st.integers(1, 5),
        "ignore_case": st.booleans(),
        "literal": st.booleans(),
    }
)


@needs_rg
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(pattern=PATTERNS, lines=st.lists(st.text("abéx A-\t", max_size=6), max_size=8), more=OPTIONS)
def test_both_engines_say_the_same(workspace: Path, pattern: str, lines: list[str], more: dict[str, Any]) -> None:
    put(workspace, "a/b", "\n".join(lines))
    put(workspace, "c", "\r\n".join(lines[::2]) + "\n")

    async def both() -> list[str]:
        return [await found(one, workspace, pattern, **more) for one in (Ripgrep(RG or "rg"), OwnEngine())]

    ripgrep, own = asyncio.run(both())
    assert ripgrep == own


async def test_installed_engine_is_used(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(workspace, a="x")
    assert await found(None, workspace, "x") == "a:1:x"
    assert isinstance(installed_engine(), Ripgrep) is (RG is not None)
    monkeypatch.setenv("PATH", str(workspace))
    assert isinstance(installed_engine(), OwnEngine)
    assert await found(None, workspace, "x") == "a:1:x"


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
        build(None, workspace, **{"pattern": "x", **more})


@pytest.mark.parametrize("pattern", ["(a", "a)", "[a", "*a", "a{2,1}", "(?P<n"])
async def test_invalid_pattern_is_a_failure_in_words(engine: Engine, workspace: Path, pattern: str) -> None:
    failure = await failure_of(engine, workspace, pattern=pattern)
    assert failure.type == "invalid_pattern"
    assert repr(pattern) in str(failure)
    assert "set literal" in str(failure)


async def test_path_that_does_not_exist_is_a_failure(engine: Engine, workspace: Path) -> None:
    failure = await failure_of(engine, workspace, pattern="x", path="missing")
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
        build(None, workspace, pattern="x", path=path)


async def test_S37_links_are_not_followed(engine: Engine, workspace: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/secret", "needle")
    (workspace / "root").symlink_to("/")
    (workspace / "folder").symlink_to(tmp_path / "outside")
    (workspace / "file").symlink_to(tmp_path / "outside/secret")
    assert await found(engine, workspace, "needle", include_ignored=True) == "No matches."


async def test_S37_folder_swapped_for_a_link_after_the_question_leads_nowhere(
    engine: Engine, workspace: Path, tmp_path: Path
) -> None:
    put(tmp_path, "outside/b/secret", "needle")
    make(workspace, a__b__c="needle")
    invocation = build(engine, workspace, pattern="needle", path="a/b")
    (workspace / "a").rename(workspace / "c")
    (workspace / "a").symlink_to(tmp_path / "outside")
    with pytest.raises(ToolFailure, match="cannot be searched"):
        await invocation.execute(FakeRun())


# Stopping


def hostile(workspace: Path) -> None:
    put(workspace, "a", "found aaaa\n")
    put(workspace, "z", "a" * 5_000 + "b\n")


async def test_hostile_pattern_ends_by_its_time_limit_and_blocks_nobody(
    workspace: Path, run: FakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile(workspace)
    monkeypatch.setattr(engines, "SEARCH_SECONDS", 3)
    task = asyncio.create_task(build(OwnEngine(), workspace, pattern=HOSTILE).execute(run))
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


@needs_rg
async def test_pattern_that_is_hostile_elsewhere_is_harmless_to_ripgrep(workspace: Path) -> None:
    hostile(workspace)
    assert await found(Ripgrep(RG or "rg"), workspace, HOSTILE) == "a:1:found aaaa"


async def test_S17_stop_leaves_no_process_no_thread_and_nothing_open(workspace: Path, run: FakeRun) -> None:
    hostile(workspace)
    before = descriptors()
    task = asyncio.create_task(build(OwnEngine(), workspace, pattern=HOSTILE).execute(run))
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
    tasks = [asyncio.create_task(build(OwnEngine(), workspace, pattern=HOSTILE).execute(run)) for run in runs]
    await until(lambda: sum(bool(run.pid) for run in runs) == CONCURRENT_SEARCHES)
    for task in tasks:
        task.cancel()
    done, pending = await asyncio.wait(tasks, timeout=PATIENCE)
    assert not pending
    assert all(task.cancelled() for task in done)
    assert [marked(run.key) for run in runs] == [[]] * len(runs)


async def test_search_gets_none_of_our_variables(
    workspace: Path, run: FakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Spy:
        def build_command(self, query: object, files: object) -> list[str]:
            return ["/bin/sh", "-c", f"/usr/bin/env > '{tmp_path}/environment'; exit 1"]

    for name in ("TEMPORAL_API_KEY", "HOLDFAST_TOKEN", "AWS_SECRET_ACCESS_KEY", "RIPGREP_CONFIG_PATH"):
        monkeypatch.setenv(name, "secret")
    await build(Spy(), workspace, pattern="x").execute(run)
    seen = (tmp_path / "environment").read_text()
    assert "secret" not in seen
    assert f"HOLDFAST_CALL={run.key}" in seen


async def test_program_that_does_not_start_or_dies_is_a_failure(workspace: Path) -> None:
    class Killed:
        def build_command(self, query: object, files: object) -> list[str]:
            return ["/bin/sh", "-c", "kill -9 $$"]

    assert (await failure_of(Ripgrep("/missing/rg"), workspace, pattern="x")).type == "search_failed"
    assert (await failure_of(Killed(), workspace, pattern="x")).type == "search_failed"
