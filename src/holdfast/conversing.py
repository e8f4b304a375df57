"""The conversation of a turn: what its model is told, what it replies, what the user says meanwhile (S12, S18)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from holdfast.batches import Batch, completed, grown, interrupted
from holdfast.calls import CallRequest
from holdfast.conversations import (
    AssistantMessage,
    Conversation,
    ConversationMessage,
    ModelReply,
    ToolMessage,
    UserMessage,
)
from holdfast.deciding import Deciding
from holdfast.errors import RequestRefused
from holdfast.events import line
from holdfast.requests import AddCalls, Interruption
from holdfast.schedules import Schedule
from holdfast.turns import TurnStatus, check_batch

INTERRUPTED = "The user interrupted with a new message"


class Conversing(Deciding):
    """A turn that speaks with a model, if it has one."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.messages: list[ConversationMessage] = []
        self.steps = 0
        self.attempt = 1
        """Of the model step."""
        self.text: str | None = None
        self.spoken_to = False
        """The user has said something that the model step at work does not know of."""
        self._said: list[UserMessage] = []
        """What the user said while calls were at work: told after their responses."""

    def think(self) -> int:
        """Begin a model step; its number."""
        self.steps += 1
        self.attempt = 1
        self.spoken_to = False
        self.writing = f"step-{self.steps}" if self.input.schedule is Schedule.STREAMING else None
        self._emit(kind="model", after="thinking", note=f"step {self.steps}")
        return self.steps

    def think_again(self, reason: str) -> int:
        """The attempt of a model step failed: what it streamed is discarded, and another begins; which one that is."""
        if self.writing:
            self.discard(self.writing, f"The model's reply broke off, and it begins anew: {reason}")
        self.attempt += 1
        self._emit(kind="model", after="thinking", note=line(f"step {self.steps}, attempt {self.attempt}: {reason}"))
        return self.attempt

    def add_calls(self, body: AddCalls) -> Batch:
        """Take calls as they come: from the model step at work, or from a caller of a turn without a model."""
        if self.input.model and (body.stream, body.attempt) != (self.writing, self.attempt):
            raise RequestRefused("old_attempt", f"attempt {body.attempt} of {body.stream!r} is not at work")
        return super().add_calls(body)

    def take_reply(self, reply: ModelReply) -> None:
        """A model's reply: its calls are a batch, whether they came early or not; without calls it is the answer."""
        batch = self.growing(self.writing)
        self.writing = None
        try:
            if batch:
                self._complete(batch, reply)
            elif reply.calls:
                check_batch(reply.calls)
                self._ask_for(self.enqueue(reply.calls), reply.text)
            else:
                self.messages.append(AssistantMessage(text=reply.text))
                self.text = reply.text
                self._emit(kind="model", after="answered", note=line(reply.text))
        except RequestRefused as refusal:
            self.stop_turn("failed", f"The model asked for a batch that cannot run: {refusal}")

    def _complete(self, batch: Batch, reply: ModelReply) -> None:
        """What came early has begun, and counts; what did not comes now."""
        came = len(batch.calls)
        check_batch((*(call.request for call in batch.calls), *reply.calls[came:]))
        self._ask_for(self._put(batch, completed(grown(batch, reply.calls[came:], self._clock()))), reply.text)

    def _ask_for(self, batch: Batch, text: str) -> None:
        self._emit(kind="model", after="asked", note=line(text) if text else None)
        requests: tuple[CallRequest, ...] = tuple(call.request for call in batch.calls)
        ids = tuple(call.id for call in batch.calls)
        self.messages.append(AssistantMessage(text=text, calls=requests, call_ids=ids))

    def hear(self, said: Interruption) -> None:
        """The user says something meanwhile: what may be interrupted stops, and the model goes on with that (S18)."""
        if self.stop or self.over:
            raise RequestRefused("not_open", "this turn is ending and takes nothing more")
        by = line(said.by, 100) if said.by else None
        self._emit(kind="turn", after="interrupted", note=line(said.message), by=by)
        self.interrupt(INTERRUPTED)
        if self.input.model is None:
            return
        self.text, self.spoken_to = None, True
        self._said.append(UserMessage(text=said.message))
        self._tell()

    def give_up(self, reason: str) -> None:
        """The model failed for good: what its last attempt streamed is discarded, and the turn ends."""
        if self.writing:
            self.discard(self.writing, f"The model's reply broke off: {reason}")
        self.stop_turn("failed", f"The model did not answer: {reason}")

    def stop_turn(self, status: TurnStatus, reason: str) -> None:
        """Stop everything. The first reason stands."""
        self._cut_short()
        super().stop_turn(status, reason)

    def _cut_short(self) -> None:
        """A reply that is half written ends where it is: what it asked for by then is answered."""
        if batch := self.growing(self.writing):
            self._ask_for(self._put(batch, completed(batch)), "")
        self.writing = None

    def interrupt(self, reason: str) -> None:
        """Stop what may be interrupted, and begin nothing more of what the model has asked for (S18)."""
        self._cut_short()
        for batch in list(self.queue) if self.input.model else ():
            self._put(batch, interrupted(batch, reason, self._clock()))
        super().interrupt(reason)

    def conversation(self) -> Conversation | None:
        """What a model step reads; None without a model."""
        if self.input.model is None:
            return None
        return Conversation(model=self.input.model, messages=tuple(self.messages))

    def _close(self, batch: Batch) -> None:
        """A model will read the responses, and then what the user said meanwhile."""
        super()._close(batch)
        if self.input.model and not batch.discarded:
            self.messages.append(ToolMessage(responses=batch.responses))
        self._tell()

    def _tell(self) -> None:
        """What the user said joins the conversation when every call before it is answered."""
        if self.active is None and not self.queue:
            self.messages += self._said
            self._said = []
