"""What the two activities of a call are told of its turn."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import Allow, BoundCall
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.activity_io import ExecuteInput, JudgementFacts, ValidateInput, ValidateResult
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState

FACTS = {"seen", "mode", "interactive", "grants", "tainted", "requester", "context", "tools", "confirm"}


def test_facts_of_a_turn_stand_beside_the_other_fields_of_both_inputs() -> None:
    """The names are in histories: flat, as they have always been."""
    assert set(JudgementFacts.model_fields) == FACTS
    assert set(ValidateInput.model_fields) - FACTS == {"calls", "approval_seconds", "run_reads"}
    own = {"call_id", "bound", "run", "pause", "begun", "stop", "approvals", "shown", "wrote", "expired"}
    assert set(ExecuteInput.model_fields) - FACTS == own


def test_a_call_is_judged_by_the_same_facts_when_it_is_validated_and_when_it_executes() -> None:
    given = {"mode": Mode.YOLO, "interactive": False, "requester": "ana", "tools": ("t*",), "confirm": "always"}
    input = TurnInput.model_validate({"batches": ((CallRequest(tool="tool"),),), **given})
    state = TurnState("turn", lambda: datetime(2026, 1, 1, tzinfo=UTC), input)
    state.executions.tainted = ["fetch"]
    batch = state.activate_batch()
    tool = ToolRef(name="tool", effect=Effect.READ, definition="def")
    bound = BoundCall(tool=tool, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1)
    state.apply_verdicts(batch.id, ValidateResult(verdicts={"b1c1": Allow(rule="r", bound=bound)}))
    call = state.queue.active_batch.calls[0]
    validated = state.decisions.build_validate_input(state.decisions.list_unsettled_calls()).model_dump(include=FACTS)
    executed = state.decisions.build_execute_input(call).model_dump(include=FACTS)
    assert executed == validated
    assert {**validated, **given, "confirm": Confirming.ALWAYS, "tainted": True} == validated
