"""The events of a turn as lines of text. Pure.

The delivery of a result gets a line only if it was held back: usually a result is delivered when its call ends.
"""

from __future__ import annotations

from rich.console import RenderableType

from holdfast.domain.calls.events import Event
from holdfast.workers.terminal import render
from holdfast.workers.terminal.render import format_actor, format_line
from holdfast.workers.terminal.turn_board import Board, Row

FINISHED_NOTE = "; it had finished"
"""The end of the reason of a discarded call that had finished."""


class EventTeller:
    """One viewer of one turn."""

    def __init__(self) -> None:
        self._board = Board()

    def render_event(self, event: Event) -> RenderableType | None:
        """The next event as a line; None when it gets none."""
        self._board.apply_item(event)
        if event.kind == "batch" and event.after == "complete":
            return None  # its calls show it
        row = self._board.rows.get(event.call or "")
        if row is None or event.kind not in ("call", "result"):
            return render.render_event(event)
        if event.kind == "call":
            discarded = row.batch in self._board.discarded
            remark = _describe_discarded(event, row) if discarded else self._describe_arrival(event, row)
            return render.render_event(event, growing=row.growing, remark=remark, dim=discarded)
        if row.ended is None or event.at <= row.ended:
            return None
        seconds = (event.at - row.ended).total_seconds()
        return render.render_event(
            event, remark=f"{seconds:.1f} s after its end, {self._describe_blocker(row)}", dim=True
        )

    def _describe_arrival(self, event: Event, row: Row) -> str | None:
        came = event.before is None and row.growing and self._board.is_thinking
        return "while the model still writes" if came else None

    def _describe_blocker(self, row: Row) -> str:
        """The call before it that ended last, or else the end of the reply that it is part of."""
        before = [other for other in self._board.list_batch_rows(row.batch) if other.place < row.place and other.ended]
        ends = {other.ended: other.call for other in before if other.ended and row.ended and other.ended > row.ended}
        return f"behind {ends[max(ends)]}" if ends else "when the reply was complete"


def _describe_discarded(event: Event, row: Row) -> str:
    """Which call was discarded; the event of its batch has the reason."""
    finished = "it had finished: " if (event.error or "").endswith(FINISHED_NOTE) else ""
    return f"discarded: {finished}{row.title or row.tool}"


TURN_EVENTS = frozenset({"mode", "granted", "refused", "revoked"})
"""Events of a turn that change it while it runs."""


def describe_news(event: Event, me: str) -> str | None:
    """The text of an event that no row of the board shows; None when there is nothing to print."""
    note = event.note or ""
    if event.kind == "turn" and event.after == "interrupted":  # also one's own, from another terminal
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
    """What happened to a call while a person was asked about it."""
    after = event.after.replace("_", " ")
    if event.approval_id:
        return "Changed elsewhere: it needs approval again."
    if event.actor == "runtime":
        return f"Nobody answered before the deadline: {after}."
    if event.by == me:
        return f"Decided by your earlier grant or decision: {after}."
    if event.by or event.after != "cancelled":
        by = f" by {format_actor(event.actor, event.by)}" if event.by else ""
        return f"Decided elsewhere{by}: {after}."
    return "Call stopped with the turn." if "the turn" in (event.error or "").lower() else "Call stopped elsewhere."
