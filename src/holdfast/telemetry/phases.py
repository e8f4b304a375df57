"""Phases of a turn with their durations, from its events: approval, execution, model step, batch, the turn itself.

Spans and metrics are both made of phases. Pure. A phase holds names and times, no arguments and no results (its title
excepted), and only names of registered tools.
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
"""The tool label of a call whose tool is not registered, or was not looked up."""
OTHER = "other"
_TOOL_REASONS = {"invalid_tool_params", "denied", "file_changed", "tool_not_available", "refused"}
"""The error types of calls whose tool is known to be registered."""
REASONS = frozenset(
    {
        "denied", "expired", "refused", "invalid_tool_params", "tool_not_registered", "tool_not_available", "timeout",
        "outcome_unknown", "worker_lost", "no_worker", "validation_failed", "discarded", "file_changed", "cancelled",
        "not_covered", "ledger_unavailable", "needs_a_person", "mcp_unavailable", "mcp_unauthorized", "tool_changed",
    }
)  # fmt: skip
"""The engine's own error types. Tools may use any text as a type."""
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
    """A part of a turn that has ended."""

    kind: PhaseKind
    start: datetime
    end: datetime
    outcome: str
    seq: int = 0
    """The number of the event that began it; 0 when that event is in an earlier run."""
    batch: str | None = None
    call: str | None = None
    tool: str = UNKNOWN
    reason: str = ""
    """For a call that did not succeed: its error type if that is one of REASONS, else `other`."""
    asks: str = ""
    """For an approval: the kind of its confirmation."""
    revision: int = 0
    actor: str = ""
    """For an approval: the kind of actor that ended it."""
    step: int = 0
    attempts: int = 1
    calls: int = 0
    title: str = ""
    """The title of the call, which may hold arguments."""

    @property
    def seconds(self) -> float:
        """The duration."""
        return max(0.0, (self.end - self.start).total_seconds())

    @property
    def has_failed(self) -> bool:
        """Did it end with an error or an unknown outcome?"""
        return self.outcome in ("error", "failed", "outcome_unknown")


@dataclass(frozen=True)
class _OpenPhase:
    """A phase that has begun and not ended."""

    start: datetime
    seq: int = 0
    status: str = ""
    approval: str = ""
    asks: str = ""
    revision: int = 0
    step: int = 0
    attempts: int = 1


class PhaseTracker:
    """The open phases of a turn. Apply its events one by one to get the phases that end."""

    def __init__(self, began_at: datetime, call_of: Callable[[Event], Call | None]) -> None:
        """`call_of` returns the call of an event, as it is now."""
        self._began_at = began_at
        self._call_of = call_of
        self._calls: dict[str, _OpenPhase] = {}
        self._first: dict[str, datetime] = {}
        self._active: dict[str, datetime] = {}
        self._step: _OpenPhase | None = None

    def apply_event(self, event: Event) -> list[Phase]:
        """Apply an event, and return the phases that end with it."""
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
        """Return the number of the event with which a call started; 0 when it started in an earlier run."""
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
    """Return the tool's name if it is registered, else `unknown`: names that models invent are not labels."""
    if call is None:
        return UNKNOWN
    if call.bound:
        return call.bound.tool.name
    return call.tool if call.error and call.error.type in _TOOL_REASONS else UNKNOWN


def find_reason(call: Call | None) -> str:
    """Return the error type of a call if that is one of REASONS, else `other`; empty without an error."""
    if call is None or call.error is None:
        return ""
    return call.error.type if call.error.type in REASONS else OTHER


def parse_revision(approval_id: str | None) -> int:
    """Return the revision in an approval id; 0 when there is none."""
    number = (approval_id or "").rpartition("/")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def describe_answer(event: Event) -> str:
    """Return the outcome of an approval that ends with this event."""
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
    """Return the outcome of an execution that ends with this event."""
    if event.after != Status.AWAITING_APPROVAL:
        return event.after
    return event.asks if event.asks in ("outcome_unknown", "question") else "asked_again"


def _parse_step(event: Event) -> int:
    found = re.match(r"step (\d{1,9})", event.note or "")
    return int(found[1]) if found else 0
