"""Validating a batch: one local activity for all of it, and the regular kind where that takes or may take too long.

Why: docs/decisions/0002-validation-is-a-local-activity.md.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.tool_activities import ToolActivities
    from holdfast.domain.calls.verdicts import Reject
    from holdfast.domain.content import CallError
    from holdfast.domain.turn.activity_io import ValidateInput, ValidateResult
    from holdfast.workflows.activity_failures import describe_failure

LOCAL_LIMIT = timedelta(seconds=4)
"""A local activity keeps the workflow task open, and nobody is heard meanwhile: it gets only this long."""
REPEATS = 100
"""Attempts at the regular kind. Workers may die again and again; what breaks by itself gives up far sooner."""


_NO_VERDICT = Reject(error=CallError(type="validation_failed", message="Validation gave no verdict on this call"))


async def validate_calls(input: ValidateInput, *, has_hooks: bool = False) -> ValidateResult:
    """One verdict per call. Validation that breaks altogether rejects every call with the reason (S7).

    `has_hooks`: the turn's workers are known to have hooks, which take their time. `needs_time` of the result says so.
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
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=200),
                maximum_interval=timedelta(seconds=2),
                maximum_attempts=REPEATS,
            ),
        )
    except FailureError as error:
        broken = Reject(error=CallError(type="validation_failed", message=describe_failure(error)))
        return ValidateResult(verdicts={call.id: broken for call in input.calls}, approvers=None)
    complete = _add_missing_verdicts(input, result)
    return complete.model_copy(update={"needs_time": quick.needs_time}) if quick else complete


async def _validate_locally(input: ValidateInput) -> ValidateResult | None:
    """In this workflow task; None when that took too long or broke."""
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
    """A call without a verdict is rejected: it must end all the same."""
    silent = {call.id: _NO_VERDICT for call in input.calls if call.known is None and call.id not in result.verdicts}
    return result.model_copy(update={"verdicts": {**result.verdicts, **silent}}) if silent else result
