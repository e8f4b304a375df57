"""The conversation of a turn: what its model is told, what it replies, what the user says meanwhile (S12, S18)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pydantic import JsonValue

from holdfast.batches import Batch, completed, grown, interrupted
from holdfast.calls import CallRequest
from holdfast.compaction import compacted, page_of
from holdfast.conversations import (
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
from holdfast.deciding import Deciding
from holdfast.errors import RequestRefused
from holdfast.events import line
from holdfast.requests import AddCalls, Interruption
from holdfast.schedules import Schedule
from holdfast.turns import TurnStatus, check_batch
from holdfast.work import Compacted

CUT = "(cut off at its limit of tokens) "
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
        self.thinking = False
        """Is a model step at work?"""
        self.spoken_to = False
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
        self._said: list[Interruption] = []
        """What the user said that no model step has read yet: the next one does."""
        self.no_shorter_at = 0
        """How many tokens a conversation had that could not be made shorter."""

    @property
    def delivers_early(self) -> bool:
        """With a model of its own, answers are told to viewers alone, as they become final.

        Whoever has another model tells it what is delivered: nothing that may yet be discarded (S12).
        """
        return self.input.model is not None

    @property
    def asks(self) -> bool:
        """Is the model to be asked? It has not answered, or the user has said something since."""
        return self.input.model is not None and (self.text is None or bool(self._said))

    def think(self) -> int:
        """Begin a model step; its number. What the user said since the last one joins the conversation."""
        self._join()
        self.steps += 1
        self.attempt = 1
        self.thinking, self.spoken_to = True, False
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
        self.writing, self.thinking = None, False
        self.usage += reply.usage
        self.filled, self.window = reply.usage.tokens, reply.window
        try:
            if batch:
                self._complete(batch, reply)
            elif reply.calls:
                check_batch(reply.calls)
                self._ask_for(self.enqueue(reply.calls), reply.text, reply.said)
            else:
                self._replied(AssistantMessage(text=reply.text))
                self._emit(kind="model", after="answered", note=line(f"{CUT if reply.cut else ''}{reply.text}"))
                self.text = reply.text
        except RequestRefused as refusal:
            if batch:  # what came of it early is answered, so the conversation has to ask for it
                self._ask_for(self._put(batch, completed(batch)), reply.text, reply.said)
            self.stop_turn("failed", f"The model asked for a batch that cannot run: {refusal}")

    def _complete(self, batch: Batch, reply: ModelReply) -> None:
        """What came early has begun, and counts; what did not comes now."""
        came = len(batch.calls)
        check_batch((*(call.request for call in batch.calls), *reply.calls[came:]))
        whole = self._put(batch, completed(grown(batch, reply.calls[came:], self._clock())))
        self._ask_for(whole, reply.text, reply.said)

    def _replied(self, message: AssistantMessage) -> None:
        self.messages.append(message)
        self.replies += 1

    def _ask_for(self, batch: Batch, text: str, said: JsonValue = None) -> None:
        self.text = None
        self._emit(kind="model", after="asked", note=line(text) if text else None)
        requests: tuple[CallRequest, ...] = tuple(call.request for call in batch.calls)
        ids = tuple(call.id for call in batch.calls)
        self._replied(AssistantMessage(text=text, calls=requests, call_ids=ids, said=said))

    def hear(self, said: Interruption) -> None:
        """The user says something meanwhile: what may be interrupted stops, and the model goes on with that (S18)."""
        if not self._listen(said, "interrupted"):
            return
        self.interrupt(INTERRUPTED)
        if self.input.model is None:
            return
        self.spoken_to = True
        self._said.append(said)

    def append(self, said: Interruption) -> None:
        """The user says something that stops nothing: the model hears it after the batch at work, or its reply."""
        if self.input.model is None:
            raise RequestRefused("no_model", "this turn has no model that would hear it")
        if not self._listen(said, "appended"):
            return
        self._said.append(said)

    def _listen(self, said: Interruption, how: str) -> bool:
        """Is this heard for the first time? RequestRefused when nobody listens any more."""
        if self.stop or self.over:
            raise RequestRefused("not_open", "this turn is ending and takes nothing more")
        if said.id is not None and (said.id in self.heard or any(said.id == one.id for one in self._said)):
            return False
        by = line(said.by, 100) if said.by else None
        self._emit(kind="turn", after=how, note=line(said.message), by=by)
        return True

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

    def messages_after(self, after: int, epoch: int | None) -> ConversationPage:
        """The messages that a model step does not have yet, and what it needs besides."""
        page, about = page_of(self.messages, after, self.epoch, epoch), self.conversation()
        if about is None:
            return page
        model = about.model if page.start == 0 else about.model.model_copy(update={"script": ()})
        return page.model_copy(update={"about": about.model_copy(update={"messages": (), "model": model})})

    def compact(self, done: Compacted) -> None:
        """Tell the model less from now on: what its window has no room for."""
        self.messages, self.compaction = compacted(done.session, self.messages, self.compaction, done.cut, done.summary)
        self.usage += done.usage
        self.filled = 0
        self.epoch += 1
        what = "a summary of what was before" if done.summary else "fewer results of tools"
        note = f"the conversation is told with {what}: about {done.tokens:,} tokens, {done.tokens_after:,} now"
        self._emit(kind="model", after="compacted", note=note)

    def keep_as_it_is(self, done: Compacted) -> None:
        """It cannot be told much shorter; trying has cost something all the same."""
        self.usage += done.usage
        self.no_shorter_at = self.filled

    def fall_back(self, reason: str) -> None:
        """The model failed for good: the next one of those that were named is asked."""
        assert self.input.model, "only a turn with a model has others"
        if self.writing:
            self.discard(self.writing, f"The model's reply broke off, and another model is asked: {reason}")
        self.model += 1
        self.attempt += 1
        self.window = None
        name = self.input.model.names[self.model]
        self._emit(kind="model", after="thinking", note=line(f"step {self.steps}: {name} is asked now: {reason}"))

    def _close(self, batch: Batch) -> None:
        """A model will read the responses."""
        super()._close(batch)
        if self.input.model and not batch.discarded:
            self.messages.append(ToolMessage(responses=batch.responses))

    def _join(self) -> None:
        self.messages += [UserMessage(text=said.message) for said in self._said]
        self.heard += [said.id for said in self._said if said.id is not None]
        self._said = []
