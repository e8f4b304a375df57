"""The conversation of a turn with its model: messages, model steps, replies, and messages that the user sends."""

from __future__ import annotations

from pydantic import JsonValue

from holdfast.domain.calls.batch import Batch
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
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.call_streams import CallStreams
from holdfast.domain.turn.carryover import RunCarryover, TurnMemory
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.turn_io import TurnInput, check_batch
from holdfast.domain.turn.update_bodies import AddCalls, Interruption
from holdfast.errors import RequestRefused

CUT_PREFIX = "(cut off at its limit of tokens) "
INTERRUPTED = "The user interrupted with a new message"


class TurnConversation:
    """The messages and the model steps of a turn. A model step fetches them as a `Conversation`."""

    def __init__(
        self,
        input: TurnInput,
        queue: BatchQueue,
        streams: CallStreams,
        log: EventLog,
        memory: TurnMemory,
        carried: RunCarryover | None,
    ) -> None:
        prompt = () if input.prompt is None else (UserMessage(text=input.prompt),)
        self.messages: list[ConversationMessage] = list(carried.messages if carried else prompt)
        self.pending: list[Interruption] = list(carried.said if carried else ())
        """The user's messages since the last model step began. The next step reads them."""
        self.heard: list[str] = list(carried.heard if carried else ())
        """The ids of the user's messages that the model has read."""
        self.steps = carried.steps if carried else 0
        self.attempt = 1
        """The attempt at the current model step."""
        self.writing: str | None = None
        """The stream to which the current model step adds calls; None when it does not stream."""
        self.has_new_message = False
        """A message of the user interrupts the current model step."""
        self.text: str | None = None
        """The model's answer."""
        self.replies = memory.replies
        """The number of replies of the model, those in earlier turns included."""
        self.usage = carried.usage if carried else Usage()
        self.model = carried.model if carried else 0
        """The index of the current model in `ModelChoice.model_names`."""
        self.window = memory.window
        """The size of the model's context window in tokens, if known."""
        self.filled = memory.filled
        """The tokens of the last request and its reply."""
        self.shortest = 0
        """The value of `filled` at which the conversation could not be compacted further."""
        self.compaction = carried.compaction if carried else Compaction()
        self.epoch = 0
        """Counts how often messages were replaced, so that a reader fetches all of them again."""
        self._input = input
        self._queue = queue
        self._streams = streams
        self._log = log

    @property
    def needs_step(self) -> bool:
        """Must the model be asked? Either it has not answered, or a message of the user came after its answer."""
        return self._input.model is not None and (self.text is None or bool(self.pending))

    # Model steps

    def begin_step(self) -> int:
        """Begin a model step with the user's pending messages. Returns the number of the step."""
        self.join_messages()
        self.steps += 1
        self.attempt = 1
        self.has_new_message = False
        self.writing = f"step-{self.steps}" if self._input.schedule is Schedule.STREAMING else None
        self._log.emit(kind="model", after="thinking", note=f"step {self.steps}")
        return self.steps

    def retry_step(self, reason: str) -> int:
        """Begin a new attempt at the model step, and discard what the failed one streamed. Returns its number."""
        self.discard_reply(f"The model's reply broke off, and it begins anew: {reason}")
        self.attempt += 1
        self._emit_thinking(f"step {self.steps}, attempt {self.attempt}: {reason}")
        return self.attempt

    def use_next_model(self, reason: str) -> None:
        """Switch to the next fallback model: the current one failed permanently."""
        assert self._input.model, "only a turn with a model has fallbacks"
        self.discard_reply(f"The model's reply broke off, and another model is asked: {reason}")
        self.model += 1
        self.attempt += 1
        self.window = None
        self._emit_thinking(f"step {self.steps}: {self._input.model.model_names[self.model]} is asked now: {reason}")

    def discard_reply(self, reason: str) -> None:
        """Discard the calls that the current attempt has streamed, if any."""
        if self.writing:
            self._streams.discard_attempt(self.writing, reason)

    def check_stream(self, body: AddCalls) -> None:
        """RequestRefused for streamed calls of a model that are not from the current attempt."""
        if self._input.model and (body.stream, body.attempt) != (self.writing, self.attempt):
            raise RequestRefused("old_attempt", f"attempt {body.attempt} of {body.stream!r} is not the current one")

    def apply_reply(self, reply: ModelReply) -> None:
        """Apply a reply: its calls become a batch, together with streamed ones; without calls it is the answer.

        RequestRefused when its calls are not a valid batch. Calls that were streamed before still get responses.
        """
        batch = self._streams.find_growing_batch(self.writing)
        self.writing = None
        self.usage += reply.usage
        self.filled, self.window = reply.usage.total_tokens, reply.window
        if batch:
            self._complete_streamed_reply(batch, reply)
        elif reply.calls:
            check_batch(reply.calls)
            self._append_request(self._queue.enqueue_batch(reply.calls), reply.text, reply.said)
        else:
            self._append_reply(AssistantMessage(text=reply.text))
            note = shorten_line(f"{CUT_PREFIX if reply.cut else ''}{reply.text}")
            self._log.emit(kind="model", after="answered", note=note)
            self.text = reply.text

    def cut_reply(self) -> None:
        """End a reply that is still being streamed. Its calls so far get responses."""
        if batch := self._streams.find_growing_batch(self.writing):
            self._append_request(self._queue.complete_batch(batch), "")
        self.writing = None

    def read_batch(self, batch: Batch) -> None:
        """Append the responses of a batch that is done to the conversation, unless it was discarded (S12)."""
        if self._input.model and not batch.discarded:
            self.messages.append(ToolMessage(responses=batch.responses))

    # The user's messages

    def apply_interruption(self, message: Interruption) -> None:
        """Interrupt the turn by a message: calls that may be interrupted stop, and the model reads the message (S18).

        A second delivery of the same message changes nothing. RequestRefused when the turn is ending.
        """
        if not self._take_message(message, "interrupted"):
            return
        self.cut_reply()
        self._queue.interrupt_calls(INTERRUPTED, queued=self._input.model is not None)
        if self._input.model:
            self.has_new_message = True
            self.pending.append(message)

    def append_message(self, message: Interruption) -> None:
        """Add a message of the user that stops nothing: the model reads it with the next step."""
        if self._input.model is None:
            raise RequestRefused("no_model", "this turn has no model that could read the message")
        if self._take_message(message, "appended"):
            self.pending.append(message)

    def join_messages(self) -> None:
        """Append the user's pending messages to the conversation."""
        self.messages += [UserMessage(text=pending.message) for pending in self.pending]
        self.heard += [pending.id for pending in self.pending if pending.id is not None]
        self.pending = []

    # Queries of a model step

    def build_conversation(self, tools: tuple[str, ...] | None) -> Conversation | None:
        """Build the conversation for a model step; None without a model. `tools` are those of the turn's context."""
        if self._input.model is None:
            return None
        return Conversation(
            model=self._input.model,
            replies=self.replies,
            session=self._input.session,
            session_run=self._input.session_run,
            compaction=self.compaction,
            tools=tools,
            allowed=self._input.tools,
            depth=self._input.depth,
            messages=tuple(self.messages),
        )

    def build_page(self, after: int, epoch: int | None, tools: tuple[str, ...] | None) -> ConversationPage:
        """Build a page of messages that a model step does not have yet. Only the first page has the model's script."""
        page, about = build_page(self.messages, after, self.epoch, epoch), self.build_conversation(tools)
        if about is None:
            return page
        model = about.model if page.start == 0 else about.model.model_copy(update={"script": ()})
        return page.model_copy(update={"about": about.model_copy(update={"messages": (), "model": model})})

    def apply_compaction(self, done: CompactResult) -> None:
        """Apply a cut of the conversation, which has become too long for the model's context window."""
        self.messages, self.compaction = apply_cut(done.session, self.messages, self.compaction, done.cut, done.summary)
        self.usage += done.usage
        self.filled = 0
        self.epoch += 1
        what = "a summary of earlier messages" if done.summary else "fewer results of tools"
        note = f"the conversation now has {what}: {done.tokens_after:,} tokens instead of about {done.tokens:,}"
        self._log.emit(kind="model", after="compacted", note=note)

    def skip_compaction(self, done: CompactResult) -> None:
        """Record that the conversation cannot be compacted further, and the tokens that the attempt used."""
        self.usage += done.usage
        self.shortest = self.filled

    def _emit_thinking(self, note: str) -> None:
        self._log.emit(kind="model", after="thinking", note=shorten_line(note))

    def _complete_streamed_reply(self, batch: Batch, reply: ModelReply) -> None:
        """Add the calls of a reply that were not streamed, and append the request for all of them."""
        rest = reply.calls[len(batch) :]
        try:
            check_batch((*(call.request for call in batch.calls), *rest))
        except RequestRefused:
            self._append_request(self._queue.complete_batch(batch), reply.text, reply.said)
            raise
        self._append_request(self._queue.extend_batch(batch, rest, complete=True), reply.text, reply.said)

    def _append_request(self, batch: Batch, text: str, raw_reply: JsonValue = None) -> None:
        """Append the message of the model that requests a batch."""
        self.text = None
        self._log.emit(kind="model", after="asked", note=shorten_line(text) if text else None)
        requests, ids = tuple(call.request for call in batch.calls), tuple(call.id for call in batch.calls)
        self._append_reply(AssistantMessage(text=text, calls=requests, call_ids=ids, said=raw_reply))

    def _append_reply(self, message: AssistantMessage) -> None:
        self.messages.append(message)
        self.replies += 1

    def _take_message(self, message: Interruption, how: str) -> bool:
        """Is this the first delivery of a message? RequestRefused when the turn is ending."""
        if self._queue.stop or self._log.is_closed:
            raise RequestRefused("not_open", "this turn is ending and takes no more messages or batches")
        known = (*self.heard, *(one.id for one in self.pending))
        if message.id is not None and message.id in known:
            return False
        by = shorten_line(message.by, 100) if message.by else None
        self._log.emit(kind="turn", after=how, note=shorten_line(message.message), by=by)
        return True
