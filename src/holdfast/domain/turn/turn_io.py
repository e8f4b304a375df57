"""The input and the result of a turn, and the checks of an input.

Field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.domain.base import Data, StrictData, max_items
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import CallRequest, Calls
from holdfast.domain.calls.scheduling import MAX_EXECUTING, OnError, Plan, Schedule
from holdfast.domain.content import Response
from holdfast.domain.context import MAX_PATTERNS, ToolPattern
from holdfast.domain.conversation.messages import Compaction, ConversationMessage, ModelChoice, Usage
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.carryover import EarlierRun, RunCarryover, TurnMemory
from holdfast.errors import RequestRefused

TASK_QUEUE = "holdfast"
MAX_CALLS = 1_000
"""Calls in one batch."""
MAX_QUEUED = 100
"""Batches waiting in one turn."""
MAX_WAITING = 5_000
"""Calls waiting in one turn."""
MAX_BYTES = 64_000_000
"""Bytes of one input or submission, as JSON."""

LONGEST_SECONDS = 366 * 86_400.0
"""The time limit of a turn without `TurnLimits.seconds`."""


class TurnLimits(StrictData):
    """The limits of one turn (S44). A turn that reaches one ends as `stopped`, with its responses so far."""

    steps: int = Field(default=1_000, ge=1, le=1_000_000)
    """Model steps."""
    calls: int = Field(default=20_000, ge=1, le=10_000_000)
    """Tool calls in all batches, delegated turns included."""
    seconds: float | None = Field(default=None, ge=1, le=LONGEST_SECONDS, allow_inf_nan=False)
    """The time since its start, waiting for approvals included."""
    tokens: int | None = Field(default=None, ge=1)
    """Input and output tokens of the model, as its provider counts them."""


class TurnInput(StrictData):
    """The input of a turn: either a model and a prompt, or batches of calls."""

    prompt: str | None = None
    model: ModelChoice | None = None
    batches: Annotated[tuple[Calls, ...], max_items(10_000)] = ()
    keep_open: bool = False
    """Without a model: keep the turn open when the queue is empty, until `finish`."""
    mode: Mode = Mode.DEFAULT
    """The mode, as far as the worker permits it (S27)."""
    confirm: Confirming = Confirming.POLICY
    """`always`: every call needs an approval, reads included."""
    tools: Annotated[tuple[ToolPattern, ...], max_items(MAX_PATTERNS)] | None = None
    """The names and patterns (`*`) of the tools that the turn may use; None for all. Nothing in the turn adds any."""
    interactive: bool = True
    """Can a person be asked? If not, calls that need an approval are denied."""
    requester: str | None = Field(default=None, max_length=500)
    """The person who started the turn. A rule may need the approval of another person."""
    approval_seconds: float | None = Field(default=None, ge=1, le=366 * 86_400, allow_inf_nan=False)
    """The longest time that an approval may wait; after that the call is denied."""
    schedule: Schedule = Schedule.ALL_READY
    """When calls start: all of a batch when all are ready, or each when it is ready, while the model still writes."""
    early: bool = False
    """Under `streaming`: may calls that do more than read start before the model's reply is complete?"""
    parallel: int = Field(default=MAX_EXECUTING, ge=1, le=MAX_EXECUTING)
    """The number of calls that run at once, of those that are concurrency-safe."""
    on_error: OnError | None = None
    """The effect of a tool's error on the other calls of the batch; None leaves it to the tool (S15)."""
    limits: TurnLimits = TurnLimits()
    session: str | None = Field(default=None, max_length=1_000)
    """The session of the turn, whose messages come before the turn's own. Only a session sets it."""
    session_run: str | None = Field(default=None, max_length=100)
    """The first run of that session: another session may have had the same id before."""
    depth: int = Field(default=0, ge=0, le=10)
    """The depth of delegation: 0 for a turn that no other turn delegated."""
    memory: TurnMemory | None = None
    """The state of the turns before it. Without it, `mode` applies."""
    carried: RunCarryover | None = None
    """The state of an earlier run of the same turn. Only the turn itself sets it, when it continues as new."""

    @property
    def plan(self) -> Plan:
        """The fields that say when calls start."""
        return Plan(schedule=self.schedule, early=self.early, parallel=self.parallel, on_error=self.on_error)


BatchStatus = Literal["queued", "active", "done", "withdrawn", "discarded"]


class BatchResult(Data):
    """One batch and its responses so far, in order; a batch that is done has one for every call."""

    id: str
    status: BatchStatus
    responses: tuple[Response, ...] = ()
    reason: str | None = None
    """Why the batch was discarded."""


TurnStatus = Literal["completed", "cancelled", "stopped", "failed"]


class TurnRemainder(Data):
    """The state that a turn leaves to its session, or to the turn that delegated it."""

    memory: TurnMemory
    messages: tuple[ConversationMessage, ...] = ()
    compaction: Compaction = Compaction()
    heard: tuple[str, ...] = ()
    """The ids of the user's messages that were sent to the turn and that its model has read."""


class TurnResult(Data):
    """The result of a turn: its status, the model's answer, and the responses of every batch."""

    status: TurnStatus
    reason: str | None = None
    text: str | None = None
    """The answer of the model, if it gave one."""
    batches: tuple[BatchResult, ...] = ()
    """The history has the batches of the last run; `Turn.result` adds those of earlier runs."""
    usage: Usage = Usage()
    steps: int = 0
    calls: int = 0
    """The number of calls of all runs, delegated turns included."""
    runs: tuple[EarlierRun, ...] = ()
    unread: tuple[EarlierRun, ...] = ()
    """The earlier runs whose batches are missing here, because no worker answered for them: call `result` again."""
    left: TurnRemainder | None = None
    """Set for the turn of a session, and for a delegated turn."""

    @property
    def responses(self) -> tuple[Response, ...]:
        """Every response, in the order of the batches and their calls, without discarded batches (S12)."""
        return tuple(one for batch in self.batches if batch.status != "discarded" for one in batch.responses)


def check_batch(calls: tuple[CallRequest, ...], queued: int = 0) -> None:
    """RequestRefused for a batch that is empty or too large, or when too many are queued."""
    if not calls:
        raise RequestRefused("empty_batch", "a batch needs at least one call")
    if len(calls) > MAX_CALLS:
        raise RequestRefused(
            "batch_too_large", f"a batch takes at most {MAX_CALLS} calls, this one has {len(calls)}: split it"
        )
    if queued >= MAX_QUEUED:
        raise RequestRefused("queue_full", f"{MAX_QUEUED} batches are queued in this turn: wait for some to finish")


def check_outside(input: TurnInput) -> None:
    """RequestRefused for fields that only a session or a delegating turn may set."""
    internal = [name for name in ("memory", "carried", "session", "session_run", "depth") if getattr(input, name)]
    if internal:
        raise RequestRefused("not_yours", f"{', '.join(internal)}: only a session may set that for its turns")


def check_input(input: TurnInput) -> None:
    """RequestRefused for an input that no turn can run."""
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
    """RequestRefused when more calls would be queued than a turn can handle in one workflow task."""
    if calls > MAX_WAITING:
        raise RequestRefused("queue_full", f"at most {MAX_WAITING:,} calls can be queued in a turn, not {calls:,}")


def check_size(size: int) -> None:
    """RequestRefused when an input or a submission is larger than a turn can read in one workflow task."""
    if size > MAX_BYTES:
        raise RequestRefused(
            "too_large", f"the input has {size:,} bytes, and the limit is {MAX_BYTES:,}: pass large content by file"
        )


def build_batch_result(batch: Batch, status: BatchStatus) -> BatchResult:
    """Build the result of a batch. `status` applies unless it was withdrawn or discarded."""
    ending: BatchStatus = "withdrawn" if batch.withdrawn else "discarded" if batch.discarded else status
    reason = batch.halted if batch.discarded else None
    return BatchResult(id=batch.id, status=ending, responses=batch.responses, reason=reason)


def describe_time_limit(limits: TurnLimits) -> str:
    """Return the reason of a turn that ends at its time limit."""
    seconds = limits.seconds or LONGEST_SECONDS
    return f"The turn reached its limit of {seconds:,.0f} seconds"


def find_reached_limit(limits: TurnLimits, *, calls: int, tokens: int, seconds: float) -> str | None:
    """Describe the limit that a turn has reached; None if it has reached none."""
    if calls > limits.calls:
        return f"The turn reached its limit of {limits.calls:,} tool calls: this batch would make {calls:,}"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"The turn reached its limit of {limits.tokens:,} tokens: it has used {tokens:,}"
    if seconds >= (limits.seconds or LONGEST_SECONDS):
        return describe_time_limit(limits)
    return None


def explain_no_step(limits: TurnLimits, steps: int) -> str | None:
    """Describe why a turn may not take another model step; None when it may."""
    return f"The turn reached its limit of {limits.steps:,} model steps" if steps >= limits.steps else None
