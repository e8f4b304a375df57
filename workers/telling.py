"""Events as lines, each in the light of those before it: what is worth one, and what it says. Pure.

A result is worth a line where it was held back: usually a call's answer is delivered in the moment in which it ends.
"""

from __future__ import annotations

from rich.console import RenderableType

from holdfast.events import Event
from holdfast.workers import render
from holdfast.workers.board import Board, Row

FINISHED_NOTE = "; it had finished"
"""How the reason of a discarded call ends that had done its work."""


class EventTeller:
    """One viewer of one turn."""

    def __init__(self) -> None:
        self._board = Board()

    def render_event(self, event: Event) -> RenderableType | None:
        """The next event as a line; None when it is not worth one."""
        self._board.apply_item(event)
        if event.kind == "batch" and event.after == "complete":
            return None  # its calls show it
        row = self._board.rows.get(event.call or "")
        if row is None or event.kind not in ("call", "result"):
            return render.render_event(event)
        if event.kind == "call":
            discarded = row.batch in self._board.discarded
            said = _describe_discarded(event, row) if discarded else self._describe_arrival(event, row)
            return render.render_event(event, growing=row.growing, remark=said, dim=discarded)
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
    """Why, its batch has said: here it is told what it was."""
    finished = "it had finished: " if (event.error or "").endswith(FINISHED_NOTE) else ""
    return f"discarded: {finished}{row.title or row.tool}"
