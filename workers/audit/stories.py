"""A call's story: its record as the turn kept it, beside what the history says of who sent and who ran what."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue, ValidationError

from holdfast.approvals import ApprovalId, Decision
from holdfast.approvers import Approver
from holdfast.batches import Batch
from holdfast.calls import Call, Status
from holdfast.content import BlobPart, TextPart
from holdfast.errors import BadInput, DecisionRefused
from holdfast.events import Event
from holdfast.signing import check_signed
from holdfast.state import TurnState
from holdfast.workers.audit.counting import Deliveries
from holdfast.workers.audit.facts import Attempt, Facts, Message
from holdfast.workers.audit.judged import Judged
from holdfast.workers.audit.replaying import DECIDE
from holdfast.workers.audit.timeline import Attempted, CallStory, Question, Said

_WAITING = Status.AWAITING_APPROVAL.value


def calls_of(state: TurnState, facts: Facts, decisions: Mapping[str, list[Said]]) -> list[CallStory]:
    """Every call of one run of a turn, with what was said of it."""
    batches = [*state.done, *([state.active] if state.active else []), *state.queue]
    batches.sort(key=lambda batch: int(batch.id.removeprefix("b")))
    events: dict[str, list[Event]] = {}
    for event in state.events:
        if event.call and event.kind == "call":
            events.setdefault(event.call, []).append(event)
    return [
        _story(call, batch, place, events.get(call.id, []), decisions.get(call.id, []), facts)
        for batch in batches
        for place, call in enumerate(batch.calls, start=1)
    ]


def _story(call: Call, batch: Batch, place: int, events: list[Event], said: list[Said], facts: Facts) -> CallStory:
    bound, shown, response = call.bound, call.confirmation, call.response
    questions = tuple(questions_of(events, facts.ended if facts.how != "continued" else None))
    verdict, rule = _verdict(events)
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
        changes=changes_between(call.request.arguments, bound.arguments) if bound else None,
        changed_by=(*call.changed_by, *(f"hook {name}" for name in (bound.rewritten_by if bound else ()))),
        digest=bound.digest if bound else None,
        shown=shown.model_dump(mode="json", exclude_defaults=True) if shown else {},
        questions=questions,
        decisions=tuple(said),
        decided_by=str(call.actor) if call.actor else None,
        grant=call.grant,
        created=call.created_at,
        began=call.started_at or (began[0] if began else None),
        ended=call.ended_at,
        waited_seconds=sum(question.seconds or 0 for question in questions),
        ran_seconds=call.execution.total_seconds() if call.execution is not None else None,
        duration_seconds=call.duration.total_seconds() if call.duration is not None else None,
        attempts=tuple(map(attempted, facts.of_call(call.id))),
        error=f"{call.error.type}: {call.error.message}" if call.error else None,
        result=response.text if response else "",
        display=response.display if response else None,
        outputs=tuple(_outputs(call)),
    )


def _verdict(events: Sequence[Event]) -> tuple[str, str | None]:
    """What validation said first, and by which rule; nothing of a call that was never judged."""
    first = next((event for event in events if event.before == Status.VALIDATING.value), None)
    if first is None:
        return "", None
    said = {_WAITING: "ask", Status.SCHEDULED.value: "allow", Status.ERROR.value: "deny" if first.rule else "reject"}
    return said.get(first.after, "deny" if first.rule else ""), first.rule


def questions_of(events: Iterable[Event], ended: datetime | None = None) -> list[Question]:
    """Each time a call waited for somebody, from the events of that call; at the latest until its turn ended."""
    found: list[Question] = []
    for event in events:
        if found and found[-1].until is None and (event.after != _WAITING or event.approval_id != found[-1].approval):
            found[-1] = _ended(found[-1], event.at)
        if event.after == _WAITING and event.approval_id and (not found or found[-1].until is not None):
            asked = Question(approval=event.approval_id, at=event.at, asks=event.asks or "", digest=event.digest)
            found.append(asked)
    return [_ended(one, ended) if ended and one.until is None else one for one in found]


def _ended(question: Question, at: datetime) -> Question:
    return question.model_copy(update={"until": at, "seconds": (at - question.at).total_seconds()})


def attempted(one: Attempt) -> Attempted:
    """An attempt, as it is told."""
    seconds = (one.ended - one.started).total_seconds() if one.ended and one.started else None
    return Attempted(
        worker=one.worker,
        number=one.number or 1,
        scheduled=one.scheduled,
        began=one.started,
        ended=one.ended,
        seconds=seconds,
        how="not taken up" if one.untaken else one.how or "not ended",
        why=one.why,
        before=one.before,
        event=one.event,
    )


def decisions_of(facts: Facts, deliveries: Deliveries | None, judged: Judged) -> list[Said]:
    """What was said of calls, with whether it counted and whose word it was. None: nobody knows what counted."""
    found: list[Said] = []
    signals = 0
    for message in facts.messages:
        if message.name == DECIDE:
            counted = deliveries.counted(message, signals) if deliveries else message.refused is None
            found.append(said_of(message, counted, judged.approvers_at(message.event)))
            signals += message.how == "signal"
    return found


def call_of(said: Said) -> str | None:
    """The call that a decision is about, if it names one."""
    try:
        call = ApprovalId.parse(said.approval).call
    except BadInput:
        return None
    return call if _CALL.fullmatch(call) else None


_CALL = re.compile(r"b\d{1,9}c\d{1,9}")


def said_of(message: Message, counted: bool, approvers: Sequence[Approver]) -> Said:
    """A decision as it was sent."""
    body: Mapping[str, Any] = message.body if isinstance(message.body, dict) else {}
    common: dict[str, Any] = {
        "at": message.at,
        "how": message.how,
        "identity": message.identity,
        "event": message.event,
        "details": _plain(body),
    }
    try:
        decision = Decision.model_validate(body)
    except ValidationError:
        return Said(outcome="not a decision", counted=False, **common)
    return Said(
        outcome=decision.outcome.value,
        by=decision.by,
        signature=_signature(decision, approvers, message.at),
        key=decision.signer,
        approval=decision.approval_id,
        digest=decision.digest,
        note=decision.note,
        counted=counted,
        **common,
    )


def _plain(body: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {str(name): value for name, value in body.items() if value not in (None, False, "")}


def _signature(decision: Decision, approvers: Sequence[Approver], at: datetime) -> str:
    if decision.signature is None:
        return "none"
    if not any(approver.key for approver in approvers):
        return "not checked: the worker knew no keys"
    try:
        check_signed(decision, approvers, at)
    except DecisionRefused as refusal:
        return f"does not hold: {refusal}"
    return "valid"


def changes_between(before: JsonValue, after: JsonValue) -> str | None:
    """A diff of arguments, value by value; None when they are the same."""
    if before == after:
        return None
    old, new = _written(before), _written(after)
    lines = difflib.unified_diff(old, new, "as asked for", "as it ran", lineterm="", n=2)
    return "\n".join(lines) or None


def _written(value: JsonValue) -> list[str]:
    """Arguments as lines: texts of several lines line by line, so that a diff shows which."""
    if not isinstance(value, dict):
        return [json.dumps(value, ensure_ascii=False)]
    lines: list[str] = []
    for name, one in value.items():
        if isinstance(one, str) and "\n" in one:
            lines += [f"{name}:", *(f"  {line}" for line in one.split("\n"))]
        else:
            lines.append(f"{name}: {json.dumps(one, ensure_ascii=False)}")
    return lines


def _outputs(call: Call) -> Iterable[str]:
    parts = call.response.parts if call.response else ()
    return (part.whole for part in parts if isinstance(part, TextPart | BlobPart) and part.whole)
