"""A turn from the outside: what starts it, what can be said to it, what it gives back.

These are the bodies of the workflow's messages; their field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_validator

from holdfast.approvals import Confirmation, Decision
from holdfast.approvers import Approver
from holdfast.batches import Batch
from holdfast.calls import CallRequest, Pause
from holdfast.content import Response
from holdfast.errors import RequestRefused
from holdfast.grants import Grant
from holdfast.model import Data, Message
from holdfast.modes import Mode
from holdfast.verdicts import Bound, Verdict

WORKFLOW = "holdfast.turn"
TASK_QUEUE = "holdfast"

MAX_CALLS = 1_000
"""Calls in one batch."""
MAX_QUEUED = 100
"""Batches waiting in one turn."""
MAX_WAITING = 5_000
"""Calls waiting in one turn."""
MAX_BYTES = 64_000_000
"""Of one input or submission, as JSON."""
QUESTION_LIMIT = 50_000
"""Characters of what a tool asks in the middle of its run, with its form."""


class ModelReply(Message):
    """One reply of a model: text, calls, or both. Without calls it ends the turn."""

    text: str = ""
    calls: tuple[CallRequest, ...] = ()


class ModelChoice(Message):
    """Which model answers. `scripted` gives the replies of `script` in order, one per step."""

    name: str = "scripted"
    script: tuple[ModelReply, ...] = ()


class TurnInput(Message):
    """What starts a turn: either a model and a prompt, or batches of calls."""

    prompt: str | None = None
    model: ModelChoice | None = None
    batches: tuple[tuple[CallRequest, ...], ...] = ()
    keep_open: bool = False
    """Without a model: stay when the queue is empty, until `finish`."""
    mode: Mode = Mode.DEFAULT
    """How much is to proceed without asking, as far as the worker permits it."""
    interactive: bool = True
    """Can a person be asked? If not, what would be asked about is denied."""
    requester: str | None = Field(default=None, max_length=500)
    """Who started it: a rule may want somebody else's word."""
    approval_seconds: float | None = Field(default=None, ge=1, le=366 * 86_400, allow_inf_nan=False)
    """How long an approval waits at most; what nobody answered in time is then denied."""


class UserMessage(Data):
    """What the user said."""

    kind: Literal["user"] = "user"
    text: str


class AssistantMessage(Data):
    """What the model said. `call_ids` are the engine's ids of its calls, in order."""

    kind: Literal["assistant"] = "assistant"
    text: str
    calls: tuple[CallRequest, ...] = ()
    call_ids: tuple[str, ...] = ()


class ToolMessage(Data):
    """The responses to the calls of the assistant message before it: every one, once, in order."""

    kind: Literal["tool"] = "tool"
    responses: tuple[Response, ...]


ConversationMessage = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="kind")]


class Conversation(Data):
    """What a model step needs to know, fetched by query so that it is not in every activity's input."""

    model: ModelChoice
    messages: tuple[ConversationMessage, ...]


BatchStatus = Literal["queued", "active", "done", "withdrawn"]


class BatchResult(Data):
    """One batch and the responses it has; all of them, in order, when it is done."""

    id: str
    status: BatchStatus
    responses: tuple[Response, ...] = ()


TurnStatus = Literal["completed", "cancelled", "stopped", "failed"]


class TurnResult(Data):
    """How a turn ended, and every response of every batch."""

    status: TurnStatus
    reason: str | None = None
    text: str | None = None
    """The assistant's answer, when a model gave one."""
    batches: tuple[BatchResult, ...] = ()

    @property
    def responses(self) -> tuple[Response, ...]:
        """Every response, in the order of the batches and their calls."""
        return tuple(response for batch in self.batches for response in batch.responses)


class SubmitBatch(Message):
    """Body of the update `submit`."""

    calls: tuple[CallRequest, ...]


class Submitted(Data):
    """Answer of `submit`: the batch's id."""

    batch: str


class BatchAddress(Message):
    """Body of the updates `withdraw` and `cancel_batch`."""

    batch: str
    reason: str | None = Field(default=None, max_length=2_000)


class CallAddress(Message):
    """Body of the update `cancel_call`."""

    call: str
    reason: str | None = Field(default=None, max_length=2_000)


class ModeChange(Message):
    """Body of the update `set_mode`."""

    mode: Mode
    by: str | None = Field(default=None, max_length=500)


class ModeTaken(Data):
    """Answer of `set_mode`: the mode that counts, if a worker has judged by it."""

    counts: Mode | None = None


class EditingNotice(Message):
    """Body of the update `editing`: somebody opened an approval in an editor, or is done."""

    approval_id: str = Field(max_length=2_000)
    by: str = Field(min_length=1, max_length=500)
    seconds: float = Field(default=900, ge=0, le=86_400, allow_inf_nan=False)
    """How long others are told; 0 when done."""


class GrantAddress(Message):
    """Body of the update `revoke`."""

    grant: str = Field(max_length=100)
    by: str | None = Field(default=None, max_length=500)


class Acknowledged(Data):
    """Answer of `decide`: the state the call went to."""

    call: str
    status: str
    grant: str | None = None
    """The standing answer it left."""


class CallToJudge(Data):
    """One call on its way to validation."""

    id: str
    request: CallRequest
    change: Decision | None = None
    """A person's change of the request's arguments, to be judged in their place."""
    known: str | None = None
    """The digest under which it is asked about: no verdict is needed that would ask the same."""


class ValidateInput(Data):
    """Input of the activity `holdfast.validate`: the calls of a batch."""

    calls: tuple[CallToJudge, ...]
    seen: dict[str, str] = Field(default_factory=dict)
    """Files as the turn last read or wrote them, by their digests."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True
    grants: tuple[Grant, ...] = ()
    tainted: bool = False
    """The turn has taken in content from outside."""
    requester: str | None = None
    approval_seconds: float | None = None


class ValidateResult(Data):
    """Its answer: one verdict per call, by call id."""

    verdicts: dict[str, Verdict]
    catalogue: str = ""
    """The digest of all the tools the judging worker had."""
    policy: str = ""
    """The digest of the rules it judged by."""
    hooks: str = ""
    """The digest of its hooks' configuration."""
    approvers: tuple[Approver, ...] | None = ()
    """Whose word counts: the handlers of decisions go by these. None when validation broke, and nobody knows."""
    mode: Mode | None = None
    """The mode that the worker permitted, and judged by."""


class ExecuteInput(Data):
    """Input of the activity `holdfast.execute`: one call, and what allows it."""

    call_id: str
    bound: Bound
    run: int = 1
    """Raised when a person says that it is to run again, though it may have run, and with every answer."""
    pause: Pause | None = None
    """Where it goes on, and with which answer, when it has asked in the middle of its run."""
    begun: bool = False
    """It was offered before, and somebody had taken it up."""
    stop: bool = False
    """Do not begin it: stop what an earlier attempt left at work, and say what became of it."""
    decision: Decision | None = None
    seen: dict[str, str] = Field(default_factory=dict)
    """Of the files the call would change: their digests as the turn last read or wrote them."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True
    approvals: tuple[Decision, ...] = ()
    """The decisions that let it proceed."""
    shown: dict[str, JsonValue] | None = None
    """The arguments that the decision was about, when it changed them in the same step."""
    grants: tuple[Grant, ...] = ()
    """The grant that let it proceed, and every refusal that stands."""
    wrote: dict[str, str] = Field(default_factory=dict)
    """Of the files the call would change: their digests as the turn last wrote them."""
    expired: bool = False
    """Its deadline passed, and the default was to let it run."""
    tainted: bool = False
    requester: str | None = None


class Question(Message):
    """What a running tool asks a person: the body of the `ask` update, which only the call's own activity sends."""

    call: str = Field(max_length=200)
    run: int = 1
    question: Confirmation

    @field_validator("question")
    @classmethod
    def _is_one(cls, value: Confirmation) -> Confirmation:
        if value.kind != "question" or len(value.model_dump_json(exclude={"checks"})) > QUESTION_LIMIT:
            raise ValueError(f"must be of kind `question`, and under {QUESTION_LIMIT:,} characters")
        return value


class ModelStepInput(Data):
    """Input of the activity `holdfast.model`. The conversation is fetched by query."""

    step: int


class LiveOutput(Data):
    """What a heartbeat carries: the tail of the output, and the process that makes it."""

    call_id: str
    tail: str = ""
    total: int = 0
    """Characters put out so far."""
    pid: int | None = None
    host: str | None = None
    """The task queue at which its worker is asked for more of the tail."""


class RunningCall(Data):
    """Input of the activity `holdfast.output`: a call that may run on the worker that is asked."""

    turn: str
    call: str


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


def batch_result(batch: Batch, status: BatchStatus) -> BatchResult:
    """What is known of a batch."""
    return BatchResult(id=batch.id, status="withdrawn" if batch.withdrawn else status, responses=batch.responses)
