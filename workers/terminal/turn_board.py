"""The state of a watched turn: its calls, folded from events and live output. Pure.

The screen and the demo read it; nothing here prints or asks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.domain.calls.call import TERMINAL
from holdfast.domain.calls.events import Event
from holdfast.domain.turn.activity_io import LiveOutput, is_model_call

STOPPING_PREFIX = "stopping: "
"""The beginning of a call's note after a request to stop it."""
_TERMINAL_STATUSES = frozenset(status.value for status in TERMINAL)


@dataclass
class Row:
    """One call, folded from its events."""

    call: str
    batch: str
    place: int
    of: int
    tool: str
    status: str
    title: str
    display_name: str = ""
    """What the tool is called for people."""
    approval_id: str | None = None
    digest: str | None = None
    asks: str | None = None
    """The kind of its pending approval."""
    by: str | None = None
    decided: str = ""
    """Who decided, in words."""
    error: str | None = None
    stopping: bool = False
    started: datetime | None = None
    ended: datetime | None = None
    tail: str = ""
    pid: int | None = None
    growing: bool = False
    """Whether its batch may get further calls."""
    delivered: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in _TERMINAL_STATUSES


@dataclass
class Board:
    """A turn, folded from its events."""

    rows: dict[str, Row] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    active: str | None = None
    is_thinking: bool = False
    model_text: str = ""
    """The end of an incomplete reply of the model."""
    growing: set[str] = field(default_factory=set)
    """The batches that may get further calls."""
    discarded: set[str] = field(default_factory=set)
    """The batches of a failed attempt, which another attempt has replaced."""

    def apply_item(self, item: Event | LiveOutput) -> None:
        """Fold one item in."""
        if isinstance(item, LiveOutput):
            self._apply_output(item)
            return
        self.events.append(item)
        if item.kind == "call" and item.call:
            self._apply_call(item)
        elif item.kind == "result" and item.call:
            self._apply_result(item.call)
        elif item.kind == "batch" and item.batch:
            self._apply_batch(item.batch, item)
        elif item.kind in ("model", "turn"):
            self._apply_step(item)

    def _apply_output(self, output: LiveOutput) -> None:
        row = self.rows.get(output.call_id)
        if row and row.status == "executing":
            row.tail, row.pid = output.styled or output.tail, output.pid
        elif is_model_call(output.call_id) and self.is_thinking:
            self.model_text = output.tail

    def _apply_batch(self, batch: str, event: Event) -> None:
        if event.after == "active":
            self.active = batch
        elif event.after == "queued":
            self.growing |= set() if event.of else {batch}
        else:  # complete, done, withdrawn, discarding, discarded
            self._complete_batch(batch)
        if event.after.startswith("discard"):
            self.discarded.add(batch)

    def _apply_step(self, event: Event) -> None:
        if event.kind == "model" or event.after == "interrupted":
            self.is_thinking, self.model_text = event.after == "thinking", ""

    def _apply_result(self, call: str) -> None:
        if row := self.rows.get(call):
            row.delivered = True

    def _complete_batch(self, batch: str) -> None:
        """Note that a batch gets no further calls."""
        if batch in self.growing:
            self.growing.discard(batch)
            for row in self.list_batch_rows(batch):
                row.growing = False

    def _apply_call(self, event: Event) -> None:
        assert event.call, "a call's event names it"
        row = self.rows.get(event.call)
        if row is None:
            row = Row(event.call, event.batch or "", event.place or 0, event.of or 0, event.tool or "", event.after, "")
            self.rows[event.call] = row
            self._grow_batch(row)
        row.status = event.after
        row.title = event.title or row.title
        row.display_name = event.display_name or row.display_name
        row.approval_id, row.digest, row.asks = event.approval_id, event.digest, event.asks
        row.by = event.by or row.by
        row.error = event.error
        row.stopping = (event.note or "").startswith(STOPPING_PREFIX) and not row.is_terminal
        if event.after == "executing" and event.before != "executing":
            row.started = event.at
        if row.is_terminal:
            row.ended = event.at

    def _grow_batch(self, fresh: Row) -> None:
        """Update the number of calls in a batch that gets them one by one."""
        if fresh.batch in self.growing:
            for row in self.list_batch_rows(fresh.batch):
                row.of, row.growing = fresh.of, True

    def list_batch_rows(self, batch: str | None) -> list[Row]:
        """The calls of a batch, in order."""
        return sorted((row for row in self.rows.values() if row.batch == batch), key=lambda row: row.place)

    @property
    def waiting_rows(self) -> list[Row]:
        """The calls that wait for a person, in order."""
        return [
            row for row in self.list_batch_rows(self.active) if row.status == "awaiting_approval" and row.approval_id
        ]

    def find_held_back(self, batch: str | None) -> dict[str, str]:
        """What ended calls wait for whose results are not delivered yet (S13)."""
        found: dict[str, str] = {}
        first: Row | None = None
        for row in self.list_batch_rows(batch) if batch not in self.discarded else ():
            first = first or (None if row.is_terminal else row)
            if row.is_terminal and not row.delivered and (first or row.growing):
                found[row.call] = f"after {first.call}" if first else "when the reply is complete"
        return found

    def count_by_status(self) -> dict[str, int]:
        """How many calls are in which state."""
        found: dict[str, int] = {}
        for row in self.rows.values():
            found[row.status] = found.get(row.status, 0) + 1
        return found
