"""Commands under a supervisor: started once, found again, their output and end kept, nothing of them left (S31)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from holdfast.activities.process.command import Command, build_environment
from holdfast.activities.process.proc import is_supervisor, list_descendants, read_start_time
from holdfast.activities.supervision import run_protocol as files
from holdfast.activities.supervision.command_call import run_supervised
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.supervised_run import RunEnd, SupervisedRun
from holdfast.domain.calls.tool import ToolFailure
from tests.support.marks import PATIENCE, alive, marked, until
from tests.unit.activities.builtin.test_shell import ESCAPES, STUBBORN

T = TypeVar("T")


class Place:
    """A folder of runs and a folder to work in; every run in it is ended afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.prefix = f"turn-{uuid4()}/"
        self.runs = self.runs_with()

    def runs_with(self, **more: Any) -> Runs:
        return Runs(self.folder, **{"grace_seconds": 0.5, **more})

    def command(self, text: str, **more: Any) -> Command:
        given = {"seconds": 60.0, "environment": build_environment({}), **more}
        return Command(words=("bash", "-c", text), directory=self.workspace, **given)

    def key(self, name: str = "b1c1") -> str:
        return self.prefix + name

    async def start(self, text: str, *, runs: Runs | None = None, name: str = "b1c1", **more: Any) -> SupervisedRun:
        return await bounded((runs or self.runs).supervise(self.command(text, **more), self.key(name)))

    def left(self) -> list[int]:
        """Processes of commands that are still there."""
        return marked(self.prefix)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    for folder in made.folder.iterdir() if made.folder.exists() else ():
        await SupervisedRun(folder, made.key()).stop()
    assert made.left() == []
    await until(lambda: not _supervisors(made.folder))


def _supervisors(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"{folder}/".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if alive(pid)]


async def bounded(work: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await work


async def said(run: SupervisedRun, offset: int = 0) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return b"".join([data async for data in run.stream_output(offset)])


async def until_said(run: SupervisedRun, text: bytes) -> None:
    await until(lambda: text in _output(run))


def _output(run: SupervisedRun) -> bytes:
    return run.read(0)


# What is kept


@pytest.mark.parametrize(
    ("text", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("exit 137", 137)]
)
async def test_end_of_a_command_is_the_real_one(place: Place, text: str, code: int) -> None:
    ended = await bounded((await place.start(text)).wait_for_end())
    assert (ended.why, ended.code, ended.error) == ("exited", code, "")
    assert ended.started is not None
    assert ended.ended is not None
    assert 0 <= ended.ended - ended.started < PATIENCE


async def test_S32_output_of_both_streams_comes_as_it_is_said(place: Place) -> None:
    run = await place.start("echo out; echo err >&2; while [ ! -e go ]; do sleep 0.01; done; echo last")
    reading = run.stream_output()
    async with asyncio.timeout(PATIENCE):
        first = b""
        while first.count(b"\n") < 2:
            first += await anext(reading)
    assert first == b"out\nerr\n"
    assert run.is_alive
    (place.workspace / "go").touch()
    async with asyncio.timeout(PATIENCE):
        rest = [data async for data in reading]
    assert b"".join(rest) == b"last\n"
    assert (await bounded(run.wait_for_end())).bytes == len("out\nerr\nlast\n")


async def test_output_can_be_read_from_any_place_and_again(place: Place) -> None:
    run = await place.start("seq 1 1000")
    whole = await said(run)
    assert whole == "".join(f"{number}\n" for number in range(1, 1001)).encode()
    assert await said(run) == whole
    assert await said(run, 3_000) == whole[3_000:]


async def test_bytes_are_kept_as_they_are(place: Place) -> None:
    run = await place.start(r"head -c 300000 /dev/urandom | tee saved; printf '\xff\xfe\0caf\351\r\n'")
    whole = await said(run)
    assert whole == (place.workspace / "saved").read_bytes() + b"\xff\xfe\0caf\xe9\r\n"


async def test_S33_output_beyond_the_limit_is_counted_and_not_kept(place: Place) -> None:
    run = await place.start("seq 1 100000; exit 5", runs=place.runs_with(most_bytes=1_000))
    ended = await bounded(run.wait_for_end())
    assert (ended.code, ended.bytes, ended.stored) == (5, 588_895, 1_000)
    assert (await said(run)).startswith(b"1\n2\n3\n")
    assert len(await said(run)) == 1_000


async def test_command_gets_its_input_its_folder_and_its_environment_and_nothing_else(place: Place) -> None:
    command = Command(
        words=("bash", "-c", "pwd; wc -c; env -0 | tr '\\0' '\\n' | sort | tail -n +1; ls /proc/self/fd | wc -l"),
        directory=place.workspace,
        seconds=60,
        environment={"PATH": os.environ["PATH"], "ONE": "1", "ODD": "caf\udce9"},
        input=b"x" * 1_000_000,
    )
    run = await bounded(place.runs.supervise(command, place.key()))
    lines = (await said(run)).splitlines()
    assert lines[:2] == [str(place.workspace).encode(), b"1000000"]
    assert b"ONE=1" in lines
    assert b"ODD=caf\xe9" in lines
    names = {line.partition(b"=")[0] for line in lines[2:-1]}
    assert names == {b"PATH", b"ONE", b"ODD", b"HOLDFAST_CALL", b"PWD", b"SHLVL", b"_"}
    assert lines[-1] == b"4", "its three streams, and the folder that ls looks at"


@pytest.mark.parametrize("words", [("no-such-program-here",), ("bash", "-c", "x" * 500_000), ("a\0b",), ("/etc",)])
async def test_command_that_cannot_start_says_why_to_everybody_who_asks(place: Place, words: tuple[str, ...]) -> None:
    command = Command(words=words, directory=place.workspace, seconds=5, environment={"PATH": "/usr/bin:/bin"})
    for _ in range(2):
        ended = await bounded((await place.runs.supervise(command, place.key())).wait_for_end())
        assert (ended.why, ended.code) == ("not_started", None)
        assert ended.error


async def test_folder_that_vanished_is_told(place: Place) -> None:
    command = Command(words=("true",), directory=place.workspace / "gone", seconds=5)
    ended = await bounded((await place.runs.supervise(command, place.key())).wait_for_end())
    assert ended.why == "not_started"
    assert "gone" in ended.error


# Starting, and finding again


async def test_S31_same_key_is_the_same_run(place: Place) -> None:
    first = await place.start("echo x >> count; echo said; exit 4")
    ended = await bounded(first.wait_for_end())
    again = await place.start("echo x >> count; echo said; exit 4")
    assert await bounded(again.wait_for_end()) == ended
    assert await said(again) == b"said\n"
    assert (place.workspace / "count").read_text() == "x\n"


async def test_S31_workers_that_start_it_at_once_start_it_once(place: Place) -> None:
    workers = [place.runs_with() for _ in range(8)]
    started = await asyncio.gather(*(place.start("echo x >> count; echo said", runs=one) for one in workers))
    ends = await asyncio.gather(*(bounded(run.wait_for_end()) for run in started))
    assert {end.code for end in ends} == {0}
    assert {run.record.supervisor for run in started} == {started[0].record.supervisor}
    assert (place.workspace / "count").read_text() == "x\n"


async def test_S31_what_has_not_begun_has_no_trace(place: Place) -> None:
    assert await place.runs.attach(place.key()) is None
    await place.start("true", name="other")
    assert await place.runs.attach(place.key()) is None


async def test_S31_supervisor_that_died_before_the_command_began_leaves_nothing_begun(place: Place) -> None:
    run = await place.start("true")
    await bounded(run.wait_for_end())
    [folder] = place.folder.iterdir()
    for name in (files.RUN_FILE, files.STATUS_FILE):
        (folder / name).unlink()
    assert await place.runs.attach(place.key()) is None
    again = await place.start("echo anew")
    assert await said(again) == b"anew\n"


async def test_S22_another_command_under_the_same_key_is_refused(place: Place) -> None:
    await place.runs.supervise(place.command("true"), place.key(), digest="one")
    await place.runs.supervise(place.command("true"), place.key(), digest="one")
    with pytest.raises(ToolFailure, match="Another command"):
        await place.runs.supervise(place.command("true"), place.key(), digest="two")


async def test_supervisor_is_detached_and_holds_no_secret(place: Place) -> None:
    secret = f"secret-{uuid4()}"
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        run = await place.start(
            "echo up; while :; do sleep 0.05; done", environment={"PATH": os.environ["PATH"], "KEY": secret}
        )
    finally:
        os.close(reader)
        os.close(writer)
    await until_said(run, b"up")
    supervisor = run.record.supervisor
    process = Path(f"/proc/{supervisor}")
    assert os.getsid(supervisor) != os.getsid(0)
    assert os.readlink(process / "cwd") == "/"
    assert {os.readlink(process / "fd" / str(number)) for number in range(3)} == {"/dev/null"}
    pipes = [os.readlink(entry) for entry in (process / "fd").iterdir()]
    assert sum("pipe:" in pipe for pipe in pipes) <= 5, "its bell, what the command says, and what is said of it"
    [folder] = place.folder.iterdir()
    assert (process / "environ").read_bytes() == b""
    assert secret.encode() not in (process / "cmdline").read_bytes()
    assert not any(secret.encode() in file.read_bytes() for file in folder.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert is_supervisor(supervisor)
    assert not is_supervisor(run.record.command)
    assert not is_supervisor(os.getpid())


async def test_fifty_at_once(place: Place) -> None:
    async def one(number: int) -> tuple[bytes, RunEnd]:
        run = await place.runs.supervise(place.command(f"echo {number}; exit {number % 7}"), place.key(f"c{number}"))
        return await said(run), await run.wait_for_end()

    async with asyncio.timeout(60):
        ends = await asyncio.gather(*(one(number) for number in range(50)))
    assert [said for said, _ in ends] == [f"{number}\n".encode() for number in range(50)]
    assert [end.code for _, end in ends] == [number % 7 for number in range(50)]


# Ending


async def test_S36_command_that_runs_too_long_is_ended(place: Place) -> None:
    run = await place.start("echo half; sleep 600", seconds=2)
    ended = await bounded(run.wait_for_end())
    assert (ended.why, ended.code) == ("timed_out", -15)
    assert await said(run) == b"half\n"


async def test_S17_command_nobody_attends_to_is_ended(place: Place) -> None:
    run = await place.start("echo up; sleep 600", runs=place.runs_with(lease_seconds=0.4))
    await until(lambda: not run.is_alive)
    ended = await bounded(run.wait_for_end())
    assert (ended.why, ended.code) == ("abandoned", -15)


async def test_command_somebody_attends_to_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.activities.supervision.supervised_run.ATTEND_SECONDS", 0.05)
    run = await place.start("sleep 4; echo done", runs=place.runs_with(lease_seconds=2))
    ended = await bounded(run.wait_for_end())
    assert (ended.why, ended.code) == ("exited", 0)


@pytest.mark.alone
async def test_S17_stopped_command_is_ended_within_a_second_and_keeps_what_it_said(place: Place) -> None:
    run = await place.start("echo up; sleep 600; echo never")
    await until_said(run, b"up")
    began = time.monotonic()
    ended = await bounded(run.stop())
    assert time.monotonic() - began < 1
    assert (ended.why, ended.code) == ("stopped", -15)
    assert await said(run) == b"up\n"
    assert not alive(run.record.supervisor)


HIDING = "env -i setsid bash -c 'echo up; trap \"\" TERM; while :; do sleep 0.05; done' & sleep 600"
FORKING = """trap '' TERM; echo up
spawn() { while :; do sleep 0.01 & wait $!; done; }
for n in 1 2 3 4 5 6; do spawn & done; while :; do spawn; done"""


@pytest.mark.parametrize(
    "text", [*ESCAPES.values(), STUBBORN, HIDING, FORKING], ids=[*ESCAPES, "stubborn", "hiding", "forking"]
)
async def test_S17_whole_process_tree_dies_however_it_hides(place: Place, text: str) -> None:
    run = await place.start(text)
    await until_said(run, b"up")
    await until(lambda: len(list_descendants(run.record.supervisor)) >= 2)
    below = list(list_descendants(run.record.supervisor))
    ended = await bounded(run.stop())
    assert ended.why == "stopped"
    assert [pid for pid in below if alive(pid)] == []


async def test_S17_what_a_command_left_in_the_background_does_not_outlive_it(place: Place) -> None:
    run = await place.start("setsid sleep 600 & env -i sleep 600 & echo done; exit 6")
    ended = await bounded(run.wait_for_end())
    assert (ended.why, ended.code) == ("exited", 6)
    assert await said(run) == b"done\n"


async def test_S17_command_is_asked_before_it_is_killed(place: Place) -> None:
    cleaning = "trap 'for n in 1 2; do sleep 0.05; done; echo tidy > tidied; exit 9' TERM; echo up; sleep 600 & wait"
    run = await place.start(cleaning, runs=place.runs_with(grace_seconds=5))
    await until_said(run, b"up")
    ended = await bounded(run.stop())
    assert (ended.why, ended.code) == ("stopped", 9)
    assert (place.workspace / "tidied").read_text() == "tidy\n"


async def test_command_that_ended_before_the_stop_keeps_its_end(place: Place) -> None:
    run = await place.start("exit 3")
    await until(lambda: not run.is_alive)
    assert ((await bounded(run.stop())).why, (await run.stop()).code) == ("exited", 3)


async def test_S17_killed_supervisor_takes_its_command_along_and_the_next_worker_ends_the_rest(place: Place) -> None:
    run = await place.start("(setsid sleep 600 &) ; echo up; sleep 600; :")
    await until_said(run, b"up")
    await until(lambda: len(place.left()) >= 3)
    os.kill(run.record.supervisor, signal.SIGKILL)
    await until(lambda: not alive(run.record.command))
    found = await bounded(place.runs.attach(place.key()))
    assert found is not None
    assert place.left() == []
    ended = await bounded(found.wait_for_end())
    assert (ended.why, ended.code) == ("lost", None)
    assert await said(found) == b"up\n"


async def test_S31_lost_run_is_not_begun_again(place: Place) -> None:
    run = await place.start("echo x >> count; echo up; sleep 600")
    await until_said(run, b"up")
    os.kill(run.record.supervisor, signal.SIGKILL)
    await until(lambda: not run.is_alive)
    again = await place.start("echo x >> count; echo up; sleep 600")
    assert (await bounded(again.wait_for_end())).why == "lost"
    assert (place.workspace / "count").read_text() == "x\n"


async def test_number_that_is_used_again_is_not_taken_for_the_supervisor(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.activities.supervision.supervised_run.STOP_SECONDS", 0.2)
    run = await place.start("true")
    await bounded(run.wait_for_end())
    [folder] = place.folder.iterdir()
    (folder / files.STATUS_FILE).unlink()
    innocent = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    try:
        known = read_start_time(innocent.pid)
        assert known
        files.prepare_run(str(folder), {"key": place.key(), "supervisor": innocent.pid, "born": known - 1})
        files.begin_run(str(folder))
        found = await place.runs.attach(place.key())
        assert found
        assert (await bounded(found.stop())).why == "lost"
        lock = files.take_lock(str(folder))  # even when somebody else's supervisor lives there
        assert lock is not None
        try:
            assert "cannot be reached" in (await bounded(SupervisedRun(folder, place.key()).stop())).error
        finally:
            os.close(lock)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


# Through a call


async def test_S7_cancelled_call_stops_its_command_and_keeps_what_it_said(place: Place) -> None:
    heard: list[bytes] = []
    pids: list[int] = []
    task = asyncio.create_task(
        run_supervised(
            place.runs, place.command("echo up; sleep 600"), place.key(), output=heard.append, on_start=pids.append
        )
    )
    await until(lambda: heard)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    assert (b"".join(heard), [alive(pid) for pid in pids]) == (b"up\n", [False])


async def test_S7_cancelled_while_it_starts_it_is_stopped_as_well(place: Place) -> None:
    task = asyncio.create_task(
        run_supervised(
            place.runs, place.command("sleep 600"), place.key(), output=lambda _: None, on_start=lambda _: None
        )
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    run = await place.runs.attach(place.key())
    assert run
    assert (await run.wait_for_end()).why == "stopped"


async def test_S36_command_that_is_handed_over_goes_on_for_the_next_worker(place: Place) -> None:
    heard: list[bytes] = []
    command = place.command("echo up; while [ ! -e go ]; do sleep 0.01; done; echo more; exit 3")
    task = asyncio.create_task(
        run_supervised(
            place.runs, command, place.key(), output=heard.append, on_start=lambda _: None, hand_over=lambda: True
        )
    )
    await until(lambda: heard)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    (place.workspace / "go").touch()
    later: list[bytes] = []
    ended = await bounded(
        run_supervised(place.runs_with(), command, place.key(), output=later.append, on_start=lambda _: None)
    )
    assert (ended.why, ended.code, b"".join(later)) == ("exited", 3, b"up\nmore\n")


# Forgetting


async def test_run_that_is_over_is_forgotten_and_one_that_lives_is_not(place: Place) -> None:
    living, ended = await place.start("sleep 600", name="living"), await place.start("true", name="ended")
    await bounded(ended.wait_for_end())
    assert await place.runs.remove_run(place.key("living")) is False
    assert await place.runs.remove_run(place.key("ended")) is True
    assert await place.runs.remove_run(place.key("never")) is True
    assert await place.runs.attach(place.key("ended")) is None
    assert living.is_alive


async def test_sweeping_removes_what_is_over_and_old_and_ends_what_was_left(place: Place) -> None:
    living = await place.start("sleep 600", name="living")
    ended = await place.start("true", name="ended")
    lost = await place.start("(setsid sleep 600 &) ; echo up; sleep 600; :", name="lost")
    await bounded(ended.wait_for_end())
    await until_said(lost, b"up")
    os.kill(lost.record.supervisor, signal.SIGKILL)
    await until(lambda: not lost.is_alive)
    (place.folder / "stray").mkdir()
    (place.folder / "file").touch()
    assert await place.runs.sweep(older_than=3_600) == 0
    assert marked(place.key("lost")) == []
    assert await place.runs.sweep(older_than=0) == 3
    assert sorted(entry.name for entry in place.folder.iterdir()) == sorted(["file", living._folder.name])
    (place.folder / "file").unlink()
    assert await Runs(place.folder / "none").sweep(0) == 0


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"why": "nonsense"}', b"\xff" * 10_000, b"[" * 100_000])
async def test_record_that_cannot_be_read_is_an_end_that_nobody_knows(place: Place, garbage: bytes) -> None:
    run = await place.start("true")
    await bounded(run.wait_for_end())
    [folder] = place.folder.iterdir()
    (folder / files.STATUS_FILE).write_bytes(garbage)
    (folder / files.RUN_FILE).write_bytes(garbage)
    found = await place.runs.attach(place.key())
    assert found
    ended = await bounded(found.wait_for_end())
    assert (ended.why, ended.error) == ("lost", "the record of how the command ended cannot be read")


async def test_place_where_no_run_can_be_kept_is_told_before_anything_runs(place: Place) -> None:
    place.folder.write_text("not a folder")
    try:
        with pytest.raises(ToolFailure, match="could not start"):
            await place.start("echo x >> count")
    finally:
        place.folder.unlink()
    assert not (place.workspace / "count").exists()
