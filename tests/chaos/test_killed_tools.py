"""SIGKILL of the worker under tools of every source, and an output too large for any memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import Turn, TurnInput
from holdfast.testing import build_request, decide_all, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.processes import command_line_worker
from tests.support.waiting import speaking, waiting

SCRIPT = """
import json, os, sys, time
from pathlib import Path

if sys.argv[1] == "list":
    print(json.dumps([{"name": "look", "effect": "read"}, {"name": "send", "effect": "once"}]))
else:
    name = sys.argv[2]
    with open(name, "a") as file:
        file.write("x")
    print("it has begun", flush=True)
    if not Path(f"{name}.pid").exists():
        Path(f"{name}.pid").write_text(str(os.getpid()))
        time.sleep(600)
    print("done")
"""
SETTINGS = """
[[discovery]]
name = "project"
discovery_command = [{python!r}, "tools.py", "list"]
call_command = [{python!r}, "tools.py", "call"]
"""
GIGABYTE = 1024**3


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file with a discovery beside it."""
    (tmp_path / "tools.py").write_text(SCRIPT)
    found = tmp_path / "holdfast.toml"
    found.write_text(SETTINGS.format(python=sys.executable))
    return found


async def _killed_in(engine: Engine, file: Path, tool: str) -> tuple[Turn, int]:
    """A turn whose worker was killed in the middle of a discovered call, and the process that it left."""
    mark = file.parent / f"{tool}.pid"
    async with command_line_worker(engine, file) as first:
        turn = await engine.start(TurnInput(batches=((build_request(tool),),)))
        deciding = asyncio.create_task(decide_all(engine.holdfast, turn))
        pid = await wait_until(lambda: asyncio.to_thread(lambda: mark.exists() and mark.read_text()))
        await wait_until(lambda: speaking(turn, "it has begun"))
        deciding.cancel()
        await first.kill()
    return turn, int(pid)


async def _result(engine: Engine, file: Path, tool: str, *, unknown: bool = False) -> tuple[str, str | None, str]:
    """What became of it; where that is `unknown` somebody is asked, and takes it as failed."""
    turn, left = await _killed_in(engine, file, tool)
    try:
        async with command_line_worker(engine, file):
            if unknown:
                [item] = (await wait_until(lambda: waiting(turn), 60)).approvals
                assert item.kind == "outcome_unknown"
                await engine.holdfast.deny(item.approval_id)
            [response] = (await turn.result()).responses
    finally:
        with suppress(ProcessLookupError):
            os.killpg(left, signal.SIGKILL)
    return response.status, response.error.type if response.error else None, response.text


async def test_S31_a_discovered_tool_that_reads_is_repeated_when_its_worker_is_killed(
    engine: Engine, file: Path
) -> None:
    status, _, text = await _result(engine, file, "look")
    assert (status, text) == ("success", "it has begun\ndone\n")
    assert await asyncio.to_thread((file.parent / "look").read_text) == "xx"


async def test_S31_a_discovered_tool_that_must_run_once_is_not_repeated_and_says_so(engine: Engine, file: Path) -> None:
    status, kind, text = await _result(engine, file, "send", unknown=True)
    assert (status, kind) == ("error", "outcome_unknown")
    assert "it has begun" in text
    assert await asyncio.to_thread((file.parent / "send").read_text) == "x"


async def test_S37_a_question_outlives_the_worker_that_asked_it(engine: Engine, file: Path) -> None:
    async with command_line_worker(engine, file) as first:
        turn = await engine.start(TurnInput(batches=((build_request("ask_user", question="Well?"),),)))
        [item] = (await wait_until(lambda: waiting(turn, 1))).approvals
        await first.kill()
    assert await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="Well.") is None
    async with command_line_worker(engine, file):
        assert (await turn.result()).responses[0].text == "Well."


def _peak(pid: int) -> int:
    """The most memory a process ever held, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


@pytest.mark.alone
async def test_S33_two_gigabytes_of_output_are_kept_whole_and_take_no_memory(engine: Engine, file: Path) -> None:
    if shutil.disk_usage(engine.settings.data.parent).free < 4 * GIGABYTE:
        pytest.skip("needs 4 GB of disk")
    async with command_line_worker(engine, file) as worker:
        small = await engine.start(TurnInput(batches=((build_request("shell", command="yes | head -c 1M"),),)))
        await decide_all(engine.holdfast, small)
        before = await asyncio.to_thread(_peak, worker.pid)
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="yes | head -c 2G"),),)))
        await decide_all(engine.holdfast, turn)
        [response] = (await turn.result()).responses
        after = await asyncio.to_thread(_peak, worker.pid)
    [part] = response.parts
    assert part.kind == "text"
    assert part.whole
    assert (response.status, len(part.text) < 41_000) == ("success", True)
    assert await asyncio.to_thread(os.path.getsize, part.whole) == 2 * GIGABYTE
    await asyncio.to_thread(os.unlink, part.whole)
    assert after - before < 50_000_000
