"""Executing a call that runs a turn: a child workflow in the place of an activity.

Nothing waits in a worker meanwhile, and what it asks is in the inbox under its own turn's id.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.calls import Call
    from holdfast.content import CallError
    from holdfast.delegating import DEEPEST, Delegation, outcome_of, stricter, turn_for
    from holdfast.families import turn_of_call
    from holdfast.model import problems
    from holdfast.requests import ModeChange, TakeBack
    from holdfast.state import TurnState
    from holdfast.turns import TurnInput
    from holdfast.verdicts import CallOutcome, Failed, Stopped
    from holdfast.workflows.children import Child, begin_turn
    from holdfast.workflows.failures import reason_of


async def delegate(state: TurnState, running: dict[str, Any], call: Call) -> CallOutcome:
    """What became of a call that runs a turn, which is in `running` meanwhile."""
    assert call.bound, "only validated calls are scheduled"
    if state.input.model is None or state.input.depth >= DEEPEST:
        return _failed("no_delegate", "This turn cannot delegate: it has no model, or was itself delegated too deep")
    try:
        given = Delegation.model_validate(call.bound.arguments)
    except ValidationError as error:
        return _failed("invalid_tool_params", problems(error))
    input = turn_for(state.input, state.for_delegated(), state.left_for_each(), given)
    try:
        child = await begin_turn(input, turn_of_call(state.turn_id, call.id, call.run), call.bound.title)
        running[call.id] = child
        _catch_up(state, input, child)
        if state.is_stopping(call):
            child.cancel()
        result = await child.result()
    except ChildWorkflowError as error:
        stopped = state.is_stopping(call)
        return Stopped(reason="The turn was stopped") if stopped else _failed("turn", reason_of(error))
    except FailureError as error:  # a workflow of that name runs already
        return _failed("turn", str(error))
    finally:
        running.pop(call.id, None)
    state.adopt(result, input)
    return outcome_of(result, stopping=state.is_stopping(call))


def _catch_up(state: TurnState, given: TurnInput, child: Child) -> None:
    """Tell it what was tightened while it began."""
    memory = given.memory
    assert memory, "a delegated turn is given one"
    if stricter(state.mode, memory.mode) is not memory.mode:
        child.signal("tighten", ModeChange(mode=state.mode))
    standing = {grant.decision.key for grant in state.grants.all}
    if gone := [grant.decision.key for grant in memory.grants if grant.decision.key not in standing]:
        child.signal("take_back", TakeBack(decisions=tuple(gone)))


def _failed(type: str, message: str) -> CallOutcome:
    return Failed(error=CallError(type=type, message=message))
