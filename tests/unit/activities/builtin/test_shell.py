"""`shell`: what a command says and how it ends, and that nothing of it outlives its call."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from holdfast.activities.builtin.shell import Shell
from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.supervision.runs import Runs
from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.domain.calls.tool import Effect, Invocation, ToolFailure
from holdfast.domain.content import Result
from holdfast.testing import FakeRun
from holdfast.util.text import strip_controls
from tests.support.marks import PATIENCE, alive, marked, until


class Watched(FakeRun):
    """A run of its own: processes are found by its key."""

    def __init__(self) -> None:
        super().__init__(key=f"turn-{uuid4()}/b1c1")


@pytest.fixture(params=["supervised", "plain"])
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    runs = Runs(tmp_path / "runs") if request.param == "supervised" else None
    return Shell(OutputStore(tmp_path / "outputs"), runs=runs)


@pytest.fixture
def run() -> Watched:
    return Watched()


def build(shell: Shell, workspace: Path, command: str, **more: Any) -> Invocation:
    return shell.build(Shell.Parameters.model_validate({"command": command, **more}), workspace)


async def bounded(work: Awaitable[Result]) -> str:
    async with asyncio.timeout(PATIENCE):
        [part] = (await work).parts
    return part.text


async def failure(work: Awaitable[Result]) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        async with asyncio.timeout(PATIENCE):
            await work
    return failed.value


async def cancelled(task: asyncio.Task[Result]) -> float:
    """Cancel a run; how many seconds it took to end."""
    began = time.monotonic()
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
    return time.monotonic() - began


# What a command says


async def test_output_of_both_streams_is_returned_and_seen_live(shell: Shell, workspace: Path, run: Watched) -> None:
    text = await bounded(build(shell, workspace, "echo out; echo err >&2").execute(run))
    assert text == "out\nerr\n"
    assert run.output == text
    assert run.pid is not None
    assert not alive(run.pid)


async def test_S32_output_is_seen_while_the_command_runs(shell: Shell, workspace: Path, run: Watched) -> None:
    (workspace / "go").touch()
    command = "echo first; while [ -e go ]; do sleep 0.01; done; echo last"
    task = asyncio.create_task(build(shell, workspace, command).execute(run))
    await until(lambda: run.output == "first\n")
    assert not task.done()
    (workspace / "go").unlink()
    assert await bounded(task) == "first\nlast\n"


async def test_command_that_says_nothing(shell: Shell, workspace: Path, run: Watched) -> None:
    assert await bounded(build(shell, workspace, "true").execute(run)) == "(no output)"


async def test_command_runs_in_its_folder_without_input(shell: Shell, workspace: Path, run: Watched) -> None:
    (workspace / "deep").mkdir()
    text = await bounded(build(shell, workspace, "pwd; cat", directory="deep").execute(run))
    assert text.endswith("/workspace/deep\n")


async def test_S32_terminal_escapes_are_neutralised(shell: Shell, workspace: Path, run: Watched) -> None:
    command = r"printf '\033[31mred\033[0m \033]0;title\007\x00done\n'"
    text = await bounded(build(shell, workspace, command).execute(run))
    assert text == strip_controls(run.output) == "red done\n"


async def test_S33_long_output_is_cut_and_kept_whole(workspace: Path, run: Watched, tmp_path: Path) -> None:
    shell = Shell(OutputStore(tmp_path / "outputs", limit=1_000))
    text = await bounded(build(shell, workspace, "seq 1 100000").execute(run))
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n99999\n100000\n")
    assert len(text) < 1_300
    [whole] = (tmp_path / "outputs").iterdir()
    assert f"read_output reads the whole, by the name {whole.stem[:32]}" in text
    assert whole.read_text() == "".join(f"{number}\n" for number in range(1, 100_001))


async def test_bytes_that_are_no_utf8_are_replaced(shell: Shell, workspace: Path, run: Watched) -> None:
    assert await bounded(build(shell, workspace, r"printf 'caf\351'").execute(run)) == "caf\ufffd"


# How a command ends


@pytest.mark.parametrize(
    ("command", "message", "output"),
    [
        ("echo half; exit 3", "The command exited with code 3", "half\n"),
        ("false", "The command exited with code 1", None),
        ("echo half; kill -9 $$", "The command was ended by signal 9", "half\n"),
        ("no-such-program-here", "The command exited with code 127", "not found"),
        ("if", "The command exited with code 2", "syntax error"),
    ],
)
async def test_failing_command_is_a_failure_that_keeps_its_output(
    shell: Shell, workspace: Path, run: Watched, command: str, message: str, output: str | None
) -> None:
    failed = await failure(build(shell, workspace, command).execute(run))
    assert (failed.type, str(failed)) == ("command_failed", message)
    if output is None:
        assert failed.parts == ()
    else:
        assert output in failed.parts[0].text


async def test_command_that_runs_too_long_is_ended_and_keeps_its_output(
    shell: Shell, workspace: Path, run: Watched
) -> None:
    command = "echo half; sleep 600"
    failed = await failure(build(shell, workspace, command, timeout_seconds=2).execute(run))
    assert (failed.type, str(failed)) == ("timeout", "The command was stopped: it ran longer than 2 seconds")
    assert failed.parts[0].text == "half\n"
    assert marked(run.key) == []


async def test_command_too_long_for_the_system_is_a_failure(shell: Shell, workspace: Path, run: Watched) -> None:
    failed = await failure(build(shell, workspace, ": " + "x" * 500_000).execute(run))
    assert failed.type == "command_not_started"


async def test_folder_that_vanished_is_a_failure(shell: Shell, workspace: Path, run: Watched) -> None:
    (workspace / "gone").mkdir()
    invocation = build(shell, workspace, "true", directory="gone")
    (workspace / "gone").rmdir()
    assert (await failure(invocation.execute(run))).type == "command_not_started"


async def test_background_child_that_keeps_the_output_open_does_not_hold_the_call(
    shell: Shell, workspace: Path, run: Watched
) -> None:
    began = time.monotonic()
    text = await bounded(build(shell, workspace, "sleep 600 & echo done").execute(run))
    assert text == "done\n"
    assert time.monotonic() - began < 60
    assert marked(run.key) == [], "nothing a command starts outlives it"


async def test_daemon_that_hides_from_us_and_keeps_the_output_open_does_not_hold_the_call(
    shell: Shell, workspace: Path, run: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.process.command.READ_SECONDS", 0.2)
    command = (
        "env -i setsid bash -c 'echo $$; while [ -d . ] && [ ! -e stop ]; do sleep 0.05; done' & sleep 0.2; echo done"
    )
    try:
        assert (await bounded(build(shell, workspace, command).execute(run))).endswith("done\n")
    finally:
        (workspace / "stop").touch()
        daemon = int(run.output.split()[0])
        await until(lambda: not alive(daemon))


# Stopping


@pytest.mark.alone
async def test_S17_cancelled_command_is_ended_within_a_second(shell: Shell, workspace: Path, run: Watched) -> None:
    task = asyncio.create_task(build(shell, workspace, "echo up; sleep 600; echo never").execute(run))
    await until(lambda: run.output)
    assert await cancelled(task) < 1
    assert marked(run.key) == []
    assert run.output == "up\n", "what it had said is kept"


DOUBLE_FORK = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("up", flush=True)
        time.sleep(600)
    os._exit(0)
"""
ESCAPES = {
    "grandchild": "bash -c 'bash -c \"echo up; sleep 600; :\"; :'; :",
    "pipeline": "(echo up; sleep 600) | (cat; sleep 600)",
    "setsid": "setsid bash -c 'echo up; sleep 600' & sleep 600",
    "nohup": "nohup bash -c 'echo up; sleep 600' 2>&1 & sleep 600",
    "double fork": f"{shlex.quote(sys.executable)} -c {shlex.quote(DOUBLE_FORK)}; sleep 600",
    "stopped": "bash -c 'echo up; kill -STOP $$' & sleep 600",
}


@pytest.mark.parametrize("command", ESCAPES.values(), ids=ESCAPES)
async def test_S17_whole_process_tree_dies_with_its_call(
    shell: Shell, workspace: Path, run: Watched, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.process.command.TERM_SECONDS", 0.3)
    task = asyncio.create_task(build(shell, workspace, command).execute(run))
    await until(lambda: run.output)
    await until(lambda: len(marked(run.key)) >= 2)  # in the middle of an exec a process has no environment to be seen
    await cancelled(task)
    assert marked(run.key) == []


STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


async def test_S17_command_that_ignores_the_request_is_killed(
    shell: Shell, workspace: Path, run: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.process.command.TERM_SECONDS", 0.2)
    task = asyncio.create_task(build(shell, workspace, STUBBORN).execute(run))
    await until(lambda: run.output)
    assert await cancelled(task) >= 0.2
    assert marked(run.key) == []


async def test_S17_command_is_asked_before_it_is_killed(shell: Shell, workspace: Path, run: Watched) -> None:
    command = "trap 'echo tidy > tidied; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    task = asyncio.create_task(build(shell, workspace, command).execute(run))
    await until(lambda: run.output)
    await cancelled(task)
    assert (workspace / "tidied").read_text() == "tidy\n"


async def test_S17_second_request_to_stop_does_not_save_the_command(
    shell: Shell, workspace: Path, run: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.process.command.TERM_SECONDS", 0.3)
    task = asyncio.create_task(build(shell, workspace, STUBBORN).execute(run))
    try:
        await until(lambda: run.output)
        task.cancel()
        await asyncio.sleep(0.05)
        await cancelled(task)
        assert marked(run.key) == []
    finally:
        for pid in marked(run.key):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not marked(run.key))


async def test_S17_neighbours_are_left_alone(shell: Shell, workspace: Path, run: Watched) -> None:
    other = Watched()
    beside = asyncio.create_task(build(shell, workspace, "echo up; sleep 600").execute(other))
    task = asyncio.create_task(build(shell, workspace, "echo up; sleep 600").execute(run))
    await until(lambda: run.output and other.output)
    await cancelled(task)
    assert len(marked(other.key)) >= 1
    assert not beside.done()
    await cancelled(beside)


async def test_stopped_command_leaves_no_output_file(
    shell: Shell, workspace: Path, run: Watched, tmp_path: Path
) -> None:
    task = asyncio.create_task(build(shell, workspace, "echo up; sleep 600").execute(run))
    await until(lambda: run.output)
    await cancelled(task)
    assert list((tmp_path / "outputs").iterdir()) == []


# What it inherits


@pytest.mark.parametrize("ours", [*OUR_PREFIXES, "otel_exporter_"])
async def test_S45_nothing_of_ours_is_in_its_environment(
    shell: Shell, workspace: Path, run: Watched, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setenv(f"{ours}API_KEY", "secret")
    monkeypatch.setenv("SOMEBODY_ELSES", "kept")
    text = await bounded(build(shell, workspace, "env -0 | tr '\\0' '\\n'").execute(run))
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert {name for name in names if name.upper().startswith(OUR_PREFIXES)} == {"HOLDFAST_CALL"}
    assert f"HOLDFAST_CALL={run.key}" in text
    assert "secret" not in text
    assert "SOMEBODY_ELSES=kept" in text


async def test_S17_what_a_command_does_to_clean_up_is_not_told_to_stop_as_well(
    shell: Shell, workspace: Path, run: Watched
) -> None:
    cleaning = "trap 'for n in 1 2 3; do sleep 0.1; done; date > cleaned; exit' TERM; echo ready; sleep 600 & wait"
    task = asyncio.create_task(build(shell, workspace, cleaning).execute(run))
    await until(lambda: "ready" in run.output)
    task.cancel()
    await asyncio.wait({task}, timeout=PATIENCE)
    assert (workspace / "cleaned").read_text()


# What is asked and refused


def test_S31_commands_are_not_repeated() -> None:
    assert Shell.effect is Effect.ONCE


async def test_S20_confirmation_shows_the_command_and_its_programs(shell: Shell, workspace: Path) -> None:
    invocation = build(shell, workspace, "git status | head -3")
    assert not invocation.is_concurrency_safe()
    shown = await invocation.should_confirm()
    assert shown is not None
    assert (shown.kind, shown.command, shown.programs) == ("exec", "git status | head -3", ("git", "head"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": " \n\t"}, "blank"),
        ({"command": "echo a\0b"}, "NUL"),
        ({"command": "true", "directory": "missing"}, "not a folder"),
        ({"command": "true", "directory": "file"}, "not a folder"),
        ({"command": "true", "directory": ".."}, "outside"),
        ({"command": "true", "directory": "/"}, "outside"),
    ],
)
def test_S6_command_that_cannot_run_is_refused(
    shell: Shell, workspace: Path, arguments: dict[str, str], words: str
) -> None:
    (workspace / "file").touch()
    with pytest.raises(ValueError, match=words):
        build(shell, workspace, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": ""},
        {"command": "x", "timeout_seconds": 0},
        {"command": "x", "timeout_seconds": 3_601},
        {"command": "x", "timeout_seconds": float("nan")},
        {"command": ["x"]},
        {"command": "x", "cwd": "/"},
    ],
)
def test_S6_arguments_outside_the_schema_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Shell.Parameters.model_validate(arguments)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("ls", ("ls",)),
        ("ls -la /tmp", ("ls",)),
        ("a && b || c; d | e & f", ("a", "b", "c", "d", "e", "f")),
        ("FOO=bar make test", ("make",)),
        ("echo $(rm x)", ("rm", "echo")),
        ("(cd x; make)", ("cd", "make")),
        ("cat < in > out; wc", ("cat", "wc")),
        ("make 2>&1 | tee log", ("make", "tee")),
        ("ls; ls; ls", ("ls",)),
        ("echo 'a; b | c'", ("echo",)),
        ("echo 'never closed", ("echo",)),
        ("", ()),
    ],
)
def test_S20_programs_are_named(command: str, named: tuple[str, ...]) -> None:
    assert CommandReading(command).program_names == named


@pytest.mark.parametrize("command", ["ls\nrm -r x", "ls # list\nrm -r x"])
def test_S20_programs_of_every_line_are_named(command: str) -> None:
    assert CommandReading(command).program_names == ("ls", "rm")
