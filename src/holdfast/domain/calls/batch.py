"""A batch of calls and its transitions, as pure functions.

Each function takes a batch and returns a new one; `now` is a parameter. Terminal calls never change, so duplicate and
late verdicts, decisions and outcomes have no effect (S1). Calls stay in the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from itertools import takewhile

from holdfast.domain.approvals.approval import Confirmation, Decision
from holdfast.domain.base import Data
from holdfast.domain.calls.call import Call, CallRequest, Editing, Status
from holdfast.domain.calls.tool import Effect, Interrupt
from holdfast.domain.calls.transitions import (
    DISCARDED,
    apply_call_change,
    apply_call_decision,
    apply_call_outcome,
    apply_call_verdict,
    discard_call,
    expire_call,
    hold_call,
    reapply_call_verdict,
    stop_call,
)
from holdfast.domain.calls.verdicts import ExecutionOutcome, NeedsApprovalAgain, QuestionRaised, Verdict
from holdfast.domain.content import Response


class Batch(Data):
    """The calls of one model reply, or of one submission."""

    id: str
    calls: tuple[Call, ...] = ()
    withdrawn: bool = False
    stream: str | None = None
    """The name of the stream that adds the calls one by one; None when all came at once."""
    attempt: int = 1
    """The attempt of the stream. A later attempt discards the batch of this one (S12)."""
    complete: bool = True
    """No further call will be added."""
    halted: str | None = None
    """Why no further call starts, calls that are added later included."""
    discarded: bool = False
    """The attempt failed: no response reaches the conversation."""

    def __len__(self) -> int:
        return len(self.calls)

    def get(self, call_id: str) -> Call | None:
        """Return the call with this id, or None."""
        return next((call for call in self.calls if call.id == call_id), None)

    @property
    def is_done(self) -> bool:
        """Is the batch complete, and has every call ended?"""
        return self.complete and all(call.is_terminal for call in self.calls)

    @property
    def is_ready(self) -> bool:
        """May execution begin? The batch is complete with all calls scheduled or ended, or a call has started (S9)."""
        settled = all(call.is_terminal or call.status is Status.SCHEDULED for call in self.calls)
        return any(call.started_at for call in self.calls) or (self.complete and settled)

    @property
    def waiting_calls(self) -> tuple[Call, ...]:
        """The calls that await approval."""
        return tuple(call for call in self.calls if call.status is Status.AWAITING_APPROVAL)

    @property
    def unvalidated_calls(self) -> tuple[Call, ...]:
        """The calls that are still validating."""
        return tuple(call for call in self.calls if call.status is Status.VALIDATING)

    @property
    def answered_calls(self) -> tuple[Call, ...]:
        """The ended calls before the first call that has not ended, in order (S13)."""
        return tuple(takewhile(lambda call: call.is_terminal, self.calls))

    def list_deliverable(self, *, early: bool = False) -> tuple[Call, ...]:
        """List the answered calls whose responses may be delivered.

        None of a discarded batch. None of a stream that is not complete, unless `early`: it may still be discarded.
        """
        is_deliverable = not self.discarded and (early or self.complete or self.stream is None)
        return self.answered_calls if is_deliverable else ()

    @property
    def responses(self) -> tuple[Response, ...]:
        """The responses so far, in the order of the request (S3)."""
        return tuple(call.response for call in self.calls if call.response)


def build_batch(batch_id: str, requests: Collection[CallRequest], now: datetime) -> Batch:
    """Build a batch of `validating` calls. The engine makes the call ids: `b2c3` is call 3 of batch 2 (S4)."""
    return extend_batch(Batch(id=batch_id), requests, now)


def extend_batch(batch: Batch, requests: Collection[CallRequest], now: datetime) -> Batch:
    """Add calls to a batch. In a halted batch they are cancelled with the batch's reason."""
    fresh = (
        Call(id=f"{batch.id}c{place}", request=request, attempt=batch.attempt, created_at=now)
        for place, request in enumerate(requests, start=len(batch.calls) + 1)
    )
    added = tuple(stop_call(call, batch.halted, now) if batch.halted else call for call in fresh)
    return batch.model_copy(update={"calls": (*batch.calls, *added)})


def complete_batch(batch: Batch) -> Batch:
    """Mark a batch as complete: no further call will be added."""
    return batch.model_copy(update={"complete": True})


def apply_verdicts(batch: Batch, verdicts: Mapping[str, Verdict], now: datetime) -> Batch:
    """Apply validation verdicts, by call id. Calls that are no longer validating keep their state."""

    def judge(call: Call) -> Call:
        verdict = verdicts.get(call.id)
        if verdict is None or call.status is not Status.VALIDATING:
            return call
        return apply_call_verdict(call, verdict, now)

    return _update_calls(batch, judge)


def apply_decision(batch: Batch, call_id: str, decision: Decision, now: datetime) -> Batch:
    """Apply a decision to a call. The caller has checked it with `decision_checks.check_decision`."""
    return _update_call(batch, call_id, lambda call: apply_call_decision(call, decision, now))


def apply_change(batch: Batch, call_id: str, verdict: Verdict, now: datetime) -> Batch:
    """Apply the verdict on a person's change of a call's arguments, if the call still waits for it."""
    return _update_call(batch, call_id, lambda call: apply_call_change(call, verdict, now) if call.changing else call)


def reapply_verdicts(batch: Batch, before: Batch, verdicts: Mapping[str, Verdict], now: datetime) -> Batch:
    """Apply new verdicts on calls as they were in `before`. Calls that have changed since keep their state."""

    def judge(call: Call) -> Call:
        verdict, then = verdicts.get(call.id), before.get(call.id)
        if verdict is None or then is None or has_moved_on(call, then):
            return call
        return reapply_call_verdict(call, verdict, now)

    return _update_calls(batch, judge)


def has_moved_on(call: Call, then: Call) -> bool:
    """Has the call changed since `then`, so that a verdict on it as it was then does not apply?"""
    return (call.status, call.revision, call.bound, call.changing) != (
        then.status, then.revision, then.bound, then.changing,
    )  # fmt: skip


def apply_deadlines(batch: Batch, now: datetime) -> Batch:
    """Apply the default to every call whose approval deadline has passed (S28)."""
    return _update_calls(batch, lambda call: expire_call(call, now) if _is_overdue(call, now) else call)


def mark_near_deadlines(batch: Batch, now: datetime) -> Batch:
    """Set `warned` on the calls whose approval deadline is near."""

    def warn(call: Call) -> Call:
        moment = find_warning_time(call)
        return call.model_copy(update={"warned": True}) if moment and moment <= now else call

    return _update_calls(batch, warn)


def find_warning_time(call: Call) -> datetime | None:
    """Return when viewers must be warned of a call's deadline; None without a warning, or after it was given."""
    deadline = call.confirmation.deadline if call.confirmation else None
    if call.status is not Status.AWAITING_APPROVAL or not call.deadline_at or not deadline or call.warned:
        return None
    return call.deadline_at - timedelta(seconds=deadline.warning_seconds) if deadline.warning_seconds else None


def set_editing(batch: Batch, call_id: str, editing: Editing | None) -> Batch:
    """Set or clear who has a call open in an editor."""
    return _update_call(batch, call_id, lambda call: call.model_copy(update={"editing": editing}))


def start_calls(batch: Batch, call_ids: Collection[str], now: datetime) -> Batch:
    """Move these scheduled calls to `executing`."""
    return _update_calls(
        batch,
        lambda call: call.move_to(Status.EXECUTING, started_at=now) if call.id in call_ids else call,
    )


def hold_batch_call(batch: Batch, call_id: str, question: Confirmation) -> Batch:
    """Move a running call to `awaiting_approval`: its tool asks `question`, and waits for the answer while it runs."""
    return _update_call(batch, call_id, lambda call: hold_call(call, question))


def move_to_host(batch: Batch, call_id: str, host: str | None) -> Batch:
    """Bind a call to the task queue of another host."""

    def move(call: Call) -> Call:
        return call.model_copy(update={"bound": call.bound.model_copy(update={"host": host})}) if call.bound else call

    return _update_call(batch, call_id, move)


def apply_outcome(batch: Batch, call_id: str, outcome: ExecutionOutcome, now: datetime, *, ask: bool = False) -> Batch:
    """Apply the result of a call's activity. Only a running call changes.

    `ask`: a person can be asked about an outcome that is unknown.
    """

    def end(call: Call) -> Call:
        if call.id != call_id or not call.is_running:
            return call
        if call.status is Status.SCHEDULED:  # its question was answered while its activity ended
            call = call.move_to(Status.EXECUTING)
        if batch.discarded:
            return discard_call(call, outcome, str(batch.halted), now)
        if batch.halted and isinstance(
            outcome, QuestionRaised | NeedsApprovalAgain
        ):  # nobody is asked about a halted batch
            call = call if call.stopping else call.model_copy(update={"stopping": batch.halted})
        return apply_call_outcome(call, outcome, now, ask=ask)

    return _update_calls(batch, end)


def stop_calls(batch: Batch, reason: str, now: datetime, *, only: Collection[str] | None = None) -> Batch:
    """Stop all calls, calls that are added later included; with `only`, stop just these calls."""
    if only is not None:
        return _update_calls(batch, lambda call: stop_call(call, reason, now) if call.id in only else call)
    return _halt_batch(_update_calls(batch, lambda call: stop_call(call, reason, now)), reason)


def discard_batch(batch: Batch, reason: str, now: datetime) -> Batch:
    """Discard the batch of a failed attempt: no further call starts, and running calls are stopped (S12)."""
    stopped = _halt_batch(_update_calls(batch, lambda call: stop_call(call, reason, now, kind=DISCARDED)), reason)
    return stopped.model_copy(update={"discarded": True, "complete": True})


def interrupt_calls(batch: Batch, reason: str, now: datetime) -> Batch:
    """Apply a user's new message: running calls that block interruption finish, all others stop (S18)."""

    def interrupt(call: Call) -> Call:
        finishes = call.is_running and not call.is_asking and not may_interrupt(call)
        return call if finishes else stop_call(call, reason, now)

    return _halt_batch(_update_calls(batch, interrupt), reason)


def may_interrupt(call: Call) -> bool:
    """Does a user's new message stop this call?"""
    return call.bound is None or call.bound.tool.traits.interrupt is Interrupt.CANCEL


def _halt_batch(batch: Batch, reason: str) -> Batch:
    return batch if batch.halted else batch.model_copy(update={"halted": reason})


def withdraw_batch(batch: Batch, now: datetime) -> Batch:
    """Withdraw a queued batch: it never starts, and its calls are cancelled (S14)."""
    stopped = stop_calls(batch, "The batch was withdrawn before it started", now)
    return stopped.model_copy(update={"withdrawn": True, "complete": True})


def _update_calls(batch: Batch, change: Callable[[Call], Call]) -> Batch:
    return batch.model_copy(update={"calls": tuple(change(call) for call in batch.calls)})


def _update_call(batch: Batch, call_id: str, change: Callable[[Call], Call]) -> Batch:
    return _update_calls(batch, lambda call: change(call) if call.id == call_id else call)


def _is_overdue(call: Call, now: datetime) -> bool:
    """Has its approval deadline passed? A change of the arguments before the deadline counts as an answer."""
    waits = call.status is Status.AWAITING_APPROVAL and not call.changing
    return waits and call.deadline_at is not None and call.deadline_at <= now


def may_repeat(call: Call) -> bool:
    """May the engine run this call again after a crash without asking (S31)?"""
    return call.bound is not None and call.bound.tool.effect is not Effect.ONCE
