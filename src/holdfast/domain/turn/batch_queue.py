"""The batches of one turn and what became of them: queued, at work, done; and the events that tell of it.

Every change of a call goes through here, so every change is an event.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import dropwhile
from typing import Any

from holdfast.domain.calls.batch import Batch, build_batch, complete_batch, stop_calls, withdraw_batch
from holdfast.domain.calls.call import Call, CallRequest
from holdfast.domain.calls.events import Event, EventPage, list_call_changes, list_deliveries
from holdfast.domain.content import Response
from holdfast.domain.turn.carryover import EarlierRun
from holdfast.domain.turn.turn_io import BatchResult, TurnStatus, build_batch_result
from holdfast.errors import RequestRefused

EVENTS_PER_PAGE = 500
SUBMITTED_KEPT = 1_000
PAGE_CHARACTERS = 4_000_000
"""Of answers that are asked for at once; more where one of them is longer."""


class QueueState:
    """Batches in order. `changed` is set by whatever changes them, and cleared by whoever waits for that."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        self.turn_id = turn_id
        self.queue: list[Batch] = []
        self.active: Batch | None = None
        self.done_batches: list[Batch] = []
        self.events: list[Event] = []
        self.stop: tuple[TurnStatus, str] | None = None
        self.is_over = False
        self.has_changed = False
        self.writing: str | None = None
        """The stream that a model step of ours is writing."""
        self.submitted: dict[str, str] = {}
        """The batches that callers queued, the newest, by the keys under which they did."""
        self.runs: tuple[EarlierRun, ...] = ()
        """Of this turn, before this one (S42)."""
        self.watcher: Callable[[Event], None] | None = None
        """Is told of every event. It changes nothing."""
        self._clock = clock
        self._batches = 0
        self._events = 0
        """Those that earlier runs tell."""
        self._calls = 0
        """Those of their batches."""

    @property
    def may_deliver_early(self) -> bool:
        """Are answers told before the reply is complete that asks for them, and that may yet be discarded?"""
        return False

    @property
    def active_batch(self) -> Batch:
        """The batch at work."""
        assert self.active is not None, "no batch is at work"
        return self.active

    def enqueue_batch(self, requests: tuple[CallRequest, ...]) -> Batch:
        """Queue a batch."""
        self._batches += 1
        batch = build_batch(f"b{self._batches}", requests, self._clock())
        self.queue.append(batch)
        self._emit_event(kind="batch", batch=batch.id, of=len(batch.calls), after="queued")
        self._write_changes(None, batch)
        return batch

    def submit_batch(self, requests: tuple[CallRequest, ...], key: str) -> str:
        """Queue a batch of a caller, once for each key; its id."""
        if key not in self.submitted:
            self.submitted[key] = self.enqueue_batch(requests).id
            self.submitted = dict(list(self.submitted.items())[-SUBMITTED_KEPT:])
        return self.submitted[key]

    def activate_batch(self) -> Batch:
        """Take the next batch of the queue to work."""
        self.active = self.queue.pop(0)
        self._emit_event(kind="batch", batch=self.active.id, of=len(self.active.calls), after="active")
        return self.active

    def update_batch(self, batch: Batch) -> None:
        """Replace the batch at work by what became of it."""
        before, self.active = self.active, batch
        self._write_changes(before, batch)

    def retire_batch(self) -> None:
        """Put the finished batch at work aside; a model will read its responses."""
        batch, self.active = self.active_batch, None
        self._close_batch(batch)

    def get_queued_batch(self, batch_id: str) -> Batch:
        """The queued batch with this id, or RequestRefused."""
        batch = next((batch for batch in self.queue if batch.id == batch_id), None)
        if batch is None:
            raise RequestRefused("not_queued", f"no queued batch is called {batch_id!r}: it has started, or never was")
        return batch

    def withdraw_batch(self, batch_id: str) -> BatchResult:
        """Take a queued batch back (S14)."""
        batch = self.get_queued_batch(batch_id)
        self.queue.remove(batch)
        self._close_unstarted(batch, withdraw_batch(batch, self._clock()))
        return build_batch_result(self.done_batches[-1], "withdrawn")

    def stop_call(self, call_id: str, reason: str | None) -> None:
        """Stop one call; its siblings go on."""
        self.update_batch(
            stop_calls(self.active_batch, reason or "The call was cancelled", self._clock(), only={call_id})
        )

    def stop_batch(self, reason: str | None) -> None:
        """Stop every call of the batch at work, and what would still come to it; the turn goes on."""
        after = stop_calls(self.active_batch, reason or "The batch was cancelled", self._clock())
        self.update_batch(after if after.stream and after.stream == self.writing else complete_batch(after))

    def stop_turn(self, status: TurnStatus, reason: str) -> None:
        """Stop everything. The first reason stands."""
        self.stop = self.stop or (status, reason)
        if self.active:
            self.update_batch(complete_batch(stop_calls(self.active, self.stop[1], self._clock())))
        self.has_changed = True

    @property
    def call_count(self) -> int:
        """How many there have been, and are."""
        batches = (*self.done_batches, *([self.active] if self.active else []), *self.queue)
        return self._calls + sum(len(batch.calls) for batch in batches)

    @property
    def last_event_number(self) -> int:
        """The number of the last event."""
        return self._events + len(self.events)

    def build_event_page(self, after: int) -> EventPage:
        """The events after a sequence number, oldest first; those of an earlier run, that one tells."""
        if earlier := next((run for run in self.runs if after < run.events), None):
            return EventPage(earlier=earlier.run_id, more=True)
        start = max(0, after - self._events)
        found = self.events[start : start + EVENTS_PER_PAGE]
        more = start + len(found) < len(self.events)
        return EventPage(events=tuple(found), more=more, finished=self.is_over and not more)

    def find_call(self, call_id: str) -> Call | None:
        """The whole record of one call, wherever it is."""
        batch = self._find_batch(call_id.partition("c")[0])
        return batch.get(call_id) if batch else None

    def find_event_call(self, event: Event) -> Call | None:
        """The call that an event is about, as it is now; None of one that this run no longer has."""
        batch = self._find_batch(event.batch) if event.batch and event.place else None
        calls = batch.calls if batch else ()
        return calls[event.place - 1] if event.place and event.place <= len(calls) else None

    def list_answers(self, call_id: str) -> tuple[Response, ...]:
        """The answers from that of this call on, in order: a page of them. Which are delivered, events tell (S13)."""
        batches = sorted((*self.done_batches, *([self.active] if self.active else [])), key=parse_batch_number)
        first = int(call_id.partition("c")[0].removeprefix("b"))
        calls = [call for batch in batches if parse_batch_number(batch) >= first for call in batch.answered_calls]
        found: list[Response] = []
        room = PAGE_CHARACTERS
        for call in dropwhile(lambda call: call.id != call_id, calls):
            if room <= 0 or call.response is None:
                break
            found.append(call.response)
            room -= len(call.response.text)
        return tuple(found)

    def list_ended_batches(self) -> tuple[BatchResult, ...]:
        """The batches that are done, in order of submission."""
        return tuple(sorted((build_batch_result(batch, "done") for batch in self.done_batches), key=parse_batch_number))

    def list_results(self) -> tuple[BatchResult, ...]:
        """Every batch with the responses it has, in order of submission."""
        known = [build_batch_result(batch, "done") for batch in self.done_batches]
        known += [build_batch_result(self.active, "active")] if self.active else []
        known += [build_batch_result(batch, "queued") for batch in self.queue]
        return tuple(sorted(known, key=parse_batch_number))

    def _find_batch(self, batch_id: str) -> Batch | None:
        """The batch with this id, wherever it is."""
        batches = (*([self.active] if self.active else []), *self.queue, *reversed(self.done_batches))
        return next((batch for batch in batches if batch.id == batch_id), None)

    def _close_unstarted(self, before: Batch, after: Batch) -> None:
        self._write_changes(before, after)
        self._close_batch(after)

    def _close_batch(self, batch: Batch) -> None:
        self.done_batches.append(batch)
        after = build_batch_result(batch, "done").status
        self._emit_event(kind="batch", batch=batch.id, of=len(batch.calls), after=after)

    def _write_changes(self, before: Batch | None, after: Batch) -> None:
        for change in list_call_changes(self.turn_id, before, after):
            self._emit_event(**change)
        if before and after.complete and not before.complete and not after.discarded:
            self._emit_event(kind="batch", batch=after.id, of=len(after.calls), after="complete")
        for change in list_deliveries(before, after, early=self.may_deliver_early):
            self._emit_event(**change)

    def _emit_event(self, **fields: Any) -> None:
        self.events.append(Event(seq=self.last_event_number + 1, at=self._clock(), **fields))
        self.has_changed = True
        if self.watcher:
            self.watcher(self.events[-1])


def parse_batch_number(batch: Batch | BatchResult) -> int:
    """Its place in the order of submission."""
    return int(batch.id.removeprefix("b"))
