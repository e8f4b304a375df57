"""Turns that run as child workflows: the turns of a session, and the turns that calls of a turn delegate.

A delegated turn takes the place of an activity. No worker waits for it, and its approvals are in the inbox under its
own id.

Why: docs/decisions/0025-sessions-and-delegated-turns.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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
    from holdfast.domain.turn.turn_io import TurnInput, TurnResult
    from holdfast.domain.turn.turn_result import adopt_result, build_delegated_memory, split_limits
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.domain.turn.update_bodies import ModeChange, RevokeDecisions
    from holdfast.names import TURN_WORKFLOW, TurnSignal
    from holdfast.util.redaction import Redacted
    from holdfast.util.text import shorten_text
    from holdfast.workflows.activity_failures import describe_failure


class ChildTurn:
    """A turn that runs as a child workflow.

    It is cancelled through an external handle. When the SDK cancels a child that terminates in the same workflow task,
    Temporal's core raises an error, and that task is retried for ever.
    """

    def __init__(self, handle: workflow.ChildWorkflowHandle[Any, TurnResult]) -> None:
        self._handle = handle
        self._sending: set[asyncio.Task[None]] = set()

    async def result(self) -> TurnResult:
        """Wait for the turn to end."""
        return await self._handle

    def cancel(self) -> None:
        """Ask the turn to stop."""
        outside = workflow.get_external_workflow_handle(self._handle.id)
        self._start_sending(outside.cancel())

    def signal(self, name: str, body: Any) -> None:
        """Send a signal to the turn, if it still runs."""
        self._start_sending(self._handle.signal(name, body))

    async def signal_and_wait(self, name: str, body: Any) -> None:
        """Send a signal to the turn, if it still runs, and wait until the server has it."""
        await _ignore_ended(self._handle.signal(name, body))

    def _start_sending(self, request: Awaitable[None]) -> None:
        task = asyncio.create_task(_ignore_ended(request))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)


async def start_child_turn(input: TurnInput, turn_id: str, title: str) -> ChildTurn:
    """Start a turn as a child. FailureError when a workflow with this id runs already."""
    handle: workflow.ChildWorkflowHandle[Any, TurnResult] = await workflow.start_child_workflow(
        TURN_WORKFLOW,
        input,
        id=turn_id,
        result_type=TurnResult,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        static_summary=shorten_text(title, 120),
    )
    return ChildTurn(handle)


async def execute_delegated_call(state: TurnState, running: dict[str, Any], call: Call) -> ExecutionOutcome:
    """Run the turn that a call delegates, and return the outcome of the call. The turn is in `running` meanwhile."""
    assert call.bound, "only validated calls are scheduled"
    if state.input.model is None or state.input.depth >= MAX_DEPTH:
        message = "This turn cannot delegate: it has no model, or was itself delegated too deep"
        return _build_failure("no_delegate", message)
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
    except FailureError as error:  # a workflow of that id runs already
        return _build_failure("turn", str(error))
    finally:
        running.pop(call.id, None)
    adopt_result(state, result, input)
    return build_delegated_outcome(result, stopping=state.executions.is_stopping(call))


def _send_tightenings(state: TurnState, given: TurnInput, child: ChildTurn) -> None:
    """Signal to a child a stricter mode and revoked grants, if they changed while the child started."""
    memory = given.memory
    assert memory, "a delegated turn always gets one"
    mode, grants = state.decisions.mode, state.decisions.grants.all_grants
    if find_stricter_mode(mode, memory.mode) is not memory.mode:
        child.signal(TurnSignal.TIGHTEN, ModeChange(mode=mode))
    present = {grant.decision.key for grant in grants}
    if revoked := [grant.decision.key for grant in memory.grants if grant.decision.key not in present]:
        child.signal(TurnSignal.TAKE_BACK, RevokeDecisions(decisions=tuple(revoked)))


def _build_failure(type: str, message: str) -> ExecutionOutcome:
    return Failed(error=CallError(type=type, message=message))


async def _ignore_ended(request: Awaitable[None]) -> None:
    """Wait for a request to a child. It is not an error when the child has ended."""
    try:
        await request
    except FailureError as error:
        workflow.logger.info("The turn has ended: %s", Redacted(error))
