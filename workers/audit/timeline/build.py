"""From replayed runs and their facts to timelines: what happened, in order (S43).

Today's code says what became of each call, and the history by itself who sent and ran what. Where today's code cannot
follow a run any more, what the history says by itself is all that is told, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from temporalio.converter import DataConverter

from holdfast.domain.calls.events import Event
from holdfast.domain.session.session_io import SESSION_WORKFLOW
from holdfast.domain.session.session_state import SessionState
from holdfast.domain.turn.turn_io import TurnInput, TurnStatus
from holdfast.domain.turn.turn_state import TurnState
from holdfast.util.text import shorten_text
from holdfast.workers.audit.read.history_facts import Attempt, HistoryFacts, Message, read_facts
from holdfast.workers.audit.read.replay import DECIDE, ReplayedRun, replay_runs
from holdfast.workers.audit.read.validation_facts import ValidationFacts, read_validation_facts
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, Run
from holdfast.workers.audit.timeline.call_story import build_call_stories, find_call, list_decisions
from holdfast.workers.audit.timeline.phrases import describe_sender
from holdfast.workers.audit.timeline.timeline import (
    CallStory,
    EntryKind,
    MessageStory,
    RunStory,
    Timeline,
    TimelineEntry,
)

LINE_LIMIT = 10_000
"""Characters of one text in a timeline; terminals show fewer."""


async def build_timeline(gathered: GatheredRuns, converter: DataConverter) -> Timeline:
    """The timeline of a turn or a session, with the turns within it."""
    looked = [await _examine_run(run, converter) for run in gathered.runs]
    top = _build_workflow_timeline(gathered.id, _build_tree(looked), set())
    return top.model_copy(update={"notes": (*top.notes, *gathered.lacking)})


class _ExaminedRun:
    """One run, looked at from both sides."""

    def __init__(self, run: Run, facts: HistoryFacts, replayed: ReplayedRun, judged: ValidationFacts) -> None:
        self.run = run
        self.facts = facts
        self.replayed = replayed
        self.judged = judged

    @property
    def turn(self) -> TurnState | None:
        """What the turn knew at its end, if today's code can follow it."""
        state = self.replayed.state
        return state if isinstance(state, TurnState) and not self.break_reasons else None

    @property
    def session(self) -> SessionState | None:
        """The same of a session."""
        state = self.replayed.state
        return state if isinstance(state, SessionState) and not self.break_reasons else None

    @property
    def break_reasons(self) -> list[str]:
        """Why today's code cannot follow."""
        return [*self.replayed.lacking[:1]] + [
            f"{one.location}: {one.what}" for one in self.replayed.departures if one.breaks
        ]

    @property
    def decisions(self) -> list[MessageStory]:
        """What was said of calls."""
        return list_decisions(self.facts, None if self.break_reasons else self.replayed.deliveries, self.judged)


async def _examine_run(run: Run, converter: DataConverter) -> _ExaminedRun:
    [replayed] = await replay_runs([run], converter)
    return _ExaminedRun(run, await read_facts(run, converter), replayed, await read_validation_facts(run, converter))


@dataclass(frozen=True)
class _RunTree:
    """The runs of each workflow, and which of them were started within which."""

    runs: dict[str, list[_ExaminedRun]]
    within: dict[str, list[str]]


def _build_tree(looked: Iterable[_ExaminedRun]) -> _RunTree:
    """A workflow is within the one that its first run says it is in."""
    runs: dict[str, list[_ExaminedRun]] = {}
    for one in looked:
        runs.setdefault(one.run.workflow, []).append(one)
    within: dict[str, list[str]] = {}
    for workflow, (first, *_) in runs.items():
        within.setdefault(first.run.parent or "", []).append(workflow)
    return _RunTree(runs, within)


def _build_workflow_timeline(workflow: str, family: _RunTree, seen: set[str]) -> Timeline:
    seen.add(workflow)
    ours = family.runs[workflow]
    children = [child for child in family.within.get(workflow, ()) if child not in seen]
    first, last = ours[0], ours[-1]
    input = _parse_input(first.facts.input)
    entries = [entry for place, one in enumerate(ours, start=1) for entry in _list_entries(one, place)]
    return Timeline(
        id=workflow,
        kind="session" if first.run.type == SESSION_WORKFLOW else "turn",
        status=last.facts.status,
        reason=last.facts.why,
        requester=input.requester if input else None,
        started_by=first.facts.identity,
        model=", ".join(input.model.model_names) if input and input.model else None,
        mode=last.turn.decisions.mode.value if last.turn else input.mode.value if input else "default",
        prompt=input.prompt if input else None,
        answer=last.turn.conversation.text if last.turn else None,
        began=first.facts.began,
        ended=last.facts.ended,
        runs=tuple(map(_build_run_story, ours)),
        entries=tuple(sorted(entries, key=lambda entry: (entry.at, _KIND_ORDER.get(entry.kind, 0)))),
        calls=_collect_calls(ours),
        messages=tuple(said for one in ours for said in _list_messages(one)),
        turns=tuple(_build_workflow_timeline(child, family, seen) for child in children if child not in seen),
        notes=tuple(
            f"today's code cannot follow it, so only what the history says by itself is told: {words}"
            for one in ours
            for words in one.break_reasons
        ),
    )


def _parse_input(found: Any) -> TurnInput | None:
    given = found.get("turn", found) if isinstance(found, dict) else None
    try:
        return TurnInput.model_validate(given)
    except ValueError:
        return None


def _build_run_story(examined: _ExaminedRun) -> RunStory:
    return RunStory(
        run=examined.run.run,
        began=examined.facts.began,
        ended=examined.facts.ended,
        how=examined.facts.how,
        events=len(examined.run.events),
        workers=tuple(examined.facts.workers),
        policy=examined.judged.policy,
        catalogue=examined.judged.catalogue,
        hooks=examined.judged.hooks,
    )


def _collect_calls(looked: Iterable[_ExaminedRun]) -> tuple[CallStory, ...]:
    """Each once: one that a run left in its queue is told by the next."""
    found: dict[str, CallStory] = {}
    for one in looked:
        said: dict[str, list[MessageStory]] = {}
        for decision in one.decisions:
            said.setdefault(find_call(decision) or "", []).append(decision)
        found |= {call.id: call for call in build_call_stories(one.turn, one.facts, said)} if one.turn else {}
    return tuple(found.values())


def _list_messages(examined: _ExaminedRun) -> Iterator[MessageStory]:
    """What was said that belongs to no call: those of calls are with them."""
    known = {call.id for call in _collect_calls([examined])}
    yield from (said for said in examined.decisions if find_call(said) not in known)
    yield from (
        _build_message(message) for message in examined.facts.messages if message.name not in (DECIDE, "add_calls")
    )


def _build_message(message: Message) -> MessageStory:
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


def _list_entries(examined: _ExaminedRun, place: int) -> Iterator[TimelineEntry]:
    facts = examined.facts
    if place == 1:
        input = _parse_input(facts.input)
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
_KIND_ORDER: Mapping[str, int] = {"start": -3, "prompt": -2, "decision": -1, "message": -1, "result": 1}
"""What comes before or after the rest of its moment."""


def _build_event_entry(event: Event, place: int) -> TimelineEntry | None:
    common: dict[str, Any] = {"at": event.at, "call": event.call, "by": event.by, "run": place}
    if event.kind == "call":
        return TimelineEntry(kind=_choose_kind(event), words=_describe_call(event), **common)
    if event.kind == "model" and event.after not in ("answered", "asked"):  # the reply itself is told
        return TimelineEntry(kind="model", words=" ".join(filter(None, (event.after, event.note))), **common)
    if event.kind == "batch" and event.after in ("queued", "discarded", "withdrawn"):
        return TimelineEntry(kind="batch", words=f"batch {event.batch} of {event.of}: {event.after}", **common)
    if event.kind == "turn" and event.after not in _STATUSES:  # how it ended is told last
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
    said = [event.after.replace("_", " ")]
    said += [f"by rule {event.rule}"] if event.rule else [f"by {_describe_actor(event)}"] if event.by else []
    said += [f"({event.approval_id})"] if event.approval_id else []
    said += [f"{event.error}"] if event.error else []
    said += [event.note] if event.note else []
    return f"{what}: {' '.join(said)}"


def _describe_actor(event: Event) -> str:
    return str(event.by) if event.actor in (None, "person") else f"{event.actor}: {event.by}"


def _list_message_entries(examined: _ExaminedRun, place: int) -> Iterator[TimelineEntry]:
    for said in examined.decisions:
        words = _describe_decision(said, replayed=not examined.break_reasons)
        common: dict[str, Any] = {"at": said.at, "by": said.by, "event": said.event, "run": place}
        yield TimelineEntry(kind="decision", words=words, call=find_call(said), **common)
    for message in examined.facts.messages:
        if message.name not in (DECIDE, "add_calls", "ask"):
            who = _build_message(message).by or describe_sender(message.identity)
            words = f"{message.name} by {who}{_describe_message(message)}"
            yield TimelineEntry(at=message.at, kind="message", words=words, by=who, event=message.event, run=place)


def _list_fact_entries(examined: _ExaminedRun, place: int) -> Iterator[TimelineEntry]:
    facts = examined.facts
    for attempt in facts.attempts.values():
        yield from _list_attempt_entries(attempt, place, alone=bool(examined.break_reasons))
    for reply in facts.replies:
        yield TimelineEntry(at=reply.at, kind="model", words=_describe_reply(reply.body), event=reply.event, run=place)
    for within in facts.within:
        words = f"turn {within.turn} {within.how}{f': {shorten_text(within.why, LINE_LIMIT)}' if within.why else ''}"
        yield TimelineEntry(at=within.at, kind="turn", words=words, event=within.event, run=place)
    for loss in facts.losses:
        yield TimelineEntry(at=loss.at, kind="crash", words=loss.why, by=loss.worker, event=loss.event, run=place)
    if facts.ended and facts.how != "continued":
        words = ": ".join(filter(None, (facts.status, facts.why)))
        yield TimelineEntry(
            at=facts.ended, kind="result", words=words, event=examined.run.events[-1].event_id, run=place
        )


def _list_attempt_entries(attempt: Attempt, place: int, *, alone: bool) -> Iterator[TimelineEntry]:
    """What went wrong with an activity; and, where today's code does not tell it, that it ran."""
    common: dict[str, Any] = {"call": attempt.call_id, "event": attempt.event, "run": place}
    name = attempt.type if attempt.call_id is None else f"{attempt.type} of {attempt.activity}"
    if attempt.before and attempt.started:
        words = f"attempt {attempt.number} on {attempt.worker}, after: {shorten_text(attempt.before, LINE_LIMIT)}"
        yield TimelineEntry(at=attempt.started, kind="retry", words=words, **common)
    if attempt.is_untaken and attempt.ended:
        yield TimelineEntry(at=attempt.ended, kind="retry", words=f"no worker took {name} up in time", **common)
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
    return f"{who} said {decision.outcome} {sent}{signed}{fate}{shorten_text(note, LINE_LIMIT)}"


def _describe_reply(body: Mapping[str, Any]) -> str:
    calls, text, who = body.get("calls") or (), body.get("text") or "", body.get("model")
    asks = f"asks for {len(calls)} call{'' if len(calls) == 1 else 's'}" if calls else "answers"
    return f"{who or 'the model'} {asks}{f': {shorten_text(text, LINE_LIMIT)}' if text else ''}"


_SUBJECT_FIELDS = ("call", "batch", "grant", "mode", "message", "text", "reason", "approval_id")


def _describe_message(message: Message) -> str:
    """What it is about, as far as it says so."""
    body = message.body if isinstance(message.body, dict) else {}
    said = [shorten_text(body[name], LINE_LIMIT) for name in _SUBJECT_FIELDS if isinstance(body.get(name), str)]
    calls = body.get("calls")
    said += [f"{len(calls)} calls"] if isinstance(calls, list) else []
    return f": {', '.join(said)}" if said else ""
