"""The spans of a turn and their ids, derived from the state of the turn when it ends. Pure.

    turn ┬ model step          the workers that made its attempts report these
         ├ validate            one for the calls that were validated together
         └ call ┬ approval     one for each question to a person
                └ execute ┬ attempt ┬ mcp     reported by the worker that ran it
                          └ turn              of a call that delegates

The worker that ends a turn reports all of its spans, so no process keeps open spans, and none are lost with a process.

Every turn has a trace. Its ids are digests of the turn's id and first run, of call ids, of event numbers. So every
worker derives the same ids, and a span that is reported twice is one span.

Why: docs/decisions/0027-telemetry.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.events import Event
from holdfast.telemetry.phases import Phase, PhaseTracker

Attributes = Mapping[str, str | int | bool]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class SpanPlace(NamedTuple):
    """The ids of a span: trace id and span id."""

    trace: str
    span: str

    def derive_place(self, *words: object) -> SpanPlace:
        """Derive the ids of a child span from the words that identify it."""
        return SpanPlace(self.trace, _digest_words(self.trace, self.span, *words)[:16])

    def __str__(self) -> str:
        """The W3C `traceparent`."""
        return f"00-{self.trace}-{self.span}-01"


@dataclass(frozen=True)
class Span:
    """A span to report."""

    name: str
    place: SpanPlace
    start: datetime
    end: datetime
    parent: SpanPlace | None = None
    attributes: Attributes = field(default_factory=dict)
    failed: bool = False
    links: tuple[SpanPlace, ...] = ()


def derive_root_place(workflow_id: str, first_run: str, parent: SpanPlace | None = None) -> SpanPlace:
    """Derive the root span of a turn or a session; in the trace of its parent, if it carried a traceparent."""
    found = _digest_words("holdfast", workflow_id, first_run)
    return SpanPlace(parent.trace if parent else found[:32], found[32:48])


def parse_place(text: object) -> SpanPlace | None:
    """Parse a `traceparent`; None when it is invalid."""
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanPlace(found[1], found[2])


def _digest_words(*words: object) -> str:
    return hashlib.sha256("\0".join(map(str, words)).encode("utf-8", "surrogatepass")).hexdigest()


_Details = dict[str, str | int]


@dataclass(frozen=True)
class TurnFacts:
    """The facts of one run of a turn that its spans are built from."""

    turn_id: str
    root: SpanPlace
    events: tuple[Event, ...]
    call_of: Callable[[Event], Call | None]
    began_at: datetime
    ended_at: datetime
    parent: SpanPlace | None = None
    """The parent of the turn's span: the call that delegated it, or the span of the client that started it."""
    session: SpanPlace | None = None
    session_id: str = ""
    depth: int = 0
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    failure: str = ""
    """The outcome of a workflow that failed as a whole."""
    content: bool = False
    """May spans hold titles of calls (`telemetry.content`)?"""


def build_turn_spans(facts: TurnFacts) -> list[Span]:
    """Build the spans of all phases that ended in this run; the last run has the span of the turn itself."""
    tracker = PhaseTracker(facts.began_at, facts.call_of)
    phases = [phase for event in facts.events for phase in tracker.apply_event(event)]
    spans = [span for phase in phases if (span := _build_span(facts, phase))]
    spans += _build_validation_spans(facts, [phase for phase in phases if phase.kind == "validate"])
    if facts.failure:
        spans.append(_build_turn_span(facts, Phase("turn", facts.began_at, facts.ended_at, facts.failure)))
    return spans


def derive_execution_place(root: SpanPlace, call: str, seq: int) -> SpanPlace:
    """Derive the span of a call's execution that began with the event of this number."""
    return root.derive_place("execute", call, seq)


def derive_step_place(root: SpanPlace, step: int) -> SpanPlace:
    """Derive the span of a model step."""
    return root.derive_place("step", step)


def build_session_span(
    root: SpanPlace, session_id: str, start: datetime, end: datetime, *, turns: int, later: str = ""
) -> Span:
    """Build the span of one run of a session. `later` is the run id if it is not the first run.

    The turns of a session have traces of their own, with a link to its span.
    """
    attributes: Attributes = {"holdfast.session.id": session_id, "holdfast.turns": turns}
    place, parent = (root.derive_place("run", later), root) if later else (root, None)
    return Span("holdfast.session", place, start, end, parent, attributes)


def _build_span(facts: TurnFacts, phase: Phase) -> Span | None:
    root = facts.root
    match phase.kind:
        case "turn":
            return _build_turn_span(facts, phase)
        case "step":
            about: _Details = {"holdfast.step": phase.step, "holdfast.attempts": phase.attempts}
            about["holdfast.model"] = facts.model
            return _build_phase_span(facts, phase, "holdfast.step", derive_step_place(root, phase.step), root, about)
        case "call":
            about = {**_describe_call(phase), "holdfast.reason": phase.reason}
            return _build_phase_span(facts, phase, "holdfast.call", _derive_call_place(root, phase), root, about)
        case "approval":
            about = {**_describe_call(phase), "holdfast.revision": phase.revision, "holdfast.asks": phase.asks}
            about |= {"holdfast.actor": phase.actor}
            place = root.derive_place("approval", phase.call, phase.seq)
            return _build_phase_span(facts, phase, "holdfast.approval", place, _derive_call_place(root, phase), about)
        case "execute":
            place = derive_execution_place(root, phase.call or "", phase.seq)
            return _build_phase_span(
                facts, phase, "holdfast.execute", place, _derive_call_place(root, phase), _describe_call(phase)
            )
    return None


def _build_turn_span(facts: TurnFacts, phase: Phase) -> Span:
    about: _Details = {
        "holdfast.session.id": facts.session_id,
        "holdfast.depth": facts.depth,
        "holdfast.model": facts.model,
        "holdfast.tokens.input": facts.input_tokens,
        "holdfast.tokens.output": facts.output_tokens,
    }
    links = (facts.session,) if facts.session else ()
    failed = phase.has_failed or bool(facts.failure)
    attributes = _build_attributes(facts, phase, about)
    return Span("holdfast.turn", facts.root, phase.start, phase.end, facts.parent, attributes, failed, links)


def _build_validation_spans(facts: TurnFacts, phases: Iterable[Phase]) -> Iterator[Span]:
    """Build one span for the calls that were validated together, without those that were stopped before."""

    def together(phase: Phase) -> tuple[str, datetime, datetime]:
        return phase.batch or "", phase.end, phase.start

    judged = sorted((phase for phase in phases if phase.outcome != Status.CANCELLED), key=together)
    for _, group in groupby(judged, key=together):
        calls = list(group)
        about: _Details = {"holdfast.batch.id": calls[0].batch or "", "holdfast.calls": len(calls)}
        for name in ("scheduled", "awaiting_approval", "error"):
            about[f"holdfast.calls.{name}"] = sum(call.outcome == name for call in calls)
        first = min(calls, key=lambda call: _parse_call_number(call.call))
        place = facts.root.derive_place("validate", first.call, first.end.isoformat())
        attributes = {"holdfast.turn.id": facts.turn_id, **about}
        yield Span("holdfast.validate", place, first.start, first.end, facts.root, attributes)


def _build_phase_span(
    facts: TurnFacts, phase: Phase, name: str, place: SpanPlace, parent: SpanPlace, about: _Details
) -> Span:
    return Span(name, place, phase.start, phase.end, parent, _build_attributes(facts, phase, about), phase.has_failed)


def _build_attributes(facts: TurnFacts, phase: Phase, about: _Details) -> Attributes:
    """Build the attributes of a phase, without empty ones."""
    found: _Details = {"holdfast.turn.id": facts.turn_id, "holdfast.outcome": phase.outcome, **about}
    if facts.content and phase.title:
        found["holdfast.title"] = phase.title
    return {name: value for name, value in found.items() if value != ""}


def _describe_call(phase: Phase) -> _Details:
    return {"holdfast.batch.id": phase.batch or "", "holdfast.call.id": phase.call or "", "holdfast.tool": phase.tool}


def _derive_call_place(root: SpanPlace, phase: Phase) -> SpanPlace:
    return root.derive_place("call", phase.call)


def _parse_call_number(call: str | None) -> tuple[int, int]:
    batch, _, number = (call or "").removeprefix("b").partition("c")
    return (int(batch), int(number)) if batch.isdigit() and number.isdigit() else (0, 0)
