"""Inputs and results of the activities, bodies of the messages that they send, and live output.

Field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, field_validator

from holdfast.domain.approvals.approval import Approver, Confirmation, Decision
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.base import Data, StrictData
from holdfast.domain.calls.call import CallRequest, PendingQuestion
from holdfast.domain.calls.verdicts import BoundCall, ExecutionOutcome, Verdict
from holdfast.domain.context import Context
from holdfast.domain.conversation.compaction import ConversationCut
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.modes import Confirming, Mode

QUESTION_LIMIT = 50_000
"""Characters of the question of a running tool, as JSON, form included."""


class CallToValidate(Data):
    """A call in the input of `holdfast.validate`."""

    id: str
    request: CallRequest
    change: Decision | None = None
    """A person's change of the arguments, which is validated in their place."""
    known: str | None = None
    """The digest under which a person is asked already: no verdict is needed that would ask the same."""


class JudgementFacts(Data):
    """The facts of a turn by which calls are judged, at validation and again at execution."""

    seen: dict[str, str] = Field(default_factory=dict)
    """The digests of files as the turn last read or wrote them, by path. At execution, only of the call's files."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True
    grants: tuple[Grant, ...] = ()
    """The grants of the turn. At execution, only the grant that allowed the call, and every remembered refusal."""
    tainted: bool = False
    """The turn has taken in content from outside."""
    requester: str | None = None
    context: Context = Context()
    """The context of the calls (S47)."""
    tools: tuple[str, ...] | None = None
    """The names and patterns of tools that the turn was started with; None for all. The executing worker asks the
    server for them and for `confirm`, and uses these only if the server does not know the turn."""
    confirm: Confirming = Confirming.POLICY


class ValidateInput(JudgementFacts):
    """Input of the activity `holdfast.validate`: the calls of a batch."""

    calls: tuple[CallToValidate, ...]
    approval_seconds: float | None = None
    run_reads: bool = False
    """The calls are a whole batch that may start as soon as rules allow all of it: reads may run at once."""


class ValidateResult(Data):
    """Result of the activity `holdfast.validate`: one verdict per call, by call id."""

    verdicts: dict[str, Verdict]
    outcomes: dict[str, ExecutionOutcome] = Field(default_factory=dict)
    """The outcomes of reads that ran at once (`run_reads`), by call id."""
    catalogue: str = ""
    """The digest of all tools of the worker."""
    policy: str = ""
    """The digest of the worker's rules."""
    hooks: str = ""
    """The digest of the worker's hooks."""
    approvers: tuple[Approver, ...] | None = ()
    """The worker's approvers, against whom the turn checks decisions. None when validation failed."""
    mode: Mode | None = None
    """The mode that the worker permitted and judged by."""
    unknown_tools: tuple[str, ...] = ()
    """The entries of `tools` that name no tool, each with suggestions. Only when the input has no calls."""
    needs_time: Literal["hooks", "tools"] | None = None
    """Nothing was judged: the hooks or tools may take too long for a local activity. Use a regular one."""


class ExecuteInput(JudgementFacts):
    """Input of the activity `holdfast.execute`: one call, and the decisions and grants that allow it."""

    call_id: str
    bound: BoundCall
    run: int = 1
    """The number of the effect (`Call.run`)."""
    pause: PendingQuestion | None = None
    """The state and the answer from which a tool that asked goes on."""
    begun: bool = False
    """An earlier activity for this call was started by a worker."""
    stop: bool = False
    """Do not start the call: stop what an earlier attempt left running, and report its outcome."""
    approvals: tuple[Decision, ...] = ()
    """The decisions that approved the call."""
    shown: dict[str, JsonValue] | None = None
    """The arguments that the question showed, when the decision changed and approved them in one step."""
    wrote: dict[str, str] = Field(default_factory=dict)
    """The digests of the files that the call would change, as the turn last wrote them."""
    expired: bool = False
    """The approval deadline passed, and its default allows the call."""


class Question(StrictData):
    """The question of a running tool: the body of the `ask` update, which the activity of the call sends."""

    call: str = Field(max_length=200)
    run: int = 1
    question: Confirmation

    @field_validator("question", mode="before")
    @classmethod
    def _check_length(cls, value: object) -> object:
        """Refuse a value with more parts than characters are allowed, before pydantic validates each part."""
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
    """The attempt at the step, counted by the turn."""
    stream: str | None = None
    """The stream to which calls are added as the model writes them; None to wait for the whole reply."""
    model: int = 0
    """The index of the model in `ModelChoice.model_names`."""


CONTEXT_WINDOW = "context_window"
"""The error type of a model step whose conversation is longer than the context window of the model."""


class CompactInput(Data):
    """Input of the activity `holdfast.compact`: the conversation is too long for its model."""

    step: int
    model: int = 0
    times: int = 1
    """The number of attempts for this step. Each one leaves a shorter conversation."""
    window: int | None = None


class CompactResult(Data):
    """Result of the activity `holdfast.compact`: the cut, and the summary of what it removes."""

    cut: ConversationCut = ConversationCut()
    summary: str | None = None
    session: int = 0
    """The number of messages of the session."""
    tokens: int = 0
    """The approximate number of tokens of the conversation before the cut."""
    tokens_after: int = 0
    """The approximate number of tokens after the cut."""
    usage: Usage = Usage()


class LiveOutput(Data):
    """The details of a heartbeat: the end of a call's output, and its process."""

    call_id: str
    tail: str = ""
    styled: str | None = None
    """The same text with colours and styles, if it has any. It holds no escape code but `ESC [ … m`."""
    total: int = 0
    """The number of characters written so far."""
    pid: int | None = None
    host: str | None = None
    """The task queue of the worker process, which answers queries for more of the output."""
    attempt: int = 1
    """The attempt of the tool (`Retries`)."""
    failure: str | None = None
    """Why the attempt before this one failed."""


_MODEL_PREFIX = "model-"


def format_model_call_id(step: int) -> str:
    """Return the `LiveOutput.call_id` of a model step."""
    return f"{_MODEL_PREFIX}{step}"


def is_model_call(call_id: str) -> bool:
    """Is this the `LiveOutput.call_id` of a model step?"""
    return call_id.startswith(_MODEL_PREFIX)


class BackgroundCommands(Data):
    """Input of the activity `holdfast.background`: background commands of a turn that may run on this host."""

    turn: str
    handles: tuple[str, ...]


class RunningCall(Data):
    """Input of the activity `holdfast.output`: a call that may run in this worker process."""

    turn: str
    call: str
