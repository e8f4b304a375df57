"""Events: what changed in a turn, in order, for whoever watches (S8).

Events are derived by comparing a batch before and after, so no code path can change a call and forget to say so.
They live in the workflow's memory and are read by query; they are not Temporal's history events.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from holdfast.approvals import ApprovalId
from holdfast.batches import Batch
from holdfast.calls import Call, Status
from holdfast.content import shorten, visible
from holdfast.model import Data

SUMMARY_LIMIT = 300

EventKind = Literal["call", "batch", "model", "turn"]


class Event(Data):
    """One change. For a call: which, its place in its batch, the state before and after."""

    seq: int
    at: datetime
    kind: EventKind
    batch: str | None = None
    call: str | None = None
    place: int | None = None
    of: int | None = None
    tool: str | None = None
    before: str | None = None
    after: str
    title: str | None = None
    approval_id: str | None = None
    digest: str | None = None
    asks: str | None = None
    """What a call that waits asks for: the kind of its confirmation."""
    rule: str | None = None
    by: str | None = None
    error: str | None = None
    note: str | None = None


class EventPage(Data):
    """What the `events` query answers: events after a sequence number, oldest first; `more` when it was cut."""

    events: tuple[Event, ...] = ()
    more: bool = False
    finished: bool = False


def call_changes(turn_id: str, before: Batch | None, after: Batch) -> Iterator[dict[str, object]]:
    """The fields of one event for each call that differs between two states of a batch."""
    former = {call.id: call for call in before.calls} if before and before.id == after.id else {}
    for place, call in enumerate(after.calls, start=1):
        old = former.get(call.id)
        if old is None or _differs(old, call):
            yield {
                "kind": "call",
                "batch": after.id,
                "place": place,
                "of": len(after.calls),
                **_describe(turn_id, old, call),
            }


def _differs(old: Call, new: Call) -> bool:
    return (old.status, old.revision, old.stopping) != (new.status, new.revision, new.stopping)


def _describe(turn_id: str, old: Call | None, call: Call) -> dict[str, object]:
    asking = call.status is Status.AWAITING_APPROVAL
    decided = old is not None and old.decision is not call.decision and call.decision
    error = call.error
    return {
        "call": call.id,
        "tool": line(call.tool, 100),
        "before": old.status.value if old else None,
        "after": call.status.value,
        "title": line(call.bound.title) if call.bound else None,
        "approval_id": str(ApprovalId(turn_id, call.id, call.revision)) if asking else None,
        "digest": call.bound.digest if asking and call.bound else None,
        "asks": call.confirmation.kind if asking and call.confirmation else None,
        "rule": call.rule if old and old.status is Status.VALIDATING else None,
        "by": line(decided.by, 100) if decided and decided.by else None,
        "error": line(f"{error.type}: {error.message}") if error else None,
        "note": f"stopping: {line(call.stopping)}" if call.stopping else None,
    }


def line(text: str, limit: int = SUMMARY_LIMIT) -> str:
    """A text as an event carries it: short, and harmless for a terminal."""
    return visible(shorten(text, limit))
