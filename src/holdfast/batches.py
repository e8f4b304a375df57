"""A batch of calls and everything that can happen to it, as pure functions.

    ready?      startable?      judged      decided      begun      ended      stopped

Each takes a batch and returns a new one; none knows of Temporal, time or I/O (`now` is handed in). What is
terminal stays as it is, so duplicates and late arrivals change nothing (S1). Order is the order of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import assert_never

from holdfast.approvals import ApprovalId, Decision, Outcome
from holdfast.calls import Call, CallRequest, Status
from holdfast.content import CallError, Part, Response, TextPart
from holdfast.errors import BadInput, DecisionRefused
from holdfast.model import Data
from holdfast.tools import Effect
from holdfast.verdicts import (
    Allow,
    Ask,
    CallOutcome,
    Deny,
    Failed,
    Finished,
    Lost,
    Reconsider,
    Reject,
    Stopped,
    Verdict,
)

MAX_EXECUTING = 50
"""Calls of one batch that run at once: bounds what one workflow task schedules."""


class Batch(Data):
    """The calls of one model reply, or of one submission."""

    id: str
    calls: tuple[Call, ...] = ()
    withdrawn: bool = False

    def __len__(self) -> int:
        return len(self.calls)

    def get(self, call_id: str) -> Call | None:
        """The call with this id."""
        return next((call for call in self.calls if call.id == call_id), None)

    @property
    def done(self) -> bool:
        """Has every call ended?"""
        return all(call.terminal for call in self.calls)

    @property
    def ready(self) -> bool:
        """May execution begin? All calls are scheduled or ended, or some have already begun (S9)."""
        return any(call.started_at for call in self.calls) or all(
            call.terminal or call.status is Status.SCHEDULED for call in self.calls
        )

    @property
    def waiting(self) -> tuple[Call, ...]:
        """The calls a person has to say something about."""
        return tuple(call for call in self.calls if call.status is Status.AWAITING_APPROVAL)

    @property
    def responses(self) -> tuple[Response, ...]:
        """The answers there are so far, in the order of the request (S3, S13)."""
        return tuple(call.response for call in self.calls if call.response)


def new_batch(batch_id: str, requests: Collection[CallRequest], now: datetime) -> Batch:
    """A batch whose calls all are `validating`. Ids are the engine's own: `b2c3` is call 3 of batch 2 (S4)."""
    return Batch(
        id=batch_id,
        calls=tuple(
            Call(id=f"{batch_id}c{place}", request=request, created_at=now)
            for place, request in enumerate(requests, start=1)
        ),
    )


def startable(batch: Batch, limit: int = MAX_EXECUTING) -> tuple[Call, ...]:
    """Which scheduled calls may begin now, in order (S9, S10).

    A call may begin when nothing executes, or when it and everything executing is concurrency-safe. One that may not
    begin yet and is not safe holds back the ones behind it.
    """
    if not batch.ready:
        return ()
    executing = [call for call in batch.calls if call.status is Status.EXECUTING]
    taken: list[Call] = []
    for call in batch.calls:
        if call.terminal or call.status is Status.EXECUTING:
            continue
        beside = [*executing, *taken]
        safe = _safe(call)
        if len(beside) >= limit:
            break
        if call.status is Status.SCHEDULED and (not beside or (safe and all(map(_safe, beside)))):
            taken.append(call)
        elif not safe:
            break
    return tuple(taken)


def judged(batch: Batch, verdicts: Mapping[str, Verdict], now: datetime) -> Batch:
    """The batch after validation of these calls. Those that have moved on meanwhile keep their state."""

    def judge(call: Call) -> Call:
        verdict = verdicts.get(call.id)
        if verdict is None or call.status is not Status.VALIDATING:
            return call
        return _apply_verdict(call, verdict, now)

    return _each(batch, judge)


def check_decision(batch: Batch, turn_id: str, decision: Decision) -> Call:
    """The call a decision is for, or DecisionRefused with the reason (S22). Changes nothing."""
    approval = _parse(decision.approval_id)
    call = batch.get(approval.call) if approval.turn == turn_id else None
    if call is None:
        raise DecisionRefused("unknown_approval", f"nothing here is called {decision.approval_id!r}")
    if call.status is not Status.AWAITING_APPROVAL:
        raise DecisionRefused("not_waiting", f"call {call.id!r} does not wait for a decision: it is {call.status}")
    if approval.revision > call.revision:
        raise DecisionRefused("unknown_approval", f"call {call.id!r} was asked about {call.revision} times only")
    if approval.revision != call.revision:
        raise DecisionRefused(
            "old_revision",
            f"approval {decision.approval_id!r} was replaced; look at revision {call.revision} and decide on that",
        )
    if call.bound is None or decision.digest != call.bound.digest:
        raise DecisionRefused(
            "other_digest", f"the decision names another digest than approval {decision.approval_id!r} carries"
        )
    if decision.outcome is Outcome.RESPOND and not decision.content:
        raise DecisionRefused("no_content", "to respond in the tool's place, give the response as `content`")
    _check_answer(call, decision)
    return call


def _check_answer(call: Call, decision: Decision) -> None:
    """A question wants an answer, and one of its options when it takes no other."""
    shown = call.confirmation
    if shown is None or shown.kind != "question":
        return
    if decision.outcome is Outcome.PROCEED_ONCE:
        raise DecisionRefused("needs_answer", "this is a question: it wants `respond`, with the answer as `content`")
    if decision.outcome is Outcome.RESPOND and not shown.other and decision.content not in shown.options:
        raise DecisionRefused("not_an_option", f"the answer must be one of: {', '.join(map(repr, shown.options))}")


def decided(batch: Batch, turn_id: str, decision: Decision, now: datetime) -> Batch:
    """The batch after a person's decision; DecisionRefused when it does not count."""
    chosen = check_decision(batch, turn_id, decision)

    def decide(call: Call) -> Call:
        if call.id != chosen.id:
            return call
        call = call.model_copy(update={"decision": decision})
        who = decision.by or "somebody"
        match decision.outcome:
            case Outcome.PROCEED_ONCE:
                return call.to(Status.SCHEDULED)
            case Outcome.RESPOND:
                answer = TextPart(text=decision.content or "")
                return _end(call, Status.SUCCESS, now, parts=(answer,))
            case Outcome.CANCEL:
                note = f": {decision.note}" if decision.note else ""
                return _cancel(call, "refused", f"Refused by {who}{note}", now)
        assert_never(decision.outcome)

    return _each(batch, decide)


def begun(batch: Batch, call_ids: Collection[str], now: datetime) -> Batch:
    """The batch with these scheduled calls executing."""
    return _each(
        batch,
        lambda call: call.to(Status.EXECUTING, started_at=now) if call.id in call_ids else call,
    )


def ended(batch: Batch, call_id: str, outcome: CallOutcome, now: datetime) -> Batch:
    """The batch after a tool's activity answered. Only a call that executes can end so."""

    def end(call: Call) -> Call:
        if call.id != call_id or call.status is not Status.EXECUTING:
            return call
        return _apply_outcome(call, outcome, now)

    return _each(batch, end)


def stopped(batch: Batch, reason: str, now: datetime, *, only: Collection[str] | None = None) -> Batch:
    """The batch after a stop. What has not begun is cancelled at once; what runs is marked, and ends by itself."""

    def stop(call: Call) -> Call:
        if call.terminal or (only is not None and call.id not in only):
            return call
        if call.status is Status.EXECUTING:
            return call if call.stopping else call.model_copy(update={"stopping": reason})
        return _cancel(call, "cancelled", reason, now)

    return _each(batch, stop)


def withdrawn(batch: Batch, now: datetime) -> Batch:
    """A queued batch taken back: it never starts, and its calls say so (S14)."""
    return stopped(batch, "The batch was withdrawn before it started", now).model_copy(update={"withdrawn": True})


def _apply_verdict(call: Call, verdict: Verdict, now: datetime) -> Call:
    match verdict:
        case Allow():
            return call.to(Status.SCHEDULED, bound=verdict.bound, rule=verdict.rule)
        case Ask():
            return call.to(
                Status.AWAITING_APPROVAL,
                bound=verdict.bound,
                rule=verdict.rule,
                confirmation=verdict.confirmation,
                revision=call.revision + 1,
                decision=None,
            )
        case Deny():
            call = call.model_copy(update={"rule": verdict.rule})
            return _end(call, Status.ERROR, now, error=CallError(type="denied", message=verdict.message))
        case Reject():
            return _end(call, Status.ERROR, now, error=verdict.error)
    assert_never(verdict)


def _apply_outcome(call: Call, outcome: CallOutcome, now: datetime) -> Call:
    match outcome:
        case Finished(result=result):
            return _end(call, Status.SUCCESS, now, parts=result.parts, display=result.display)
        case Stopped():
            reason = ". ".join(filter(None, (call.stopping, outcome.reason))) or "The call was stopped"
            return _cancel(call, "cancelled", reason, now, outcome.parts)
        case Failed() if call.stopping:
            return _cancel(call, "cancelled", call.stopping, now, outcome.parts)
        case Failed():
            return _end(call, Status.ERROR, now, parts=outcome.parts, error=outcome.error)
        case Lost() if call.stopping:
            reason = f"{call.stopping}; its worker was lost before it answered, so it may have taken effect"
            return _cancel(call, "cancelled", reason, now, outcome.parts)
        case Lost():
            kind = "worker_lost" if outcome.repeatable else "outcome_unknown"
            error = CallError(type=kind, message=outcome.message)
            return _end(call, Status.ERROR, now, parts=outcome.parts, error=error)
        case Reconsider() if call.stopping:
            return _cancel(call, "cancelled", call.stopping, now)
        case Reconsider(verdict=Allow()):
            error = CallError(type="not_covered", message="The worker refused to run a call it would itself allow")
            return _end(call, Status.ERROR, now, error=error)
        case Reconsider():
            return _apply_verdict(call, outcome.verdict, now)
    assert_never(outcome)


def _end(
    call: Call,
    status: Status,
    now: datetime,
    *,
    parts: tuple[Part, ...] = (),
    display: str | None = None,
    error: CallError | None = None,
) -> Call:
    response = Response.model_validate(
        {
            "call_id": call.id,
            "model_id": call.request.id,
            "tool": call.tool,
            "status": status.value,
            "parts": parts,
            "display": display,
            "error": error,
        }
    )
    return call.to(status, ended_at=now, response=response, stopping=None)


def _cancel(call: Call, kind: str, reason: str, now: datetime, parts: tuple[Part, ...] = ()) -> Call:
    diff = call.confirmation.diff if call.confirmation else None
    return _end(
        call,
        Status.CANCELLED,
        now,
        parts=parts,
        display=diff,
        error=CallError(type=kind, message=reason),
    )


def _safe(call: Call) -> bool:
    return call.bound is not None and call.bound.concurrency_safe


def _each(batch: Batch, change: Callable[[Call], Call]) -> Batch:
    return batch.model_copy(update={"calls": tuple(change(call) for call in batch.calls)})


def _parse(approval_id: str) -> ApprovalId:
    try:
        return ApprovalId.parse(approval_id)
    except BadInput as error:
        raise DecisionRefused("unknown_approval", str(error)) from error


def may_repeat(call: Call) -> bool:
    """May the engine run this call again by itself after a crash (S31)?"""
    return call.bound is not None and call.bound.tool.effect is not Effect.ONCE
