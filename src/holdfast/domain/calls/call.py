"""One tool call: an immutable record, seven states, and the table of moves between them (S1, S2).

The record knows nothing of batches, activities or people; `batch.py` decides which move to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AliasChoices, Field, JsonValue

from holdfast.domain.approvals.approval import Actor, Confirmation, Decision, QuestionAnswer, digest_question
from holdfast.domain.base import Data, StrictData, max_items
from holdfast.domain.calls.verdicts import BoundCall
from holdfast.domain.content import CallError, Response
from holdfast.errors import InvalidTransition


class Status(StrEnum):
    """The state of a call (S1)."""

    VALIDATING = "validating"
    AWAITING_APPROVAL = "awaiting_approval"
    SCHEDULED = "scheduled"
    EXECUTING = "executing"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"


TERMINAL = frozenset({Status.SUCCESS, Status.ERROR, Status.CANCELLED})

TRANSITIONS: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.VALIDATING: frozenset({Status.AWAITING_APPROVAL, Status.SCHEDULED, Status.ERROR, Status.CANCELLED}),
        Status.AWAITING_APPROVAL: frozenset(
            {Status.AWAITING_APPROVAL, Status.SCHEDULED, Status.SUCCESS, Status.ERROR, Status.CANCELLED}
        ),
        Status.SCHEDULED: frozenset({Status.EXECUTING, Status.AWAITING_APPROVAL, Status.ERROR, Status.CANCELLED}),
        Status.EXECUTING: frozenset({Status.SUCCESS, Status.ERROR, Status.CANCELLED, Status.AWAITING_APPROVAL}),
        Status.SUCCESS: frozenset(),
        Status.ERROR: frozenset(),
        Status.CANCELLED: frozenset(),
    }
)


class CallRequest(StrictData):
    """A tool call as a model or a caller requests it. `name` and `args` are aliases of `tool` and `arguments`.

    Arguments may be any JSON: validation reports arguments that do not fit the tool as an error of this call.
    """

    tool: str = Field(validation_alias=AliasChoices("tool", "name"))
    arguments: JsonValue = Field(default={}, validation_alias=AliasChoices("arguments", "args"))
    id: str | None = None
    """The model's id of the call, echoed in the response. It need not be unique (S4)."""


Calls = Annotated[tuple[CallRequest, ...], max_items(10_000)]
"""Calls from outside. This limit only bounds parsing; `check_batch` enforces the limit of a batch."""


class Editing(Data):
    """The person who has a call open in an editor."""

    by: str
    until: datetime
    """When this expires, unless the editor is closed before."""


class PendingQuestion(Data):
    """The question of a tool that asked while it ran, and the state from which the call goes on."""

    held: bool = False
    """The tool still runs and waits for the answer. If not, it ended, and goes on from `state`."""
    state: JsonValue = None
    times: int = 1
    """The number of questions of the call so far."""
    answer: QuestionAnswer | None = None
    question: Confirmation | None = None
    """The question that was answered, of a tool that ended to ask it."""
    run: int = 1
    """The `run` of the call that its approvals cover."""


class Call(Data):
    """The record of one call. Only views fill `live_output` and `pid`, from heartbeats."""

    id: str
    request: CallRequest
    attempt: int = 1
    """The attempt of the model step that requested it."""
    status: Status = Status.VALIDATING
    bound: BoundCall | None = None
    rule: str | None = None
    """The policy rule of its verdict."""
    confirmation: Confirmation | None = None
    diff: str | None = None
    """The diff of a call that needs no approval, until it ends."""
    revision: int = 0
    """The number of times that a person was asked."""
    run: int = 1
    """The number of the effect (`effect_key`). It grows when a person lets a call of unknown outcome run again, and
    when an answer lets a tool that ended to ask go on."""
    pause: PendingQuestion | None = None
    decision: Decision | None = None
    approvals: tuple[Decision, ...] = ()
    """The approvals so far; a rule may need several."""
    grant: str | None = None
    """The id of the grant that allowed it without a question."""
    actor: Actor | None = None
    """Who decided last."""
    editing: Editing | None = None
    changing: Decision | None = None
    """A change of its arguments that is being validated."""
    problem: str | None = None
    """Why the last change was rejected, or why the outcome is unknown."""
    original: dict[str, JsonValue] | None = None
    """The arguments before people changed them."""
    changed_by: tuple[str, ...] = ()
    shown: dict[str, JsonValue] | None = None
    """The arguments that the question showed, when the decision changed and approved them in one step."""
    deadline_at: datetime | None = None
    warned: bool = False
    """Viewers were warned that the deadline is near."""
    expired: bool = False
    """The approval deadline passed."""
    stopping: str | None = None
    """Why a running call is being stopped."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    live_output: str | None = None
    pid: int | None = None
    attempts: int = 1
    """The number of times that the tool ran, retries included (`Retries`)."""
    response: Response | None = None

    @property
    def is_terminal(self) -> bool:
        """Has it ended?"""
        return self.status in TERMINAL

    @property
    def is_running(self) -> bool:
        """Does its activity run? It may also wait there for the answer to a question."""
        held = self.pause is not None and self.pause.held
        return self.status is Status.EXECUTING or (held and not self.is_terminal)

    @property
    def is_asking(self) -> bool:
        """Does a question of its tool wait for an answer?"""
        return self.status is Status.AWAITING_APPROVAL and self.pause is not None and self.pause.answer is None

    @property
    def approval_digest(self) -> str | None:
        """The digest that a decision must name: of the bound call, or of its tool's question."""
        if self.bound and self.pause and self.confirmation:
            return digest_question(self.bound.digest, self.confirmation, self.pause.state)
        return self.bound.digest if self.bound else None

    @property
    def error(self) -> CallError | None:
        """The error of its response, if it did not succeed."""
        return self.response.error if self.response else None

    @property
    def duration(self) -> timedelta | None:
        """The time from creation to end, waiting included; None until it has ended."""
        return self.ended_at - self.created_at if self.ended_at and self.created_at else None

    @property
    def execution_time(self) -> timedelta | None:
        """The time from start to end; None for a call that never started."""
        return self.ended_at - self.started_at if self.ended_at and self.started_at else None

    @property
    def tool(self) -> str:
        """The tool's name as requested."""
        return self.request.tool

    def move_to(self, status: Status, **changes: Any) -> Call:
        """Return the call in another state. InvalidTransition for a move that `TRANSITIONS` does not have."""
        if status not in TRANSITIONS[self.status]:
            raise InvalidTransition(f"call {self.id!r} cannot go from {self.status} to {status}")
        return self.model_copy(update={"status": status, **changes})
