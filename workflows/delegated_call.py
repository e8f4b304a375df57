"""Executing a call that runs a turn: a child workflow in the place of an activity.

Nothing waits in a worker meanwhile, and what it asks is in the inbox under its own turn's id.

Why: docs/decisions/0025-sessions-and-delegated-turns.md.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.base import describe_problems
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.verdicts import ExecutionOutcome, Failed, Stopped
    from holdfast.domain.content import CallError
    from holdfast.domain.turn.delegation import (
        MAX_DEPTH,
        Delegation,
        build_delegated_input,
        build_delegated_outcome,
        find_stricter_mode,
    )
    from holdfast.domain.turn.ids import format_call_turn_id
    from holdfast.domain.turn.turn_io import TurnInput
    from holdfast.domain.turn.turn_result import adopt_result, build_delegated_memory, split_limits
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.domain.turn.update_bodies import ModeChange, RevokeDecisions
    from holdfast.workflows.activity_failures import describe_failure
    from holdfast.workflows.child_workflow import ChildTurn, start_child_turn


async def execute_delegated_call(state: TurnState, running: dict[str, Any], call: Call) -> ExecutionOutcome:
    """What became of a call that runs a turn, which is in `running` meanwhile."""
    assert call.bound, "only validated calls are scheduled"
    if state.input.model is None or state.input.depth >= MAX_DEPTH:
        return _build_failure(
            "no_delegate", "This turn cannot delegate: it has no model, or was itself delegated too deep"
        )
    try:
        given = Delegation.model_validate(call.bound.arguments)
    except ValidationError as error:
        return _build_failure("invalid_tool_params", describe_problems(error))
    input = build_delegated_input(state.input, build_delegated_memory(state), split_limits(state), given)
    try:
        child = await start_child_turn(input, format_call_turn_id(state.turn_id, call.id, call.run), call.bound.title)
        running[call.id] = child
        _send_tightenings(state, input, child)
        if state.executions.is_stopping(call):
            child.cancel()
        result = await child.result()
    except ChildWorkflowError as error:
        stopped = state.executions.is_stopping(call)
        return Stopped(reason="The turn was stopped") if stopped else _build_failure("turn", describe_failure(error))
    except FailureError as error:  # a workflow of that name runs already
        return _build_failure("turn", str(error))
    finally:
        running.pop(call.id, None)
    adopt_result(state, result, input)
    return build_delegated_outcome(result, stopping=state.executions.is_stopping(call))


def _send_tightenings(state: TurnState, given: TurnInput, child: ChildTurn) -> None:
    """Tell it what was tightened while it began."""
    memory = given.memory
    assert memory, "a delegated turn is given one"
    if find_stricter_mode(state.decisions.mode, memory.mode) is not memory.mode:
        child.signal("tighten", ModeChange(mode=state.decisions.mode))
    standing = {grant.decision.key for grant in state.decisions.grants.all_grants}
    if gone := [grant.decision.key for grant in memory.grants if grant.decision.key not in standing]:
        child.signal("take_back", RevokeDecisions(decisions=tuple(gone)))


def _build_failure(type: str, message: str) -> ExecutionOutcome:
    return Failed(error=CallError(type=type, message=message))
