"""The log of a turn's events, in order, for its viewers (S8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdfast.domain.calls.events import Event, EventPage
from holdfast.domain.turn.carryover import EarlierRun, RunCarryover

EVENTS_PER_PAGE = 500


class EventLog:
    """The events of one run of a turn. Every event also wakes the workflow, which waits for `has_changed`."""

    def __init__(self, clock: Callable[[], datetime], carried: RunCarryover | None = None) -> None:
        self.now = clock
        """The time of the turn."""
        self.events: list[Event] = []
        self.runs: tuple[EarlierRun, ...] = carried.runs if carried else ()
        """The earlier runs of the turn (S42). They keep their own events."""
        self.is_closed = False
        """The turn has ended, and its last event is written."""
        self.has_changed = False
        """The turn has changed since the workflow last cleared this."""
        self.watcher: Callable[[Event], None] | None = None
        """Called with every event. It must not change the turn."""
        self._earlier_events = carried.events if carried else 0

    @property
    def last_number(self) -> int:
        """The number of the last event, counted over all runs."""
        return self._earlier_events + len(self.events)

    def emit(self, **fields: Any) -> None:
        """Append an event with the next number and the present time."""
        self.events.append(Event(seq=self.last_number + 1, at=self.now(), **fields))
        self.has_changed = True
        if self.watcher:
            self.watcher(self.events[-1])

    def close(self, **fields: Any) -> None:
        """Append the last event of the turn."""
        self.is_closed = True
        self.emit(**fields)

    def build_page(self, after: int) -> EventPage:
        """Build a page of the events after a number, oldest first. For events of an earlier run it names that run."""
        if earlier := next((run for run in self.runs if after < run.events), None):
            return EventPage(earlier=earlier.run_id, more=True)
        start = max(0, after - self._earlier_events)
        found = self.events[start : start + EVENTS_PER_PAGE]
        more = start + len(found) < len(self.events)
        return EventPage(events=tuple(found), more=more, finished=self.is_closed and not more)
