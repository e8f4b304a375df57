"""What outlives a turn: its session gives it to the next one (S24, S47). And what a turn takes along that continues
as new (S42).

The field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from holdfast.approvers import Approver
from holdfast.batches import Batch
from holdfast.contexts import Context
from holdfast.conversations import Compaction, ConversationMessage, Usage
from holdfast.grants import Grant
from holdfast.model import Data
from holdfast.modes import Mode

SOURCES_KEPT = 20
"""Of what took in content from outside, how many lines are remembered."""

STREAMS_KEPT = 1_000
"""Streams of a turn that continues as new, the newest."""


class Memory(Data):
    """What holds for the calls after those of a turn."""

    mode: Mode = Mode.DEFAULT
    grants: tuple[Grant, ...] = ()
    grants_given: int = 0
    """How many there ever were: their ids go on from there."""
    seen: dict[str, str] = Field(default_factory=dict)
    """Files as they were last read or written, by their digests."""
    wrote: dict[str, str] = Field(default_factory=dict)
    context: Context = Context()
    tainted: tuple[str, ...] = ()
    """The first of what took in content from outside: a conversation does not forget what it has read."""
    outside: dict[str, int] = Field(default_factory=dict)
    replies: int = 0
    """How many the model has given."""
    window: int | None = None
    """How many tokens it can read at once, if that is known,"""
    filled: int = 0
    """and how many it was last told, and said."""


class EarlierRun(Data):
    """A run of a turn before the one at work: where what happened until then is asked for."""

    run_id: str
    events: int
    """How many there were when it ended."""
    batches: int
    """The last of those that had ended by then, with all before it."""


class Carried(Data):
    """What a turn takes along when it continues as new: everything but what its earlier runs can be asked for."""

    memory: Memory
    began_at: datetime
    messages: tuple[ConversationMessage, ...] = ()
    steps: int = 0
    batches: int = 0
    calls: int = 0
    events: int = 0
    usage: Usage = Usage()
    model: int = 0
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
    finishing: bool = False
