"""From replayed runs and their facts to timelines: what happened, in order (S43).

Today's code says what became of each call, and the history by itself who sent and ran what. Where today's code cannot
follow a run any more, what the history says by itself is all that is told, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from temporalio.converter import DataConverter

from holdfast.content import shorten
from holdfast.events import Event
from holdfast.session_state import SessionState
from holdfast.sessions import SESSION
from holdfast.state import TurnState
from holdfast.turns import TurnInput, TurnStatus
from holdfast.workers.audit.facts import Attempt, Facts, Message, facts_of
from holdfast.workers.audit.judged import Judged, judged_by
from holdfast.workers.audit.replaying import DECIDE, Replayed, replay
from holdfast.workers.audit.runs import Gathered, Run
from holdfast.workers.audit.stories import call_of, calls_of, decisions_of
from holdfast.workers.audit.timeline import CallStory, Entry, EntryKind, RunStory, Said, Timeline
from holdfast.workers.audit.words import sender

LINE = 10_000
"""Characters of one text in a timeline; terminals show fewer."""


async def told(gathered: Gathered, converter: DataConverter) -> Timeline:
    """The timeline of a turn or a session, with the turns within it."""
    looked = [await _look(run, converter) for run in gathered.runs]
    top = _timeline(gathered.id, _families(looked), set())
    return top.model_copy(update={"notes": (*top.notes, *gathered.lacking)})


class _Looked:
    """One run, looked at from both sides."""

    def __init__(self, run: Run, facts: Facts, replayed: Replayed, judged: Judged) -> None:
        self.run = run
        self.facts = facts
        self.replayed = replayed
        self.judged = judged

    @property
    def turn(self) -> TurnState | None:
        """What the turn knew at its end, if today's code can follow it."""
        state = self.replayed.state
        return state if isinstance(state, TurnState) and not self.breaks else None

    @property
    def session(self) -> SessionState | None:
        """The same of a session."""
        state = self.replayed.state
        return state if isinstance(state, SessionState) and not self.breaks else None

    @property
    def breaks(self) -> list[str]:
        """Why today's code cannot follow."""
        return [*self.replayed.lacking[:1]] + [
            f"{one.where}: {one.what}" for one in self.replayed.departures if one.breaks
        ]

    @property
    def decisions(self) -> list[Said]:
        """What was said of calls."""
        return decisions_of(self.facts, None if self.breaks else self.replayed.deliveries, self.judged)


async def _look(run: Run, converter: DataConverter) -> _Looked:
    [replayed] = await replay([run], converter)
    return _Looked(run, await facts_of(run, converter), replayed, await judged_by(run, converter))


@dataclass(frozen=True)
class _Family:
    """The runs of each workflow, and which of them were started within which."""

    runs: dict[str, list[_Looked]]
    within: dict[str, list[str]]


def _families(looked: Iterable[_Looked]) -> _Family:
    """A workflow is within the one that its first run says it is in."""
    runs: dict[str, list[_Looked]] = {}
    for one in looked:
        runs.setdefault(one.run.workflow, []).append(one)
    within: dict[str, list[str]] = {}
    for workflow, (first, *_) in runs.items():
        within.setdefault(first.run.parent or "", []).append(workflow)
    return _Family(runs, within)


def _timeline(workflow: str, family: _Family, told: set[str]) -> Timeline:
    told.add(workflow)
    ours = family.runs[workflow]
    children = [child for child in family.within.get(workflow, ()) if child not in told]
    first, last = ours[0], ours[-1]
    input = _input(first.facts.input)
    entries = [entry for place, one in enumerate(ours, start=1) for entry in _entries(one, place)]
    return Timeline(
        id=workflow,
        kind="session" if first.run.type == SESSION else "turn",
        status=last.facts.status,
        reason=last.facts.why,
        requester=input.requester if input else None,
        started_by=first.facts.identity,
        model=", ".join(input.model.names) if input and input.model else None,
        mode=last.turn.mode.value if last.turn else input.mode.value if input else "default",
        prompt=input.prompt if input else None,
        answer=last.turn.text if last.turn else None,
        began=first.facts.began,
        ended=last.facts.ended,
        runs=tuple(map(_run_story, ours)),
        entries=tuple(sorted(entries, key=lambda entry: (entry.at, _FIRST.get(entry.kind, 0)))),
        calls=_calls(ours),
        messages=tuple(said for one in ours for said in _messages(one)),
        turns=tuple(_timeline(child, family, told) for child in children if child not in told),
        notes=tuple(
            f"today's code cannot follow it, so only what the history says by itself is told: {words}"
            for one in ours
            for words in one.breaks
        ),
    )


def _input(found: Any) -> TurnInput | None:
    given = found.get("turn", found) if isinstance(found, dict) else None
    try:
        return TurnInput.model_validate(given)
    except ValueError:
        return None


def _run_story(one: _Looked) -> RunStory:
    return RunStory(
        run=one.run.run,
        began=one.facts.began,
        ended=one.facts.ended,
        how=one.facts.how,
        events=len(one.run.events),
        workers=tuple(one.facts.workers),
        policy=one.judged.policy,
        catalogue=one.judged.catalogue,
        hooks=one.judged.hooks,
    )


def _calls(looked: Iterable[_Looked]) -> tuple[CallStory, ...]:
    """Each once: one that a run left in its queue is told by the next."""
    found: dict[str, CallStory] = {}
    for one in looked:
        said: dict[str, list[Said]] = {}
        for decision in one.decisions:
            said.setdefault(call_of(decision) or "", []).append(decision)
        found |= {call.id: call for call in calls_of(one.turn, one.facts, said)} if one.turn else {}
    return tuple(found.values())


def _messages(one: _Looked) -> Iterator[Said]:
    """What was said that belongs to no call: those of calls are with them."""
    known = {call.id for call in _calls([one])}
    yield from (said for said in one.decisions if call_of(said) not in known)
    yield from (_said(message) for message in one.facts.messages if message.name not in (DECIDE, "add_calls"))


def _said(message: Message) -> Said:
    body = message.body if isinstance(message.body, dict) else {}
    by = body.get("by")
    return Said(
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


def _entries(one: _Looked, place: int) -> Iterator[Entry]:
    facts = one.facts
    if place == 1:
        input = _input(facts.input)
        by = (input.requester if input else None) or sender(facts.identity)
        yield Entry(at=facts.began, kind="start", words=f"started by {by}", by=by, event=1)
        if input and input.prompt is not None:
            yield Entry(at=facts.began, kind="prompt", words=shorten(input.prompt, LINE), event=1)
    else:
        yield Entry(at=facts.began, kind="run", words=f"goes on in run {one.run.run}", event=1, run=place)
    if one.turn:
        yield from filter(None, (_of_event(event, place) for event in one.turn.events))
    yield from _of_messages(one, place)
    yield from _of_facts(one, place)


_KINDS: Mapping[str, EntryKind] = {
    "awaiting_approval": "ask",
    "scheduled": "verdict",
    "executing": "begin",
    "success": "end",
    "error": "end",
    "cancelled": "end",
}


_STATUSES = get_args(TurnStatus)
_TURN: Mapping[str, EntryKind] = {"mode": "mode", "granted": "grant", "refused": "grant", "revoked": "grant"}
_FIRST: Mapping[str, int] = {"start": -3, "prompt": -2, "decision": -1, "message": -1, "result": 1}
"""What comes before or after the rest of its moment."""


def _of_event(event: Event, place: int) -> Entry | None:
    common: dict[str, Any] = {"at": event.at, "call": event.call, "by": event.by, "run": place}
    if event.kind == "call":
        return Entry(kind=_kind_of(event), words=_call_words(event), **common)
    if event.kind == "model" and event.after not in ("answered", "asked"):  # the reply itself is told
        return Entry(kind="model", words=" ".join(filter(None, (event.after, event.note))), **common)
    if event.kind == "batch" and event.after in ("queued", "discarded", "withdrawn"):
        return Entry(kind="batch", words=f"batch {event.batch} of {event.of}: {event.after}", **common)
    if event.kind == "turn" and event.after not in _STATUSES:  # how it ended is told last
        return Entry(
            kind=_TURN.get(event.after, "turn"), words=": ".join(filter(None, (event.after, event.note))), **common
        )
    return None


def _kind_of(event: Event) -> EntryKind:
    if event.before is None:
        return "call"
    if event.before == event.after and event.note:
        return "change"
    return _KINDS.get(event.after, "call")


def _call_words(event: Event) -> str:
    what = event.title or event.tool or ""
    if event.before is None:
        return f"asked for: {event.tool}"
    said = [event.after.replace("_", " ")]
    said += [f"by rule {event.rule}"] if event.rule else [f"by {_who(event)}"] if event.by else []
    said += [f"({event.approval_id})"] if event.approval_id else []
    said += [f"{event.error}"] if event.error else []
    said += [event.note] if event.note else []
    return f"{what}: {' '.join(said)}"


def _who(event: Event) -> str:
    return str(event.by) if event.actor in (None, "person") else f"{event.actor}: {event.by}"


def _of_messages(one: _Looked, place: int) -> Iterator[Entry]:
    for said in one.decisions:
        words = _decision_words(said, replayed=not one.breaks)
        common: dict[str, Any] = {"at": said.at, "by": said.by, "event": said.event, "run": place}
        yield Entry(kind="decision", words=words, call=call_of(said), **common)
    for message in one.facts.messages:
        if message.name not in (DECIDE, "add_calls", "ask"):
            who = _said(message).by or sender(message.identity)
            words = f"{message.name} by {who}{_text_of(message)}"
            yield Entry(at=message.at, kind="message", words=words, by=who, event=message.event, run=place)


def _of_facts(one: _Looked, place: int) -> Iterator[Entry]:
    facts = one.facts
    for attempt in facts.attempts.values():
        yield from _of_attempt(attempt, place, alone=bool(one.breaks))
    for reply in facts.replies:
        yield Entry(at=reply.at, kind="model", words=_reply_words(reply.body), event=reply.event, run=place)
    for within in facts.within:
        words = f"turn {within.turn} {within.how}{f': {shorten(within.why, LINE)}' if within.why else ''}"
        yield Entry(at=within.at, kind="turn", words=words, event=within.event, run=place)
    for loss in facts.losses:
        yield Entry(at=loss.at, kind="crash", words=loss.why, by=loss.worker, event=loss.event, run=place)
    if facts.ended and facts.how != "continued":
        words = ": ".join(filter(None, (facts.status, facts.why)))
        yield Entry(at=facts.ended, kind="result", words=words, event=one.run.events[-1].event_id, run=place)


def _of_attempt(attempt: Attempt, place: int, *, alone: bool) -> Iterator[Entry]:
    """What went wrong with an activity; and, where today's code does not tell it, that it ran."""
    common: dict[str, Any] = {"call": attempt.call, "event": attempt.event, "run": place}
    name = attempt.type if attempt.call is None else f"{attempt.type} of {attempt.activity}"
    if attempt.before and attempt.started:
        words = f"attempt {attempt.number} on {attempt.worker}, after: {shorten(attempt.before, LINE)}"
        yield Entry(at=attempt.started, kind="retry", words=words, **common)
    if attempt.untaken and attempt.ended:
        yield Entry(at=attempt.ended, kind="retry", words=f"no worker took {name} up in time", **common)
    elif attempt.how == "timed out" and attempt.ended:
        words = f"{name} was lost on {attempt.worker or 'its worker'}: {attempt.why or 'no answer'}"
        yield Entry(at=attempt.ended, kind="crash", words=words, **common)
    if alone and attempt.started:
        yield Entry(at=attempt.started, kind="begin", words=f"{name} on {attempt.worker}", **common)
    if alone and attempt.ended:
        yield Entry(at=attempt.ended, kind="end", words=f"{name}: {attempt.how}", **common)


def _decision_words(said: Said, *, replayed: bool) -> str:
    who = said.by or "somebody"
    signed = "" if said.signature == "none" else f", signature {said.signature}"
    fate = "" if said.counted else " (did not count)" if replayed else " (whether it counted is not known)"
    note = f": {said.note}" if said.note else ""
    return f"{who} said {said.outcome} by {said.how} from {sender(said.identity)}{signed}{fate}{shorten(note, LINE)}"


def _reply_words(body: Mapping[str, Any]) -> str:
    calls, text, who = body.get("calls") or (), body.get("text") or "", body.get("model")
    asks = f"asks for {len(calls)} call{'' if len(calls) == 1 else 's'}" if calls else "answers"
    return f"{who or 'the model'} {asks}{f': {shorten(text, LINE)}' if text else ''}"


_ABOUT = ("call", "batch", "grant", "mode", "message", "text", "reason", "approval_id")


def _text_of(message: Message) -> str:
    """What it is about, as far as it says so."""
    body = message.body if isinstance(message.body, dict) else {}
    said = [shorten(body[name], LINE) for name in _ABOUT if isinstance(body.get(name), str)]
    calls = body.get("calls")
    said += [f"{len(calls)} calls"] if isinstance(calls, list) else []
    return f": {', '.join(said)}" if said else ""
