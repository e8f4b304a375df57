"""The story of a call: its record in the turn, with who sent its decisions and which workers ran it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue, ValidationError

from holdfast.domain.approvals.approval import ApprovalId, Approver, Decision
from holdfast.domain.approvals.signing import check_signature
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.events import Event
from holdfast.domain.content import BlobPart, TextPart
from holdfast.domain.turn.turn_state import TurnState
from holdfast.errors import BadInput, DecisionRefused
from holdfast.workers.audit.read.examined_run import ExaminedRun
from holdfast.workers.audit.read.history_facts import Attempt, HistoryFacts, Message
from holdfast.workers.audit.read.recorder import DECIDE
from holdfast.workers.audit.timeline.timeline import AttemptStory, CallStory, MessageStory, QuestionStory

_AWAITING_APPROVAL = Status.AWAITING_APPROVAL.value


def build_call_stories(
    state: TurnState, facts: HistoryFacts, decisions: Mapping[str, list[MessageStory]]
) -> list[CallStory]:
    """Build the stories of all calls in one run of a turn."""
    batches = [*state.queue.started_batches, *state.queue.queued]
    batches.sort(key=lambda batch: int(batch.id.removeprefix("b")))
    events: dict[str, list[Event]] = {}
    for event in state.log.events:
        if event.call and event.kind == "call":
            events.setdefault(event.call, []).append(event)
    return [
        _build_story(call, batch, place, events.get(call.id, []), decisions.get(call.id, []), facts)
        for batch in batches
        for place, call in enumerate(batch.calls, start=1)
    ]


def _build_story(
    call: Call, batch: Batch, place: int, events: list[Event], decisions: list[MessageStory], facts: HistoryFacts
) -> CallStory:
    bound, shown, response = call.bound, call.confirmation, call.response
    questions = tuple(list_questions(events, facts.ended if facts.how != "continued" else None))
    verdict, rule = _find_verdict(events)
    began = [event.at for event in events if event.after == Status.EXECUTING.value]
    return CallStory(
        id=call.id,
        batch=batch.id,
        place=place,
        of=len(batch.calls),
        tool=call.tool,
        server=bound.tool.server if bound else None,
        title=bound.title if bound else "",
        effect=bound.tool.effect.value if bound else None,
        definition=bound.tool.definition if bound else None,
        status=call.status.value,
        verdict=verdict,
        rule=rule,
        settled_by=call.rule if call.rule != rule else None,
        reason=shown.reason if shown else None,
        requested=call.request.arguments,
        arguments=bound.arguments if bound else None,
        changes=diff_arguments(call.request.arguments, bound.arguments) if bound else None,
        changed_by=(*call.changed_by, *(f"hook {name}" for name in (bound.rewritten_by if bound else ()))),
        digest=bound.digest if bound else None,
        shown=shown.model_dump(mode="json", exclude_defaults=True) if shown else {},
        questions=questions,
        decisions=tuple(decisions),
        decided_by=str(call.actor) if call.actor else None,
        grant=call.grant,
        created=call.created_at,
        began=call.started_at or (began[0] if began else None),
        ended=call.ended_at,
        waited_seconds=sum(question.seconds or 0 for question in questions),
        ran_seconds=call.execution_time.total_seconds() if call.execution_time is not None else None,
        duration_seconds=call.duration.total_seconds() if call.duration is not None else None,
        attempts=tuple(map(build_attempt, facts.list_attempts(call.id))),
        error=f"{call.error.type}: {call.error.message}" if call.error else None,
        result=response.text if response else "",
        display=response.display if response else None,
        outputs=tuple(_list_outputs(call)),
    )


def _find_verdict(events: Sequence[Event]) -> tuple[str, str | None]:
    """The first verdict of validation and its rule; empty for a call that was never judged."""
    first = next((event for event in events if event.before == Status.VALIDATING.value), None)
    if first is None:
        return "", None
    verdicts = {
        _AWAITING_APPROVAL: "ask",
        Status.SCHEDULED.value: "allow",
        Status.ERROR.value: "deny" if first.rule else "reject",
    }
    return verdicts.get(first.after, "deny" if first.rule else ""), first.rule


def list_questions(events: Iterable[Event], ended: datetime | None = None) -> list[QuestionStory]:
    """List each time a call waited for a person, by its events; at the latest until its turn `ended`."""
    found: list[QuestionStory] = []
    for event in events:
        if (
            found
            and found[-1].until is None
            and (event.after != _AWAITING_APPROVAL or event.approval_id != found[-1].approval)
        ):
            found[-1] = _end_question(found[-1], event.at)
        if event.after == _AWAITING_APPROVAL and event.approval_id and (not found or found[-1].until is not None):
            asked = QuestionStory(approval=event.approval_id, at=event.at, asks=event.asks or "", digest=event.digest)
            found.append(asked)
    return [_end_question(one, ended) if ended and one.until is None else one for one in found]


def _end_question(question: QuestionStory, at: datetime) -> QuestionStory:
    return question.model_copy(update={"until": at, "seconds": (at - question.at).total_seconds()})


def build_attempt(attempt: Attempt) -> AttemptStory:
    """Build the story of an attempt."""
    seconds = (attempt.ended - attempt.started).total_seconds() if attempt.ended and attempt.started else None
    return AttemptStory(
        worker=attempt.worker,
        number=attempt.number or 1,
        scheduled=attempt.scheduled,
        began=attempt.started,
        ended=attempt.ended,
        seconds=seconds,
        how="not taken up" if attempt.is_untaken else attempt.how or "not ended",
        why=attempt.why,
        before=attempt.before,
        event=attempt.event,
    )


def list_run_decisions(examined: ExaminedRun) -> list[MessageStory]:
    """List the decisions that a run received, whether each counted, and whether its signature holds."""
    replayable = not examined.break_reasons
    deliveries = examined.replayed.recording.deliveries
    found: list[MessageStory] = []
    signals = 0
    for message in examined.facts.messages:
        if message.name == DECIDE:
            counted = deliveries.has_counted(message, signals) if replayable else message.refused is None
            found.append(build_decision(message, counted, examined.validation.approvers_at(message.event)))
            signals += message.how == "signal"
    return found


def find_call(decision: MessageStory) -> str | None:
    """Return the call that a decision names, if it does."""
    try:
        call = ApprovalId.parse(decision.approval).call
    except BadInput:
        return None
    return call if _CALL.fullmatch(call) else None


_CALL = re.compile(r"b\d{1,9}c\d{1,9}")


def build_decision(message: Message, is_counted: bool, approvers: Sequence[Approver]) -> MessageStory:
    """Build the story of a decision as it was sent."""
    body: Mapping[str, Any] = message.body if isinstance(message.body, dict) else {}
    common: dict[str, Any] = {
        "at": message.at,
        "how": message.how,
        "identity": message.identity,
        "event": message.event,
        "details": _drop_empty(body),
    }
    try:
        decision = Decision.model_validate(body)
    except ValidationError:
        return MessageStory(outcome="not a decision", counted=False, **common)
    return MessageStory(
        outcome=decision.outcome.value,
        by=decision.by,
        signature=_describe_signature(decision, approvers, message.at),
        key=decision.signer,
        approval=decision.approval_id,
        digest=decision.digest,
        note=decision.note,
        counted=is_counted,
        **common,
    )


def _drop_empty(body: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {str(name): value for name, value in body.items() if value not in (None, False, "")}


def _describe_signature(decision: Decision, approvers: Sequence[Approver], at: datetime) -> str:
    if decision.signature is None:
        return "none"
    if not any(approver.key for approver in approvers):
        return "not checked: the worker knew no keys"
    try:
        check_signature(decision, approvers, at)
    except DecisionRefused as refusal:
        return f"does not hold: {refusal}"
    return "valid"


def diff_arguments(before: JsonValue, after: JsonValue) -> str | None:
    """Return a diff of arguments, value by value; None when they are equal."""
    if before == after:
        return None
    old, new = _format_lines(before), _format_lines(after)
    lines = difflib.unified_diff(old, new, "as asked for", "as it ran", lineterm="", n=2)
    return "\n".join(lines) or None


def _format_lines(value: JsonValue) -> list[str]:
    """Arguments as lines, with a multi-line text line by line."""
    if not isinstance(value, dict):
        return [json.dumps(value, ensure_ascii=False)]
    lines: list[str] = []
    for name, one in value.items():
        if isinstance(one, str) and "\n" in one:
            lines += [f"{name}:", *(f"  {line}" for line in one.split("\n"))]
        else:
            lines.append(f"{name}: {json.dumps(one, ensure_ascii=False)}")
    return lines


def _list_outputs(call: Call) -> Iterable[str]:
    parts = call.response.parts if call.response else ()
    return (part.whole for part in parts if isinstance(part, TextPart | BlobPart) and part.whole)
