"""What goes to the activities and what comes back: validation, execution, the model step, live output.

These are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, field_validator

from holdfast.domain.approvals.approval import Approver, Confirmation, Decision
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.base import Data, Message
from holdfast.domain.calls.call import CallRequest, PendingQuestion
from holdfast.domain.calls.verdicts import BoundCall, ExecutionOutcome, Verdict
from holdfast.domain.context import Context
from holdfast.domain.conversation.compaction import ConversationCut
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.modes import Confirming, Mode

QUESTION_LIMIT = 50_000
"""Characters of what a tool asks in the middle of its run, with its form."""


class CallToValidate(Data):
    """One call on its way to validation."""

    id: str
    request: CallRequest
    change: Decision | None = None
    """A person's change of the request's arguments, to be judged in their place."""
    known: str | None = None
    """The digest under which it is asked about: no verdict is needed that would ask the same."""


class JudgementFacts(Data):
    """The facts of a turn that its calls are judged by, the same when they are validated and when they execute."""

    seen: dict[str, str] = Field(default_factory=dict)
    """Digests of files as the turn last read or wrote them, by path; of an execution, only of files it would change."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True
    grants: tuple[Grant, ...] = ()
    """Those that may answer; for an execution, the grant that let the call proceed and every refusal that stands."""
    tainted: bool = False
    """The turn has taken in content from outside."""
    requester: str | None = None
    context: Context = Context()
    """What the calls would run within."""
    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that the turn was started with; None for all. The executing worker asks the
    server for them and for `confirm`, and takes these only where the server does not know the turn."""
    confirm: Confirming = Confirming.POLICY


class ValidateInput(JudgementFacts):
    """Input of the activity `holdfast.validate`: the calls of a batch."""

    calls: tuple[CallToValidate, ...]
    approval_seconds: float | None = None
    run_reads: bool = False
    """The calls are a whole batch, which is ready as soon as rules allow all of it: reads may run at once."""


class ValidateResult(Data):
    """Its answer: one verdict per call, by call id."""

    verdicts: dict[str, Verdict]
    outcomes: dict[str, ExecutionOutcome] = Field(default_factory=dict)
    """Of reads that ran at once."""
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
    unknown_tools: tuple[str, ...] = ()
    """Of the turn's tools, the entries that name none, each with what may be meant; told when there are no calls."""
    needs_time: Literal["hooks", "tools"] | None = None
    """Nothing was judged: hooks, or tools whose own check may take long, must not hold a workflow task open."""


class ExecuteInput(JudgementFacts):
    """Input of the activity `holdfast.execute`: one call, and what allows it."""

    call_id: str
    bound: BoundCall
    run: int = 1
    """Raised when a person says that it is to run again, though it may have run, and with every answer."""
    pause: PendingQuestion | None = None
    """Where it goes on, and with which answer, when it has asked in the middle of its run."""
    begun: bool = False
    """It was offered before, and somebody had taken it up."""
    stop: bool = False
    """Do not begin it: stop what an earlier attempt left at work, and say what became of it."""
    approvals: tuple[Decision, ...] = ()
    """The decisions that let it proceed."""
    shown: dict[str, JsonValue] | None = None
    """The arguments that the decision was about, when it changed them in the same step."""
    wrote: dict[str, str] = Field(default_factory=dict)
    """Of the files the call would change: their digests as the turn last wrote them."""
    expired: bool = False
    """Its deadline passed, and the default was to let it run."""


class Question(Message):
    """What a running tool asks a person: the body of the `ask` update, which only the call's own activity sends."""

    call: str = Field(max_length=200)
    run: int = 1
    question: Confirmation

    @field_validator("question", mode="before")
    @classmethod
    def _check_length(cls, value: object) -> object:
        """Before each part of it is looked at: what has more parts than characters are allowed is too long."""
        left, seen = [value], 0
        while left and seen <= QUESTION_LIMIT:
            part = left.pop()
            inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
            seen += 1 + len(inner)
            left += inner if seen <= QUESTION_LIMIT else ()
        if seen > QUESTION_LIMIT:
            raise ValueError(f"must be under {QUESTION_LIMIT:,} characters")
        return value

    @field_validator("question")
    @classmethod
    def _check_kind(cls, value: Confirmation) -> Confirmation:
        if value.kind != "question" or len(value.model_dump_json()) > QUESTION_LIMIT:
            raise ValueError(f"must be of kind `question`, and under {QUESTION_LIMIT:,} characters")
        return value


class ModelStepInput(Data):
    """Input of the activity `holdfast.model`. The conversation is fetched by query."""

    step: int
    attempt: int = 1
    """Of the step, where the turn itself tries again."""
    stream: str | None = None
    """What the calls of the reply are added to the turn under, as they come; None when the reply is enough."""
    model: int = 0
    """Which of the turn's models is asked."""


CONTEXT_WINDOW = "context_window"
"""The type of a model step's failure: the conversation is longer than the model can read."""


class CompactInput(Data):
    """Input of the activity `holdfast.compact`: the conversation is too long for its model."""

    step: int
    model: int = 0
    times: int = 1
    """How often it has been tried for this step: each time less is left."""
    window: int | None = None


class CompactResult(Data):
    """Its answer: what to leave out, and what to tell in its place."""

    cut: ConversationCut = ConversationCut()
    summary: str | None = None
    session: int = 0
    """How many messages the session had."""
    tokens: int = 0
    """About how many the model was told before,"""
    tokens_after: int = 0
    """and after."""
    usage: Usage = Usage()


class LiveOutput(Data):
    """What a heartbeat carries: the tail of the output, and the process that makes it."""

    call_id: str
    tail: str = ""
    styled: str | None = None
    """The same with colours and the like, where it has any: no other escape code than `ESC [ … m` is in it."""
    total: int = 0
    """Characters put out so far."""
    pid: int | None = None
    host: str | None = None
    """The task queue at which its worker is asked for more of the tail."""
    attempt: int = 1
    """Of a tool that is tried again after failures that pass by themselves (`Retries`)."""
    failure: str | None = None
    """Why the attempt before this one failed."""


_MODEL_PREFIX = "model-"


def format_model_call_id(step: int) -> str:
    """What the live output of a model step goes under, where that of a call goes under the call's id."""
    return f"{_MODEL_PREFIX}{step}"


def is_model_call(call_id: str) -> bool:
    """Is live output under this that of a model step?"""
    return call_id.startswith(_MODEL_PREFIX)


class BackgroundCommands(Data):
    """Input of the activity `holdfast.background`: commands of a turn that may run on the host that is asked."""

    turn: str
    handles: tuple[str, ...]


class RunningCall(Data):
    """Input of the activity `holdfast.output`: a call that may run on the worker that is asked."""

    turn: str
    call: str
