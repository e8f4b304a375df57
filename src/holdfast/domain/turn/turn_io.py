"""A turn from the outside: what starts it and what it gives back.

The field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.domain.base import Data, Message, max_items
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import CallRequest, Calls
from holdfast.domain.calls.scheduling import MAX_EXECUTING, OnError, Plan, Schedule
from holdfast.domain.content import Response
from holdfast.domain.context import MAX_PATTERNS, ToolPattern
from holdfast.domain.conversation.messages import Compaction, ConversationMessage, ModelChoice, Usage
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.carryover import EarlierRun, RunCarryover, TurnMemory
from holdfast.errors import RequestRefused

TURN_WORKFLOW = "holdfast.turn"
TASK_QUEUE = "holdfast"
MAX_CALLS = 1_000
"""Calls in one batch."""
MAX_QUEUED = 100
"""Batches waiting in one turn."""
MAX_WAITING = 5_000
"""Calls waiting in one turn."""
MAX_BYTES = 64_000_000
"""Of one input or submission, as JSON."""

LONGEST_SECONDS = 366 * 86_400.0
"""Of a turn that says nothing of its time."""


class TurnLimits(Message):
    """The limits of one turn. What it has reached ends it as `stopped`; what was answered by then stays."""

    steps: int = Field(default=1_000, ge=1, le=1_000_000)
    """Requests to the model."""
    calls: int = Field(default=20_000, ge=1, le=10_000_000)
    """Tool calls, of all batches."""
    seconds: float | None = Field(default=None, ge=1, le=LONGEST_SECONDS, allow_inf_nan=False)
    """From its start, waiting for people included."""
    tokens: int | None = Field(default=None, ge=1)
    """What the model read and wrote, as its provider counts."""


class TurnInput(Message):
    """What starts a turn: either a model and a prompt, or batches of calls."""

    prompt: str | None = None
    model: ModelChoice | None = None
    batches: Annotated[tuple[Calls, ...], max_items(10_000)] = ()
    keep_open: bool = False
    """Without a model: stay when the queue is empty, until `finish`."""
    mode: Mode = Mode.DEFAULT
    """How much is to proceed without asking, as far as the worker permits it."""
    confirm: Confirming = Confirming.POLICY
    """`always`: every call is asked about, those that merely read included."""
    tools: Annotated[tuple[ToolPattern, ...], max_items(MAX_PATTERNS)] | None = None
    """The only tools that it may use, by name or with `*`; None for all. Nothing that happens in the turn adds any."""
    interactive: bool = True
    """Can a person be asked? If not, what would be asked about is denied."""
    requester: str | None = Field(default=None, max_length=500)
    """Who started it: a rule may want somebody else's word."""
    approval_seconds: float | None = Field(default=None, ge=1, le=366 * 86_400, allow_inf_nan=False)
    """How long an approval waits at most; what nobody answered in time is then denied."""
    schedule: Schedule = Schedule.ALL_READY
    """When calls begin: all of a batch when all are ready, or each as soon as it is, while the model still writes."""
    early: bool = False
    """Under `streaming`: may what does more than read begin before the model's reply is complete?"""
    parallel: int = Field(default=MAX_EXECUTING, ge=1, le=MAX_EXECUTING)
    """How many calls run at once, of those that may run side by side."""
    on_error: OnError | None = None
    """What a tool's failure does to the calls beside it: left out, what the tool says."""
    limits: TurnLimits = TurnLimits()
    """What it may use up (S44)."""
    session: str | None = Field(default=None, max_length=1_000)
    """The session whose turn it is: its messages come before the turn's own."""
    session_run: str | None = Field(default=None, max_length=100)
    """The first run of that session: another session may once have had its id."""
    depth: int = Field(default=0, ge=0, le=10)
    """How many turns have delegated to one another, down to this one."""
    memory: TurnMemory | None = None
    """What it begins with of the turns before it; `mode` counts when there is none."""
    carried: RunCarryover | None = None
    """What an earlier run of the same turn left; only a turn gives itself that."""

    @property
    def plan(self) -> Plan:
        """How it starts its calls."""
        return Plan(schedule=self.schedule, early=self.early, parallel=self.parallel, on_error=self.on_error)


BatchStatus = Literal["queued", "active", "done", "withdrawn", "discarded"]


class BatchResult(Data):
    """One batch and the responses it has; all of them, in order, when it is done."""

    id: str
    status: BatchStatus
    responses: tuple[Response, ...] = ()
    reason: str | None = None
    """Why it was discarded."""


TurnStatus = Literal["completed", "cancelled", "stopped", "failed"]


class TurnRemainder(Data):
    """What a turn leaves to whoever started it as part of something larger."""

    memory: TurnMemory
    messages: tuple[ConversationMessage, ...] = ()
    compaction: Compaction = Compaction()
    heard: tuple[str, ...] = ()
    """Which of the messages that were sent to it meanwhile it has taken up, by their ids."""


class TurnResult(Data):
    """How a turn ended, and every response of every batch."""

    status: TurnStatus
    reason: str | None = None
    text: str | None = None
    """The assistant's answer, when a model gave one."""
    batches: tuple[BatchResult, ...] = ()
    """The history has those of the last run; `Turn.result` adds those of the earlier ones."""
    usage: Usage = Usage()
    steps: int = 0
    calls: int = 0
    """Of all runs, and of the turns that were delegated."""
    runs: tuple[EarlierRun, ...] = ()
    unread: tuple[EarlierRun, ...] = ()
    """The earlier runs whose batches are missing here, because no worker answered for them: ask again."""
    left: TurnRemainder | None = None
    """For the session whose turn it was, or the turn whose call it was."""

    @property
    def responses(self) -> tuple[Response, ...]:
        """Every response, in the order of the batches and their calls. None of what was discarded (S12)."""
        told = (batch for batch in self.batches if batch.status != "discarded")
        return tuple(response for batch in told for response in batch.responses)


def check_batch(calls: tuple[CallRequest, ...], queued: int = 0) -> None:
    """RequestRefused when a batch is empty, too large, or one too many."""
    if not calls:
        raise RequestRefused("empty_batch", "a batch needs at least one call")
    if len(calls) > MAX_CALLS:
        raise RequestRefused(
            "batch_too_large", f"a batch takes at most {MAX_CALLS} calls, this one has {len(calls)}: split it"
        )
    if queued >= MAX_QUEUED:
        raise RequestRefused("queue_full", f"{MAX_QUEUED} batches already wait in this turn: wait for some to finish")


def check_outside(input: TurnInput) -> None:
    """RequestRefused for what only a session or a turn gives to a turn, from anybody else."""
    ours = [name for name in ("memory", "carried", "session", "session_run", "depth") if getattr(input, name)]
    if ours:
        raise RequestRefused("not_yours", f"{', '.join(ours)}: only a session gives its turns that")


def check_input(input: TurnInput) -> None:
    """RequestRefused when a turn could not do anything with what it is given."""
    if input.model is None and not input.batches and not input.keep_open:
        raise RequestRefused("empty_turn", "a turn needs a model and a prompt, at least one batch, or keep_open")
    if input.model is not None and (input.batches or input.keep_open):
        raise RequestRefused("model_and_batches", "a turn with a model takes no batches: the model asks for calls")
    if input.model is not None and input.prompt is None:
        raise RequestRefused("no_prompt", "a turn with a model needs a prompt")
    if input.model is None and input.prompt is not None:
        raise RequestRefused("no_model", "a prompt needs a model to answer it")
    for number, calls in enumerate(input.batches):
        check_batch(calls, queued=number)
    check_waiting(sum(map(len, input.batches)))


def check_waiting(calls: int) -> None:
    """RequestRefused when more calls would wait in a turn than it can handle in one task."""
    if calls > MAX_WAITING:
        raise RequestRefused("queue_full", f"at most {MAX_WAITING:,} calls can wait in one turn, not {calls:,}")


def check_size(size: int) -> None:
    """RequestRefused when an input or a submission is larger than a turn can read in one task."""
    if size > MAX_BYTES:
        raise RequestRefused(
            "too_large", f"this takes {size:,} bytes; a turn takes {MAX_BYTES:,} at once: pass large content by file"
        )


def build_batch_result(batch: Batch, status: BatchStatus) -> BatchResult:
    """What is known of a batch."""
    ending: BatchStatus = "withdrawn" if batch.withdrawn else "discarded" if batch.discarded else status
    reason = batch.halted if batch.discarded else None
    return BatchResult(id=batch.id, status=ending, responses=batch.responses, reason=reason)


def describe_time_limit(limits: TurnLimits) -> str:
    """Why a turn ends whose time has passed."""
    seconds = limits.seconds or LONGEST_SECONDS
    return f"The turn reached its limit of {seconds:,.0f} seconds"


def find_reached_limit(limits: TurnLimits, *, calls: int, tokens: int, seconds: float) -> str | None:
    """Which limit a turn has gone beyond, in words; None while it may go on."""
    if calls > limits.calls:
        return f"The turn reached its limit of {limits.calls:,} tool calls: this batch would make {calls:,}"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"The turn reached its limit of {limits.tokens:,} tokens: it has used {tokens:,}"
    if seconds >= (limits.seconds or LONGEST_SECONDS):
        return describe_time_limit(limits)
    return None


def explain_no_step(limits: TurnLimits, steps: int) -> str | None:
    """Why a turn with so many steps may not take another; None when it may."""
    return f"The turn reached its limit of {limits.steps:,} model steps" if steps >= limits.steps else None
