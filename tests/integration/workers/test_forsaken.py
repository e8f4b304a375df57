"""An attempt that the server gave up on while its tool was well: the next attempt goes on with that tool (S31)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState

from holdfast import Effect, Run, TurnInput
from holdfast.activities.execution import live_run
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import executing

HEARTBEAT_SECONDS = 1
pytestmark = pytest.mark.filterwarnings("ignore:Cannot find activity to cancel")
"""What the SDK says when it is told to cancel an attempt that has just ended."""


class _Patient:
    """A tool that counts how often it was begun and stopped, and waits until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.stopped = 0
        self.at_work = asyncio.Event()
        self.let_go = asyncio.Event()
        self.tool = FakeTool("patient", self._body, safe=True, effect=Effect.ONCE, heartbeat_seconds=HEARTBEAT_SECONDS)

    async def _body(self, arguments: dict[str, Any], run: Run) -> str:
        self.begun += 1
        run.write("begun\n")
        self.at_work.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return "done"


def _rude(beside: _Patient) -> FakeTool:
    """It stops the whole worker for a while, as a tool may that is not written for an event loop."""

    async def body(arguments: dict[str, Any], run: Run) -> str:
        await beside.at_work.wait()
        time.sleep(4 * HEARTBEAT_SECONDS)  # noqa: ASYNC251 - this is the defect
        return "done"

    return FakeTool("rude", body, safe=True, effect=Effect.READ, heartbeat_seconds=30)


async def _again(engine: Engine, turn_id: str) -> bool:
    """Has a second attempt begun?"""
    found = await engine.holdfast.client.get_workflow_handle(turn_id).describe()
    begun = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    pending = found.raw_description.pending_activities
    return any(activity.attempt > 1 and activity.state == begun for activity in pending)


async def test_S31_a_silence_of_the_worker_stops_no_tool_and_repeats_none(engine: Engine) -> None:
    patient = _Patient()
    async with engine.worker(patient.tool, _rude(patient)):
        turn = await engine.start(TurnInput(batches=((build_request("patient"), build_request("rude")),)))
        await wait_until(lambda: _again(engine, turn.id), 30)
        assert (patient.begun, patient.stopped) == (1, 0)
        patient.let_go.set()
        result = await turn.result()
    assert [(response.status, response.text) for response in result.responses] == [("success", "done")] * 2
    assert patient.begun == 1


async def test_S17_a_tool_that_was_found_again_is_stopped_with_its_turn(engine: Engine) -> None:
    patient = _Patient()
    async with engine.worker(patient.tool, _rude(patient)):
        turn = await engine.start(TurnInput(batches=((build_request("patient"), build_request("rude")),)))
        await wait_until(lambda: _again(engine, turn.id), 30)
        await turn.cancel()
        result = await turn.result()
    assert result.responses[0].status == "cancelled"
    assert "begun" in result.responses[0].text
    assert (patient.begun, patient.stopped) == (1, 1)


async def test_a_tool_that_nobody_comes_back_for_is_stopped(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its turn was terminated."""
    monkeypatch.setattr(live_run, "ABANDONED_SECONDS", 0.1)
    patient = _Patient()
    async with engine.worker(patient.tool):
        turn = await engine.start(TurnInput(batches=((build_request("patient"),),)))
        await wait_until(lambda: executing(turn, "b1c1"))
        await wait_until(lambda: _is(lambda: patient.begun == 1))
        await engine.holdfast.client.get_workflow_handle(turn.id).terminate()
        await wait_until(lambda: _is(lambda: patient.stopped == 1), 30)


async def _is(condition: Any) -> bool:
    return bool(condition())
