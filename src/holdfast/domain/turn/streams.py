"""Batches that grow: calls that come one by one from a model step or a caller, in attempts (S11, S12).

An attempt is a batch of its own. A new attempt of the same stream discards the one before it, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from holdfast.domain.calls.batch import Batch, complete_batch, discard_batch, extend_batch
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.turn.batch_queue import QueueState
from holdfast.domain.turn.turn_io import MAX_CALLS, check_batch, check_waiting
from holdfast.domain.turn.update_bodies import AddCalls
from holdfast.errors import RequestRefused

SUPERSEDED = "A new attempt took the place of the one that this call came from"


class StreamState(QueueState):
    """Batches in order, some of them still growing."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self._newest: dict[str, tuple[str, int]] = {}
        """Of every stream: the batch of its newest attempt, and which attempt that is."""

    def add_calls(self, body: AddCalls) -> Batch:
        """Take further calls of a stream, each once however often it comes; RequestRefused for what cannot be."""
        batch = self.check_calls(body)
        if batch is None:
            if body.stream in self._newest:
                self.discard_attempt(body.stream, body.reason or SUPERSEDED)
            batch = self._open_batch(body)
        fresh = body.calls[len(batch.calls) - body.at :]
        after = extend_batch(batch, fresh, self._clock())
        return self._replace_batch(batch, complete_batch(after) if body.complete else after)

    def check_calls(self, body: AddCalls) -> Batch | None:
        """The batch that these calls belong to, None for a new one; RequestRefused when they belong to none."""
        name, (newest, attempt) = body.stream, self._newest.get(body.stream, ("", 0))
        batch = self._find_batch(newest)
        gone = batch is None or batch.discarded
        in_earlier_run = bool(newest) and batch is None  # which ended with everything complete
        if not in_earlier_run and (body.attempt < attempt or (body.attempt == attempt and gone)):
            raise RequestRefused("old_attempt", f"attempt {body.attempt} of {name!r} was discarded: begin another")
        if in_earlier_run or (batch and not gone and batch.complete):
            raise RequestRefused("stream_ended", f"{name!r} is complete, and takes nothing more: say another name")
        self._check_room(len(body.calls))
        if body.attempt > attempt:
            if body.at:
                raise RequestRefused("calls_missing", f"attempt {body.attempt} of {name!r} does not begin with call 0")
            check_batch(body.calls, queued=len(self.queue))
            return None
        assert batch, "an attempt that goes on has a batch"
        known = len(batch.calls)
        if body.at > known:
            raise RequestRefused("calls_missing", f"{name!r} has {known} calls: call {body.at} cannot be the next")
        if tuple(call.request for call in batch.calls[body.at :][: len(body.calls)]) != body.calls[: known - body.at]:
            raise RequestRefused("other_calls", f"{name!r} has other calls where these would be")
        if max(known, body.at + len(body.calls)) > MAX_CALLS:
            raise RequestRefused("batch_too_large", f"a batch takes at most {MAX_CALLS} calls: complete {name!r}")
        return batch

    def discard_attempt(self, stream: str, reason: str) -> None:
        """The attempt of a stream failed: nothing more of it begins, and none of it is told to anybody (S12)."""
        batch = self._find_batch(self._newest.get(stream, ("", 0))[0])
        if batch is None or batch.discarded or batch in self.done_batches:
            return
        self._emit_event(
            kind="batch", batch=batch.id, of=len(batch.calls), after="discarding", note=shorten_line(reason)
        )
        gone = discard_batch(batch, reason, self._clock())
        if batch in self.queue:
            self.queue.remove(batch)
            self._close_unstarted(batch, gone)
        else:
            self.update_batch(gone)

    def complete_stream(self, stream: str) -> None:
        """No further call of a stream will come."""
        batch = self.find_growing_batch(stream)
        if batch:
            self._replace_batch(batch, complete_batch(batch))

    def find_growing_batch(self, stream: str | None) -> Batch | None:
        """The batch of a stream, while more may come to it."""
        batch = self._find_batch(self._newest[stream][0]) if stream in self._newest else None
        return batch if batch and not batch.complete else None

    def _open_batch(self, body: AddCalls) -> Batch:
        self._batches += 1
        batch = Batch(id=f"b{self._batches}", stream=body.stream, attempt=body.attempt, complete=False)
        self._newest[body.stream] = batch.id, body.attempt
        self.queue.append(batch)
        self._emit_event(kind="batch", batch=batch.id, of=0, after="queued", note=_describe_attempt(body.attempt))
        return batch

    def _replace_batch(self, before: Batch, after: Batch) -> Batch:
        """A batch in the place of what it was."""
        if self.active and self.active.id == before.id:
            self.update_batch(after)
        else:
            self.queue[self.queue.index(before)] = after
            self._write_changes(before, after)
        self.has_changed = True
        return after

    def _check_room(self, more: int) -> None:
        check_waiting(more + sum(map(len, self.queue)))


def _describe_attempt(number: int) -> str | None:
    return f"attempt {number}" if number > 1 else None
