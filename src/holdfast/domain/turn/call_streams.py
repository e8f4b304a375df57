"""Streams of calls: a model step or a caller adds the calls of one reply one by one, in attempts (S11, S12).

Every attempt is a batch of its own. A new attempt of a stream discards the one before it.
"""

from __future__ import annotations

from holdfast.domain.calls.batch import Batch
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.carryover import RunCarryover
from holdfast.domain.turn.execution_log import ExecutionLog
from holdfast.domain.turn.turn_io import MAX_CALLS, check_batch, check_waiting
from holdfast.domain.turn.update_bodies import AddCalls
from holdfast.errors import RequestRefused

SUPERSEDED = "A new attempt replaced the one that this call came from"


class CallStreams:
    """The streams of a turn, and the batch of the newest attempt of each."""

    def __init__(self, queue: BatchQueue, executions: ExecutionLog, carried: RunCarryover | None = None) -> None:
        self.newest: dict[str, tuple[str, int]] = dict(carried.streams) if carried else {}
        """The batch id and the number of the newest attempt, by stream."""
        self._queue = queue
        self._executions = executions

    def add_calls(self, body: AddCalls) -> Batch:
        """Add calls of a stream. Calls that are sent twice are added once. RequestRefused when they do not fit."""
        batch = self.check_calls(body)
        if batch is None:
            if body.stream in self.newest:
                self.discard_attempt(body.stream, body.reason or SUPERSEDED)
            batch = self._queue.open_batch(body.stream, body.attempt)
            self.newest[body.stream] = batch.id, body.attempt
        return self._queue.extend_batch(batch, body.calls[len(batch) - body.at :], complete=body.complete)

    def check_calls(self, body: AddCalls) -> Batch | None:
        """Return the batch that these calls belong to, or None for a new one. RequestRefused when they do not fit."""
        name, (newest, attempt) = body.stream, self.newest.get(body.stream, ("", 0))
        batch = self._queue.find_batch(newest)
        gone = batch is None or batch.discarded
        in_earlier_run = bool(newest) and batch is None  # a run ends when all its batches are complete
        if not in_earlier_run and (body.attempt < attempt or (body.attempt == attempt and gone)):
            raise RequestRefused(
                "old_attempt", f"attempt {body.attempt} of {name!r} was discarded: begin a new attempt"
            )
        if in_earlier_run or (batch and not gone and batch.complete):
            raise RequestRefused("stream_ended", f"stream {name!r} is complete: use another name for further calls")
        check_waiting(len(body.calls) + sum(map(len, self._queue.queued)))
        if body.attempt > attempt:
            if body.at:
                raise RequestRefused("calls_missing", f"attempt {body.attempt} of {name!r} does not begin with call 0")
            check_batch(body.calls, queued=len(self._queue.queued))
            return None
        assert batch, "an attempt that goes on has a batch"
        _check_place(batch, body)
        return batch

    def discard_attempt(self, stream: str, reason: str) -> None:
        """Discard the newest attempt of a stream, if it has not ended.

        No further call of it starts and no model reads it (S12). The files and the context are those from before the
        attempt again; content from outside that its calls took in still taints the turn.
        """
        batch = self._queue.find_batch(self.newest.get(stream, ("", 0))[0])
        if batch is None or batch.discarded or batch in self._queue.done:
            return
        self._queue.discard_batch(batch, reason)
        if self._queue.active and self._queue.active.discarded:
            self._executions.revert_batch()

    def find_growing_batch(self, stream: str | None) -> Batch | None:
        """Return the batch of a stream if calls may still be added to it, else None."""
        batch = self._queue.find_batch(self.newest[stream][0]) if stream in self.newest else None
        return batch if batch and not batch.complete else None


def _check_place(batch: Batch, body: AddCalls) -> None:
    """RequestRefused when the calls do not continue the batch at the place they name."""
    name, known = body.stream, len(batch)
    if body.at > known:
        raise RequestRefused("calls_missing", f"{name!r} has {known} calls: call {body.at} cannot be the next")
    if tuple(call.request for call in batch.calls[body.at :][: len(body.calls)]) != body.calls[: known - body.at]:
        raise RequestRefused("other_calls", f"{name!r} has other calls where these would be")
    if max(known, body.at + len(body.calls)) > MAX_CALLS:
        raise RequestRefused("batch_too_large", f"a batch takes at most {MAX_CALLS} calls: complete {name!r}")
