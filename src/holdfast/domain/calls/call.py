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
from holdfast.domain.base import Data, Message, max_items
from holdfast.domain.calls.verdicts import BoundCall
from holdfast.domain.content import CallError, Response
from holdfast.errors import InvalidTransition


class Status(StrEnum):
    """Where a call is in its life."""

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


class CallRequest(Message):
    """What a model or a caller asked for. `name` and `args` are accepted for `tool` and `arguments`.

    Arguments may be any JSON: whether they fit the tool is for validation to say, about this one call.
    """

    tool: str = Field(validation_alias=AliasChoices("tool", "name"))
    arguments: JsonValue = Field(default={}, validation_alias=AliasChoices("arguments", "args"))
    id: str | None = None
    """The model's own id for the call, echoed in the response; need not be unique (S4)."""


Calls = Annotated[tuple[CallRequest, ...], max_items(10_000)]
"""Calls from outside. How many may be in a batch is said elsewhere, in better words; here it is how many are read."""


class Editing(Data):
    """Somebody who has the call open in an editor."""

    by: str
    until: datetime
    """When it no longer counts, should they never say that they are done."""


class PendingQuestion(Data):
    """A call that asked in the middle of its run, and where it goes on."""

    held: bool = False
    """Its tool waits for the answer where it runs; else it ended, and goes on from its state."""
    state: JsonValue = None
    times: int = 1
    """How often it has asked."""
    answer: QuestionAnswer | None = None
    question: Confirmation | None = None
    """What was answered, of a tool that ended."""
    run: int = 1
    """Of the call: the one that its approvals let run, and that it goes on from."""


class Call(Data):
    """One call's whole record. `live_output` and `pid` are filled for viewers only, from heartbeats."""

    id: str
    request: CallRequest
    attempt: int = 1
    """Of the model step that it came from."""
    status: Status = Status.VALIDATING
    bound: BoundCall | None = None
    rule: str | None = None
    """The policy rule that judged it."""
    confirmation: Confirmation | None = None
    diff: str | None = None
    """What it would change, of a call that nobody is asked about, until it has ended."""
    revision: int = 0
    """Counts the times a person was asked."""
    run: int = 1
    """Raised when a person says that it is to run again, though it may have run, and with every answer that it goes on
    with: another effect than the one before."""
    pause: PendingQuestion | None = None
    decision: Decision | None = None
    approvals: tuple[Decision, ...] = ()
    """The decisions that let it proceed: as many as its rule needs."""
    grant: str | None = None
    """The turn's grant that answered in place of a question."""
    actor: Actor | None = None
    """Who decided last."""
    editing: Editing | None = None
    changing: Decision | None = None
    """A change of its arguments that validation has not seen yet."""
    problem: str | None = None
    """Why the last change was not taken."""
    original: dict[str, JsonValue] | None = None
    """The arguments as they were before people changed them."""
    changed_by: tuple[str, ...] = ()
    shown: dict[str, JsonValue] | None = None
    """The arguments that were shown to whoever changed them and let them run in one step."""
    deadline_at: datetime | None = None
    warned: bool = False
    """Have viewers been told that its deadline is near?"""
    expired: bool = False
    """Its deadline passed."""
    stopping: str | None = None
    """Why a running call was told to stop, until it has."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    live_output: str | None = None
    pid: int | None = None
    attempts: int = 1
    """How often its tool was tried, where its failures passed by themselves."""
    response: Response | None = None

    @property
    def is_terminal(self) -> bool:
        """Has it ended?"""
        return self.status in TERMINAL

    @property
    def is_at_work(self) -> bool:
        """Is its tool at work, or does it wait for an answer where it is?"""
        held = self.pause is not None and self.pause.held
        return self.status is Status.EXECUTING or (held and not self.is_terminal)

    @property
    def is_asking(self) -> bool:
        """Does it wait for an answer in the middle of its run?"""
        return self.status is Status.AWAITING_APPROVAL and self.pause is not None and self.pause.answer is None

    @property
    def approval_digest(self) -> str | None:
        """What a decision on it must name: the digest of what would run, or of what its tool asks."""
        if self.bound and self.pause and self.confirmation:
            return digest_question(self.bound.digest, self.confirmation, self.pause.state)
        return self.bound.digest if self.bound else None

    @property
    def error(self) -> CallError | None:
        """Why it did not succeed."""
        return self.response.error if self.response else None

    @property
    def duration(self) -> timedelta | None:
        """From its validation to its end, with all waiting; None as long as it has not ended."""
        return self.ended_at - self.created_at if self.ended_at and self.created_at else None

    @property
    def execution_time(self) -> timedelta | None:
        """How long it ran; None for a call that never did."""
        return self.ended_at - self.started_at if self.ended_at and self.started_at else None

    @property
    def tool(self) -> str:
        """The tool's name as it was asked for."""
        return self.request.tool

    def move_to(self, status: Status, **changes: Any) -> Call:
        """The call after a move of the table; any other move is an InvalidTransition."""
        if status not in TRANSITIONS[self.status]:
            raise InvalidTransition(f"call {self.id!r} cannot go from {self.status} to {status}")
        return self.model_copy(update={"status": status, **changes})
