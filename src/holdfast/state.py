"""The state of one turn: its batches, its decisions, its conversation, and how it ends.

Pure and without a clock: whoever holds it says what time it is. The workflow holds one and adds activities and
messages; tests hold one and add nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from holdfast.batches import completed, stopped
from holdfast.conversations import UserMessage
from holdfast.conversing import Conversing
from holdfast.errors import RequestRefused
from holdfast.events import line
from holdfast.turns import TurnInput, TurnResult


class TurnState(Conversing):
    """Everything a turn knows."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.finishing = False

    def begin(self, input: TurnInput) -> None:
        """Take the input: the prompt opens the conversation, the batches are queued."""
        self.input = input
        self.mode = input.mode
        if input.prompt is not None:
            self.messages.append(UserMessage(text=input.prompt))
        for calls in input.batches:
            self.enqueue(calls)

    def check_open(self) -> None:
        """RequestRefused when this turn takes no batches from outside."""
        self.check_without_model()
        if self.finishing or self.stop or self.over:
            raise RequestRefused("not_open", "this turn is ending and takes nothing more")

    def check_without_model(self) -> None:
        """RequestRefused when its model decides which calls there are."""
        if self.input.model is not None:
            raise RequestRefused("has_model", "this turn has a model: it decides which calls there are")

    def finish(self) -> None:
        """End a turn that was kept open, once its queue is empty. Streams that still grow are complete as they are."""
        self.finishing = True
        for batch in [*([self.active] if self.active else []), *self.queue]:
            if not batch.complete:
                self._put(batch, completed(batch))
        self.changed = True

    def conclude(self) -> None:
        """Answer what never started, and close the turn."""
        reason = self.stop[1] if self.stop else "The turn ended"
        while self.queue:
            batch = self.queue.pop(0)
            self._close_unstarted(batch, completed(stopped(batch, reason, self._clock())))
        self.over = True
        self._emit(kind="turn", after=self.result().status, note=line(self.stop[1]) if self.stop else None)

    def result(self) -> TurnResult:
        """How the turn ended."""
        status, reason = self.stop or ("completed", None)
        return TurnResult(status=status, reason=reason, text=self.text, batches=self.results())
