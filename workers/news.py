"""What others do in a turn, told to somebody who watches it. Pure."""

from __future__ import annotations

from holdfast.events import Event
from holdfast.workers.render import format_actor, format_line

TURN_EVENTS = frozenset({"mode", "granted", "refused", "revoked"})
"""What of a turn is changed while it runs."""


def describe_news(event: Event, me: str) -> str | None:
    """What has just happened that no row of the board shows, and decides nothing yet; None when nothing has."""
    note = event.note or ""
    if event.kind == "turn" and event.after == "interrupted":  # also by oneself: it is said in another terminal
        return f"{format_line(event.by, 80) or 'somebody'} interrupts: {note}"
    if event.kind == "turn" and event.after == "context":
        return f"the calls after this one run with {note}"
    if event.kind == "batch" and event.after == "discarding":
        return f"batch {event.batch} is discarded: {note}"
    if event.kind == "turn" and event.after in TURN_EVENTS and event.by != me:
        return f"{note} (by {format_line(event.by, 80)})"
    own = (f"{me} is editing", f"changed by {me}", "nobody is editing")
    if event.kind == "call" and event.approval_id and note and not note.startswith(own):
        return f"call {event.place} of {event.of}: {note}"
    return None


def describe_interim_change(event: Event, me: str) -> str:
    """What happened to a call while it was being asked about."""
    after = event.after.replace("_", " ")
    if event.approval_id:
        return "Changed elsewhere: it is asked about again."
    if event.actor == "runtime":
        return f"Nobody answered before the deadline: {after}."
    if event.by == me:
        return f"Answered by what you said before: {after}."
    if event.by or event.after != "cancelled":
        by = f" by {format_actor(event.actor, event.by)}" if event.by else ""
        return f"Decided elsewhere{by}: {after}."
    return "Call stopped with the turn." if "the turn" in (event.error or "").lower() else "Call stopped elsewhere."
