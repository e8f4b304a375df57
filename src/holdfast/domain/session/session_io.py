"""The input and result of a session, the bodies and results of its updates, and its view.

Field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.domain.base import Data, StrictData, max_items
from holdfast.domain.conversation.messages import ConversationMessage, ModelChoice, Usage
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.turn_io import TurnInput, TurnLimits, TurnStatus, check_input, check_outside
from holdfast.errors import RequestRefused

MAX_WAITING = 100
"""The number of queued messages."""

Steering = Literal["queue", "interrupt", "append"]
"""What happens to a message while a turn runs. `queue`: it gets a turn of its own. `interrupt`: calls that may be
interrupted stop, and the model reads it. `append`: the model reads it after the active batch."""


class SendMessage(StrictData):
    """Body of the update `send`: a message of the user."""

    message: str = Field(min_length=1, max_length=1_000_000, pattern=r"\S")
    how: Steering = "queue"
    by: str | None = Field(default=None, max_length=500)
    id: str = Field(min_length=1, max_length=200)
    """The sender's id of the message. A message that is sent twice is taken once."""
    interactive: bool | None = None
    """Can a person be asked in the turn of this message? None for the setting of the session."""
    limits: TurnLimits | None = None
    """The limits of the turn of this message; None for those of the session."""
    confirm: Confirming = Confirming.POLICY
    """`always`: every call of the turn of this message needs an approval. Otherwise the setting of the session."""


class SendResult(Data):
    """Result of the update `send`: the id of the turn that reads the message, and the number of messages before it."""

    turn: str
    ahead: int = 0


class InterruptTurn(StrictData):
    """Body of the update `interrupt`: stop the running turn."""

    by: str | None = Field(default=None, max_length=500)


class WithdrawMessage(StrictData):
    """Body of the update `withdraw`: remove a queued message."""

    id: str = Field(min_length=1, max_length=200)
    """The id of the message (`SendMessage.id`)."""
    by: str | None = Field(default=None, max_length=500)


class CloseSession(StrictData):
    """Body of the update `close`: refuse further messages, and end after the queued ones."""

    by: str | None = Field(default=None, max_length=500)
    now: bool = False
    """Stop the running turn, and drop the queued messages."""


class SessionChange(StrictData):
    """Body of the update `configure`: change the model or mode of the next turns. None leaves a field unchanged."""

    model: ModelChoice | None = None
    mode: Mode | None = None
    by: str | None = Field(default=None, max_length=500)


class LastTurn(Data):
    """The last turn of a session: its id, status and reason."""

    id: str
    status: TurnStatus
    reason: str | None = None


class SessionCarryover(Data):
    """The state that a session passes to its next run when it continues as new."""

    memory: TurnMemory = TurnMemory()
    messages: tuple[ConversationMessage, ...] = ()
    epoch: int = 0
    turns: int = 0
    usage: Usage = Usage()
    waiting: tuple[SendMessage, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    """The newest messages: turn ids by message id."""
    withdrawn: tuple[str, ...] = ()
    """The ids of queued messages that were withdrawn."""
    last: LastTurn | None = None
    closing: str | None = None
    moved_from: str | None = None
    """The worker version that the session left. If it starts there again, it does not move a second time."""


class SessionInput(StrictData):
    """The input of a session. `turn` is the input of each of its turns, without the prompt."""

    turn: TurnInput
    carried: SessionCarryover | None = None
    """The state of an earlier run of the same session. Only the session itself sets it, when it continues as new."""


SessionStatus = Literal["idle", "thinking", "awaiting_approval", "running", "stopping", "closed"]


class SessionView(Data):
    """The state of a session for viewers, with long values shortened."""

    id: str
    status: SessionStatus = "idle"
    doing: str = "idle"
    """The status in words, with the number of calls that have ended and that await approval."""
    model: str = ""
    mode: Mode = Mode.DEFAULT
    grants: int = 0
    turn: str | None = None
    """The id of the running turn."""
    turns: int = 0
    messages: int = 0
    usage: Usage = Usage()
    waiting: Annotated[tuple[str, ...], max_items(MAX_WAITING)] = ()
    """The queued messages, each shortened."""
    last: LastTurn | None = None
    pending: tuple[str, ...] = ()
    """The ids of the pending approvals."""


class SessionResult(Data):
    """The result of a session: its number of turns, why it was closed, and its usage."""

    turns: int
    reason: str | None = None
    usage: Usage = Usage()


def check_session(input: SessionInput) -> None:
    """RequestRefused for an input that no session can run."""
    if input.carried:
        raise RequestRefused("not_yours", "carried: only a session may set that, for its next run")
    if input.turn.model is None:
        raise RequestRefused("no_model", "a session needs a model that answers")
    if input.turn.prompt is not None:
        raise RequestRefused("bad_turn", "a session's messages are the prompts of its turns: leave `prompt` out")
    check_outside(input.turn)
    check_input(input.turn.model_copy(update={"prompt": ""}))
