"""The transitions of one call: by a verdict, a decision, an outcome, a deadline or a stop.

Each function returns the call after a move of the table in `call.py`. The callers, `batch.py` and `decision_checks.py`,
check that the move is due. `now` is a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from pydantic import JsonValue

from holdfast.domain.approvals.approval import Actor, Confirmation, Decision, DecisionAction, Needs, QuestionAnswer
from holdfast.domain.calls.call import Call, PendingQuestion, Status
from holdfast.domain.calls.verdicts import (
    Allow,
    Ask,
    Deny,
    ExecutionOutcome,
    Failed,
    Finished,
    Lost,
    NeedsApprovalAgain,
    QuestionRaised,
    Reject,
    Stopped,
    Verdict,
)
from holdfast.domain.content import CallError, Part, Response, TextPart
from holdfast.domain.forms.validation import find_option, parse_answer
from holdfast.util.text import count_changes, shorten_text

VALUE_LIMIT = 2_000
"""Characters of one value in the description of a change."""


def describe_changes(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    """Describe each argument that differs, with its new value; empty when none does."""
    return "; ".join(_list_changes(before, after))


def _list_changes(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield f"{name} was left out"
        elif name not in before or _format_value(before[name]) != _format_value(after[name]):
            yield f"{name} is now {shorten_text(_format_value(after[name]), VALUE_LIMIT)}"


def _format_value(value: JsonValue) -> str:
    """Format a value as JSON, which tells 1 from true."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


OUTCOME_UNKNOWN: Final = "outcome_unknown"
DISCARDED = "discarded"
QUESTIONS_LIMIT = 100
"""The number of questions that one call may ask."""
RUNTIME = Actor(kind="runtime", name="deadline")


def apply_call_verdict(call: Call, verdict: Verdict, now: datetime) -> Call:
    """Apply the verdict of the first validation."""
    match verdict:
        case Allow():
            found = _bind_call(call, verdict)
            return found.move_to(Status.SCHEDULED, grant=verdict.grant, actor=_find_actor(verdict), diff=verdict.diff)
        case Ask():
            return _ask_anew(_bind_call(call, verdict), verdict, now)
        case Deny():
            call = call.model_copy(update={"rule": verdict.rule, "actor": _find_actor(verdict), "diff": verdict.diff})
            if verdict.actor and verdict.actor.kind == "person":
                return cancel_call(call, "refused", verdict.message, now)
            return end_call(call, Status.ERROR, now, error=CallError(type="denied", message=verdict.message))
        case Reject():
            return end_call(call, Status.ERROR, now, error=verdict.error)
    assert_never(verdict)


def reapply_call_verdict(call: Call, verdict: Verdict, now: datetime) -> Call:
    """Apply a new verdict after a grant, the mode or the context has changed.

    A call that would be asked about again stays as it is. So does one that could not be validated this time: the
    executing worker validates it again before it runs.
    """
    asked = call.status is Status.AWAITING_APPROVAL
    same = call.bound is not None and isinstance(verdict, Ask) and verdict.bound.digest == call.bound.digest
    if isinstance(verdict, Reject) or (asked and same):
        return call
    if isinstance(verdict, Allow) and not asked:
        answered = {"grant": verdict.grant, "actor": _find_actor(verdict), "diff": verdict.diff}
        return _bind_call(call, verdict).model_copy(update=answered)
    return apply_call_verdict(call, verdict, now)


def apply_call_decision(call: Call, decision: Decision, now: datetime) -> Call:
    """Apply a valid decision of a person. A change of the arguments is first validated (`apply_call_change`)."""
    if decision.has_changes:
        return call.model_copy(update={"changing": decision, "problem": None})
    who = decision.by or "somebody"
    call = call.model_copy(update={"decision": decision, "actor": Actor(kind="person", name=who), "editing": None})
    unknown = call.confirmation is not None and call.confirmation.kind == OUTCOME_UNKNOWN
    if call.is_asking:
        return _resume_call(call, decision)
    match decision.outcome:
        case DecisionAction.CANCEL if unknown:
            note = f": {decision.note}" if decision.note else ""
            known = call.confirmation.question if call.confirmation else None
            message = f"{known or 'It is unknown whether the call took effect.'}\n\n{who} took it as failed{note}"
            return end_call(call, Status.ERROR, now, error=CallError(type=OUTCOME_UNKNOWN, message=message))
        case DecisionAction.RESPOND:
            return end_call(call, Status.SUCCESS, now, parts=(TextPart(text=decision.content or ""),))
        case DecisionAction.CANCEL:
            note = f": {decision.note}" if decision.note else ""
            return cancel_call(call, "refused", f"Refused by {who}{note}", now)
    approvals = (*call.approvals, decision)
    if call.confirmation and len(approvals) < call.confirmation.needs.approvals:
        return call.model_copy(update={"approvals": approvals})
    return call.move_to(Status.SCHEDULED, approvals=approvals, run=call.run + unknown, problem=None)


def apply_call_change(call: Call, verdict: Verdict, now: datetime) -> Call:
    """Apply the verdict on a person's change of the arguments (S25). A rejected change leaves the call as it was."""
    decision = call.changing
    assert decision, "only a call that is being changed gets here"
    assert call.bound, "only a call that was validated is changed"
    if isinstance(verdict, Deny | Reject):
        problem = verdict.error.message if isinstance(verdict, Reject) else verdict.message
        return call.model_copy(update={"changing": None, "problem": problem})
    shown = call.bound.arguments
    changed = call.model_copy(
        update={
            "bound": verdict.bound,
            "rule": verdict.rule,
            "diff": verdict.diff if isinstance(verdict, Allow) else None,
            "changing": None,
            "problem": None,
            "editing": None,
            "original": call.original if call.original is not None else shown,
            "changed_by": tuple(dict.fromkeys((*call.changed_by, decision.by or "somebody"))),
        }
    )
    if isinstance(verdict, Ask) and (decision.outcome is DecisionAction.MODIFY or _needs_more_approval(verdict)):
        return _ask_anew(changed, verdict, now)
    if decision.outcome is DecisionAction.MODIFY:
        return changed.move_to(Status.SCHEDULED, actor=_find_actor(verdict))
    if isinstance(verdict, Ask):
        changed = changed.model_copy(update={"confirmation": verdict.confirmation})
    actor = Actor(kind="person", name=decision.by or "somebody")
    return changed.move_to(Status.SCHEDULED, decision=decision, approvals=(decision,), shown=shown, actor=actor)


def _needs_more_approval(verdict: Ask) -> bool:
    """Is another approval needed beside that of the person who changed it, by a rule, or because hooks rewrote it?"""
    return verdict.confirmation.needs != Needs() or bool(verdict.bound.rewritten_by)


def expire_call(call: Call, now: datetime) -> Call:
    """Apply the default of the approval deadline, in the name of the runtime (S28)."""
    deadline = call.confirmation.deadline if call.confirmation else None
    call = call.model_copy(update={"actor": RUNTIME, "expired": True, "changing": None, "editing": None})
    if deadline and deadline.default == "allow":
        return call.move_to(Status.SCHEDULED)
    error = CallError(type="expired", message="Nobody answered before the deadline, so the call was not run")
    return end_call(call, Status.ERROR, now, error=error, **_keep_diff(call))


def apply_call_outcome(call: Call, outcome: ExecutionOutcome, now: datetime, *, ask: bool = False) -> Call:
    """Apply the result of its activity. With `ask`, a person is asked about an unknown outcome (S31)."""
    if isinstance(outcome, Finished | Failed) and outcome.attempts > 1:
        call = call.model_copy(update={"attempts": outcome.attempts})
    match outcome:
        case Finished(result=result):
            return end_call(call, Status.SUCCESS, now, parts=result.parts, display=result.display)
        case Stopped():
            reason = ". ".join(filter(None, (call.stopping, outcome.reason))) or "The call was stopped"
            return cancel_call(call, "cancelled", reason, now, outcome.parts)
        case Failed() if call.stopping:
            return cancel_call(call, "cancelled", call.stopping, now, outcome.parts)
        case Failed():
            return end_call(call, Status.ERROR, now, parts=outcome.parts, error=outcome.error)
        case QuestionRaised() if call.stopping:
            return cancel_call(call, "cancelled", call.stopping, now)
        case QuestionRaised():
            return _ask_question(call, outcome, now)
        case Lost() if call.stopping:
            reason = f"{call.stopping}; its worker was lost before it answered, so it may have taken effect"
            return cancel_call(call, "cancelled", reason, now, outcome.parts)
        case Lost(repeatable=False) if ask:
            return _ask_unknown(call, outcome)
        case Lost():
            kind = "worker_lost" if outcome.repeatable else OUTCOME_UNKNOWN
            error = CallError(type=kind, message=outcome.message)
            return end_call(call, Status.ERROR, now, parts=outcome.parts, error=error)
        case NeedsApprovalAgain() if call.stopping:
            return cancel_call(call, "cancelled", call.stopping, now)
        case NeedsApprovalAgain(verdict=Allow()):
            error = CallError(type="not_covered", message="The worker refused to run a call that its own policy allows")
            return end_call(call, Status.ERROR, now, error=error)
        case NeedsApprovalAgain():
            return apply_call_verdict(call, outcome.verdict, now)
    assert_never(outcome)


def stop_call(call: Call, reason: str, now: datetime, *, kind: str = "cancelled") -> Call:
    """Stop a call: one that has not started is cancelled at once, a running one is marked and ends when it stops."""
    if call.is_terminal:
        return call
    if call.is_running:
        return call if call.stopping else call.model_copy(update={"stopping": reason})
    return cancel_call(call, kind, reason + _describe_leftover(call), now)


def discard_call(call: Call, outcome: ExecutionOutcome, reason: str, now: datetime) -> Call:
    """Cancel a call whose attempt was discarded while it ran, whatever its outcome (S12)."""
    match outcome:
        case Finished():
            return cancel_call(call, DISCARDED, f"{reason}; it had finished", now, outcome.result.parts)
        case Lost(repeatable=False):
            why = f"{reason}; its worker was lost before it answered, so it may have taken effect"
            return cancel_call(call, DISCARDED, why, now, outcome.parts)
        case Failed() | Stopped() | Lost():
            return cancel_call(call, DISCARDED, reason, now, outcome.parts)
        case _:
            return cancel_call(call, DISCARDED, reason, now)


def _describe_leftover(call: Call) -> str:
    """Describe, for a stopped call that awaits approval, that it has already started or may have taken effect."""
    if call.confirmation and call.confirmation.kind == OUTCOME_UNKNOWN:
        return ". It may have taken effect: its outcome is unknown, and nobody had decided about it yet"
    return ". It had begun, and waited for a person" if call.started_at else ""


def end_call(
    call: Call,
    status: Status,
    now: datetime,
    *,
    parts: tuple[Part, ...] = (),
    display: str | None = None,
    changes: str | None = None,
    error: CallError | None = None,
) -> Call:
    """End a call with its one response."""
    shown = call.confirmation.model_copy(update={"current": None}) if call.confirmation else None
    response = Response.model_validate(
        {
            "call_id": call.id,
            "model_id": call.request.id,
            "tool": call.tool,
            "status": status.value,
            "parts": parts,
            "display": display,
            "changes": changes,
            "error": error,
            "note": _describe_replacements(call),
        }
    )
    over = dict.fromkeys(("stopping", "changing", "editing", "pause", "diff"))
    return call.move_to(status, ended_at=now, response=response, confirmation=shown, **over)


def cancel_call(call: Call, kind: str, reason: str, now: datetime, parts: tuple[Part, ...] = ()) -> Call:
    """End a call as cancelled. The diff of what it would have changed stays in the response (S26)."""
    error = CallError(type=kind, message=reason)
    return end_call(call, Status.CANCELLED, now, parts=parts, error=error, **_keep_diff(call))


def _keep_diff(call: Call) -> dict[str, Any]:
    """Return the `display` and `changes` of a call that did not run; empty when it has no diff."""
    diff = call.diff or (call.confirmation.diff if call.confirmation else None)
    return {"display": diff, "changes": count_changes(diff.split("\n"))} if diff else {}


def _bind_call(call: Call, verdict: Allow | Ask) -> Call:
    """Set the bound call of a verdict. The record of what hooks rewrote before stays."""
    bound, before = verdict.bound, call.bound
    if before and before.rewritten_by and not bound.rewritten_by:
        bound = bound.model_copy(update={"given": before.given, "rewritten_by": before.rewritten_by})
    return call.model_copy(update={"bound": bound, "rule": verdict.rule})


def _ask_anew(call: Call, verdict: Ask, now: datetime) -> Call:
    """Ask about a call with a new revision. Earlier decisions no longer count."""
    deadline = verdict.confirmation.deadline
    fresh: dict[str, Any] = {**dict.fromkeys(("decision", "grant", "actor", "shown", "diff")), "approvals": ()}
    return call.move_to(
        Status.AWAITING_APPROVAL,
        pause=None,
        confirmation=verdict.confirmation,
        revision=call.revision + 1,
        deadline_at=now + timedelta(seconds=deadline.seconds) if deadline else None,
        warned=False,
        expired=False,
        **fresh,
    )


def _ask_unknown(call: Call, outcome: Lost) -> Call:
    """Ask what to do about a call of unknown outcome: run it again, or take it as done or as failed."""
    assert call.bound, "only a call that was validated runs"
    shown = call.confirmation or Confirmation(kind="info", title=call.bound.title)
    output = "\n".join(part.text for part in outcome.parts)
    question = f"{outcome.message}\n\n{output}" if output else outcome.message
    asked = shown.model_copy(
        update={
            "kind": OUTCOME_UNKNOWN,
            "question": question,
            "offers": (),
            "edits": None,
            "deadline": None,
            "current": None,
        }
        | {"title": call.bound.title, "arguments": call.bound.arguments, "reason": None}
    )
    fresh: dict[str, Any] = {"decision": None, "approvals": (), "grant": None, "actor": None, "shown": None}
    return call.move_to(
        Status.AWAITING_APPROVAL,
        confirmation=asked,
        revision=call.revision + 1,
        problem=outcome.message,
        pause=None,
        deadline_at=None,
        warned=False,
        expired=False,
        **fresh,
    )


def _ask_question(call: Call, outcome: QuestionRaised, now: datetime) -> Call:
    """Ask the question of a tool that ended to ask it. The approvals of the call stay valid."""
    times = call.pause.times + 1 if call.pause else 1
    if times > QUESTIONS_LIMIT:
        error = CallError(type="asks_too_much", message=f"The tool asked {times} questions in one call; it was ended")
        return end_call(call, Status.ERROR, now, error=error)
    return _await_answer(
        call, outcome.question, PendingQuestion(state=outcome.state, times=times, run=_find_approved_run(call))
    )


def hold_call(call: Call, question: Confirmation) -> Call:
    """Ask the question of a tool that waits for the answer. The question of a later attempt replaces it."""
    times = call.pause.times + 1 if call.pause else 1
    return _await_answer(call, question, PendingQuestion(held=True, times=times, run=_find_approved_run(call)))


def _find_approved_run(call: Call) -> int:
    """Return the `run` that the approvals cover. Later ones are covered by the answers to questions."""
    return call.pause.run if call.pause else call.run


def _await_answer(call: Call, question: Confirmation, pause: PendingQuestion) -> Call:
    return call.move_to(
        Status.AWAITING_APPROVAL,
        confirmation=question,
        revision=call.revision + 1,
        pause=pause,
        deadline_at=None,
        warned=False,
    )


def _resume_call(call: Call, decision: Decision) -> Call:
    """Apply the answer to a question, a refusal to answer included: the call goes on with it."""
    assert call.pause, "only a call that asked is answered"
    assert call.confirmation, "it asked something"
    held = call.pause.held
    answer = read_answer(call.confirmation, decision)
    pause = call.pause.model_copy(update={"answer": answer, "question": None if held else call.confirmation})
    return call.move_to(Status.SCHEDULED, pause=pause, run=call.run if held else call.run + 1)


def read_answer(asked: Confirmation, decision: Decision) -> QuestionAnswer:
    """Convert a decision to the answer for the tool. ValueError when it does not fit the form of the question."""
    if decision.outcome is DecisionAction.CANCEL:
        return QuestionAnswer(action="decline", text=decision.note or "", decision=decision)
    text = decision.content or ""
    fields = parse_answer(asked.form, text) if asked.form is not None else {}
    text = find_option(asked.options, text) or text
    return QuestionAnswer(action="accept", text=text, fields=fields, decision=decision)


def _find_actor(verdict: Allow | Ask | Deny) -> Actor:
    return verdict.actor or Actor(kind="policy", name=verdict.rule)


def _describe_replacements(call: Call) -> str | None:
    """Describe for the model what people and hooks changed, so that it knows which arguments ran."""
    bound = call.bound
    if bound is None:
        return None
    hooks = [f"the hook {name!r}" for name in bound.rewritten_by]
    before = call.original if call.original is not None else bound.given
    changes = describe_changes(before, bound.arguments) if before is not None else ""
    return (
        f"{' and '.join([*call.changed_by, *hooks])} changed the arguments of this call: {changes}" if changes else None
    )
