"""Stopping what runs: told at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

import pytest

from holdfast import LiveOutput, Turn, TurnInput
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import executing, speaking, waiting


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _approved_shell(engine: Engine, command: str) -> Turn:
    turn = await engine.start(TurnInput(batches=((build_request("shell", command=command),),)))
    view = await wait_until(lambda: waiting(turn))
    await engine.holdfast.approve(view.approvals[0].approval_id)
    return turn


async def _running_shell(engine: Engine, command: str) -> Turn:
    turn = await _approved_shell(engine, command)
    await wait_until(lambda: executing(turn, "b1c1"))
    return turn


@pytest.mark.alone
async def test_S17_a_cancelled_shell_command_dies_with_its_grandchildren_within_a_second(engine: Engine) -> None:
    pids = engine.workspace / "pids"
    inner = f"echo $$ >> {pids}; sleep 600 & echo $! >> {pids}; wait"
    command = f"echo $$ > {pids}; setsid bash -c '{inner}' & echo begun; wait"

    async def three() -> bool:
        return pids.exists() and len(pids.read_text().split()) == 3

    async with engine.worker():
        turn = await _running_shell(engine, command)
        await wait_until(three)
        found = [int(pid) for pid in pids.read_text().split()]
        assert all(map(_alive, found))
        asked = time.monotonic()
        await turn.cancel()

        async def gone() -> bool:
            return not any(map(_alive, found))

        await wait_until(gone, seconds=5)
        told = time.monotonic() - asked
        result = await turn.result()
    assert told < 3
    assert result.status == "cancelled"
    assert result.responses[0].status == "cancelled"
    assert "begun" in result.responses[0].text


@pytest.mark.alone
async def test_S17_from_the_request_to_the_tool_being_told_takes_under_a_second_at_p95(engine: Engine) -> None:
    async with engine.worker():
        times = []
        for _ in range(12):
            log = engine.workspace / "told"
            log.unlink(missing_ok=True)
            turn = await _running_shell(engine, f"trap 'date +%s.%N > {log}; exit' TERM; echo ready; sleep 600 & wait")
            await wait_until(partial(speaking, turn, "ready"))
            asked = time.time()
            await turn.cancel()
            await turn.result()
            times.append(float(log.read_text()) - asked)
    assert sorted(times)[int(0.95 * len(times))] < 1, times


async def test_S32_live_output_and_pid_are_visible_while_a_command_runs_and_not_in_the_history(engine: Engine) -> None:
    async with engine.worker():
        fifo = engine.workspace / "go"
        os.mkfifo(fifo)
        turn = await _running_shell(engine, "printf 'secret \\033[31mred\\033[0m\\n'; read line < go; echo end")
        await wait_until(lambda: speaking(turn, "secret red"))
        view = await turn.fetch_view()
        assert view.batch is not None
        call = view.batch.calls[0]
        assert call.pid is not None
        assert _alive(call.pid)
        assert "\x1b" not in (call.live_output or "")
        seen = await _first_output(turn)
        assert seen.tail.startswith("secret red")
        await asyncio.to_thread(fifo.write_text, "go\n")
        result = await turn.result()
        history = await engine.client.get_workflow_handle(turn.id).fetch_history()
    assert result.responses[0].text == "secret red\nend\n"
    mentions = [event for event in history.events if b"secret red" in event.SerializeToString()]
    assert len(mentions) == 2, "only the activity's result and the turn's hold the output"


async def _first_output(turn: Turn) -> LiveOutput:
    async with asyncio.timeout(30):
        async for item in turn.watch():
            if isinstance(item, LiveOutput):
                return item
    raise AssertionError("the turn ended without live output")


async def test_a_command_that_ends_takes_its_background_children_with_it(engine: Engine) -> None:
    async with engine.worker():
        turn = await _approved_shell(engine, "sleep 600 & echo $!")
        result = await turn.result()
    assert not _alive(int(result.responses[0].text))
