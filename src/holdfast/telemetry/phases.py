"""How long what took, from the events of a turn: waiting for somebody, executing, a model's step, the turn itself.

Pure, and made of names and times alone: nothing of what a call was given or gave back, and of tools only names that
are registered. Spans and metrics are both made of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, get_args

from holdfast.domain.calls.call import TERMINAL, Call, Status
from holdfast.domain.calls.events import Event
from holdfast.domain.turn.turn_io import TurnStatus

PhaseKind = Literal["validate", "approval", "scheduled", "execute", "call", "step", "batch", "turn"]

UNKNOWN = "unknown"
"""The tool of a call that names none that is registered, or that nobody has looked up."""
OTHER = "other"
_TOOL_REASONS = {"invalid_tool_params", "denied", "file_changed", "tool_not_available", "refused"}
"""Errors that say: the tool was looked up, and is there."""
REASONS = frozenset(
    {
        "denied", "expired", "refused", "invalid_tool_params", "tool_not_registered", "tool_not_available", "timeout",
        "outcome_unknown", "worker_lost", "no_worker", "validation_failed", "discarded", "file_changed", "cancelled",
        "not_covered", "ledger_unavailable", "needs_a_person", "mcp_unavailable", "mcp_unauthorized", "tool_changed",
    }
)  # fmt: skip
"""Types of errors that are the engine's own. A tool may call its errors anything."""
_PHASES: dict[str, PhaseKind] = {
    Status.VALIDATING: "validate",
    Status.AWAITING_APPROVAL: "approval",
    Status.SCHEDULED: "scheduled",
    Status.EXECUTING: "execute",
}
_ENDS = get_args(TurnStatus)
_CLOSED_STATES = ("done", "withdrawn", "discarded")


@dataclass(frozen=True)
class Phase:
    """Something that has begun and ended."""

    kind: PhaseKind
    start: datetime
    end: datetime
    outcome: str
    seq: int = 0
    """The number of the event that began it; 0 when an earlier run of the turn has that."""
    batch: str | None = None
    call: str | None = None
    tool: str = UNKNOWN
    reason: str = ""
    """Of a call that did not succeed: the type of its error, where it is the engine's own."""
    asks: str = ""
    """Of an approval: what kind of question it is."""
    revision: int = 0
    actor: str = ""
    """Of an approval: what it was that ended it."""
    step: int = 0
    attempts: int = 1
    calls: int = 0
    title: str = ""
    """What a person sees of the call. It may hold arguments."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0.0, (self.end - self.start).total_seconds())

    @property
    def has_failed(self) -> bool:
        """Did it end as it should not?"""
        return self.outcome in ("error", "failed", "outcome_unknown")


@dataclass(frozen=True)
class _OpenPhase:
    """Something that has begun."""

    start: datetime
    seq: int = 0
    status: str = ""
    approval: str = ""
    asks: str = ""
    revision: int = 0
    step: int = 0
    attempts: int = 1


class PhaseTracker:
    """What has begun and not ended, as a turn's events tell it one by one."""

    def __init__(self, began_at: datetime, call_of: Callable[[Event], Call | None]) -> None:
        """`call_of`: the call that an event is about, as it is now."""
        self._began_at = began_at
        self._call_of = call_of
        self._calls: dict[str, _OpenPhase] = {}
        self._first: dict[str, datetime] = {}
        self._active: dict[str, datetime] = {}
        self._step: _OpenPhase | None = None

    def apply_event(self, event: Event) -> list[Phase]:
        """What ends with an event."""
        match event.kind:
            case "call" if event.call:
                return list(self._apply_call_event(event, event.call))
            case "model":
                return list(self._apply_model_event(event))
            case "batch" if event.batch:
                return list(self._apply_batch_event(event, event.batch))
            case "turn" if event.after in _ENDS:
                unfinished = [self._close_step(event, self._step, "unfinished")] if self._step else []
                return [*unfinished, Phase("turn", self._began_at, event.at, event.after)]
        return []

    def find_execution_start(self, call: str) -> int:
        """The number of the event with which a call began to execute; 0 when it did in an earlier run."""
        found = self._calls.get(call)
        return found.seq if found and found.status == Status.EXECUTING else 0

    def _apply_call_event(self, event: Event, call_id: str) -> Iterator[Phase]:
        call, before = self._call_of(event), self._calls.get(call_id)
        if before is None:
            created = call.created_at if call and call.created_at and event.before else event.at
            self._first[call_id] = created
            before = _OpenPhase(created, status=event.before or "")
        if event.after == before.status and (event.approval_id or "") == before.approval:
            self._calls[call_id] = before
            return
        if before.status in _PHASES:
            yield self._close_phase(event, call, before)
        if event.after in TERMINAL:
            self._calls.pop(call_id, None)
            start = self._first.pop(call_id, before.start)
            yield replace(self._build_call_phase(event, call), kind="call", start=start, outcome=event.after)
            return
        self._calls[call_id] = _OpenPhase(
            event.at,
            event.seq,
            event.after,
            approval=event.approval_id or "",
            asks=event.asks or "",
            revision=parse_revision(event.approval_id),
        )

    def _close_phase(self, event: Event, call: Call | None, was: _OpenPhase) -> Phase:
        kind, start = _PHASES[was.status], was.start
        if kind == "validate":
            start = max(start, self._active.get(event.batch or "", start))
        outcome = (
            describe_answer(event)
            if kind == "approval"
            else describe_execution(event)
            if kind == "execute"
            else event.after
        )
        about = self._build_call_phase(event, call)
        return replace(
            about, kind=kind, start=start, outcome=outcome, seq=was.seq, asks=was.asks, revision=was.revision
        )

    def _build_call_phase(self, event: Event, call: Call | None) -> Phase:
        return Phase(
            "call",
            event.at,
            event.at,
            event.after,
            batch=event.batch,
            call=event.call,
            tool=find_tool_label(call),
            reason=find_reason(call),
            actor=event.actor or "",
            title=event.title or "",
        )

    def _apply_model_event(self, event: Event) -> Iterator[Phase]:
        was = self._step
        if event.after == "thinking":
            number = _parse_step(event)
            if was and was.step == number:
                self._step = replace(was, attempts=was.attempts + 1)
                return
            if was:
                yield self._close_step(event, was, "interrupted")
            self._step = _OpenPhase(event.at, event.seq, step=number)
        elif was and event.after in ("asked", "answered"):
            self._step = None
            yield self._close_step(event, was, event.after)

    def _close_step(self, event: Event, was: _OpenPhase, outcome: str) -> Phase:
        return Phase("step", was.start, event.at, outcome, seq=was.seq, step=was.step, attempts=was.attempts)

    def _apply_batch_event(self, event: Event, batch: str) -> Iterator[Phase]:
        if event.after == "active":
            self._active[batch] = event.at
        elif event.after in _CLOSED_STATES:
            start = self._active.pop(batch, event.at)
            yield Phase("batch", start, event.at, event.after, batch=batch, calls=event.of or 0)


def find_tool_label(call: Call | None) -> str:
    """A registered tool's name, or `unknown`: what a model made up is nobody's to count by."""
    if call is None:
        return UNKNOWN
    if call.bound:
        return call.bound.tool.name
    return call.tool if call.error and call.error.type in _TOOL_REASONS else UNKNOWN


def find_reason(call: Call | None) -> str:
    """Why a call did not succeed, in the engine's own words; `other` for a tool's."""
    if call is None or call.error is None:
        return ""
    return call.error.type if call.error.type in REASONS else OTHER


def parse_revision(approval_id: str | None) -> int:
    """Which question of its call it is."""
    number = (approval_id or "").rpartition("/")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def describe_answer(event: Event) -> str:
    """How the wait for somebody ended with this event."""
    person, runtime = event.actor == "person", event.actor == "runtime"
    match event.after:
        case Status.AWAITING_APPROVAL:
            return "asked_again"
        case Status.SCHEDULED:
            return "proceed" if person else "expired" if runtime else "answered" if not event.actor else "allowed"
        case Status.SUCCESS:
            return "respond"
        case Status.ERROR:
            return "expired" if runtime else "failed" if person else "denied"
    return "refuse" if person else "stopped"


def describe_execution(event: Event) -> str:
    """What became of a run with this event."""
    if event.after != Status.AWAITING_APPROVAL:
        return event.after
    return event.asks if event.asks in ("outcome_unknown", "question") else "asked_again"


def _parse_step(event: Event) -> int:
    found = re.match(r"step (\d{1,9})", event.note or "")
    return int(found[1]) if found else 0
