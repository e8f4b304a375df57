"""Executing one call: its activity, and what is done when no worker takes that up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.tool_activities import ToolActivities
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.verdicts import Allow, Ask, ExecutionOutcome, Lost, NeedsApprovalAgain, Stopped
    from holdfast.domain.turn.activity_io import CallToValidate
    from holdfast.domain.turn.decision_log import build_bound_request
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.util.text import shorten_text
    from holdfast.workflows.activity_failures import (
        build_failure_outcome,
        build_untaken_outcome,
        find_last_output,
        has_begun_before,
        is_untaken,
    )
    from holdfast.workflows.delegated_call import execute_delegated_call
    from holdfast.workflows.validate_calls import validate_calls

GRACE = timedelta(seconds=60)
"""How much longer than the tool's own limit its activity may take: the worker enforces the limit, this is the net."""
ASKING_LIMIT = timedelta(days=30)
"""The same of a tool that may ask somebody in the middle of its run: its clock stands still meanwhile."""
FIRST_LIMIT = timedelta(minutes=5)
"""How long a call waits for a worker of the task queue it must run on."""
SECOND_LIMIT = timedelta(minutes=1)
"""And once more: while the server was away its workers were too, and time went by; now one of them is back."""
STOP_LIMIT = timedelta(seconds=10)
"""How long a host may take to take up a stop."""
REPEATS = 100
"""Attempts of a call; each one more means a worker that died under it. What must not run twice is looked up first."""

RunningCalls = dict[str, Any]
"""Handles of activities and child workflows, by call."""


async def execute_call(state: TurnState, running: RunningCalls, call: Call) -> ExecutionOutcome:
    """What became of a call, which is in `running` meanwhile.

    Where nobody takes it up it is offered twice. When then it may have begun nobody knows what became of it; one that
    lives on a host and has not begun goes to another.
    """
    if call.bound and call.bound.tool.traits.delegates:
        return await execute_delegated_call(state, running, call)
    if host := state.executions.find_host(call):  # a background command is read and stopped where it runs
        call = state.executions.move_call(call.id, host)
    begun, tail, limit = False, "", FIRST_LIMIT
    while True:
        running[call.id] = handle = _start_activity(state, call, limit, begun=begun)
        try:
            return await handle
        except ActivityError as error:
            if not is_untaken(error):
                return await _stop_on_host(state, call, build_failure_outcome(error, call))
            begun, tail = begun or has_begun_before(error), tail or find_last_output(error)
        finally:
            running.pop(call.id, None)
        if state.executions.is_stopping(call):
            if not begun:
                return Stopped(reason="No worker had taken it up")
            return await _stop_on_host(state, call, build_untaken_outcome(call, begun=True, tail=tail))
        if limit == FIRST_LIMIT:
            limit = SECOND_LIMIT
        elif not begun and call.bound and call.bound.host:
            moved = await _bind_elsewhere(state, call)
            if not isinstance(moved, Call):
                return moved
            call, limit = moved, FIRST_LIMIT
        else:
            return build_untaken_outcome(call, begun=begun, tail=tail)


async def _stop_on_host(state: TurnState, call: Call, outcome: ExecutionOutcome) -> ExecutionOutcome:
    """Of a call that is to stop and whose worker did not answer: what its host says, where it may still be at work."""
    unanswered = isinstance(outcome, Stopped | Lost) and state.executions.is_stopping(call)
    if not unanswered or not (call.bound and call.bound.host):
        return outcome
    try:
        return await _start_activity(state, call, STOP_LIMIT, stop=True)
    except ActivityError:
        return outcome


async def _bind_elsewhere(state: TurnState, call: Call) -> Call | ExecutionOutcome:
    """The call as a worker that lives would run it; its verdict, when that is not what was approved."""
    asked = CallToValidate(id=call.id, request=build_bound_request(call))
    verdict = (await validate_calls(state.decisions.build_validate_input((asked,)))).verdicts[call.id]
    if state.executions.is_stopping(call):
        return Stopped(reason="No worker had taken it up")
    same = isinstance(verdict, Ask) and call.bound and verdict.bound.digest == call.bound.digest
    if isinstance(verdict, Allow) or (isinstance(verdict, Ask) and same):
        return state.executions.move_call(call.id, verdict.bound.host)
    return NeedsApprovalAgain(verdict=verdict)


def _format_activity_id(call: Call) -> str:
    return call.id if call.run == 1 else f"{call.id}-{call.run}"


def _start_activity(
    state: TurnState, call: Call, limit: timedelta, *, begun: bool = False, stop: bool = False
) -> workflow.ActivityHandle[ExecutionOutcome]:
    assert call.bound, "only validated calls are scheduled"
    traits = call.bound.tool.traits
    queue, asks = call.bound.host or traits.task_queue, traits.asks and state.input.interactive
    return workflow.start_activity_method(
        ToolActivities.execute,
        state.decisions.build_execute_input(call, begun=begun, stop=stop),
        activity_id=f"{_format_activity_id(call)}-stop" if stop else _format_activity_id(call),
        task_queue=queue,
        schedule_to_start_timeout=limit if queue else None,
        summary=shorten_text(call.bound.title, 120),
        start_to_close_timeout=ASKING_LIMIT if asks else timedelta(seconds=call.bound.timeout_seconds) + GRACE,
        heartbeat_timeout=timedelta(seconds=call.bound.heartbeat_seconds),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            maximum_interval=timedelta(seconds=10),
            maximum_attempts=REPEATS,
        ),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
