"""The two activities of a call as a turn runs them: validation of a batch, and execution of one call.

Why: docs/decisions/0002-validation-is-a-local-activity.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.tool_activities import ToolActivities
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.verdicts import Allow, Ask, ExecutionOutcome, Lost, NeedsApprovalAgain, Reject, Stopped
    from holdfast.domain.content import CallError
    from holdfast.domain.turn.activity_io import CallToValidate, ValidateInput, ValidateResult
    from holdfast.domain.turn.decision_log import build_bound_request
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.util.text import shorten_text
    from holdfast.workflows.activity_failures import (
        build_failure_outcome,
        build_untaken_outcome,
        describe_failure,
        find_last_output,
        has_begun_before,
        is_untaken,
    )
    from holdfast.workflows.child_turns import execute_delegated_call

LOCAL_LIMIT = timedelta(seconds=4)
"""The limit of validation as a local activity, which keeps the workflow task open: no message is handled meanwhile."""
GRACE = timedelta(seconds=60)
"""The time that is added to the timeout of the tool, which the worker enforces. It ends only executions that hang."""
ASKING_LIMIT = timedelta(days=30)
"""The limit of an execution whose tool may ask a person: the timeout of the tool pauses meanwhile."""
FIRST_LIMIT = timedelta(minutes=5)
"""The time in which a worker of the required task queue must start an execution."""
SECOND_LIMIT = timedelta(minutes=1)
"""The same for the second offer, which is made because the first may have expired while the server was down."""
STOP_LIMIT = timedelta(seconds=10)
"""The time in which the host of a call must start a request to stop it."""
ATTEMPTS = 100
"""Attempts of validation and of execution. A retry follows only the loss of a worker; other failures are final."""

_NO_VERDICT = Reject(error=CallError(type="validation_failed", message="Validation gave no verdict on this call"))

RunningCalls = dict[str, Any]
"""The handles of activities and child workflows, by call id."""


async def validate_calls(input: ValidateInput, *, has_hooks: bool = False) -> ValidateResult:
    """Validate calls: one verdict for each. When validation fails as a whole it rejects every call (S7).

    It runs as a local activity, and as a regular one when that takes too long, fails, or says so (`needs_time` of the
    result). `has_hooks`: the workers are known to have hooks, so only the regular one is tried.
    """
    quick = None if has_hooks else await _validate_locally(input)
    if quick and not quick.needs_time:
        return _add_missing_verdicts(input, quick)
    try:
        result = await workflow.execute_activity_method(
            ToolActivities.validate,
            input,
            summary=f"Validate {len(input.calls)} calls",
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=_build_retry_policy(maximum_interval=timedelta(seconds=2)),
        )
    except FailureError as error:
        failed = Reject(error=CallError(type="validation_failed", message=describe_failure(error)))
        return ValidateResult(verdicts={call.id: failed for call in input.calls}, approvers=None)
    complete = _add_missing_verdicts(input, result)
    return complete.model_copy(update={"needs_time": quick.needs_time}) if quick else complete


async def execute_call(state: TurnState, running: RunningCalls, call: Call) -> ExecutionOutcome:
    """Execute a call, and return its outcome. Its handle is in `running` meanwhile.

    A call that no worker starts is offered twice. After that its outcome is unknown if it may have begun; a call that
    is bound to a host and has not begun is moved to another host.
    """
    if call.bound and call.bound.tool.traits.delegates:
        return await execute_delegated_call(state, running, call)
    if host := state.executions.find_host(call):  # a background command is read and stopped where it runs
        call = state.executions.move_call(call.id, host)
    begun, tail, limit = False, "", FIRST_LIMIT
    while True:
        running[call.id] = handle = _start_execution(state, call, limit, begun=begun)
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
                return Stopped(reason="No worker had started it")
            return await _stop_on_host(state, call, build_untaken_outcome(call, begun=True, tail=tail))
        if limit == FIRST_LIMIT:
            limit = SECOND_LIMIT
        elif not begun and call.bound and call.bound.host:
            moved = await _move_to_other_host(state, call)
            if not isinstance(moved, Call):
                return moved
            call, limit = moved, FIRST_LIMIT
        else:
            return build_untaken_outcome(call, begun=begun, tail=tail)


async def _validate_locally(input: ValidateInput) -> ValidateResult | None:
    """Validate within this workflow task; None when that takes too long or fails."""
    try:
        return await workflow.execute_local_activity_method(
            ToolActivities.validate,
            input,
            start_to_close_timeout=LOCAL_LIMIT,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
    except FailureError:
        return None


def _add_missing_verdicts(input: ValidateInput, result: ValidateResult) -> ValidateResult:
    """Reject calls without a verdict: every call must end."""
    silent = {call.id: _NO_VERDICT for call in input.calls if call.known is None and call.id not in result.verdicts}
    return result.model_copy(update={"verdicts": {**result.verdicts, **silent}}) if silent else result


async def _stop_on_host(state: TurnState, call: Call, outcome: ExecutionOutcome) -> ExecutionOutcome:
    """Return the outcome of a call; if it is to stop and its worker did not answer, ask its host to stop it."""
    unanswered = isinstance(outcome, Stopped | Lost) and state.executions.is_stopping(call)
    if not unanswered or not (call.bound and call.bound.host):
        return outcome
    try:
        return await _start_execution(state, call, STOP_LIMIT, stop=True)
    except ActivityError:
        return outcome


async def _move_to_other_host(state: TurnState, call: Call) -> Call | ExecutionOutcome:
    """Bind a call to another host. Returns an outcome instead when that host's verdict is not what was approved."""
    asked = CallToValidate(id=call.id, request=build_bound_request(call))
    verdict = (await validate_calls(state.decisions.build_validate_input((asked,)))).verdicts[call.id]
    if state.executions.is_stopping(call):
        return Stopped(reason="No worker had started it")
    same = isinstance(verdict, Ask) and call.bound and verdict.bound.digest == call.bound.digest
    if isinstance(verdict, Allow) or (isinstance(verdict, Ask) and same):
        return state.executions.move_call(call.id, verdict.bound.host)
    return NeedsApprovalAgain(verdict=verdict)


def _start_execution(
    state: TurnState, call: Call, limit: timedelta, *, begun: bool = False, stop: bool = False
) -> workflow.ActivityHandle[ExecutionOutcome]:
    assert call.bound, "only validated calls are scheduled"
    traits = call.bound.tool.traits
    queue, asks = call.bound.host or traits.task_queue, traits.asks and state.input.interactive
    activity_id = call.id if call.run == 1 else f"{call.id}-{call.run}"
    return workflow.start_activity_method(
        ToolActivities.execute,
        state.decisions.build_execute_input(call, begun=begun, stop=stop),
        activity_id=f"{activity_id}-stop" if stop else activity_id,
        task_queue=queue,
        schedule_to_start_timeout=limit if queue else None,
        summary=shorten_text(call.bound.title, 120),
        start_to_close_timeout=ASKING_LIMIT if asks else timedelta(seconds=call.bound.timeout_seconds) + GRACE,
        heartbeat_timeout=timedelta(seconds=call.bound.heartbeat_seconds),
        retry_policy=_build_retry_policy(maximum_interval=timedelta(seconds=10)),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def _build_retry_policy(*, maximum_interval: timedelta) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(milliseconds=200), maximum_interval=maximum_interval, maximum_attempts=ATTEMPTS
    )
