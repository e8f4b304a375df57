"""The entries of a timeline: everything that happened in one run, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from holdfast.domain.calls.events import Event
from holdfast.domain.turn.turn_io import TurnInput, TurnStatus
from holdfast.util.text import shorten_text
from holdfast.workers.audit.read.examined_run import ExaminedRun
from holdfast.workers.audit.read.history_facts import Attempt, Message
from holdfast.workers.audit.read.recorder import DECIDE
from holdfast.workers.audit.timeline.call_story import find_call, list_run_decisions
from holdfast.workers.audit.timeline.phrases import describe_sender
from holdfast.workers.audit.timeline.timeline import (
    EntryKind,
    MessageStory,
    TimelineEntry,
)

LINE_LIMIT = 10_000
"""Characters of a text in a timeline; terminals show fewer."""


def parse_input(found: Any) -> TurnInput | None:
    """Parse the input of a turn, or of a session's turns; None if it cannot be parsed."""
    given = found.get("turn", found) if isinstance(found, dict) else None
    try:
        return TurnInput.model_validate(given)
    except ValueError:
        return None


def build_message(message: Message) -> MessageStory:
    """Build the story of a message to a turn or session."""
    body = message.body if isinstance(message.body, dict) else {}
    by = body.get("by")
    return MessageStory(
        at=message.at,
        outcome=message.name,
        by=by if isinstance(by, str) else None,
        how=message.how,
        identity=message.identity,
        event=message.event,
        counted=message.refused is None,
        note=message.refused,
        details={str(name): value for name, value in body.items() if value is not None},
    )


def list_entries(examined: ExaminedRun, place: int) -> Iterator[TimelineEntry]:
    """Yield the entries of a run. `place`: its number among the runs of the workflow."""
    facts = examined.facts
    if place == 1:
        input = parse_input(facts.input)
        by = (input.requester if input else None) or describe_sender(facts.identity)
        yield TimelineEntry(at=facts.began, kind="start", words=f"started by {by}", by=by, event=1)
        if input and input.prompt is not None:
            yield TimelineEntry(at=facts.began, kind="prompt", words=shorten_text(input.prompt, LINE_LIMIT), event=1)
    else:
        yield TimelineEntry(at=facts.began, kind="run", words=f"goes on in run {examined.run.run}", event=1, run=place)
    if examined.turn:
        yield from filter(None, (_build_event_entry(event, place) for event in examined.turn.log.events))
    yield from _list_message_entries(examined, place)
    yield from _list_fact_entries(examined, place)


_STATUS_KINDS: Mapping[str, EntryKind] = {
    "awaiting_approval": "ask",
    "scheduled": "verdict",
    "executing": "begin",
    "success": "end",
    "error": "end",
    "cancelled": "end",
}


_STATUSES = get_args(TurnStatus)
_TURN_KINDS: Mapping[str, EntryKind] = {"mode": "mode", "granted": "grant", "refused": "grant", "revoked": "grant"}
KIND_ORDER: Mapping[str, int] = {"start": -3, "prompt": -2, "decision": -1, "message": -1, "result": 1}
"""The order of entries with the same time."""


def _build_event_entry(event: Event, place: int) -> TimelineEntry | None:
    common: dict[str, Any] = {"at": event.at, "call": event.call, "by": event.by, "run": place}
    if event.kind == "call":
        return TimelineEntry(kind=_choose_kind(event), words=_describe_call(event), **common)
    if event.kind == "model" and event.after not in ("answered", "asked"):  # the reply has its own entry
        return TimelineEntry(kind="model", words=" ".join(filter(None, (event.after, event.note))), **common)
    if event.kind == "batch" and event.after in ("queued", "discarded", "withdrawn"):
        return TimelineEntry(kind="batch", words=f"batch {event.batch} of {event.of}: {event.after}", **common)
    if event.kind == "turn" and event.after not in _STATUSES:  # the result has its own entry
        return TimelineEntry(
            kind=_TURN_KINDS.get(event.after, "turn"),
            words=": ".join(filter(None, (event.after, event.note))),
            **common,
        )
    return None


def _choose_kind(event: Event) -> EntryKind:
    if event.before is None:
        return "call"
    if event.before == event.after and event.note:
        return "change"
    return _STATUS_KINDS.get(event.after, "call")


def _describe_call(event: Event) -> str:
    what = event.title or event.tool or ""
    if event.before is None:
        return f"asked for: {event.tool}"
    parts = [event.after.replace("_", " ")]
    parts += [f"by rule {event.rule}"] if event.rule else [f"by {_describe_actor(event)}"] if event.by else []
    parts += [f"({event.approval_id})"] if event.approval_id else []
    parts += [f"{event.error}"] if event.error else []
    parts += [event.note] if event.note else []
    return f"{what}: {' '.join(parts)}"


def _describe_actor(event: Event) -> str:
    return str(event.by) if event.actor in (None, "person") else f"{event.actor}: {event.by}"


def _list_message_entries(examined: ExaminedRun, place: int) -> Iterator[TimelineEntry]:
    for decision in list_run_decisions(examined):
        words = _describe_decision(decision, replayed=not examined.break_reasons)
        common: dict[str, Any] = {"at": decision.at, "by": decision.by, "event": decision.event, "run": place}
        yield TimelineEntry(kind="decision", words=words, call=find_call(decision), **common)
    for message in examined.facts.messages:
        if message.name not in (DECIDE, "add_calls", "ask"):
            who = build_message(message).by or describe_sender(message.identity)
            words = f"{message.name} by {who}{_describe_message(message)}"
            yield TimelineEntry(at=message.at, kind="message", words=words, by=who, event=message.event, run=place)


def _list_fact_entries(examined: ExaminedRun, place: int) -> Iterator[TimelineEntry]:
    facts = examined.facts
    for attempt in facts.attempts.values():
        yield from _list_attempt_entries(attempt, place, alone=bool(examined.break_reasons))
    for reply in facts.replies:
        yield TimelineEntry(at=reply.at, kind="model", words=_describe_reply(reply.body), event=reply.event, run=place)
    for child in facts.child_turns:
        words = f"turn {child.turn} {child.how}{f': {shorten_text(child.why, LINE_LIMIT)}' if child.why else ''}"
        yield TimelineEntry(at=child.at, kind="turn", words=words, event=child.event, run=place)
    for loss in facts.losses:
        yield TimelineEntry(at=loss.at, kind="crash", words=loss.why, by=loss.worker, event=loss.event, run=place)
    if facts.ended and facts.how != "continued":
        words = ": ".join(filter(None, (facts.status, facts.why)))
        yield TimelineEntry(
            at=facts.ended, kind="result", words=words, event=examined.run.events[-1].event_id, run=place
        )


def _list_attempt_entries(attempt: Attempt, place: int, *, alone: bool) -> Iterator[TimelineEntry]:
    """The failed attempts of an activity; with `alone`, also its start and end, because no replay has them."""
    common: dict[str, Any] = {"call": attempt.call_id, "event": attempt.event, "run": place}
    name = attempt.type if attempt.call_id is None else f"{attempt.type} of {attempt.activity}"
    if attempt.before and attempt.started:
        words = f"attempt {attempt.number} on {attempt.worker}, after: {shorten_text(attempt.before, LINE_LIMIT)}"
        yield TimelineEntry(at=attempt.started, kind="retry", words=words, **common)
    if attempt.is_untaken and attempt.ended:
        yield TimelineEntry(at=attempt.ended, kind="retry", words=f"no worker took {name} in time", **common)
    elif attempt.how == "timed out" and attempt.ended:
        words = f"{name} was lost on {attempt.worker or 'its worker'}: {attempt.why or 'no answer'}"
        yield TimelineEntry(at=attempt.ended, kind="crash", words=words, **common)
    if alone and attempt.started:
        yield TimelineEntry(at=attempt.started, kind="begin", words=f"{name} on {attempt.worker}", **common)
    if alone and attempt.ended:
        yield TimelineEntry(at=attempt.ended, kind="end", words=f"{name}: {attempt.how}", **common)


def _describe_decision(decision: MessageStory, *, replayed: bool) -> str:
    who = decision.by or "somebody"
    signed = "" if decision.signature == "none" else f", signature {decision.signature}"
    fate = "" if decision.counted else " (did not count)" if replayed else " (whether it counted is not known)"
    note = f": {decision.note}" if decision.note else ""
    sent = f"by {decision.how} from {describe_sender(decision.identity)}"
    return f"{who}: {decision.outcome} {sent}{signed}{fate}{shorten_text(note, LINE_LIMIT)}"


def _describe_reply(body: Mapping[str, Any]) -> str:
    calls, text, who = body.get("calls") or (), body.get("text") or "", body.get("model")
    asks = f"asks for {len(calls)} call{'' if len(calls) == 1 else 's'}" if calls else "answers"
    return f"{who or 'the model'} {asks}{f': {shorten_text(text, LINE_LIMIT)}' if text else ''}"


_SUBJECT_FIELDS = ("call", "batch", "grant", "mode", "message", "text", "reason", "approval_id")


def _describe_message(message: Message) -> str:
    """What a message is about."""
    body = message.body if isinstance(message.body, dict) else {}
    parts = [shorten_text(body[name], LINE_LIMIT) for name in _SUBJECT_FIELDS if isinstance(body.get(name), str)]
    calls = body.get("calls")
    parts += [f"{len(calls)} calls"] if isinstance(calls, list) else []
    return f": {', '.join(parts)}" if parts else ""
