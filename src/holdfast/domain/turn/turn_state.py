"""The state of one turn: its parts, and the transitions that change several of them.

Pure: the caller passes the clock. The workflow holds one and adds activities and messages. Callers use a part directly
when a change concerns that part only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from holdfast.domain.approvals.approval import Decision
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.calls.verdicts import ExecutionOutcome, NeedsApprovalAgain, Verdict, find_hook_stop
from holdfast.domain.conversation.messages import ModelReply
from holdfast.domain.turn.activity_io import ValidateResult
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.call_streams import CallStreams
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.decision_log import DecisionLog
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.execution_log import ExecutionLog
from holdfast.domain.turn.turn_conversation import TurnConversation
from holdfast.domain.turn.turn_io import (
    TurnInput,
    TurnStatus,
    describe_time_limit,
    explain_no_step,
    find_reached_limit,
)
from holdfast.domain.turn.update_bodies import AddCalls, DecisionResult
from holdfast.errors import RequestRefused


class TurnState:
    """The state of one turn, composed of its parts."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime], input: TurnInput | None = None) -> None:
        """Begin a turn, or continue from the state of an earlier run (`input.carried`)."""
        self.turn_id = turn_id
        self.input = input = input or TurnInput()
        carried = input.carried
        memory = carried.memory if carried else input.memory or TurnMemory(mode=input.mode)
        self.began_at = carried.began_at if carried else clock()
        self.is_finishing = bool(carried and carried.finishing)
        """The turn was kept open, and now ends when its queue is empty."""
        self.log = EventLog(clock, carried)
        self.queue = BatchQueue(turn_id, self.log, delivers_early=input.model is not None, carried=carried)
        self.executions = ExecutionLog(input, self.queue, self.log, memory)
        self.streams = CallStreams(self.queue, self.executions, carried)
        self.decisions = DecisionLog(input, self.queue, self.executions, self.log, memory, carried)
        self.conversation = TurnConversation(input, self.queue, self.streams, self.log, memory, carried)
        for calls in () if carried else input.batches:
            self.queue.enqueue_batch(calls)

    # Calls and batches

    def add_calls(self, body: AddCalls) -> Batch:
        """Add calls of a stream. RequestRefused when they cannot be added."""
        self.conversation.check_stream(body)
        return self.streams.add_calls(body)

    def activate_batch(self) -> Batch:
        """Make the next queued batch the active one, and return it."""
        self.executions.begin_batch()
        return self.queue.activate_batch()

    def apply_verdicts(self, batch_id: str, result: ValidateResult) -> None:
        """Apply the verdicts on calls of a batch, if it is still active."""
        if self.decisions.apply_verdicts(batch_id, result):
            self._stop_by_hook(result.verdicts.values())

    def reapply_verdicts(self, before: Batch, result: ValidateResult) -> None:
        """Apply new verdicts on calls as they were in `before`, if their batch is still active."""
        if self.decisions.reapply_verdicts(before, result):
            self._stop_by_hook(result.verdicts.values())

    def apply_decision(self, decision: Decision) -> DecisionResult:
        """Apply a person's decision. DecisionRefused when it is not valid."""
        call, grant = self.decisions.apply_decision(decision)
        if decision.stop_turn:
            self.stop_turn("stopped", f"{decision.by or 'Somebody'} refused {call.tool!r} and stopped the turn")
        return DecisionResult(call=call.id, status=call.status, grant=grant)

    def apply_outcome(self, call_id: str, outcome: ExecutionOutcome) -> None:
        """Apply the outcome of a running call."""
        if self.executions.apply_outcome(call_id, outcome):
            self.decisions.mark_stale()
        self._stop_by_hook([outcome.verdict if isinstance(outcome, NeedsApprovalAgain) else outcome])

    def stop_batch(self, reason: str | None) -> None:
        """Stop every call of the active batch; the turn goes on."""
        self.queue.stop_batch(reason, writing=self.conversation.writing)

    def retire_batch(self) -> None:
        """Move the finished active batch to the done ones, and append its responses to the conversation."""
        self.conversation.read_batch(self.queue.retire_batch())

    # The model

    def apply_reply(self, reply: ModelReply) -> None:
        """Apply a reply of the model. The turn fails when its calls are not a valid batch."""
        try:
            self.conversation.apply_reply(reply)
        except RequestRefused as refusal:
            self.stop_turn("failed", f"The model asked for a batch that cannot run: {refusal}")

    def fail_step(self, reason: str) -> None:
        """End the turn: every model has failed."""
        self.conversation.discard_reply(f"The model's reply broke off: {reason}")
        self.stop_turn("failed", f"The model did not answer: {reason}")

    # Limits, and the end

    @property
    def has_more_to_do(self) -> bool:
        """Is there a batch to run, a model step to take, or an open queue to wait for?"""
        stays_open = self.input.keep_open and not self.is_finishing
        return bool(self.queue.queued) or self.conversation.needs_step or stays_open

    @property
    def time_left(self) -> timedelta | None:
        """The time until the turn reaches its time limit; None without one."""
        seconds = self.input.limits.seconds
        return None if seconds is None else self.began_at + timedelta(seconds=seconds) - self.log.now()

    def check_open(self) -> None:
        """RequestRefused when this turn takes no batches from outside."""
        self.check_without_model()
        if self.is_finishing or self.queue.stop or self.log.is_closed:
            raise RequestRefused("not_open", "this turn is ending and takes no more messages or batches")

    def check_without_model(self) -> None:
        """RequestRefused when the turn has a model."""
        if self.input.model is not None:
            raise RequestRefused("has_model", "this turn has a model, and only the model adds batches")

    def apply_limits(self, *, before_step: bool = False) -> None:
        """Stop the turn when it has reached a limit (S44). `before_step`: the model is about to be asked."""
        limits, usage = self.input.limits, self.conversation.usage
        seconds = (self.log.now() - self.began_at).total_seconds()
        why = find_reached_limit(limits, calls=self.queue.call_count, tokens=usage.total_tokens, seconds=seconds)
        why = why or (explain_no_step(limits, self.conversation.steps) if before_step else None)
        if why and not self.queue.stop:
            self.stop_turn("stopped", why)

    def stop_at_time_limit(self) -> None:
        """Stop the turn because it has reached its time limit."""
        self.stop_turn("stopped", describe_time_limit(self.input.limits))

    def stop_turn(self, status: TurnStatus, reason: str) -> None:
        """Stop every call, and start no other. The first status and reason stay."""
        self.conversation.cut_reply()
        self.queue.stop_all(status, reason)

    def finish_turn(self) -> None:
        """Let a turn that is kept open end when its queue is empty. Its streams take no further calls."""
        self.is_finishing = True
        self.queue.complete_all()
        self.log.has_changed = True

    def close_turn(self) -> None:
        """Cancel the calls that have not started, and emit the last event."""
        status, reason = self.queue.stop or ("completed", None)
        for batch in self.queue.close_queued(reason or "The turn ended"):
            self.conversation.read_batch(batch)
        if not self.input.session:  # a session queues unread messages for its next turns
            self.conversation.join_messages()
        self.log.close(kind="turn", after=status, note=shorten_line(reason) if reason is not None else None)

    def _stop_by_hook(self, answers: Iterable[Verdict | ExecutionOutcome]) -> None:
        if reason := find_hook_stop(answers):
            self.stop_turn("stopped", reason)
