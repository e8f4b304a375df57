"""The data of a timeline: what a turn or a session did. `--json` prints exactly this; docs/how-to/audit.md explains it.

New fields get defaults: a bundle carries the timeline of the time when it was made.
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
    """What happened, in one line."""
    call: str | None = None
    by: str | None = None
    event: int | None = None
    """The event of the history that says so by itself, if one does."""
    run: int = 1
    """The run of a turn that continued as new, from 1."""


class MessageStory(Data):
    """A decision on a call, or another message to a turn."""

    at: datetime
    outcome: str
    by: str | None = None
    """The sender, as it says itself or as its signature proves."""
    signature: str = "none"
    """`none`, `valid` by a key that the worker knew, or why it does not hold."""
    key: str | None = None
    """The id of the key that signed it."""
    how: str = ""
    """Signal or update."""
    identity: str = ""
    """The identity that the sending program gave."""
    event: int = 0
    approval: str = ""
    digest: str = ""
    note: str | None = None
    counted: bool = True
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """The whole body, as it was sent."""


class QuestionStory(Data):
    """A time when a call waited for a person."""

    approval: str
    """The approval id: turn, call and revision."""
    at: datetime
    until: datetime | None = None
    """When the wait ended; None while it lasts."""
    seconds: float | None = None
    """How long it waited."""
    asks: str = ""
    """The kind of the question."""
    digest: str | None = None
    """The digest of what was shown, which is what may run."""


class AttemptStory(Data):
    """An execution by a worker."""

    worker: str | None = None
    number: int = 1
    """The number of the attempt: of those before it only their ends are known."""
    scheduled: datetime | None = None
    """From when on a worker may have run it: the history does not say when earlier attempts began."""
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
    """The first verdict of validation: allow, ask, deny or reject."""
    rule: str | None = None
    """The rule of that verdict."""
    settled_by: str | None = None
    """The rule or grant of the last verdict, if it is another."""
    reason: str | None = None
    """Why it was asked about, or not allowed."""
    requested: JsonValue = None
    """The arguments of the request."""
    arguments: dict[str, JsonValue] | None = None
    """The arguments that executed, or would have."""
    changes: str | None = None
    """A diff of what people and hooks changed."""
    changed_by: tuple[str, ...] = ()
    digest: str | None = None
    shown: dict[str, Any] = Field(default_factory=dict)
    """What a person was shown last."""
    questions: tuple[QuestionStory, ...] = ()
    decisions: tuple[MessageStory, ...] = ()
    decided_by: str | None = None
    """Who decided: a person, a rule, a hook or the runtime."""
    grant: str | None = None
    created: datetime | None = None
    began: datetime | None = None
    ended: datetime | None = None
    waited_seconds: float = 0
    """Waiting for people, altogether."""
    ran_seconds: float | None = None
    duration_seconds: float | None = None
    """From its validation to its end, with all waiting."""
    attempts: tuple[AttemptStory, ...] = ()
    error: str | None = None
    result: str = ""
    """What the model read."""
    display: str | None = None
    outputs: tuple[str, ...] = ()
    """Where whole outputs are stored."""


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
    """A turn or a session, and its child turns."""

    id: str
    kind: Literal["turn", "session"]
    status: str = "running"
    reason: str | None = None
    requester: str | None = None
    started_by: str = ""
    """The identity of the program that started it."""
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
    """Messages that belong to no call: interrupts, modes, batches."""
    turns: tuple[Timeline, ...] = ()
    notes: tuple[str, ...] = ()
    """What is missing in the timeline, and why."""
