"""Commands whose workers are killed again and again, or whose disk is full: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from holdfast.activities.process.proc import MAIN_SCRIPT
from holdfast.activities.supervision.run_protocol import Request
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.supervised_run import RunEnd, SupervisedRun
from holdfast.domain.calls.tool import ToolFailure
from tests.support.marks import alive, until
from tests.unit.activities.supervision.test_supervisor import Place, bounded, said

WORKER = """
import asyncio, json, sys
from pathlib import Path
from holdfast.activities.process.command import Command, build_environment
from holdfast.activities.supervision.command_call import run_supervised
from holdfast.activities.supervision.runs import Runs

async def main(runs, workspace, key, text, heard):
    words, environment = ("bash", "-c", text), build_environment({})
    command = Command(words=words, directory=Path(workspace), seconds=120, environment=environment)
    print("ready", flush=True)
    with open(heard, "wb", buffering=0) as file:
        ended = await run_supervised(
            Runs(Path(runs), grace_seconds=0.5), command, key, output=file.write, on_start=lambda pid: None
        )
    print(ended.model_dump_json(), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    for folder in made.folder.iterdir() if made.folder.exists() else ():
        await SupervisedRun(folder, made.key()).stop()
    assert made.left() == []


class FakeWorker:
    """A worker of one call, in a process of its own; what it heard of the command is in a file."""

    def __init__(self, process: asyncio.subprocess.Process, heard: Path) -> None:
        self._process = process
        self._heard = heard

    async def ready(self) -> None:
        """Return when it is about to start its command."""
        assert self._process.stdout
        assert await bounded(self._process.stdout.readline()) == b"ready\n"

    @property
    def heard(self) -> bytes:
        return self._heard.read_bytes() if self._heard.exists() else b""

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def ended(self) -> RunEnd:
        async with asyncio.timeout(60):
            printed, _ = await self._process.communicate()
        return RunEnd.model_validate_json(printed.removeprefix(b"ready\n"))


@asynccontextmanager
async def worker(place: Place, text: str, name: str = "b1c1") -> AsyncIterator[FakeWorker]:
    heard = place.folder.parent / f"heard-{os.urandom(8).hex()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, str(place.folder), str(place.workspace), place.key(name), text, str(heard)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield FakeWorker(process, heard)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


LINES = 200_000
PARTS = 4
LONG = f"""
echo began >> began
for part in $(seq 0 {PARTS - 1}); do
    seq $((part * {LINES // PARTS} + 1)) $(((part + 1) * {LINES // PARTS}))
    while [ ! -e go$part ]; do sleep 0.01; done
done
exit 7
"""


async def test_S31_command_survives_three_deaths_of_its_worker_with_its_whole_output(place: Place) -> None:
    for death in range(3):
        async with worker(place, LONG) as killed:
            line = f"\n{death * LINES // PARTS + 100}\n".encode()
            await until(lambda line=line, killed=killed: line in killed.heard)  # type: ignore[misc]
            await killed.kill()
        (place.workspace / f"go{death}").touch()
    (place.workspace / f"go{PARTS - 1}").touch()
    async with worker(place, LONG) as last:
        ended = await last.ended()
    assert (ended.why, ended.code, ended.error) == ("exited", 7, "")
    assert last.heard == "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()
    assert ended.bytes == ended.stored == len(last.heard)
    assert (place.workspace / "began").read_text() == "began\n"


async def test_S31_command_that_ends_while_no_worker_lives_keeps_its_end(place: Place) -> None:
    text = "echo up; while [ ! -e go ]; do sleep 0.01; done; echo last; kill -SEGV $$"
    async with worker(place, text) as killed:
        await until(lambda: killed.heard)
        await killed.kill()
    run = await place.runs.attach(place.key())
    assert run
    assert run.is_alive
    (place.workspace / "go").touch()
    await until(lambda: not run.is_alive)
    async with worker(place, text) as last:
        ended = await last.ended()
    assert (ended.why, ended.code) == ("exited", -signal.SIGSEGV)
    assert last.heard == b"up\nlast\n"


DEATHS = 20
START_SECONDS = 0.06
"""About as long as a start takes, and a short command with it."""


async def test_S31_workers_killed_at_any_moment_of_the_start_never_run_it_twice(place: Place) -> None:
    """Whatever the moment, the next worker finds it or begins it: once, and to its end."""
    chance = random.Random(5)
    for number in range(DEATHS):
        name = f"c{number}"
        text = f"echo x >> {name}; echo done"
        async with worker(place, text, name) as killed:
            await killed.ready()
            await asyncio.sleep(chance.uniform(0, START_SECONDS))
            await killed.kill()
        run = await bounded(place.runs.supervise(place.command(text), place.key(name)))
        assert (await bounded(run.wait_for_end())).code == 0
        assert (place.workspace / name).read_text() == "x\n"
        assert await said(run) == b"done\n"


async def test_S31_supervisor_nobody_waits_for_begins_nothing(place: Place) -> None:
    """Its worker died between starting it and hearing from it: there is no trace, so the next worker begins it."""
    place.folder.mkdir()
    folder = place.folder / "run"
    request = Request(
        key=place.key(), digest="", words=["touch", "ran"], directory=str(place.workspace), seconds=9,
        environment={"PATH": os.environ["PATH"]}, lease_seconds=9, grace_seconds=1, most_bytes=9,
    )  # fmt: skip
    receiving, sending = os.pipe()
    os.close(receiving)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", MAIN_SCRIPT, str(folder)), stdin=asyncio.subprocess.PIPE, stdout=sending
    )
    os.close(sending)
    await bounded(process.communicate(request.pack()))
    assert not folder.exists()
    assert not (place.workspace / "ran").exists()


async def test_S17_run_whose_workers_are_all_dead_is_ended_when_its_lease_runs_out(place: Place) -> None:
    text = "setsid sleep 600 & echo up; sleep 600"
    brief = WORKER.replace("grace_seconds=0.5", "grace_seconds=0.5, lease_seconds=3")
    heard = place.folder.parent / "heard"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", brief, str(place.folder), str(place.workspace), place.key(), text, str(heard)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    await until(lambda: heard.exists() and heard.read_bytes())
    run = await place.runs.attach(place.key())
    assert run
    process.kill()
    await process.wait()
    assert alive(run.record.command)
    assert place.left()
    await until(lambda: not run.is_alive)
    assert place.left() == []
    assert (await bounded(run.wait_for_end())).why == "abandoned"
    assert not alive(run.record.supervisor)


# Full disks


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 KB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a disk of its own")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(folder)], check=True, timeout=10)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


async def test_S33_full_disk_keeps_the_beginning_of_the_output_and_the_real_end(place: Place, small: Path) -> None:
    runs = Runs(small / "runs", grace_seconds=0.5)
    run = await bounded(runs.supervise(place.command("seq 1 100000; exit 9"), place.key()))
    ended = await bounded(run.wait_for_end())
    assert (ended.why, ended.code, ended.bytes) == ("exited", 9, 588_895)
    assert 100_000 < ended.stored < 200_000
    assert "No space left on device" in ended.error
    assert await said(run) == "".join(f"{number}\n" for number in range(1, 100_001)).encode()[: ended.stored]
    with pytest.raises(OSError, match="No space left"):
        (small / "more").write_bytes(bytes(8_192))


async def test_stop_works_on_a_full_disk(place: Place, small: Path) -> None:
    runs = Runs(small / "runs", grace_seconds=0.5)
    run = await bounded(runs.supervise(place.command("seq 1 100000; echo up > up; sleep 600"), place.key()))
    await until(lambda: (place.workspace / "up").exists())
    assert ((await bounded(run.stop())).why, place.left()) == ("stopped", [])


async def test_S31_disk_that_is_full_already_is_told_before_anything_runs(place: Place, small: Path) -> None:
    runs = Runs(small / "runs")
    (small / "runs").mkdir()
    with pytest.raises(OSError, match="No space left"):
        (small / "filling").write_bytes(bytes(1_000_000))
    with pytest.raises(ToolFailure, match="could not start: No space left on device"):
        await bounded(runs.supervise(place.command("touch ran"), place.key()))
    assert not (place.workspace / "ran").exists()
    assert await runs.attach(place.key()) is None
    (small / "filling").unlink()
    run = await bounded(runs.supervise(place.command("touch ran"), place.key()))
    assert (await bounded(run.wait_for_end())).code == 0


async def test_run_whose_folder_is_taken_away_ends_all_the_same(place: Place) -> None:
    run = await place.start("echo up; sleep 600", runs=place.runs_with(lease_seconds=0.5))
    command, supervisor = run.record.command, run.record.supervisor
    shutil.rmtree(place.folder)
    await until(lambda: not alive(command) and not alive(supervisor))
    assert (await bounded(run.wait_for_end())).why == "lost"
