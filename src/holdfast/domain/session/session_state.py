"""The state of one session: its messages, its memory, its queue of user messages, and its running turn. Pure."""

from __future__ import annotations

from holdfast.domain.approvals.grants import Grant
from holdfast.domain.conversation.compaction import (
    CHARACTERS_PER_TOKEN,
    build_model_messages,
    build_page,
    estimate_tokens,
    stub_results,
)
from holdfast.domain.conversation.messages import Compaction, ConversationMessage, ConversationPage, UserMessage
from holdfast.domain.modes import Confirming
from holdfast.domain.session.session_io import (
    MAX_WAITING,
    CloseSession,
    LastTurn,
    SendMessage,
    SendResult,
    SessionCarryover,
    SessionChange,
    SessionInput,
    SessionResult,
    SessionView,
)
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.ids import format_session_turn_id
from holdfast.domain.turn.turn_io import TurnInput, TurnResult
from holdfast.domain.turn.update_bodies import Interruption
from holdfast.errors import RequestRefused
from holdfast.util.text import shorten_text

KNOWN_KEPT = 1_000
MAX_SENT = 1_000
"""The number of messages that are sent to one running turn."""
MAX_CHARACTERS = 20_000_000
"""Characters of all messages that no turn has read yet: a session that continues as new passes them on."""
MESSAGES_LIMIT = 20_000_000
"""Characters of the conversation that a session keeps. Beyond that, older results of tools become stubs."""
NEWEST_KEPT = 50
"""The number of newest messages that stay whole then."""
LINE_LIMIT = 200


class SessionState:
    """The state of one session."""

    def __init__(self, session_id: str, input: SessionInput | None = None) -> None:
        """Begin a session, or continue from the state of an earlier run (`input.carried`)."""
        self.id = session_id
        self.input = input or SessionInput(turn=TurnInput())
        carried = self.input.carried or SessionCarryover(memory=TurnMemory(mode=self.input.turn.mode))
        self.memory = carried.memory
        self.messages: list[ConversationMessage] = list(carried.messages)
        self.epoch = carried.epoch
        """Counts how often messages were replaced, so that a reader fetches all of them again."""
        self.turns = carried.turns
        """The number of turns so far."""
        self.usage = carried.usage
        self.waiting: list[SendMessage] = list(carried.waiting)
        """The queued messages, each for a turn of its own."""
        self.turn: str | None = None
        """The id of the running turn."""
        self.last = carried.last
        self.closing = carried.closing
        """Why the session is closed to further messages."""
        self._known = dict(carried.known)
        """The newest messages: turn ids by message id."""
        self._withdrawn = set(carried.withdrawn)
        """The ids of queued messages that were withdrawn."""
        self._sent_messages: list[SendMessage] = []
        """The messages that were sent to the running turn, which may end before it reads them."""
        self._prompt: SendMessage | None = None
        """The message that began the running turn."""
        self._change = SessionChange()
        """The changes of model and mode that apply when the running turn has ended."""
        self._is_dropping = False
        """Messages that the running turn does not read are dropped, not queued."""

    def build_carryover(self, moved_from: str | None = None) -> SessionInput:
        """Build the input of the next run of the session. No turn runs."""
        carried = SessionCarryover(
            memory=self.memory,
            messages=tuple(self.messages),
            epoch=self.epoch,
            turns=self.turns,
            usage=self.usage,
            waiting=tuple(self.waiting),
            withdrawn=tuple(sorted(self._withdrawn)),
            known=self._known,
            last=self.last,
            closing=self.closing,
            moved_from=moved_from,
        )
        return self.input.model_copy(update={"carried": carried})

    def check_message(self, body: SendMessage) -> None:
        """RequestRefused when the session does not take this message now."""
        if body.id in self._known:
            return
        if self.closing:
            raise RequestRefused("closed", f"session {self.id!r} is closed: start another")
        if len(self.waiting) >= MAX_WAITING or len(self._sent_messages) >= MAX_SENT:
            raise RequestRefused("queue_full", f"{MAX_WAITING} messages are queued in this session: wait for some")
        if len(body.message) + sum(len(one.message) for one in (*self.waiting, *self._sent_messages)) > MAX_CHARACTERS:
            message = f"queued messages would exceed {MAX_CHARACTERS:,} characters: wait for some to be read"
            raise RequestRefused("queue_full", message)

    def add_message(self, body: SendMessage) -> tuple[SendResult, Interruption | None]:
        """Queue a message, or return the interruption to send to the running turn. A known message is taken once."""
        self.check_message(body)
        if body.id in self._known:
            return SendResult(turn=self._known[body.id]), None
        if self.turn and body.how != "queue":
            self._sent_messages.append(body)
            self._note_turn(body, self.turn)
            return SendResult(turn=self.turn), Interruption(message=body.message, by=body.by, id=body.id)
        self.waiting.append(body)
        turn = format_session_turn_id(self.id, self.turns + len(self.waiting))
        self._note_turn(body, turn)
        return SendResult(turn=turn, ahead=len(self.waiting) - 1), None

    def check_withdraw(self, message_id: str) -> None:
        """RequestRefused when no message with this id is queued."""
        if message_id not in (message.id for message in self.waiting) or message_id in self._withdrawn:
            raise RequestRefused("not_waiting", f"no message {message_id!r} is queued in this session")

    def withdraw_message(self, message_id: str) -> None:
        """Withdraw a queued message. The turn ids that `send` returned for other messages stay valid."""
        self.check_withdraw(message_id)
        self._withdrawn.add(message_id)
        self._skip_withdrawn()

    def _list_wanted(self) -> list[SendMessage]:
        return [message for message in self.waiting if message.id not in self._withdrawn]

    def _skip_withdrawn(self) -> None:
        """Drop withdrawn messages from the head of the queue. Their turn numbers stay unused."""
        while self.waiting and self.waiting[0].id in self._withdrawn:
            self._withdrawn.discard(self.waiting.pop(0).id)
            self.turns += 1

    def _note_turn(self, body: SendMessage, turn: str) -> None:
        self._known = dict([*self._known.items(), (body.id, turn)][-KNOWN_KEPT:])

    def begin_turn(self, run_id: str | None = None) -> TurnInput:
        """Begin the turn of the next message, and return its input. `run_id` is the session's first run."""
        message = self._prompt = self.waiting.pop(0)
        self.turns += 1
        self.turn = format_session_turn_id(self.id, self.turns)
        self._skip_withdrawn()
        confirm = Confirming.ALWAYS if message.confirm is Confirming.ALWAYS else None
        given = {"interactive": message.interactive, "limits": message.limits, "confirm": confirm}
        return self.input.turn.model_copy(
            update={
                **{name: value for name, value in given.items() if value is not None},
                "prompt": message.message,
                "session": self.id,
                "session_run": run_id,
                "memory": self.memory,
                "requester": message.by or self.input.turn.requester,
            }
        )

    def end_turn(self, result: TurnResult) -> None:
        """Adopt the memory and the messages of a turn that ended."""
        assert result.left, "the turn of a session always sets it"
        left = result.left
        self.memory = left.memory
        self.usage += result.usage
        whole = left.compaction == Compaction()
        self.messages = (
            [*self.messages, *left.messages]
            if whole
            else build_model_messages(self.messages, left.messages, left.compaction)
        )
        self.epoch += not whole
        self._bound_messages()
        self._finish_turn(LastTurn(id=self.turn or "", status=result.status, reason=result.reason), left.heard)

    def fail_turn(self, reason: str) -> None:
        """Record a turn that ended without a result, as by termination. Its prompt stays in the conversation."""
        if self._prompt:
            self.messages.append(UserMessage(text=self._prompt.message))
        self._finish_turn(LastTurn(id=self.turn or "", status="failed", reason=reason), ())

    def _finish_turn(self, last: LastTurn, heard: tuple[str, ...]) -> None:
        """Queue messages that the turn did not read, after those that are queued already."""
        unread = [message for message in self._sent_messages if message.id not in heard and not self._is_dropping]
        for place, message in enumerate(unread, start=len(self.waiting) + 1):
            self._note_turn(message, format_session_turn_id(self.id, self.turns + place))
        self.waiting, self._sent_messages = [*self.waiting, *unread], []
        self.turn, self.last, self._prompt = None, last, None
        change, self._change = self._change, SessionChange()
        self.configure(change)

    def _bound_messages(self) -> None:
        if estimate_tokens(self.messages) * CHARACTERS_PER_TOKEN > MESSAGES_LIMIT:
            shorter = [*stub_results(self.messages[:-NEWEST_KEPT]), *self.messages[-NEWEST_KEPT:]]
            self.epoch += shorter != self.messages
            self.messages = shorter

    def close(self, body: CloseSession) -> None:
        """Refuse further messages. With `now`, drop the queued ones too."""
        self.closing = self.closing or f"{body.by or 'Somebody'} closed the session"
        if body.now:
            self.waiting, self._is_dropping = [], True

    def configure(self, change: SessionChange) -> None:
        """Change the model or mode for the next turns. While a turn runs, the change waits for its end.

        The running turn holds the memory, mode included, and returns it at its end.
        """
        if self.turn:
            fields = {name: value for name, value in dict(change).items() if value is not None}
            self._change = self._change.model_copy(update=fields)
            return
        if change.model:
            turn = self.input.turn.model_copy(update={"model": change.model})
            self.input = self.input.model_copy(update={"turn": turn})
            self.memory = self.memory.model_copy(update={"replies": 0, "window": None, "filled": 0})
        if change.mode:
            self.memory = self.memory.model_copy(update={"mode": change.mode})

    def check_revoke(self, grant_id: str) -> Grant:
        """Return the grant with this id. RequestRefused when the session does not have it, or a turn runs."""
        if self.turn:
            raise RequestRefused("at_work", f"turn {self.turn!r} runs and has the grants: revoke it there")
        found = [grant for grant in self.memory.grants if grant.id == grant_id]
        if not found:
            raise RequestRefused("no_grant", f"this session has no grant {grant_id!r}: it was revoked, or never was")
        if not found[0].is_allowance and self.memory.keyed:
            message = "approvers have keys, and revoking is not signed: a refusal stays"
            raise RequestRefused("refusal_stands", message)
        return found[0]

    def revoke_grant(self, grant_id: str) -> Grant:
        """Revoke a grant, and return it."""
        grant = self.check_revoke(grant_id)
        rest = tuple(one for one in self.memory.grants if one.id != grant_id)
        self.memory = self.memory.model_copy(update={"grants": rest})
        return grant

    def build_page(self, after: int, epoch: int | None) -> ConversationPage:
        """Build a page of messages that the reader does not have yet."""
        return build_page(self.messages, after, self.epoch, epoch)

    def build_view(self) -> SessionView:
        """Build the view, without what only the running turn knows."""
        model = self.input.turn.model
        return SessionView(
            id=self.id,
            status="closed" if self.closing and not self.turn and not self.waiting else "idle",
            model=model.name if model else "",
            mode=self._change.mode or self.memory.mode,
            grants=len(self.memory.grants),
            turn=self.turn,
            turns=self.turns,
            messages=len(self.messages),
            usage=self.usage,
            waiting=tuple(shorten_text(one.message, LINE_LIMIT) for one in self._list_wanted()[:MAX_WAITING]),
            last=self.last,
        )

    def build_result(self) -> SessionResult:
        """Build the result of the session."""
        return SessionResult(turns=self.turns, reason=self.closing, usage=self.usage)
