"""A batch of calls and everything that can happen to it, as pure functions.

    ready?   grown   judged   decided   changed   reconsidered   expired   begun   ended   stopped   interrupted

Each takes a batch and returns a new one; none knows of Temporal, time or I/O (`now` is handed in). What is
terminal stays as it is, so duplicates and late arrivals change nothing (S1). Order is the order of the request.
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
    """What its calls come from one by one: a model step that still writes, or a caller."""
    attempt: int = 1
    """Which attempt of that: another one discards what came from this one (S12)."""
    complete: bool = True
    """Will no further call come?"""
    halted: str | None = None
    """Why nothing of it begins any more, what is yet to come included."""
    discarded: bool = False
    """Its attempt failed: none of it reaches the conversation."""

    def __len__(self) -> int:
        return len(self.calls)

    def get(self, call_id: str) -> Call | None:
        """The call with this id."""
        return next((call for call in self.calls if call.id == call_id), None)

    @property
    def is_done(self) -> bool:
        """Has every call ended, and comes no other?"""
        return self.complete and all(call.is_terminal for call in self.calls)

    @property
    def is_ready(self) -> bool:
        """May execution begin? All calls are there and scheduled or ended, or some have already begun (S9)."""
        settled = all(call.is_terminal or call.status is Status.SCHEDULED for call in self.calls)
        return any(call.started_at for call in self.calls) or (self.complete and settled)

    @property
    def waiting_calls(self) -> tuple[Call, ...]:
        """The calls a person has to say something about."""
        return tuple(call for call in self.calls if call.status is Status.AWAITING_APPROVAL)

    @property
    def unvalidated_calls(self) -> tuple[Call, ...]:
        """The calls that validation has not answered."""
        return tuple(call for call in self.calls if call.status is Status.VALIDATING)

    @property
    def answered_calls(self) -> tuple[Call, ...]:
        """The calls whose answers are final and have nothing before them that is not, in order (S13)."""
        return tuple(takewhile(lambda call: call.is_terminal, self.calls))

    def list_deliverable(self, *, early: bool = False) -> tuple[Call, ...]:
        """Those of them that are told. Not of a reply that is not complete, unless `early`: it may yet be discarded."""
        told = not self.discarded and (early or self.complete or self.stream is None)
        return self.answered_calls if told else ()

    @property
    def responses(self) -> tuple[Response, ...]:
        """The answers there are so far, in the order of the request (S3)."""
        return tuple(call.response for call in self.calls if call.response)


def build_batch(batch_id: str, requests: Collection[CallRequest], now: datetime) -> Batch:
    """A batch whose calls all are `validating`. Ids are the engine's own: `b2c3` is call 3 of batch 2 (S4)."""
    return extend_batch(Batch(id=batch_id), requests, now)


def extend_batch(batch: Batch, requests: Collection[CallRequest], now: datetime) -> Batch:
    """The batch with further calls. Where nothing begins any more they are cancelled with the same reason."""
    fresh = (
        Call(id=f"{batch.id}c{place}", request=request, attempt=batch.attempt, created_at=now)
        for place, request in enumerate(requests, start=len(batch.calls) + 1)
    )
    came = tuple(stop_call(call, batch.halted, now) if batch.halted else call for call in fresh)
    return batch.model_copy(update={"calls": (*batch.calls, *came)})


def complete_batch(batch: Batch) -> Batch:
    """The batch to which no further call comes."""
    return batch.model_copy(update={"complete": True})


def apply_verdicts(batch: Batch, verdicts: Mapping[str, Verdict], now: datetime) -> Batch:
    """The batch after validation of these calls. Those that have moved on meanwhile keep their state."""

    def judge(call: Call) -> Call:
        verdict = verdicts.get(call.id)
        if verdict is None or call.status is not Status.VALIDATING:
            return call
        return apply_call_verdict(call, verdict, now)

    return _update_calls(batch, judge)


def apply_decision(batch: Batch, call_id: str, decision: Decision, now: datetime) -> Batch:
    """The batch after a decision on this call that counts (`decision_checks.py` says which do)."""
    return _update_call(batch, call_id, lambda call: apply_call_decision(call, decision, now))


def apply_change(batch: Batch, call_id: str, verdict: Verdict, now: datetime) -> Batch:
    """The batch after validation has seen what a person made of a call, if that is still awaited."""
    return _update_call(batch, call_id, lambda call: apply_call_change(call, verdict, now) if call.changing else call)


def reapply_verdicts(batch: Batch, before: Batch, verdicts: Mapping[str, Verdict], now: datetime) -> Batch:
    """The batch after new verdicts on calls as they were in `before`. Those that have moved on keep their state."""

    def judge(call: Call) -> Call:
        verdict, then = verdicts.get(call.id), before.get(call.id)
        if verdict is None or then is None or has_moved_on(call, then):
            return call
        return reapply_call_verdict(call, verdict, now)

    return _update_calls(batch, judge)


def has_moved_on(call: Call, then: Call) -> bool:
    """Is a verdict on the call as it was then no longer about the call as it is?"""
    return (call.status, call.revision, call.bound, call.changing) != (
        then.status, then.revision, then.bound, then.changing,
    )  # fmt: skip


def apply_deadlines(batch: Batch, now: datetime) -> Batch:
    """The batch with the default taken wherever a deadline has passed (S28)."""
    return _update_calls(batch, lambda call: expire_call(call, now) if _is_overdue(call, now) else call)


def mark_near_deadlines(batch: Batch, now: datetime) -> Batch:
    """The batch with those marked of which the deadline is near."""

    def warn(call: Call) -> Call:
        moment = find_warning_time(call)
        return call.model_copy(update={"warned": True}) if moment and moment <= now else call

    return _update_calls(batch, warn)


def find_warning_time(call: Call) -> datetime | None:
    """When viewers are to be told that a call's deadline is near; None when never, or when they were."""
    deadline = call.confirmation.deadline if call.confirmation else None
    if call.status is not Status.AWAITING_APPROVAL or not call.deadline_at or not deadline or call.warned:
        return None
    return call.deadline_at - timedelta(seconds=deadline.warning_seconds) if deadline.warning_seconds else None


def set_editing(batch: Batch, call_id: str, editing: Editing | None) -> Batch:
    """The batch while somebody has a call open in an editor, and after."""
    return _update_call(batch, call_id, lambda call: call.model_copy(update={"editing": editing}))


def start_calls(batch: Batch, call_ids: Collection[str], now: datetime) -> Batch:
    """The batch with these scheduled calls executing."""
    return _update_calls(
        batch,
        lambda call: call.move_to(Status.EXECUTING, started_at=now) if call.id in call_ids else call,
    )


def hold_batch_call(batch: Batch, call_id: str, question: Confirmation) -> Batch:
    """With a call whose tool asks, and waits for the answer where it runs."""
    return _update_call(batch, call_id, lambda call: hold_call(call, question))


def move_to_host(batch: Batch, call_id: str, host: str | None) -> Batch:
    """With a call that lives on another host now."""

    def move(call: Call) -> Call:
        return call.model_copy(update={"bound": call.bound.model_copy(update={"host": host})}) if call.bound else call

    return _update_call(batch, call_id, move)


def apply_outcome(batch: Batch, call_id: str, outcome: ExecutionOutcome, now: datetime, *, ask: bool = False) -> Batch:
    """The batch after a tool's activity answered. Only a call at work can end so.

    `ask`: of what nobody knows, somebody is asked.
    """

    def end(call: Call) -> Call:
        if call.id != call_id or not call.is_at_work:
            return call
        if call.status is Status.SCHEDULED:  # it was answered, and ended in the same moment
            call = call.move_to(Status.EXECUTING)
        if batch.discarded:
            return discard_call(call, outcome, str(batch.halted), now)
        if batch.halted and isinstance(outcome, QuestionRaised | NeedsApprovalAgain):  # nobody is asked for it any more
            call = call if call.stopping else call.model_copy(update={"stopping": batch.halted})
        return apply_call_outcome(call, outcome, now, ask=ask)

    return _update_calls(batch, end)


def stop_calls(batch: Batch, reason: str, now: datetime, *, only: Collection[str] | None = None) -> Batch:
    """The batch after a stop of all its calls, those that are yet to come included, or of `only` these."""
    if only is not None:
        return _update_calls(batch, lambda call: stop_call(call, reason, now) if call.id in only else call)
    return _halt_batch(_update_calls(batch, lambda call: stop_call(call, reason, now)), reason)


def discard_batch(batch: Batch, reason: str, now: datetime) -> Batch:
    """The batch after the attempt that it came from failed: nothing of it begins, what runs is stopped (S12)."""
    gone = _halt_batch(_update_calls(batch, lambda call: stop_call(call, reason, now, kind=DISCARDED)), reason)
    return gone.model_copy(update={"discarded": True, "complete": True})


def interrupt_calls(batch: Batch, reason: str, now: datetime) -> Batch:
    """The batch after a user's new message: what runs and may not be interrupted finishes, the rest stops (S18)."""

    def interrupt(call: Call) -> Call:
        finishes = call.is_at_work and not call.is_asking and not may_interrupt(call)
        return call if finishes else stop_call(call, reason, now)

    return _halt_batch(_update_calls(batch, interrupt), reason)


def may_interrupt(call: Call) -> bool:
    """Does a user's new message stop this call?"""
    return call.bound is None or call.bound.tool.traits.interrupt is Interrupt.CANCEL


def _halt_batch(batch: Batch, reason: str) -> Batch:
    return batch if batch.halted else batch.model_copy(update={"halted": reason})


def withdraw_batch(batch: Batch, now: datetime) -> Batch:
    """A queued batch taken back: it never starts, nothing more comes to it, and its calls say so (S14)."""
    gone = stop_calls(batch, "The batch was withdrawn before it started", now)
    return gone.model_copy(update={"withdrawn": True, "complete": True})


def _update_calls(batch: Batch, change: Callable[[Call], Call]) -> Batch:
    return batch.model_copy(update={"calls": tuple(change(call) for call in batch.calls)})


def _update_call(batch: Batch, call_id: str, change: Callable[[Call], Call]) -> Batch:
    return _update_calls(batch, lambda call: change(call) if call.id == call_id else call)


def _is_overdue(call: Call, now: datetime) -> bool:
    """Is its deadline past? Somebody who changed it in time has answered."""
    waits = call.status is Status.AWAITING_APPROVAL and not call.changing
    return waits and call.deadline_at is not None and call.deadline_at <= now


def may_repeat(call: Call) -> bool:
    """May the engine run this call again by itself after a crash (S31)?"""
    return call.bound is not None and call.bound.tool.effect is not Effect.ONCE
