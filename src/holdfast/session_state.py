"""The state of one session: its messages, its memory, what waits, and the turn that runs. Pure."""

from __future__ import annotations

from holdfast.compaction import CHARACTERS_PER_TOKEN, page_of, size, told, without_results
from holdfast.content import shorten
from holdfast.conversations import Compaction, ConversationMessage, ConversationPage, Usage, UserMessage
from holdfast.errors import RequestRefused
from holdfast.families import turn_of_session
from holdfast.grants import Grant
from holdfast.memory import Memory
from holdfast.modes import Confirming
from holdfast.requests import Interruption
from holdfast.sessions import (
    MAX_WAITING,
    Close,
    LastTurn,
    Say,
    Sent,
    SessionCarried,
    SessionInput,
    SessionResult,
    SessionView,
    Wish,
)
from holdfast.turns import TurnInput, TurnResult

KNOWN_KEPT = 1_000
MAX_TOLD = 1_000
"""Messages that are said to one turn while it runs."""
MAX_CHARACTERS = 20_000_000
"""Of all messages that no turn has read yet: a session that continues as new takes them along."""
MESSAGES_LIMIT = 20_000_000
"""Characters of the messages that a session takes along; older results of tools are left out beyond that."""
NEWEST = 50
"""Messages that are left whole then."""
LINE = 200


class SessionState:
    """Everything a session knows."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.input = SessionInput(turn=TurnInput())
        self.memory = Memory()
        self.messages: list[ConversationMessage] = []
        self.epoch = 0
        self.turns = 0
        self.usage = Usage()
        self.waiting: list[Say] = []
        self.turn: str | None = None
        """The one that runs."""
        self.last: LastTurn | None = None
        self.closing: str | None = None
        """Why it takes nothing more."""
        self._told: list[Say] = []
        """What was said to the turn that runs: it may end before it hears that."""
        self._known: dict[str, str] = {}
        self._withdrawn: set[str] = set()
        """Of what waits, what is not to have its turn."""
        self._prompt: Say | None = None
        self._wish = Wish()
        """What is to be otherwise when the turn that runs has ended."""
        self._dropping = False
        """Is what waits not to have its turn any more?"""

    def begin(self, input: SessionInput) -> None:
        """Take the input, or what an earlier run left."""
        self.input = input
        self.memory = Memory(mode=input.turn.mode)
        if carried := input.carried:
            self.memory, self.messages, self.epoch = carried.memory, list(carried.messages), carried.epoch
            self.turns, self.usage, self.last = carried.turns, carried.usage, carried.last
            self.waiting, self._known, self.closing = list(carried.waiting), dict(carried.known), carried.closing
            self._withdrawn = set(carried.withdrawn)

    def carry(self, moved_from: str | None = None) -> SessionInput:
        """What its next run goes on from. No turn runs."""
        carried = SessionCarried(
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

    def check_say(self, said: Say) -> None:
        """RequestRefused when this cannot be said now."""
        if said.id in self._known:
            return
        if self.closing:
            raise RequestRefused("closed", f"session {self.id!r} is closed: start another")
        if len(self.waiting) >= MAX_WAITING or len(self._told) >= MAX_TOLD:
            raise RequestRefused("queue_full", f"{MAX_WAITING} messages already wait in this session")
        if len(said.message) + sum(len(one.message) for one in (*self.waiting, *self._told)) > MAX_CHARACTERS:
            message = (
                f"what waits in this session would be over {MAX_CHARACTERS:,} characters: wait for some to be read"
            )
            raise RequestRefused("queue_full", message)

    def say(self, said: Say) -> tuple[Sent, Interruption | None]:
        """Take a message: where it goes, and what the turn that runs is told of it."""
        self.check_say(said)
        if said.id in self._known:
            return Sent(turn=self._known[said.id]), None
        if self.turn and said.how != "queue":
            self._told.append(said)
            self._know(said, self.turn)
            return Sent(turn=self.turn), Interruption(message=said.message, by=said.by, id=said.id)
        self.waiting.append(said)
        turn = turn_of_session(self.id, self.turns + len(self.waiting))
        self._know(said, turn)
        return Sent(turn=turn, ahead=len(self.waiting) - 1), None

    def check_withdraw(self, message_id: str) -> None:
        """RequestRefused for what does not wait."""
        if message_id not in (said.id for said in self.waiting) or message_id in self._withdrawn:
            raise RequestRefused("not_waiting", f"no message {message_id!r} waits for its turn in this session")

    def withdraw(self, message_id: str) -> None:
        """Take a message back that has not had its turn. The numbers that others were promised stay theirs."""
        self.check_withdraw(message_id)
        self._withdrawn.add(message_id)
        self._pass_over()

    def _still_wanted(self) -> list[Say]:
        return [said for said in self.waiting if said.id not in self._withdrawn]

    def _pass_over(self) -> None:
        """Who is next and was withdrawn has no turn; its number is nobody's."""
        while self.waiting and self.waiting[0].id in self._withdrawn:
            self._withdrawn.discard(self.waiting.pop(0).id)
            self.turns += 1

    def _know(self, said: Say, turn: str) -> None:
        self._known = dict([*self._known.items(), (said.id, turn)][-KNOWN_KEPT:])

    def begin_turn(self, run_id: str | None = None) -> TurnInput:
        """The next message has its turn. `run_id` is that of the session's first run."""
        said = self._prompt = self.waiting.pop(0)
        self.turns += 1
        self.turn = turn_of_session(self.id, self.turns)
        self._pass_over()
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
            [*self.messages, *left.messages] if whole else told(self.messages, left.messages, left.compaction)
        )
        self.epoch += not whole
        self._bound()
        self._over(LastTurn(id=self.turn or "", status=result.status, reason=result.reason), left.heard)

    def fail_turn(self, reason: str) -> None:
        """A turn ended without a result: somebody terminated it. What the user said stays said."""
        if self._prompt:
            self.messages.append(UserMessage(text=self._prompt.message))
        self._over(LastTurn(id=self.turn or "", status="failed", reason=reason), ())

    def _over(self, last: LastTurn, heard: tuple[str, ...]) -> None:
        """What was said to the turn and not heard by it has turns of its own, after those that were promised."""
        unheard = [said for said in self._told if said.id not in heard and not self._dropping]
        for place, said in enumerate(unheard, start=len(self.waiting) + 1):
            self._know(said, turn_of_session(self.id, self.turns + place))
        self.waiting, self._told = [*self.waiting, *unheard], []
        self.turn, self.last, self._prompt = None, last, None
        wish, self._wish = self._wish, Wish()
        self.configure(wish)

    def _bound(self) -> None:
        if size(self.messages) * CHARACTERS_PER_TOKEN > MESSAGES_LIMIT:
            shorter = [*without_results(self.messages[:-NEWEST]), *self.messages[-NEWEST:]]
            self.epoch += shorter != self.messages
            self.messages = shorter

    def close(self, body: Close) -> None:
        """Take nothing more."""
        self.closing = self.closing or f"{body.by or 'Somebody'} closed the session"
        if body.now:
            self.waiting, self._dropping = [], True

    def configure(self, wish: Wish) -> None:
        """How the next turns are to go. A turn that runs has the memory, and brings it back as it was for it."""
        if self.turn:
            said = {name: value for name, value in dict(wish).items() if value is not None}
            self._wish = self._wish.model_copy(update=said)
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
        if not found[0].allows and self.memory.keyed:
            message = "where approvers have keys a refusal stands: taking it back is not signed"
            raise RequestRefused("refusal_stands", message)
        return found[0]

    def revoke(self, grant_id: str) -> Grant:
        """Take a standing answer back."""
        grant = self.check_revoke(grant_id)
        rest = tuple(one for one in self.memory.grants if one.id != grant_id)
        self.memory = self.memory.model_copy(update={"grants": rest})
        return grant

    def page(self, after: int, epoch: int | None) -> ConversationPage:
        """The messages that somebody does not have yet."""
        return page_of(self.messages, after, self.epoch, epoch)

    def view(self) -> SessionView:
        """How it stands, as far as it knows itself: what its turn does, that one tells."""
        model = self.input.turn.model
        return SessionView(
            id=self.id,
            status="closed" if self.closing and not self.turn and not self.waiting else "idle",
            model=model.name if model else "",
            mode=self._wish.mode or self.memory.mode,
            grants=len(self.memory.grants),
            turn=self.turn,
            turns=self.turns,
            messages=len(self.messages),
            usage=self.usage,
            waiting=tuple(shorten(said.message, LINE) for said in self._still_wanted()[:MAX_WAITING]),
            last=self.last,
        )

    def result(self) -> SessionResult:
        """How it ended."""
        return SessionResult(turns=self.turns, reason=self.closing, usage=self.usage)
