"""The batches of one turn: queued, active, done. Every change of a call is made here, and becomes an event."""

from __future__ import annotations

from collections import Counter
from itertools import dropwhile

from holdfast.domain.calls.batch import (
    Batch,
    build_batch,
    complete_batch,
    discard_batch,
    extend_batch,
    interrupt_calls,
    stop_calls,
    withdraw_batch,
)
from holdfast.domain.calls.call import Call, CallRequest
from holdfast.domain.calls.events import Event, list_call_changes, list_deliveries, shorten_line
from holdfast.domain.content import Response
from holdfast.domain.turn.carryover import RunCarryover
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.turn_io import BatchResult, TurnStatus, build_batch_result
from holdfast.errors import RequestRefused

SUBMITTED_KEPT = 1_000
PAGE_CHARACTERS = 4_000_000
"""Characters of answers in one page; more where a single answer is longer."""


class BatchQueue:
    """Batches in the order of submission. One batch is active at a time (S14)."""

    def __init__(
        self, turn_id: str, log: EventLog, *, delivers_early: bool = False, carried: RunCarryover | None = None
    ) -> None:
        """`delivers_early`: answers are delivered before the reply that asks for them is complete."""
        self.turn_id = turn_id
        self.queued: list[Batch] = list(carried.queue) if carried else []
        self.active: Batch | None = None
        self.done: list[Batch] = []
        self.stop: tuple[TurnStatus, str] | None = None
        """The status with which the turn will end, and the reason. Once it is set, no further batch starts."""
        self.delivers_early = delivers_early
        self.batch_count = carried.batches if carried else 0
        self.earlier_calls = carried.calls if carried else 0
        """The number of calls in earlier runs and in delegated turns."""
        self.submitted: dict[str, str] = dict(carried.submitted) if carried else {}
        """The newest submitted batches: batch ids by submission key."""
        self._earlier_statuses: Counter[str] = Counter(carried.counts if carried else ())
        self._log = log

    @property
    def active_batch(self) -> Batch:
        """The active batch, for callers that know that there is one."""
        assert self.active is not None, "no batch is active"
        return self.active

    @property
    def started_batches(self) -> tuple[Batch, ...]:
        """The batches that are done, then the active one."""
        return (*self.done, self.active) if self.active else tuple(self.done)

    @property
    def call_count(self) -> int:
        """The number of calls of the turn, queued ones included."""
        return self.earlier_calls + sum(len(batch) for batch in (*self.started_batches, *self.queued))

    @property
    def status_counts(self) -> Counter[str]:
        """The number of started calls in each status."""
        started = (call.status.value for batch in self.started_batches for call in batch.calls)
        return self._earlier_statuses + Counter(started)

    # Batches are added

    def enqueue_batch(self, requests: tuple[CallRequest, ...]) -> Batch:
        """Queue a batch."""
        batch = build_batch(self._take_id(), requests, self._log.now())
        self.queued.append(batch)
        self._log.emit(kind="batch", batch=batch.id, of=len(batch), after="queued")
        self._emit_changes(None, batch)
        return batch

    def submit_batch(self, requests: tuple[CallRequest, ...], key: str) -> str:
        """Queue a caller's batch and return its id. A second submission under the same key queues nothing."""
        if key not in self.submitted:
            self.submitted[key] = self.enqueue_batch(requests).id
            self.submitted = dict(list(self.submitted.items())[-SUBMITTED_KEPT:])
        return self.submitted[key]

    def open_batch(self, stream: str, attempt: int) -> Batch:
        """Queue an empty batch for the calls of one attempt of a stream."""
        batch = Batch(id=self._take_id(), stream=stream, attempt=attempt, complete=False)
        self.queued.append(batch)
        note = f"attempt {attempt}" if attempt > 1 else None
        self._log.emit(kind="batch", batch=batch.id, of=0, after="queued", note=note)
        return batch

    def extend_batch(self, batch: Batch, requests: tuple[CallRequest, ...], *, complete: bool) -> Batch:
        """Add calls to a batch; `complete` says that these were the last."""
        after = extend_batch(batch, requests, self._log.now())
        return self._replace_batch(batch, complete_batch(after) if complete else after)

    def complete_batch(self, batch: Batch) -> Batch:
        """Note that no further call comes to a batch."""
        return self._replace_batch(batch, complete_batch(batch))

    def complete_all(self) -> None:
        """Note that no further call comes to any batch."""
        for batch in [*([self.active] if self.active else []), *self.queued]:
            if not batch.complete:
                self.complete_batch(batch)

    # The active batch

    def activate_batch(self) -> Batch:
        """Make the next queued batch the active one, and return it."""
        self.active = self.queued.pop(0)
        self._log.emit(kind="batch", batch=self.active.id, of=len(self.active), after="active")
        return self.active

    def update_batch(self, batch: Batch) -> None:
        """Replace the active batch by its next state, and emit events for the changes."""
        before, self.active = self.active, batch
        self._emit_changes(before, batch)

    def retire_batch(self) -> Batch:
        """Move the finished active batch to the done ones, and return it."""
        batch, self.active = self.active_batch, None
        return self._close_batch(batch)

    # Batches stop

    def get_queued_batch(self, batch_id: str) -> Batch:
        """Return the queued batch with this id. RequestRefused when there is none."""
        batch = next((batch for batch in self.queued if batch.id == batch_id), None)
        if batch is None:
            raise RequestRefused("not_queued", f"no queued batch is called {batch_id!r}: it has started, or never was")
        return batch

    def withdraw_batch(self, batch_id: str) -> BatchResult:
        """Withdraw a queued batch (S14). RequestRefused when it is not queued."""
        batch = self.get_queued_batch(batch_id)
        self.queued.remove(batch)
        return build_batch_result(self._close_unstarted(batch, withdraw_batch(batch, self._log.now())), "withdrawn")

    def discard_batch(self, batch: Batch, reason: str) -> None:
        """Discard the batch of a failed attempt: no further call of it starts, and no model reads it (S12)."""
        note = shorten_line(reason)
        self._log.emit(kind="batch", batch=batch.id, of=len(batch), after="discarding", note=note)
        discarded = discard_batch(batch, reason, self._log.now())
        if batch in self.queued:
            self.queued.remove(batch)
            self._close_unstarted(batch, discarded)
        else:
            self.update_batch(discarded)

    def stop_call(self, call_id: str, reason: str | None) -> None:
        """Stop one call of the active batch; its siblings go on."""
        reason = reason or "The call was cancelled"
        self.update_batch(stop_calls(self.active_batch, reason, self._log.now(), only={call_id}))

    def stop_batch(self, reason: str | None, *, writing: str | None = None) -> None:
        """Stop every call of the active batch; the turn goes on.

        Calls that are added later are cancelled. Only the stream that a model step is `writing` may add any.
        """
        after = stop_calls(self.active_batch, reason or "The batch was cancelled", self._log.now())
        self.update_batch(after if after.stream and after.stream == writing else complete_batch(after))

    def stop_all(self, status: TurnStatus, reason: str) -> None:
        """Stop the active batch, and start no other. The first status and reason stay."""
        self.stop = self.stop or (status, reason)
        if self.active:
            self.update_batch(complete_batch(stop_calls(self.active, self.stop[1], self._log.now())))
        self._log.has_changed = True

    def interrupt_calls(self, reason: str, *, queued: bool) -> None:
        """Interrupt the calls of the active batch, and with `queued` of the queued ones (S18). No other call starts."""
        for batch in list(self.queued) if queued else ():
            self._replace_batch(batch, interrupt_calls(batch, reason, self._log.now()))
        if self.active:
            self.update_batch(complete_batch(interrupt_calls(self.active, reason, self._log.now())))

    def close_queued(self, reason: str) -> tuple[Batch, ...]:
        """Cancel every call of the queued batches, and return these batches."""
        batches, self.queued = self.queued, []
        now = self._log.now
        return tuple(self._close_unstarted(one, complete_batch(stop_calls(one, reason, now()))) for one in batches)

    # Reading

    def find_batch(self, batch_id: str) -> Batch | None:
        """Return the batch with this id, in any state; None when this run has none."""
        batches = (*([self.active] if self.active else []), *self.queued, *reversed(self.done))
        return next((batch for batch in batches if batch.id == batch_id), None)

    def find_call(self, call_id: str) -> Call | None:
        """Return the record of a call; None when this run does not have it."""
        batch = self.find_batch(call_id.partition("c")[0])
        return batch.get(call_id) if batch else None

    def find_event_call(self, event: Event) -> Call | None:
        """Return the call of an event, as it is now; None when this run does not have it."""
        batch = self.find_batch(event.batch) if event.batch and event.place else None
        calls = batch.calls if batch else ()
        return calls[event.place - 1] if event.place and event.place <= len(calls) else None

    def list_answers(self, call_id: str) -> tuple[Response, ...]:
        """List a page of responses from this call on, in order. Events say which of them are delivered (S13)."""
        first = int(call_id.partition("c")[0].removeprefix("b"))
        batches = sorted(self.started_batches, key=parse_batch_number)
        calls = [call for batch in batches if parse_batch_number(batch) >= first for call in batch.answered_calls]
        found: list[Response] = []
        room = PAGE_CHARACTERS
        for call in dropwhile(lambda call: call.id != call_id, calls):
            if room <= 0 or call.response is None:
                break
            found.append(call.response)
            room -= len(call.response.text)
        return tuple(found)

    def list_done_batches(self) -> tuple[BatchResult, ...]:
        """List the batches that are done, in order of submission."""
        return tuple(sorted((build_batch_result(batch, "done") for batch in self.done), key=parse_batch_number))

    def list_batches(self) -> tuple[BatchResult, ...]:
        """List every batch with its responses so far, in order of submission."""
        active = [build_batch_result(self.active, "active")] if self.active else []
        queued = [build_batch_result(batch, "queued") for batch in self.queued]
        return tuple(sorted([*self.list_done_batches(), *active, *queued], key=parse_batch_number))

    def _take_id(self) -> str:
        self.batch_count += 1
        return f"b{self.batch_count}"

    def _replace_batch(self, before: Batch, after: Batch) -> Batch:
        """Replace the active batch or a queued one by its next state."""
        if self.active and self.active.id == before.id:
            self.update_batch(after)
        else:
            self.queued[self.queued.index(before)] = after
            self._emit_changes(before, after)
        self._log.has_changed = True
        return after

    def _close_unstarted(self, before: Batch, after: Batch) -> Batch:
        self._emit_changes(before, after)
        return self._close_batch(after)

    def _close_batch(self, batch: Batch) -> Batch:
        self.done.append(batch)
        after = build_batch_result(batch, "done").status
        self._log.emit(kind="batch", batch=batch.id, of=len(batch), after=after)
        return batch

    def _emit_changes(self, before: Batch | None, after: Batch) -> None:
        for change in list_call_changes(self.turn_id, before, after):
            self._log.emit(**change)
        if before and after.complete and not before.complete and not after.discarded:
            self._log.emit(kind="batch", batch=after.id, of=len(after), after="complete")
        for change in list_deliveries(before, after, early=self.delivers_early):
            self._log.emit(**change)


def parse_batch_number(batch: Batch | BatchResult) -> int:
    """Return the place of a batch in the order of submission."""
    return int(batch.id.removeprefix("b"))
