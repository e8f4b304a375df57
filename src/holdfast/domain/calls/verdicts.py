"""The answers of the two tool activities: a verdict of validation, and an outcome of execution.

Both are unions discriminated by `kind`: every expected ending is data in the history, not an exception. `batch.py`
turns them into transitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from holdfast.domain.approvals.approval import Actor, Confirmation
from holdfast.domain.base import Data, Variant
from holdfast.domain.calls.tool import ToolRef
from holdfast.domain.content import CallError, Part, Result, Text

UNFINISHED = "unfinished"
"""The error type of an attempt that does not know whether its call took effect."""


class BoundCall(Data):
    """A tool bound to validated arguments. Every verdict on a call that can run has one."""

    tool: ToolRef
    title: Text
    arguments: dict[str, JsonValue]
    """The arguments as they will execute."""
    digest: str
    concurrency_safe: bool = False
    timeout_seconds: float = Field(gt=0, allow_inf_nan=False)
    heartbeat_seconds: float = Field(gt=0, allow_inf_nan=False)
    basis: dict[str, str] = Field(default_factory=dict)
    """The files that the call would change: their digests at validation, by path."""
    leaves: dict[str, str] = Field(default_factory=dict)
    """The digests of the same files after the call."""
    host: str | None = None
    """The task queue of the host on which the call must run."""
    takes_in: bool = False
    """The call brings content from outside into the turn."""
    sends: bool = False
    """The call can send data out."""
    context: dict[str, JsonValue] = Field(default_factory=dict)
    """The part of the turn's context that the call depends on, without defaults. It is part of the digest."""
    given: dict[str, JsonValue] | None = None
    """The arguments before hooks rewrote them."""
    rewritten_by: tuple[str, ...] = ()
    """The names of the hooks that rewrote the arguments."""


class Allow(Variant):
    """The call may run without a question."""

    kind: Literal["allow"] = "allow"
    rule: str
    bound: BoundCall
    actor: Actor | None = None
    """Who allowed it; None for the policy, by `rule`."""
    grant: str | None = None
    """The id of the grant that allowed the call."""
    diff: Text | None = None
    """The diff of the call, if its tool gives one."""


class Ask(Variant):
    """A person must decide."""

    kind: Literal["ask"] = "ask"
    rule: str
    bound: BoundCall
    actor: Actor | None = None
    confirmation: Confirmation


class Deny(Variant):
    """A rule, a hook or a remembered refusal forbids the call."""

    kind: Literal["deny"] = "deny"
    rule: str
    message: str
    actor: Actor | None = None
    stop_turn: str | None = None
    """Why the turn must end as well, when a hook says so."""
    diff: Text | None = None
    """The diff of a call that a remembered refusal denies, if its tool gives one."""


class Reject(Variant):
    """The call cannot run: the tool is unknown, the arguments are invalid, or validation failed."""

    kind: Literal["reject"] = "reject"
    error: CallError


Verdict = Annotated[Allow | Ask | Deny | Reject, Field(discriminator="kind")]


class Finished(Variant):
    """The tool ran and returned a result."""

    kind: Literal["finished"] = "finished"
    result: Result
    attempts: int = 1
    """The number of times that the tool ran, retries included (`Retries`)."""
    stop_turn: str | None = None
    """Why the turn must end, when a hook says so."""


class Failed(Variant):
    """The tool ran and failed. `parts` is its output until then."""

    kind: Literal["failed"] = "failed"
    error: CallError
    parts: tuple[Part, ...] = ()
    attempts: int = 1
    stop_turn: str | None = None


class Stopped(Variant):
    """The tool was stopped. `parts` is its output until then."""

    kind: Literal["stopped"] = "stopped"
    reason: str = ""
    parts: tuple[Part, ...] = ()


class Lost(Variant):
    """It is unknown whether the tool took effect: its worker is lost."""

    kind: Literal["lost"] = "lost"
    message: str
    parts: tuple[Part, ...] = ()
    repeatable: bool = False
    """The tool may be repeated, so this is an ordinary error, not an unknown outcome."""


class NeedsApprovalAgain(Variant):
    """Nothing ran: the call on the executing worker is not what was approved. `verdict` is that worker's."""

    kind: Literal["reconsider"] = "reconsider"
    verdict: Verdict


class QuestionRaised(Variant):
    """The tool ended to ask a question. It goes on from `state` once a person has answered."""

    kind: Literal["asks"] = "asks"
    question: Confirmation
    state: JsonValue = None
    """The tool's state, from which any worker can go on."""


ExecutionOutcome = Annotated[
    Finished | Failed | Stopped | Lost | NeedsApprovalAgain | QuestionRaised, Field(discriminator="kind")
]


def find_hook_stop(answers: Iterable[Verdict | ExecutionOutcome]) -> str | None:
    """Return the reason of the first hook that ends the turn, or None."""
    reasons = (answer.stop_turn for answer in answers if isinstance(answer, Deny | Finished | Failed))
    return next(filter(None, reasons), None)
