"""The state of one turn: its batches, its decisions, its conversation, and how it ends.

Pure and without a clock: whoever holds it says what time it is. The workflow holds one and adds activities and
messages; tests hold one and add nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from holdfast.batches import Batch, stopped
from holdfast.deciding import Deciding
from holdfast.errors import RequestRefused
from holdfast.events import line
from holdfast.turns import (
    AssistantMessage,
    Conversation,
    ConversationMessage,
    ModelReply,
    ToolMessage,
    TurnInput,
    TurnResult,
    UserMessage,
    check_batch,
)


class TurnState(Deciding):
    """Everything a turn knows."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.messages: list[ConversationMessage] = []
        self.steps = 0
        self.text: str | None = None
        self.finishing = False

    def begin(self, input: TurnInput) -> None:
        """Take the input: the prompt opens the conversation, the batches are queued."""
        self.input = input
        self.mode = input.mode
        if input.prompt is not None:
            self.messages.append(UserMessage(text=input.prompt))
        for calls in input.batches:
            self.enqueue(calls)

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

    def conclude(self) -> None:
        """Answer what never started, and close the turn."""
        reason = self.stop[1] if self.stop else "The turn ended"
        while self.queue:
            batch = self.queue.pop(0)
            self._close_unstarted(batch, stopped(batch, reason, self._clock()))
        self.over = True
        self._emit(kind="turn", after=self.result().status, note=line(self.stop[1]) if self.stop else None)

    def conversation(self) -> Conversation | None:
        """What a model step reads; None without a model."""
        if self.input.model is None:
            return None
        return Conversation(model=self.input.model, messages=tuple(self.messages))

    def result(self) -> TurnResult:
        """How the turn ended."""
        status, reason = self.stop or ("completed", None)
        return TurnResult(status=status, reason=reason, text=self.text, batches=self.results())

    def _close(self, batch: Batch) -> None:
        """A model will read the responses."""
        super()._close(batch)
        if self.input.model:
            self.messages.append(ToolMessage(responses=batch.responses))
