"""What outlives a turn: its session gives it to the next one (S24, S47). And what a turn takes along that continues
as new (S42).

The field names are in histories for ever. New fields get defaults.
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
"""Of what took in content from outside, how many lines are remembered."""

FILES_KEPT = 5_000
"""Files of which is remembered how they were, the last."""
STREAMS_KEPT = 1_000
"""Streams of a turn that continues as new, the newest."""


class TurnMemory(Data):
    """What holds for the calls after those of a turn."""

    mode: Mode = Mode.DEFAULT
    grants: tuple[Grant, ...] = ()
    grants_given: int = 0
    """How many there ever were: their ids go on from there."""
    seen: dict[str, str] = Field(default_factory=dict)
    """Files as they were last read or written, by their digests."""
    wrote: dict[str, str] = Field(default_factory=dict)
    context: Context = Context()
    commands: tuple[BackgroundCommand, ...] = ()
    """Commands that go on after the answer of their call."""
    tainted: tuple[str, ...] = ()
    """The first of what took in content from outside: a conversation does not forget what it has read."""
    outside: dict[str, int] = Field(default_factory=dict)
    replies: int = 0
    """How many the model has given."""
    window: int | None = None
    """How many tokens it can read at once, if that is known,"""
    filled: int = 0
    """and how many it was last told, and said."""
    keyed: bool = False
    """Do approvers have keys, so that nothing unsigned takes a refusal back?"""


class EarlierRun(Data):
    """A run of a turn before the one at work: where what happened until then is asked for."""

    run_id: str
    events: int
    """How many there were when it ended."""
    batches: int
    """The last of those that had ended by then, with all before it."""


class RunCarryover(Data):
    """What a turn takes along when it continues as new: everything but what its earlier runs can be asked for."""

    memory: TurnMemory
    began_at: AwareDatetime
    messages: tuple[ConversationMessage, ...] = ()
    steps: NonNegativeInt = 0
    batches: NonNegativeInt = 0
    calls: NonNegativeInt = 0
    events: NonNegativeInt = 0
    usage: Usage = Usage()
    model: NonNegativeInt = 0
    """Which of its models answers."""
    compaction: Compaction = Compaction()
    approvers: tuple[Approver, ...] = ()
    heard: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    """How many calls ended how."""
    runs: tuple[EarlierRun, ...] = ()
    queue: tuple[Batch, ...] = ()
    streams: dict[str, tuple[str, int]] = Field(default_factory=dict)
    """Of every stream: the batch of its newest attempt, and which attempt that is."""
    submitted: dict[str, str] = Field(default_factory=dict)
    """The batches that callers queued, the newest, by the ids under which they did."""
    finishing: bool = False
    said: tuple[Interruption, ...] = ()
    """What the user said that the model has not read yet."""
