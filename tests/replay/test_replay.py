"""Every stored history replays on today's code."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.common import MetricMeter
from temporalio.worker import Replayer, WorkflowReplayResult, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

with workflow.unsafe.imports_passed_through():
    from holdfast import HoldfastPlugin, Settings
    from holdfast.names import SessionSignal
    from holdfast.plugin.telemetry import Instruments
    from holdfast.telemetry.metrics import Measurement
    from holdfast.telemetry.spans import Span
    from holdfast.workflows.session import SessionWorkflow
    from holdfast.workflows.turn import TurnWorkflow
    from tests.support.turns import PLAYS

HISTORIES = Path(__file__).parent / "histories"
STORED = sorted(path.stem for path in HISTORIES.glob("*.json"))


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings whose payloads are a copy of the stored ones: a replay writes what it would store today."""
    folder = tmp_path_factory.mktemp("replay")
    shutil.copytree(HISTORIES / "payloads", folder / "payloads")
    return Settings(data=folder)


@pytest.fixture
def sandboxed(monkeypatch: pytest.MonkeyPatch) -> WorkflowRunner:
    """Temporal's sandbox, which reports what a workflow must not do. Our workers go without it, for speed."""
    for workflow_class in (TurnWorkflow, SessionWorkflow):
        definition = workflow._Definition.must_from_class(workflow_class)
        inside = dataclasses.replace(definition, sandboxed=True)
        monkeypatch.setattr(workflow_class, "__temporal_workflow_definition", inside)
    return SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules("cryptography"))


async def _replay(name: str, plugin: HoldfastPlugin, runner: WorkflowRunner | None = None) -> WorkflowReplayResult:
    stored = json.loads((HISTORIES / f"{name}.json").read_text())
    turn_id = stored["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    history = WorkflowHistory.from_json(turn_id, stored)
    replayer = Replayer(workflows=[], plugins=[plugin], workflow_runner=runner or SandboxedWorkflowRunner())
    return await replayer.replay_workflow(history, raise_on_replay_failure=False)


def test_every_play_has_a_stored_history() -> None:
    assert set(PLAYS) <= set(STORED), "run `make histories`"


WORKFLOWS = "\n".join(path.read_text() for path in (HISTORIES.parents[2] / "workflows").glob("*.py"))


def _recorded() -> set[str]:
    """The names of all patches, signals and updates in stored histories."""
    found: set[str] = set()
    for name in STORED:
        for event in json.loads((HISTORIES / f"{name}.json").read_text())["events"]:
            marker = event.get("markerRecordedEventAttributes", {})
            if marker.get("markerName") == "core_patch":
                found.add(json.loads(base64.b64decode(marker["details"]["patch-data"]["payloads"][0]["data"]))["id"])
            found.add(event.get("workflowExecutionSignaledEventAttributes", {}).get("signalName", ""))
            update = event.get("workflowExecutionUpdateAcceptedEventAttributes")
            found.add(update["acceptedRequest"]["input"]["name"] if update else "")
    return found


PATCHES = set(re.findall(r'patched\("([^"]+)"\)', WORKFLOWS))
DEFINITIONS = [workflow._Definition.must_from_class(kind) for kind in (TurnWorkflow, SessionWorkflow)]
MESSAGES = {str(name) for one in DEFINITIONS for name in (*one.signals, *one.updates)} - {SessionSignal.MOVE}
"""Without the signal whose handler does nothing but wake its session."""


@pytest.mark.parametrize("named", [PATCHES, MESSAGES], ids=["patches", "messages"])
def test_every_patch_signal_and_update_is_in_a_stored_history(named: set[str]) -> None:
    """A branch or a handler that no history has could be broken, and no replay would tell."""
    assert named - _recorded() == set(), "add a play to tests/support/turns.py, then `make histories`"


def test_a_run_that_goes_on_from_another_is_in_a_stored_history() -> None:
    begun = [json.loads((HISTORIES / f"{name}.json").read_text())["events"][0] for name in STORED]
    assert any(event["workflowExecutionStartedEventAttributes"].get("continuedExecutionRunId") for event in begun)


@pytest.mark.parametrize("name", STORED)
async def test_a_stored_history_replays(name: str, settings: Settings) -> None:
    assert (await _replay(name, HoldfastPlugin(settings))).replay_failure is None


class _Kept(list[Span]):
    def put(self, span: Span) -> None:
        self.append(span)

    def close(self) -> None:
        """Nothing is left to send."""


@pytest.mark.parametrize("name", STORED)
async def test_a_stored_history_replays_in_the_sandbox_while_traced_and_nothing_is_recorded_again(
    name: str, settings: Settings, sandboxed: WorkflowRunner
) -> None:
    plugin, counted = HoldfastPlugin(settings), list[Measurement]()
    plugin.observing.sink = kept = _Kept()
    plugin.observing.counting = Instruments(MetricMeter.noop)
    plugin.observing.counting.count_measurements = lambda found: counted.extend(found)  # type: ignore[method-assign]
    observer, asked = plugin.observing.build_observer, list[str]()
    plugin.observing.build_observer = lambda: asked.append(name) or observer()  # type: ignore[method-assign, func-returns-value]
    assert (await _replay(name, plugin, runner=sandboxed)).replay_failure is None
    assert asked
    assert (kept, counted) == ([], [])


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
