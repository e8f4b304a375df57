"""Hooks at work: too slow, too loud, too many, stopped; and nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.activities.hooks.hook_chain import CONCURRENT_HOOKS, BeforeOutcome, Hooks
from holdfast.activities.hooks.hook_runners import THREADS_LIMIT
from holdfast.config.provider_keys import OUR_PREFIXES
from tests.support.hooks import after, before, command, function, of_words
from tests.support.marks import PATIENCE, alive, marked, until

T = TypeVar("T")

TREE = """
import subprocess
for start in ([], ['setsid']):
    child = subprocess.Popen([*start, 'sh', '-c', 'echo $$ >> pids; exec sleep 300'])
os.chdir('.')
open('pids', 'a').write(f'{os.getpid()}\\n')
time.sleep(300)
"""
"""A process with a child in its group and one that left it."""


async def soon(work: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await work


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


# Too slow


async def test_S35_a_command_that_takes_too_long_denies_and_its_tree_is_dead(tmp_path: Path) -> None:
    hook = command(tmp_path, "sys.stderr.write('thinking'); sys.stderr.flush()" + TREE, seconds=3)
    found = await soon(Hooks([hook]).ask_before(before()))
    assert found.deny is not None
    assert found.deny.reason.endswith("it took longer than 3 seconds; it said: thinking")
    assert len(pids(tmp_path)) == 3
    assert not any(map(alive, pids(tmp_path)))


async def test_S35_a_command_that_will_not_die_is_killed(tmp_path: Path) -> None:
    hook = of_words(["bash", "-c", "trap '' TERM; echo $$ > pids; while :; do sleep 300; done"], tmp_path, seconds=1)
    found = await soon(Hooks([hook]).ask_before(before()))
    assert found.deny is not None
    assert not any(map(alive, pids(tmp_path)))


async def test_S35_what_a_command_leaves_running_dies_with_its_answer(tmp_path: Path) -> None:
    words = ["sh", "-c", "sleep 300 & echo $! > pids; setsid sh -c 'echo $$ >> pids; exec sleep 300' & "
             "while [ $(wc -l < pids) -lt 2 ]; do :; done; echo '{}'"]  # fmt: skip
    started = time.monotonic()
    found = await soon(Hooks([of_words(words, tmp_path)]).ask_before(before()))
    assert found == BeforeOutcome({})
    assert time.monotonic() - started < PATIENCE / 2
    assert len(pids(tmp_path)) == 2
    assert not any(map(alive, pids(tmp_path)))


async def test_S35_functions_that_take_too_long_deny() -> None:
    release = threading.Event()

    async def hangs(call: object) -> None:
        await asyncio.Event().wait()

    try:
        for slow in (lambda call: release.wait(PATIENCE), hangs):
            found = await soon(Hooks([function(slow, seconds=0.1)]).ask_before(before()))
            assert found.deny is not None
            assert found.deny.reason.endswith("it took longer than 0.1 seconds")
    finally:
        release.set()


async def test_S35_an_async_function_that_will_not_stop_is_left_behind() -> None:
    release = asyncio.Event()
    told: list[str] = []

    async def stubborn(call: object) -> dict[str, str]:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                told.append("stop")
        told.append("end")
        return {"decision": "continue"}

    found = await soon(Hooks([function(stubborn, "after", seconds=0.1)]).ask_after(after()))
    assert found.failed is not None
    await until(lambda: told == ["stop"])
    release.set()
    await until(lambda: told == ["stop", "end"])


async def test_S35_a_function_that_always_hangs_fails_at_once_in_the_end() -> None:
    release = threading.Event()
    hooks = Hooks([function(lambda call: release.wait(PATIENCE), seconds=0.01)])
    try:
        for _ in range(THREADS_LIMIT):
            assert (await soon(hooks.ask_before(before()))).deny
        found = await soon(hooks.ask_before(before()))
        assert found.deny is not None
        assert f"{THREADS_LIMIT} earlier runs of it have not ended" in found.deny.reason
    finally:
        release.set()
    await until(lambda: not [one for one in threading.enumerate() if one.name == "hook"])
    assert "earlier runs" not in str((await soon(hooks.ask_before(before()))).deny)


async def test_S35_ignored_slowness_lets_the_call_go_on(tmp_path: Path) -> None:
    hook = command(tmp_path, "time.sleep(300)", seconds=0.5, on_failure="ignore")
    found = await soon(Hooks([hook, function(lambda call: {"decision": "ask"})]).ask_before(before()))
    assert (found.deny, len(found.ask), len(found.notes)) == (None, 1, 1)


# Too loud


@pytest.mark.parametrize(
    "code",
    ["print('{\"reason\": \"' + 'x' * 10_000_000 + '\"}')", "while True: sys.stdout.write('x' * 65_536)"],
    ids=["10 MB", "without end"],
)
async def test_S35_a_command_that_prints_too_much_fails_and_costs_no_memory(tmp_path: Path, code: str) -> None:
    hooks = Hooks([command(tmp_path, code, seconds=300)])
    tracemalloc.start()
    try:
        found = await soon(hooks.ask_before(before()))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.deny is not None
    assert found.deny.reason.endswith("it printed over 1,000,000 bytes")
    assert most < 8_000_000


async def test_S35_a_command_that_complains_too_much_is_told_by_the_end_of_it(tmp_path: Path) -> None:
    hook = command(tmp_path, "sys.stderr.write('x' * 10_000_000 + 'the end'); sys.exit(1)")
    found = await soon(Hooks([hook]).ask_before(before()))
    assert found.deny is not None
    assert found.deny.reason.endswith("xthe end")
    assert len(found.deny.reason) < 3_000


async def test_S35_a_command_need_not_read_what_it_is_told(tmp_path: Path) -> None:
    found = await soon(Hooks([of_words(["echo", "{}"], tmp_path)]).ask_before(before(text="x" * 1_000_000)))
    assert found.deny is None


# Stopped


async def test_S35_a_stop_passes_through_and_kills_the_command(tmp_path: Path) -> None:
    later: list[object] = []
    hooks = Hooks([command(tmp_path, TREE, seconds=300), function(later.append)])
    asking = asyncio.create_task(hooks.ask_before(before()))
    await until(lambda: len(pids(tmp_path)) == 3)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    assert not any(map(alive, pids(tmp_path)))
    assert later == []


async def test_S35_a_stop_that_comes_while_a_command_is_cleared_away_is_not_lost(tmp_path: Path) -> None:
    """Its answer is there by then, and the next hook must not be asked all the same."""
    later: list[object] = []
    lingering = "(trap 'echo > told; sleep 0.3' TERM; echo $BASHPID > pids; while :; do sleep 0.05; done)"
    words = ["bash", "-c", f"{lingering} & while [ ! -s pids ]; do :; done; echo '{{}}'"]
    asking = asyncio.create_task(Hooks([of_words(words, tmp_path), function(later.append)]).ask_before(before()))
    await until((tmp_path / "told").exists)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(asking)
    assert not any(map(alive, pids(tmp_path)))
    assert later == []


async def test_S35_a_stop_passes_through_functions() -> None:
    started, release = threading.Event(), threading.Event()
    stopped: list[str] = []

    def blocks(call: object) -> None:
        started.set()
        release.wait(PATIENCE)

    async def waits(call: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("waits")
            raise

    try:
        for hook in (blocks, waits):
            started.clear()
            asking = asyncio.create_task(Hooks([function(hook, "after")]).ask_after(after()))
            await until(started.is_set)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(asking)
    finally:
        release.set()
    await until(lambda: stopped == ["waits"])


async def test_S35_a_stop_while_waiting_for_a_turn_leaves_nothing(tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()

    def blocks(call: object) -> None:
        started.set()
        release.wait(PATIENCE)

    hooks = Hooks(
        [function(blocks, tools=("slow",)), command(tmp_path, "open('ran', 'w')", tools=("fast",))], at_once=1
    )
    slow = asyncio.create_task(hooks.ask_before(before("slow")))
    await until(started.is_set)
    fast = asyncio.create_task(hooks.ask_before(before("fast")))
    await asyncio.sleep(0)
    fast.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(fast)
    release.set()
    assert (await soon(slow)).deny is None
    assert not (tmp_path / "ran").exists()
    assert (await soon(hooks.ask_before(before("fast")))).deny is None


async def test_S35_hooks_are_asked_where_a_stop_was_answered_before(tmp_path: Path) -> None:
    """An activity goes on after a stop, to say what became of the call: its hooks must be heard then, too."""

    async def activity() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await Hooks([command(tmp_path, 'print(\'{"result": "clean"}\')', "after")]).ask_after(after())

    task = asyncio.create_task(activity())
    await asyncio.sleep(0)
    task.cancel()
    assert (await soon(task)).result == "clean"


# Too many

COUNTING = """
name = f'run-{os.getpid()}'
open(name, 'w').close()
overdue = time.monotonic() + 10
while True:
    at_once = len([one for one in os.listdir('.') if one.startswith('run-')])
    if at_once >= 8:
        open('full', 'w').close()
    if os.path.exists('full') or time.monotonic() > overdue:
        break
    time.sleep(0.01)
os.unlink(name)
print(json.dumps({'arguments': {**call['arguments'], 'at_once': at_once}}))
"""
"""The first eight wait for each other, so that they are seen at once however busy the machine is."""


def left(folder: Path) -> list[int]:
    """The processes of hooks that run in this folder: other tests have theirs elsewhere."""
    found = []
    for pid in marked("hook/"):
        with suppress(OSError):
            found += [pid] if os.readlink(f"/proc/{pid}/cwd") == str(folder) else []
    return found


async def test_S35_many_calls_at_once_run_eight_hooks_at_a_time(tmp_path: Path) -> None:
    hooks = Hooks([command(tmp_path, COUNTING)])
    async with asyncio.timeout(100):
        found = await asyncio.gather(*(hooks.ask_before(before(number=number)) for number in range(50)))
    assert [one.deny for one in found] == [None] * 50
    assert [one.arguments["number"] for one in found] == list(range(50))
    most = max(int(str(one.arguments["at_once"])) for one in found)
    assert most == CONCURRENT_HOOKS == 8
    assert left(tmp_path) == []


async def test_S35_threads_are_counted_as_commands_are() -> None:
    lock, now, most = threading.Lock(), [0], [0]
    full, release = threading.Event(), threading.Event()

    def counts(call: object) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == CONCURRENT_HOOKS:
                full.set()
        release.wait(PATIENCE)
        with lock:
            now[0] -= 1

    hooks = Hooks([function(counts)])
    asking = asyncio.gather(*(hooks.ask_before(before()) for _ in range(50)))
    try:
        await until(full.is_set)
    finally:
        release.set()
    assert [one.deny for one in await soon(asking)] == [None] * 50
    assert most == [CONCURRENT_HOOKS]


@pytest.mark.parametrize("kind", ["command", "function"])
async def test_S35_waiting_for_a_turn_costs_nothing_of_the_time_limit(tmp_path: Path, kind: str) -> None:
    started, release = threading.Event(), threading.Event()

    def blocks(call: object) -> None:
        started.set()
        release.wait(PATIENCE)

    limit = 1.5 if kind == "command" else 0.3
    fast = (
        command(tmp_path, "pass", seconds=limit, tools=("fast",))
        if kind == "command"
        else function(lambda call: None, seconds=limit, tools=("fast",))
    )
    hooks = Hooks([function(blocks, tools=("slow",)), fast], at_once=1)
    slow = asyncio.create_task(hooks.ask_before(before("slow")))
    await until(started.is_set)
    waiting = asyncio.create_task(hooks.ask_before(before("fast")))
    overdue = time.monotonic() + 1.5 * limit
    await until(lambda: time.monotonic() > overdue)
    assert not waiting.done()
    release.set()
    assert [one.deny for one in await soon(asyncio.gather(slow, waiting))] == [None, None]


# What a command finds


@pytest.mark.parametrize("ours", [*OUR_PREFIXES, "otel_exporter_"])
async def test_a_command_gets_no_credentials_of_ours_and_runs_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setenv(f"{ours}API_KEY", "s3cret")
    code = textwrap.dedent("""
        print(json.dumps({"arguments": {"folder": os.getcwd(), "environment": dict(os.environ)}}))
    """)
    found = await soon(Hooks([command(tmp_path, code)]).ask_before(before()))
    environment = found.arguments["environment"]
    assert isinstance(environment, dict)
    assert "s3cret" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]
    assert found.arguments["folder"] == str(tmp_path)
