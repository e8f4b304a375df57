"""Events: the changes of a turn, in order, for its viewers (S8).

Events are derived by comparing a batch before and after, so no code path can change a call without an event. They are
in the workflow's memory and are read by query; they are not history events of Temporal.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from holdfast.domain.approvals.approval import ActorKind, ApprovalId
from holdfast.domain.base import Data
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.content import format_tool_name
from holdfast.util.text import escape_controls, shorten_text

SUMMARY_LIMIT = 300

EventKind = Literal["call", "result", "batch", "model", "turn"]


class Event(Data):
    """One change of a turn. For a call: its id, its place in the batch, the state before and after.

    A `result` event says that the response of a call is delivered, in the order of the request, each once (S13). In a
    turn with a model that may be before the reply is complete; if the reply then fails, the batch is `discarded`.
    """

    seq: int
    at: datetime
    kind: EventKind
    batch: str | None = None
    call: str | None = None
    place: int | None = None
    of: int | None = None
    tool: str | None = None
    display_name: str | None = None
    """What the tool is called for people, where that is not its name."""
    before: str | None = None
    after: str
    title: str | None = None
    approval_id: str | None = None
    digest: str | None = None
    asks: str | None = None
    """The kind of the confirmation of a call that awaits approval."""
    rule: str | None = None
    by: str | None = None
    """Who decided: the name of the person, rule, hook or part of the runtime."""
    actor: ActorKind | None = None
    error: str | None = None
    note: str | None = None


class EventPage(Data):
    """The answer of the query `events`: events after a sequence number, oldest first. `more`: there are others."""

    events: tuple[Event, ...] = ()
    more: bool = False
    finished: bool = False
    earlier: str | None = None
    """The earlier run of the turn that has these events: query that run instead."""


def list_call_changes(turn_id: str, before: Batch | None, after: Batch) -> Iterator[dict[str, object]]:
    """Yield the fields of one event for each call that differs between two states of a batch."""
    former = {call.id: call for call in before.calls} if before and before.id == after.id else {}
    for place, call in enumerate(after.calls, start=1):
        old = former.get(call.id)
        if old is None or _is_changed(old, call):
            yield {
                "kind": "call",
                "batch": after.id,
                "place": place,
                "of": len(after.calls),
                **_build_event_fields(turn_id, old, call),
            }


def list_deliveries(before: Batch | None, after: Batch, *, early: bool = False) -> Iterator[dict[str, object]]:
    """Yield the fields of one event for each call whose response has become deliverable."""
    known = len(before.list_deliverable(early=early)) if before and before.id == after.id else 0
    for place, call in enumerate(after.list_deliverable(early=early)[known:], start=known + 1):
        yield {
            "kind": "result",
            "batch": after.id,
            "call": call.id,
            "place": place,
            "of": len(after.calls),
            "tool": format_tool_name(call.tool),
            "display_name": _find_display_name(call),
            "title": shorten_line(call.bound.title) if call.bound else None,
            "after": call.status.value,
        }


def _is_changed(old: Call, new: Call) -> bool:
    return _select_facts(old) != _select_facts(new)


def _select_facts(call: Call) -> tuple[object, ...]:
    """Return the facts of a call whose change makes an event."""
    return (
        call.status, call.revision, call.stopping, len(call.approvals), call.warned, call.editing and call.editing.by,
        call.changing is not None, call.problem,
    )  # fmt: skip


def _build_event_fields(turn_id: str, old: Call | None, call: Call) -> dict[str, object]:
    asking = call.status is Status.AWAITING_APPROVAL
    decided = call.actor if old and old.actor != call.actor else None
    error = call.error
    return {
        "call": call.id,
        "tool": format_tool_name(call.tool),
        "display_name": _find_display_name(call),
        "before": old.status.value if old else None,
        "after": call.status.value,
        "title": shorten_line(call.bound.title) if call.bound else None,
        "approval_id": str(ApprovalId(turn_id, call.id, call.revision)) if asking else None,
        "digest": call.approval_digest if asking else None,
        "asks": call.confirmation.kind if asking and call.confirmation else None,
        "rule": call.rule if old and old.status is Status.VALIDATING else None,
        "by": shorten_line(decided.name, 100) if decided else None,
        "actor": decided.kind if decided else None,
        "error": shorten_line(f"{error.type}: {error.message}") if error else None,
        "note": shorten_line(_describe_details(old, call)) or None,
    }


def _find_display_name(call: Call) -> str | None:
    shown = call.bound.tool.display_name if call.bound else None
    return shorten_line(shown, 100) if shown and shown != call.tool else None


def _describe_details(old: Call | None, call: Call) -> str:
    """Describe a change that the status does not show."""
    if call.stopping:
        return f"stopping: {call.stopping}"
    if old is None or call.status is not Status.AWAITING_APPROVAL or old.status is not call.status:
        return ""
    if call.problem and call.problem != old.problem:
        return f"the change was not taken: {call.problem}"
    if call.changing and not old.changing:
        return f"changed by {call.changing.by or 'somebody'}"
    if call.confirmation and len(call.approvals) != len(old.approvals):
        return f"{len(call.approvals)} of {call.confirmation.needs.approvals} approvals"
    if call.warned and not old.warned and call.deadline_at:
        return f"the deadline is near: {call.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    if call.editing and call.editing != old.editing:
        return f"{call.editing.by} is editing it"
    return "nobody is editing it any more" if old.editing and not call.editing and call.revision == old.revision else ""


def shorten_line(text: str, limit: int = SUMMARY_LIMIT) -> str:
    """Shorten a text for an event, and escape its control characters."""
    return escape_controls(shorten_text(text, limit))
