"""Replays on a busy machine, and of runs that never end."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from holdfast.payloads.converter import build_data_converter
from holdfast.workers.audit.read import replay
from holdfast.workers.audit.read.stored_payloads import build_read_only_converter, build_storage_fetch
from holdfast.workers.audit.read.workflow_runs import Run, build_run
from holdfast.workflows.turn import TurnWorkflow

HISTORIES = Path(__file__).parents[4] / "replay" / "histories"
BASE = build_data_converter(None, HISTORIES / "payloads")
CONVERTER = build_read_only_converter(BASE, build_storage_fetch(BASE))
LONGER_THAN_THE_DETECTOR = 3.0


@pytest.fixture
def run() -> Run:
    stored = json.loads((HISTORIES / "one_call.json").read_text())
    return build_run(WorkflowHistory.from_json("one_call", stored).events)


async def test_a_replay_that_gets_no_processor_time_is_no_departure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    take_steps = TurnWorkflow._take_steps

    async def take_steps_late(turn: TurnWorkflow) -> bool:
        threading.Event().wait(LONGER_THAN_THE_DETECTOR)
        return await take_steps(turn)

    monkeypatch.setattr(TurnWorkflow, "_take_steps", take_steps_late)
    [replayed] = await replay.replay_runs([run], CONVERTER)
    assert replayed.departures == []


async def test_a_replay_that_never_ends_is_stopped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take_steps_for_ever(turn: TurnWorkflow) -> bool:
        while True:
            pass

    monkeypatch.setattr(TurnWorkflow, "_take_steps", take_steps_for_ever)
    monkeypatch.setattr(replay, "REPLAY_SECONDS", 1.0)
    [replayed] = await replay.replay_runs([run], CONVERTER)
    assert [departure.what for departure in replayed.departures] == [replay.TIMED_OUT]
