"""Every history that was ever recorded replays on today's code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowReplayResult

with workflow.unsafe.imports_passed_through():
    from holdfast import HoldfastPlugin, Settings
    from tests.support.turns import PLAYS

HISTORIES = Path(__file__).parent / "histories"
STORED = sorted(path.stem for path in HISTORIES.glob("*.json"))


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings whose payloads are a copy of the stored ones: a replay writes what it would store today."""
    folder = tmp_path_factory.mktemp("replay")
    shutil.copytree(HISTORIES / "payloads", folder / "payloads")
    return Settings(data=folder)


async def _replay(name: str, plugin: HoldfastPlugin) -> WorkflowReplayResult:
    stored = json.loads((HISTORIES / f"{name}.json").read_text())
    turn_id = stored["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    history = WorkflowHistory.from_json(turn_id, stored)
    replayer = Replayer(workflows=[], plugins=[plugin])
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


def test_every_play_has_a_stored_history() -> None:
    assert set(PLAYS) <= set(STORED), "run `make histories`"


@pytest.mark.parametrize("name", STORED)
async def test_a_stored_history_replays(name: str, settings: Settings) -> None:
    assert (await _replay(name, HoldfastPlugin(settings))).replay_failure is None


@workflow.defn(name="holdfast.turn")
class Changed:
    """A turn whose steps are not those of the history."""

    @workflow.run
    async def run(self, *inputs: object) -> None:
        await workflow.sleep(1)


async def test_a_change_that_breaks_determinism_is_caught(settings: Settings) -> None:
    plugin = HoldfastPlugin(settings)
    plugin.workflows = [Changed]
    failure = (await _replay("one_call", plugin)).replay_failure
    assert failure is not None
    assert "ondeterminis" in str(failure)
