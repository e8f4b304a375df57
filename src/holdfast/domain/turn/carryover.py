"""State that outlives a run: the memory that a turn leaves to the next turn of its session (S24, S47), and the state
that a turn passes to its next run when it continues as new (S42).

Field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from pydantic import AwareDatetime, Field, NonNegativeInt

from holdfast.domain.approvals.approval import Approver
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.background_commands import BackgroundCommand
from holdfast.domain.base import Data
from holdfast.domain.calls.batch import Batch
from holdfast.domain.context import Context
from holdfast.domain.conversation.messages import Compaction, ConversationMessage, Usage
from holdfast.domain.modes import Mode
from holdfast.domain.turn.update_bodies import Interruption

SOURCES_KEPT = 20
"""The number of entries of `TurnMemory.tainted`."""

FILES_KEPT = 5_000
"""The number of files of `TurnMemory.seen` and `wrote`, the newest."""
STREAMS_KEPT = 1_000
"""The number of streams of a turn that continues as new, the newest."""


class TurnMemory(Data):
    """The state that a turn leaves to later turns: mode, grants, files, context, background commands."""

    mode: Mode = Mode.DEFAULT
    grants: tuple[Grant, ...] = ()
    grants_given: int = 0
    """The number of grants so far, revoked ones included. Ids of new grants continue from it."""
    seen: dict[str, str] = Field(default_factory=dict)
    """The digests of files as they were last read or written, by path."""
    wrote: dict[str, str] = Field(default_factory=dict)
    """The digests of files as they were last written, by path."""
    context: Context = Context()
    commands: tuple[BackgroundCommand, ...] = ()
    tainted: tuple[str, ...] = ()
    """The titles of the first calls that took in content from outside. Later turns read that content too."""
    outside: dict[str, int] = Field(default_factory=dict)
    """The number of calls that took in content from outside, by tool."""
    replies: int = 0
    """The number of replies of the model."""
    window: int | None = None
    """The size of the model's context window in tokens, if known."""
    filled: int = 0
    """The tokens of the last request and its reply."""
    keyed: bool = False
    """Approvers have keys, so a remembered refusal cannot be revoked: revoking is not signed."""


class EarlierRun(Data):
    """An earlier run of a turn that continued as new. It answers queries for its own events and batches."""

    run_id: str
    events: int
    """The number of the last event of this run."""
    batches: int
    """The number of the last batch that ended in this run or before."""


class RunCarryover(Data):
    """The state that a turn passes to its next run, without what earlier runs can be queried for."""

    memory: TurnMemory
    began_at: AwareDatetime
    messages: tuple[ConversationMessage, ...] = ()
    steps: NonNegativeInt = 0
    batches: NonNegativeInt = 0
    calls: NonNegativeInt = 0
    events: NonNegativeInt = 0
    usage: Usage = Usage()
    model: NonNegativeInt = 0
    """The index of the current model in `ModelChoice.model_names`."""
    compaction: Compaction = Compaction()
    approvers: tuple[Approver, ...] = ()
    heard: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    """The number of calls by status."""
    runs: tuple[EarlierRun, ...] = ()
    queue: tuple[Batch, ...] = ()
    streams: dict[str, tuple[str, int]] = Field(default_factory=dict)
    """The batch id and the number of the newest attempt, by stream."""
    submitted: dict[str, str] = Field(default_factory=dict)
    """The newest submitted batches: batch ids by submission key."""
    finishing: bool = False
    said: tuple[Interruption, ...] = ()
    """The user's messages that the model has not read yet."""
