"""A session from the outside: what starts it, what is said to it, what it answers.

The field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.domain.base import Data, Message, max_items
from holdfast.domain.conversation.messages import ConversationMessage, ModelChoice, Usage
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.turn_io import TurnInput, TurnLimits, TurnStatus, check_input, check_outside
from holdfast.errors import RequestRefused

SESSION_WORKFLOW = "holdfast.session"
MAX_WAITING = 100
"""Messages of the user that wait for their turns."""

Steering = Literal["queue", "interrupt", "append"]
"""What becomes of a message while a turn runs: it waits for a turn of its own; or stops what may be interrupted, and
the turn goes on with it; or the turn's model reads it after the batch at work."""


class SendMessage(Message):
    """Body of the update `send`: what the user says."""

    message: str = Field(min_length=1, max_length=1_000_000, pattern=r"\S")
    how: Steering = "queue"
    by: str | None = Field(default=None, max_length=500)
    id: str = Field(min_length=1, max_length=200)
    """The sender's own: what is sent twice counts once."""
    interactive: bool | None = None
    """Can somebody be asked in the turn that it begins? Left out, as the session has it."""
    limits: TurnLimits | None = None
    """What that turn may use up; left out, as the session has it."""
    confirm: Confirming = Confirming.POLICY
    """`always`: every call of that turn is asked about, whatever the session has."""


class SendResult(Data):
    """Answer of `send`: which turn takes it up, and how many messages come before it."""

    turn: str
    ahead: int = 0


class InterruptTurn(Message):
    """Body of the update `interrupt`: stop the turn that runs."""

    by: str | None = Field(default=None, max_length=500)


class WithdrawMessage(Message):
    """Body of the update `withdraw`: a message that has not had its turn is not to have one."""

    id: str = Field(min_length=1, max_length=200)
    """As it was sent."""
    by: str | None = Field(default=None, max_length=500)


class CloseSession(Message):
    """Body of the update `close`: take nothing more, and end when what was said is done."""

    by: str | None = Field(default=None, max_length=500)
    now: bool = False
    """Stop the turn that runs, and drop what waits."""


class SessionChange(Message):
    """Body of the update `configure`: how the next turns are to go. What is left out stays as it is."""

    model: ModelChoice | None = None
    mode: Mode | None = None
    by: str | None = Field(default=None, max_length=500)


MOVE_SIGNAL = "move"
"""Signal to a session, without a body: go on with the newest code, as soon as no turn runs."""


class LastTurn(Data):
    """How the turn before ended."""

    id: str
    status: TurnStatus
    reason: str | None = None


class SessionCarryover(Data):
    """What a session takes along when it continues as new: all of it."""

    memory: TurnMemory = TurnMemory()
    messages: tuple[ConversationMessage, ...] = ()
    epoch: int = 0
    turns: int = 0
    usage: Usage = Usage()
    waiting: tuple[SendMessage, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    """Messages that were taken, the newest, by their ids: to which turn each was to go."""
    withdrawn: tuple[str, ...] = ()
    """Of what waits, what is not to have its turn."""
    last: LastTurn | None = None
    closing: str | None = None
    moved_from: str | None = None
    """The version of the code that it left for another: where it finds itself there again it stays."""


class SessionInput(Message):
    """What starts a session: what each of its turns starts with, but for the prompt."""

    turn: TurnInput
    carried: SessionCarryover | None = None
    """What an earlier run of the same session left; only a session gives itself that."""


SessionStatus = Literal["idle", "thinking", "awaiting_approval", "running", "stopping", "closed"]


class SessionView(Data):
    """How a session stands, bounded."""

    id: str
    status: SessionStatus = "idle"
    doing: str = "idle"
    """The same in words: how many of how many tools have ended, how many wait for somebody."""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    grants: int = 0
    turn: str | None = None
    """The one that runs."""
    turns: int = 0
    messages: int = 0
    usage: Usage = Usage()
    waiting: Annotated[tuple[str, ...], max_items(MAX_WAITING)] = ()
    """What the user said that has not had its turn, each cut."""
    last: LastTurn | None = None
    pending: tuple[str, ...] = ()
    """Approval ids of what waits for somebody."""


class SessionResult(Data):
    """How a session ended."""

    turns: int
    reason: str | None = None
    usage: Usage = Usage()


def check_session(input: SessionInput) -> None:
    """RequestRefused for what no session can be made of."""
    if input.carried:
        raise RequestRefused("not_yours", "carried cannot be given from outside: a session gives itself that")
    if input.turn.model is None:
        raise RequestRefused("no_model", "a session needs a model that answers")
    if input.turn.prompt is not None:
        raise RequestRefused("bad_turn", "a session gives its turns their prompts: leave the prompt out")
    check_outside(input.turn)
    check_input(input.turn.model_copy(update={"prompt": ""}))
