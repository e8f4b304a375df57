"""The facts of a history, without our code: who sent what and when, which workers made attempts, what was lost.

Times and identities are the server's. They are known whatever today's code makes of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

_CALL_ACTIVITY = re.compile(r"(b\d+c\d+)(?:-\d+)?(?:-stop)?")

MessageKind = Literal["signal", "update"]
AttemptEnding = Literal["completed", "failed", "timed out", "cancelled"]


@dataclass(frozen=True)
class Message:
    """A signal, or an accepted update."""

    event: int
    at: datetime
    how: MessageKind
    name: str
    identity: str
    """The identity that the sender's program gave."""
    body: Any
    answer: Any = None
    """The answer to an update."""
    refused: str | None = None
    """Why an accepted update failed."""
    id: str = ""
    """Of an update: the id that the sender gave it."""


@dataclass(frozen=True)
class Attempt:
    """An activity: its last attempt, and how the attempt before that ended."""

    event: int
    """The event that scheduled it."""
    activity: str
    type: str
    scheduled: datetime
    queue: str = ""
    number: int = 0
    worker: str | None = None
    started: datetime | None = None
    ended: datetime | None = None
    how: AttemptEnding | None = None
    why: str | None = None
    """How it ended, unless it completed."""
    before: str | None = None
    """How the attempt before ended."""

    @property
    def call_id(self) -> str | None:
        """The call that it executes, if any."""
        named = _CALL_ACTIVITY.fullmatch(self.activity)
        return named[1] if named else None

    @property
    def is_stop(self) -> bool:
        """Whether it only stops what an earlier attempt left running."""
        return self.activity.endswith("-stop")

    @property
    def is_untaken(self) -> bool:
        """Whether no worker took it."""
        return self.how == "timed out" and self.started is None and "schedule to start" in (self.why or "")


@dataclass(frozen=True)
class Reply:
    """A reply of a model."""

    event: int
    at: datetime
    body: Mapping[str, Any]


@dataclass(frozen=True)
class ChildTurnEvent:
    """The start or the end of a child turn."""

    event: int
    at: datetime
    turn: str
    how: str
    """`started`, or its ending, as its own result says if it has one."""
    why: str | None = None


@dataclass(frozen=True)
class WorkerLoss:
    """A worker that did not finish a workflow task."""

    event: int
    at: datetime
    worker: str | None
    why: str


@dataclass
class HistoryFacts:
    """The facts of one run."""

    messages: list[Message] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """By the events that scheduled them."""
    losses: list[WorkerLoss] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    child_turns: list[ChildTurnEvent] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    """Every worker that took a workflow task, in order."""
    began: datetime = datetime.min
    ended: datetime | None = None
    how: str = "running"
    """How the run ended, in Temporal's words."""
    status: str = "running"
    """How it ended by its own result: a turn that failed or was cancelled completes as a workflow."""
    why: str | None = None
    identity: str = ""
    """Who started it: the identity of a program, or the parent workflow."""
    input: Any = None

    def list_attempts(self, call: str) -> list[Attempt]:
        """List the attempts at one call, those of its repetitions included."""
        return [one for one in self.attempts.values() if one.call_id == call and not one.is_stop]


def read_event_time(event: HistoryEvent) -> datetime:
    """Return when the server wrote the event."""
    return event.event_time.ToDatetime(tzinfo=UTC)


def format_event_type(event: HistoryEvent) -> str:
    """Format the type of an event as `ActivityTaskScheduled`."""
    name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
    return "".join(word.capitalize() for word in name.split("_"))
