"""The outcome of a call whose activity failed: its worker died, was never there, or raised an error."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutError,
    TimeoutType,
)

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.calls.batch import may_repeat
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.verdicts import UNFINISHED, ExecutionOutcome, Failed, Lost, Stopped
    from holdfast.domain.content import CallError, TextPart
    from holdfast.domain.turn.activity_io import LiveOutput
    from holdfast.util.text import shorten_text


def build_failure_outcome(error: ActivityError, call: Call) -> ExecutionOutcome:
    """The outcome by the cause: stopped when it was cancelled, lost when it timed out, else failed."""
    cause = error.cause
    if isinstance(cause, CancelledError):
        return Stopped(reason="The call was stopped")
    if isinstance(cause, TimeoutError):
        tail = find_last_output(error)
        return Lost(
            message=_format_lost_message(call, tail),
            parts=(TextPart(text=tail),) if tail else (),
            repeatable=may_repeat(call),
        )
    if isinstance(cause, ApplicationError) and cause.type == UNFINISHED:
        return Lost(message=f"{_format_lost_message(call, '')} {describe_failure(error)}", repeatable=may_repeat(call))
    kind = cause.type if isinstance(cause, ApplicationError) and cause.type else "tool_failed"
    return Failed(error=CallError(type=kind, message=describe_failure(error)))


def is_untaken(error: ActivityError) -> bool:
    """Did no worker start the activity in time?"""
    return isinstance(error.cause, TimeoutError) and error.cause.type is TimeoutType.SCHEDULE_TO_START


def has_begun_before(error: ActivityError) -> bool:
    """Was there an earlier attempt, whose worker is lost, at an activity that no worker started in time?"""
    return error.cause is not None and error.cause.__cause__ is not None


def build_untaken_outcome(call: Call, *, begun: bool, tail: str = "") -> ExecutionOutcome:
    """The outcome of a call that no worker starts: unknown when it had begun and must not run twice, else failed.

    `tail` is the last output of an earlier attempt.
    """
    bound = call.bound
    if begun and not may_repeat(call):
        message = (
            f"The worker that ran {call.tool!r} was lost, and no worker answers on its host. It may have taken effect, "
            f"in whole or in part, or not at all.{_introduce_tail(tail)}"
        )
        return Lost(message=message, parts=(TextPart(text=tail),) if tail else ())
    queue = (bound.host or bound.tool.traits.task_queue) if bound else None
    message = f"No worker of task queue {queue!r}, where {call.tool!r} must run, took the call in time"
    return Failed(error=CallError(type="no_worker", message=message))


def describe_failure(error: FailureError) -> str:
    """The message of the innermost error of a failed activity."""
    return shorten_text(str(error.cause or error), 2_000)


def _format_lost_message(call: Call, tail: str) -> str:
    if may_repeat(call):
        return f"The worker that ran {call.tool!r} was lost, and so were those that repeated it.{_introduce_tail(tail)}"
    return (
        f"The worker that ran {call.tool!r} was lost before it answered. The call may have taken effect, in whole or "
        f"in part, or not at all; it was not run again. Find out before you repeat it.{_introduce_tail(tail)}"
    )


def _introduce_tail(tail: str) -> str:
    return " Its last output follows." if tail else ""


def find_last_output(error: ActivityError) -> str:
    """The output in the last heartbeat, of this attempt or an earlier one."""
    details: Any = error.cause.last_heartbeat_details if isinstance(error.cause, TimeoutError) else None
    try:
        return LiveOutput.model_validate(details[0]).tail if details else ""
    except ValidationError:
        return ""
