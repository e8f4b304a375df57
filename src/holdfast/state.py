"""The state of one turn: its queue, the batch at work, what is done, the events, the decisions that counted.

Pure and without a clock: whoever holds it says what time it is. The workflow holds one and adds activities and
messages; tests hold one and add nothing. Every change of a call goes through here, so every change is an event.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdfast.approvals import Decision
from holdfast.batches import Batch, check_decision, decided, ended, new_batch, stopped, withdrawn
from holdfast.calls import Call, CallRequest
from holdfast.errors import DecisionRefused, RequestRefused
from holdfast.events import Event, EventPage, call_changes, line
from holdfast.turns import (
    Acknowledged,
    AssistantMessage,
    BatchResult,
    Conversation,
    ConversationMessage,
    ModelReply,
    ToolMessage,
    TurnInput,
    TurnResult,
    TurnStatus,
    UserMessage,
    batch_result,
    check_batch,
)
from holdfast.verdicts import CallOutcome, Finished

EVENTS_PER_PAGE = 500


class TurnState:
    """Everything a turn knows. `changed` is set by whatever changes it, and cleared by whoever waits for that."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        self.turn_id = turn_id
        self.input = TurnInput()
        self.messages: list[ConversationMessage] = []
        self.steps = 0
        self.queue: list[Batch] = []
        self.active: Batch | None = None
        self.done: list[Batch] = []
        self.events: list[Event] = []
        self.finishing = False
        self.stop: tuple[TurnStatus, str] | None = None
        self.text: str | None = None
        self.over = False
        self.seen: dict[str, str] = {}
        self.changed = False
        self._clock = clock
        self._batches = 0
        self._counted: set[str] = set()

    def begin(self, input: TurnInput) -> None:
        """Take the input: the prompt opens the conversation, the batches are queued."""
        self.input = input
        if input.prompt is not None:
            self.messages.append(UserMessage(text=input.prompt))
        for calls in input.batches:
            self.enqueue(calls)

    @property
    def work(self) -> Batch:
        """The batch at work."""
        assert self.active is not None, "no batch is at work"
        return self.active

    def enqueue(self, requests: tuple[CallRequest, ...]) -> Batch:
        """Queue a batch."""
        self._batches += 1
        batch = new_batch(f"b{self._batches}", requests, self._clock())
        self.queue.append(batch)
        self._emit(kind="batch", batch=batch.id, of=len(batch.calls), after="queued")
        self._write_changes(None, batch)
        return batch

    def activate(self) -> Batch:
        """Take the next batch of the queue to work."""
        self.active = self.queue.pop(0)
        self._emit(kind="batch", batch=self.active.id, of=len(self.active.calls), after="active")
        return self.active

    def change(self, batch: Batch) -> None:
        """Replace the batch at work by what became of it."""
        self._write_changes(self.active, batch)
        self.active = batch

    def end_call(self, call_id: str, outcome: CallOutcome) -> None:
        """Take what became of a running call. What it saw of files counts for the calls after it."""
        if isinstance(outcome, Finished):
            self.seen |= outcome.result.seen
        self.change(ended(self.work, call_id, outcome, self._clock()))

    def seen_of(self, call: Call) -> dict[str, str]:
        """What the turn knows of the files a call touches."""
        touched = call.bound.basis if call.bound else {}
        return {path: self.seen[path] for path in touched if path in self.seen}

    def retire(self) -> None:
        """Put the finished batch at work aside; a model will read its responses."""
        batch, self.active = self.work, None
        self._close(batch)

    def think(self) -> int:
        """Begin a model step; its number."""
        self.steps += 1
        self._emit(kind="model", after="thinking", note=f"step {self.steps}")
        return self.steps

    def take_reply(self, reply: ModelReply) -> None:
        """A model's reply: its calls become a batch; without calls, its text is the turn's answer."""
        if not reply.calls:
            self.messages.append(AssistantMessage(text=reply.text))
            self.text = reply.text
            self._emit(kind="model", after="answered", note=line(reply.text))
            return
        try:
            check_batch(reply.calls)
        except RequestRefused as refusal:
            self.stop_turn("failed", f"The model asked for a batch that cannot run: {refusal}")
            return
        self._emit(kind="model", after="asked", note=line(reply.text) if reply.text else None)
        batch = self.enqueue(reply.calls)
        ids = tuple(call.id for call in batch.calls)
        self.messages.append(AssistantMessage(text=reply.text, calls=reply.calls, call_ids=ids))

    def check_decision(self, decision: Decision) -> Call:
        """The call a decision is for; DecisionRefused when it does not count. Changes nothing."""
        if decision.key in self._counted:
            raise DecisionRefused("already_counted", f"decision {decision.key!r} was already counted")
        if self.active is None:
            raise DecisionRefused("unknown_approval", f"nothing here waits for {decision.approval_id!r}")
        return check_decision(self.active, self.turn_id, decision)

    def decide(self, decision: Decision) -> Acknowledged:
        """Take a decision; DecisionRefused when it does not count."""
        call = self.check_decision(decision)
        self._counted.add(decision.key)
        self.change(decided(self.work, self.turn_id, decision, self._clock()))
        if decision.stop_turn:
            self.stop_turn("stopped", f"{decision.by or 'Somebody'} refused {call.tool!r} and stopped the turn")
        changed = self.work.get(call.id)
        return Acknowledged(call=call.id, status=changed.status if changed else call.status)

    def check_open(self) -> None:
        """RequestRefused when this turn takes no batches from outside."""
        if self.input.model is not None:
            raise RequestRefused("has_model", "this turn has a model: it decides which calls there are")
        if self.finishing or self.stop or self.over:
            raise RequestRefused("not_open", "this turn is ending and takes nothing more")

    def finish(self) -> None:
        """End a turn that was kept open, once its queue is empty."""
        self.finishing = True
        self.changed = True

    def queued(self, batch_id: str) -> Batch:
        """The queued batch with this id, or RequestRefused."""
        batch = next((batch for batch in self.queue if batch.id == batch_id), None)
        if batch is None:
            raise RequestRefused("not_queued", f"no queued batch is called {batch_id!r}: it has started, or never was")
        return batch

    def withdraw(self, batch_id: str) -> BatchResult:
        """Take a queued batch back (S14)."""
        batch = self.queued(batch_id)
        self.queue.remove(batch)
        self._close_unstarted(batch, withdrawn(batch, self._clock()))
        return batch_result(self.done[-1], "withdrawn")

    def stop_call(self, call_id: str, reason: str | None) -> None:
        """Stop one call; its siblings go on."""
        self.change(stopped(self.work, reason or "The call was cancelled", self._clock(), only={call_id}))

    def stop_batch(self, reason: str | None) -> None:
        """Stop every call of the batch at work; the turn goes on."""
        self.change(stopped(self.work, reason or "The batch was cancelled", self._clock()))

    def stop_turn(self, status: TurnStatus, reason: str) -> None:
        """Stop everything. The first reason stands."""
        self.stop = self.stop or (status, reason)
        if self.active:
            self.change(stopped(self.active, self.stop[1], self._clock()))
        self.changed = True

    def conclude(self) -> None:
        """Answer what never started, and close the turn."""
        reason = self.stop[1] if self.stop else "The turn ended"
        while self.queue:
            batch = self.queue.pop(0)
            self._close_unstarted(batch, stopped(batch, reason, self._clock()))
        self.over = True
        self._emit(kind="turn", after=self.result().status, note=line(self.stop[1]) if self.stop else None)

    def page(self, after: int) -> EventPage:
        """The events after a sequence number, oldest first."""
        start = max(0, after)
        found = self.events[start : start + EVENTS_PER_PAGE]
        more = start + len(found) < len(self.events)
        return EventPage(events=tuple(found), more=more, finished=self.over and not more)

    def find_call(self, call_id: str) -> Call | None:
        """The whole record of one call, wherever it is."""
        batches = [*self.done, *([self.active] if self.active else []), *self.queue]
        return next((call for batch in batches if (call := batch.get(call_id))), None)

    def conversation(self) -> Conversation | None:
        """What a model step reads; None without a model."""
        if self.input.model is None:
            return None
        return Conversation(model=self.input.model, messages=tuple(self.messages))

    def results(self) -> tuple[BatchResult, ...]:
        """Every batch with the responses it has, in order of submission."""
        known = [batch_result(batch, "done") for batch in self.done]
        known += [batch_result(self.active, "active")] if self.active else []
        known += [batch_result(batch, "queued") for batch in self.queue]
        return tuple(sorted(known, key=lambda result: int(result.id.removeprefix("b"))))

    def result(self) -> TurnResult:
        """How the turn ended."""
        status, reason = self.stop or ("completed", None)
        return TurnResult(status=status, reason=reason, text=self.text, batches=self.results())

    def _close_unstarted(self, before: Batch, after: Batch) -> None:
        self._write_changes(before, after)
        self._close(after)

    def _close(self, batch: Batch) -> None:
        self.done.append(batch)
        if self.input.model:
            self.messages.append(ToolMessage(responses=batch.responses))
        after = "withdrawn" if batch.withdrawn else "done"
        self._emit(kind="batch", batch=batch.id, of=len(batch.calls), after=after)

    def _write_changes(self, before: Batch | None, after: Batch) -> None:
        for change in call_changes(self.turn_id, before, after):
            self._emit(**change)

    def _emit(self, **fields: Any) -> None:
        self.events.append(Event(seq=len(self.events) + 1, at=self._clock(), **fields))
        self.changed = True
