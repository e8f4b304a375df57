"""The state of one session: its messages, its memory, what waits, and the turn that runs. Pure."""

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
"""Messages that are said to one turn while it runs."""
MAX_CHARACTERS = 20_000_000
"""Of all messages that no turn has read yet: a session that continues as new takes them along."""
MESSAGES_LIMIT = 20_000_000
"""Characters of the messages that a session takes along; older results of tools are left out beyond that."""
NEWEST_KEPT = 50
"""Messages that are left whole then."""
LINE_LIMIT = 200


class SessionState:
    """Everything a session knows."""

    def __init__(self, session_id: str, input: SessionInput | None = None) -> None:
        """Begin a session, or go on where an earlier run of it left (`input.carried`)."""
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
        """The messages that wait for turns of their own."""
        self.turn: str | None = None
        """The id of the running turn."""
        self.last = carried.last
        self.closing = carried.closing
        """Why the session is closed to further messages."""
        self._known = dict(carried.known)
        """The newest messages: the turn of each, by message id."""
        self._withdrawn = set(carried.withdrawn)
        """The ids of the waiting messages that were withdrawn."""
        self._sent_messages: list[SendMessage] = []
        """The messages that were sent to the running turn, which may end before it reads them."""
        self._prompt: SendMessage | None = None
        """The message that the running turn began with."""
        self._change = SessionChange()
        """What changes when the running turn has ended."""
        self._is_dropping = False
        """Messages that the running turn does not read are dropped."""

    def build_carryover(self, moved_from: str | None = None) -> SessionInput:
        """What its next run goes on from. No turn runs."""
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
        """RequestRefused when this cannot be said now."""
        if body.id in self._known:
            return
        if self.closing:
            raise RequestRefused("closed", f"session {self.id!r} is closed: start another")
        if len(self.waiting) >= MAX_WAITING or len(self._sent_messages) >= MAX_SENT:
            raise RequestRefused("queue_full", f"{MAX_WAITING} messages already wait in this session")
        if len(body.message) + sum(len(one.message) for one in (*self.waiting, *self._sent_messages)) > MAX_CHARACTERS:
            message = (
                f"what waits in this session would be over {MAX_CHARACTERS:,} characters: wait for some to be read"
            )
            raise RequestRefused("queue_full", message)

    def add_message(self, body: SendMessage) -> tuple[SendResult, Interruption | None]:
        """Take a message: where it goes, and what the turn that runs is told of it."""
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
        """RequestRefused for what does not wait."""
        if message_id not in (said.id for said in self.waiting) or message_id in self._withdrawn:
            raise RequestRefused("not_waiting", f"no message {message_id!r} waits for its turn in this session")

    def withdraw_message(self, message_id: str) -> None:
        """Take a message back that has not had its turn. The numbers that others were promised stay theirs."""
        self.check_withdraw(message_id)
        self._withdrawn.add(message_id)
        self._skip_withdrawn()

    def _list_wanted(self) -> list[SendMessage]:
        return [said for said in self.waiting if said.id not in self._withdrawn]

    def _skip_withdrawn(self) -> None:
        """Who is next and was withdrawn has no turn; its number is nobody's."""
        while self.waiting and self.waiting[0].id in self._withdrawn:
            self._withdrawn.discard(self.waiting.pop(0).id)
            self.turns += 1

    def _note_turn(self, body: SendMessage, turn: str) -> None:
        self._known = dict([*self._known.items(), (body.id, turn)][-KNOWN_KEPT:])

    def begin_turn(self, run_id: str | None = None) -> TurnInput:
        """The next message has its turn. `run_id` is that of the session's first run."""
        said = self._prompt = self.waiting.pop(0)
        self.turns += 1
        self.turn = format_session_turn_id(self.id, self.turns)
        self._skip_withdrawn()
        confirm = Confirming.ALWAYS if said.confirm is Confirming.ALWAYS else None
        given = {"interactive": said.interactive, "limits": said.limits, "confirm": confirm}
        return self.input.turn.model_copy(
            update={
                **{name: value for name, value in given.items() if value is not None},
                "prompt": said.message,
                "session": self.id,
                "session_run": run_id,
                "memory": self.memory,
                "requester": said.by or self.input.turn.requester,
            }
        )

    def end_turn(self, result: TurnResult) -> None:
        """Take what a turn leaves."""
        assert result.left, "a session's turn leaves something"
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
        """A turn ended without a result: somebody terminated it. What the user said stays said."""
        if self._prompt:
            self.messages.append(UserMessage(text=self._prompt.message))
        self._finish_turn(LastTurn(id=self.turn or "", status="failed", reason=reason), ())

    def _finish_turn(self, last: LastTurn, heard: tuple[str, ...]) -> None:
        """What was said to the turn and not heard by it has turns of its own, after those that were promised."""
        unheard = [said for said in self._sent_messages if said.id not in heard and not self._is_dropping]
        for place, said in enumerate(unheard, start=len(self.waiting) + 1):
            self._note_turn(said, format_session_turn_id(self.id, self.turns + place))
        self.waiting, self._sent_messages = [*self.waiting, *unheard], []
        self.turn, self.last, self._prompt = None, last, None
        change, self._change = self._change, SessionChange()
        self.configure(change)

    def _bound_messages(self) -> None:
        if estimate_tokens(self.messages) * CHARACTERS_PER_TOKEN > MESSAGES_LIMIT:
            shorter = [*stub_results(self.messages[:-NEWEST_KEPT]), *self.messages[-NEWEST_KEPT:]]
            self.epoch += shorter != self.messages
            self.messages = shorter

    def close(self, body: CloseSession) -> None:
        """Take nothing more."""
        self.closing = self.closing or f"{body.by or 'Somebody'} closed the session"
        if body.now:
            self.waiting, self._is_dropping = [], True

    def configure(self, wish: SessionChange) -> None:
        """How the next turns are to go. A turn that runs has the memory, and brings it back as it was for it."""
        if self.turn:
            said = {name: value for name, value in dict(wish).items() if value is not None}
            self._change = self._change.model_copy(update=said)
            return
        if wish.model:
            self.input = self.input.model_copy(
                update={"turn": self.input.turn.model_copy(update={"model": wish.model})}
            )
            self.memory = self.memory.model_copy(update={"replies": 0, "window": None, "filled": 0})
        if wish.mode:
            self.memory = self.memory.model_copy(update={"mode": wish.mode})

    def check_revoke(self, grant_id: str) -> Grant:
        """The grant with this id; RequestRefused when there is none here now."""
        if self.turn:
            raise RequestRefused("at_work", f"turn {self.turn!r} runs and has the grants: revoke it there")
        found = [grant for grant in self.memory.grants if grant.id == grant_id]
        if not found:
            raise RequestRefused("no_grant", f"this session has no grant {grant_id!r}: it was revoked, or never was")
        if not found[0].is_allowance and self.memory.keyed:
            message = "where approvers have keys a refusal stands: taking it back is not signed"
            raise RequestRefused("refusal_stands", message)
        return found[0]

    def revoke_grant(self, grant_id: str) -> Grant:
        """Take a standing answer back."""
        grant = self.check_revoke(grant_id)
        rest = tuple(one for one in self.memory.grants if one.id != grant_id)
        self.memory = self.memory.model_copy(update={"grants": rest})
        return grant

    def build_page(self, after: int, epoch: int | None) -> ConversationPage:
        """The messages that somebody does not have yet."""
        return build_page(self.messages, after, self.epoch, epoch)

    def build_view(self) -> SessionView:
        """How it stands, as far as it knows itself: what its turn does, that one tells."""
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
            waiting=tuple(shorten_text(said.message, LINE_LIMIT) for said in self._list_wanted()[:MAX_WAITING]),
            last=self.last,
        )

    def build_result(self) -> SessionResult:
        """How it ended."""
        return SessionResult(turns=self.turns, reason=self.closing, usage=self.usage)
