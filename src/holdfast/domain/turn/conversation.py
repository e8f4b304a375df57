"""The conversation of a turn: what its model is told, what it replies, what the user says meanwhile (S12, S18)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pydantic import JsonValue

from holdfast.domain.calls.batch import Batch, complete_batch, extend_batch, interrupt_calls
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.conversation.compaction import apply_cut, build_page
from holdfast.domain.conversation.messages import (
    AssistantMessage,
    Compaction,
    Conversation,
    ConversationMessage,
    ConversationPage,
    ModelReply,
    ToolMessage,
    Usage,
    UserMessage,
)
from holdfast.domain.turn.activity_io import CompactResult
from holdfast.domain.turn.decisions import DecisionState
from holdfast.domain.turn.turn_io import TurnStatus, check_batch
from holdfast.domain.turn.update_bodies import AddCalls, Interruption
from holdfast.errors import RequestRefused

CUT_PREFIX = "(cut off at its limit of tokens) "
INTERRUPTED = "The user interrupted with a new message"


class ConversationState(DecisionState):
    """A turn that speaks with a model, if it has one."""

    def __init__(self, turn_id: str, clock: Callable[[], datetime]) -> None:
        super().__init__(turn_id, clock)
        self.messages: list[ConversationMessage] = []
        self.steps = 0
        self.attempt = 1
        """Of the model step."""
        self.text: str | None = None
        self.is_thinking = False
        """Is a model step at work?"""
        self.has_new_message = False
        """The user has said something that the model step at work does not know of."""
        self.usage = Usage()
        self.replies = 0
        """That the model has given, in the turns before this one too."""
        self.model = 0
        """Which of its models answers."""
        self.window: int | None = None
        """How many tokens that one can read at once, if it is known."""
        self.filled = 0
        """How many tokens it was last told, and said."""
        self.compaction = Compaction()
        self.epoch = 0
        """Of the messages: how often they were told anew."""
        self.heard: list[str] = []
        """The messages that the model is told of, by their senders' ids."""
        self._pending_messages: list[Interruption] = []
        """What the user said that no model step has read yet: the next one does."""
        self.no_shorter_at = 0
        """How many tokens a conversation had that could not be made shorter."""

    @property
    def may_deliver_early(self) -> bool:
        """With a model of its own, answers are told to viewers alone, as they become final.

        Whoever has another model tells it what is delivered: nothing that may yet be discarded (S12).
        """
        return self.input.model is not None

    @property
    def needs_step(self) -> bool:
        """Is the model to be asked? It has not answered, or the user has said something since."""
        return self.input.model is not None and (self.text is None or bool(self._pending_messages))

    def begin_step(self) -> int:
        """Begin a model step; its number. What the user said since the last one joins the conversation."""
        self._join_messages()
        self.steps += 1
        self.attempt = 1
        self.is_thinking, self.has_new_message = True, False
        self.writing = f"step-{self.steps}" if self.input.schedule is Schedule.STREAMING else None
        self._emit_event(kind="model", after="thinking", note=f"step {self.steps}")
        return self.steps

    def retry_step(self, reason: str) -> int:
        """The attempt of a model step failed: what it streamed is discarded, and another begins; which one that is."""
        if self.writing:
            self.discard_attempt(self.writing, f"The model's reply broke off, and it begins anew: {reason}")
        self.attempt += 1
        self._emit_event(
            kind="model", after="thinking", note=shorten_line(f"step {self.steps}, attempt {self.attempt}: {reason}")
        )
        return self.attempt

    def add_calls(self, body: AddCalls) -> Batch:
        """Take calls as they come: from the model step at work, or from a caller of a turn without a model."""
        if self.input.model and (body.stream, body.attempt) != (self.writing, self.attempt):
            raise RequestRefused("old_attempt", f"attempt {body.attempt} of {body.stream!r} is not at work")
        return super().add_calls(body)

    def apply_reply(self, reply: ModelReply) -> None:
        """A model's reply: its calls are a batch, whether they came early or not; without calls it is the answer."""
        batch = self.find_growing_batch(self.writing)
        self.writing, self.is_thinking = None, False
        self.usage += reply.usage
        self.filled, self.window = reply.usage.total_tokens, reply.window
        try:
            if batch:
                self._complete_reply(batch, reply)
            elif reply.calls:
                check_batch(reply.calls)
                self._request_calls(self.enqueue_batch(reply.calls), reply.text, reply.said)
            else:
                self._add_reply(AssistantMessage(text=reply.text))
                self._emit_event(
                    kind="model", after="answered", note=shorten_line(f"{CUT_PREFIX if reply.cut else ''}{reply.text}")
                )
                self.text = reply.text
        except RequestRefused as refusal:
            if batch:  # what came of it early is answered, so the conversation has to ask for it
                self._request_calls(self._replace_batch(batch, complete_batch(batch)), reply.text, reply.said)
            self.stop_turn("failed", f"The model asked for a batch that cannot run: {refusal}")

    def _complete_reply(self, batch: Batch, reply: ModelReply) -> None:
        """What came early has begun, and counts; what did not comes now."""
        came = len(batch.calls)
        check_batch((*(call.request for call in batch.calls), *reply.calls[came:]))
        whole = self._replace_batch(batch, complete_batch(extend_batch(batch, reply.calls[came:], self._clock())))
        self._request_calls(whole, reply.text, reply.said)

    def _add_reply(self, message: AssistantMessage) -> None:
        self.messages.append(message)
        self.replies += 1

    def _request_calls(self, batch: Batch, text: str, raw_reply: JsonValue = None) -> None:
        self.text = None
        self._emit_event(kind="model", after="asked", note=shorten_line(text) if text else None)
        requests: tuple[CallRequest, ...] = tuple(call.request for call in batch.calls)
        ids = tuple(call.id for call in batch.calls)
        self._add_reply(AssistantMessage(text=text, calls=requests, call_ids=ids, said=raw_reply))

    def apply_interruption(self, message: Interruption) -> None:
        """The user says something meanwhile: what may be interrupted stops, and the model goes on with that (S18)."""
        if not self._queue_message(message, "interrupted"):
            return
        self.interrupt_work(INTERRUPTED)
        if self.input.model is None:
            return
        self.has_new_message = True
        self._pending_messages.append(message)

    def append_message(self, message: Interruption) -> None:
        """The user says something that stops nothing: the model hears it after the batch at work, or its reply."""
        if self.input.model is None:
            raise RequestRefused("no_model", "this turn has no model that would hear it")
        if not self._queue_message(message, "appended"):
            return
        self._pending_messages.append(message)

    def _queue_message(self, message: Interruption, how: str) -> bool:
        """Is this heard for the first time? RequestRefused when nobody listens any more."""
        if self.stop or self.is_over:
            raise RequestRefused("not_open", "this turn is ending and takes nothing more")
        if message.id is not None and (
            message.id in self.heard or any(message.id == one.id for one in self._pending_messages)
        ):
            return False
        by = shorten_line(message.by, 100) if message.by else None
        self._emit_event(kind="turn", after=how, note=shorten_line(message.message), by=by)
        return True

    def fail_step(self, reason: str) -> None:
        """The model failed for good: what its last attempt streamed is discarded, and the turn ends."""
        if self.writing:
            self.discard_attempt(self.writing, f"The model's reply broke off: {reason}")
        self.stop_turn("failed", f"The model did not answer: {reason}")

    def stop_turn(self, status: TurnStatus, reason: str) -> None:
        """Stop everything. The first reason stands."""
        self._cut_reply()
        super().stop_turn(status, reason)

    def _cut_reply(self) -> None:
        """A reply that is half written ends where it is: what it asked for by then is answered."""
        if batch := self.find_growing_batch(self.writing):
            self._request_calls(self._replace_batch(batch, complete_batch(batch)), "")
        self.writing = None

    def interrupt_work(self, reason: str) -> None:
        """Stop what may be interrupted, and begin nothing more of what the model has asked for (S18)."""
        self._cut_reply()
        for batch in list(self.queue) if self.input.model else ():
            self._replace_batch(batch, interrupt_calls(batch, reason, self._clock()))
        super().interrupt_work(reason)

    def build_conversation(self) -> Conversation | None:
        """What a model step reads beside the messages; None without a model."""
        if self.input.model is None:
            return None
        return Conversation(
            model=self.input.model,
            replies=self.replies,
            session=self.input.session,
            session_run=self.input.session_run,
            compaction=self.compaction,
            tools=self.context.tools,
            allowed=self.input.tools,
            depth=self.input.depth,
            messages=tuple(self.messages),
        )

    def build_messages_page(self, after: int, epoch: int | None) -> ConversationPage:
        """The messages that a model step does not have yet, and what it needs besides."""
        page, about = build_page(self.messages, after, self.epoch, epoch), self.build_conversation()
        if about is None:
            return page
        model = about.model if page.start == 0 else about.model.model_copy(update={"script": ()})
        return page.model_copy(update={"about": about.model_copy(update={"messages": (), "model": model})})

    def apply_compaction(self, done: CompactResult) -> None:
        """Tell the model less from now on: what its window has no room for."""
        self.messages, self.compaction = apply_cut(done.session, self.messages, self.compaction, done.cut, done.summary)
        self.usage += done.usage
        self.filled = 0
        self.epoch += 1
        what = "a summary of what was before" if done.summary else "fewer results of tools"
        note = f"the conversation is told with {what}: about {done.tokens:,} tokens, {done.tokens_after:,} now"
        self._emit_event(kind="model", after="compacted", note=note)

    def skip_compaction(self, done: CompactResult) -> None:
        """It cannot be told much shorter; trying has cost something all the same."""
        self.usage += done.usage
        self.no_shorter_at = self.filled

    def use_next_model(self, reason: str) -> None:
        """The model failed for good: the next one of those that were named is asked."""
        assert self.input.model, "only a turn with a model has others"
        if self.writing:
            self.discard_attempt(self.writing, f"The model's reply broke off, and another model is asked: {reason}")
        self.model += 1
        self.attempt += 1
        self.window = None
        name = self.input.model.model_names[self.model]
        self._emit_event(
            kind="model", after="thinking", note=shorten_line(f"step {self.steps}: {name} is asked now: {reason}")
        )

    def _close_batch(self, batch: Batch) -> None:
        """A model will read the responses."""
        super()._close_batch(batch)
        if self.input.model and not batch.discarded:
            self.messages.append(ToolMessage(responses=batch.responses))

    def _join_messages(self) -> None:
        self.messages += [UserMessage(text=said.message) for said in self._pending_messages]
        self.heard += [said.id for said in self._pending_messages if said.id is not None]
        self._pending_messages = []
