"""The words of an audit: what a turn or a session did, as data. `--json` is exactly this (docs/how-to/audit.md).

New fields get defaults: bundles carry a timeline as it was told when they were made.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, JsonValue

from holdfast.domain.base import Data

EntryKind = Literal[
    "start", "run", "prompt", "model", "batch", "call", "verdict", "ask", "decision", "message", "change", "begin",
    "end", "retry", "crash", "grant", "mode", "turn", "result",
]  # fmt: skip


class TimelineEntry(Data):
    """One thing that happened."""

    at: datetime
    kind: EntryKind
    words: str
    """What, in a line."""
    call: str | None = None
    by: str | None = None
    event: int | None = None
    """The event of the history that says so, where one does by itself."""
    run: int = 1
    """Of the turn, where it continued as new: from 1."""


class MessageStory(Data):
    """What somebody said about a call, or to a turn."""

    at: datetime
    outcome: str
    by: str | None = None
    """Who, as they say of themselves or as their signature proves."""
    signature: str = "none"
    """`none`; `valid` by a key that the worker knew; or why it does not hold."""
    key: str | None = None
    """The id of the key that signed."""
    how: str = ""
    """Signal or update."""
    identity: str = ""
    """What the program that sent it says of itself."""
    event: int = 0
    approval: str = ""
    digest: str = ""
    note: str | None = None
    counted: bool = True
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """All of it, as it was sent."""


class QuestionStory(Data):
    """A time at which a person was asked."""

    approval: str
    """Its id: turn, call and revision."""
    at: datetime
    until: datetime | None = None
    """When the wait ended; None while it goes on."""
    seconds: float | None = None
    """How long it waited."""
    asks: str = ""
    """What for: the kind of the question."""
    digest: str | None = None
    """Of what was shown, which is what may run."""


class AttemptStory(Data):
    """An execution by a worker."""

    worker: str | None = None
    number: int = 1
    """Of the attempts: those before it left only why they ended."""
    scheduled: datetime | None = None
    """Since when a worker may have run it: the history has no other beginning of the attempts before the last."""
    began: datetime | None = None
    ended: datetime | None = None
    seconds: float | None = None
    how: str = "running"
    why: str | None = None
    before: str | None = None
    """How the attempt before it ended."""
    event: int = 0


class CallStory(Data):
    """Everything about one call."""

    id: str
    batch: str
    place: int
    of: int
    tool: str
    server: str | None = None
    title: str = ""
    effect: str | None = None
    definition: str | None = None
    """The digest of the tool's definition."""
    status: str
    verdict: str = ""
    """What validation said first: allow, ask, deny or reject."""
    rule: str | None = None
    """By which that was said."""
    settled_by: str | None = None
    """The rule or grant that it was judged by last, where that is another."""
    reason: str | None = None
    """Why it was asked about, or not allowed."""
    requested: JsonValue = None
    """The arguments as they were asked for."""
    arguments: dict[str, JsonValue] | None = None
    """As they executed, or would have."""
    changes: str | None = None
    """What people and hooks made of the arguments: a diff."""
    changed_by: tuple[str, ...] = ()
    digest: str | None = None
    shown: dict[str, Any] = Field(default_factory=dict)
    """What a person was shown, the last time."""
    questions: tuple[QuestionStory, ...] = ()
    decisions: tuple[MessageStory, ...] = ()
    decided_by: str | None = None
    """Whose word it went by: a person, a rule, a hook, the runtime."""
    grant: str | None = None
    created: datetime | None = None
    began: datetime | None = None
    ended: datetime | None = None
    waited_seconds: float = 0
    """For people, all times together."""
    ran_seconds: float | None = None
    duration_seconds: float | None = None
    """From its validation to its end, with all waiting."""
    attempts: tuple[AttemptStory, ...] = ()
    error: str | None = None
    result: str = ""
    """What the model read."""
    display: str | None = None
    outputs: tuple[str, ...] = ()
    """Where whole outputs are kept."""


class RunStory(Data):
    """One run of a workflow."""

    run: str
    began: datetime
    ended: datetime | None = None
    how: str = "running"
    events: int = 0
    workers: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    """Digests of the rules that calls were judged by."""
    catalogue: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()


class Timeline(Data):
    """A turn or a session, and the turns within it."""

    id: str
    kind: Literal["turn", "session"]
    status: str = "running"
    reason: str | None = None
    requester: str | None = None
    started_by: str = ""
    """What the program that started it says of itself."""
    model: str | None = None
    mode: str = "default"
    prompt: str | None = None
    answer: str | None = None
    began: datetime
    ended: datetime | None = None
    runs: tuple[RunStory, ...] = ()
    entries: tuple[TimelineEntry, ...] = ()
    calls: tuple[CallStory, ...] = ()
    messages: tuple[MessageStory, ...] = ()
    """What was said to it besides decisions that belong to a call: interrupts, modes, batches."""
    turns: tuple[Timeline, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be told, and why."""
