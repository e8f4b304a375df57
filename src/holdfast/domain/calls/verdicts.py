"""What the two tool activities answer: a verdict before a call may run, an outcome after it ran.

Both are unions discriminated by `kind`, so that every expected ending is data in the history and none is an
exception. The batch turns them into transitions (`batch.py`).
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
"""The type of an attempt's error that says nothing of what became of its call."""


class BoundCall(Data):
    """A tool bound to validated arguments: what every verdict on a runnable call carries."""

    tool: ToolRef
    title: Text
    arguments: dict[str, JsonValue]
    """As they will execute."""
    digest: str
    concurrency_safe: bool = False
    timeout_seconds: float = Field(gt=0, allow_inf_nan=False)
    heartbeat_seconds: float = Field(gt=0, allow_inf_nan=False)
    basis: dict[str, str] = Field(default_factory=dict)
    """Files the call would change, each with its digest when it was judged."""
    leaves: dict[str, str] = Field(default_factory=dict)
    """The same files as the call would leave them."""
    host: str | None = None
    """The task queue of the host that its call lives on."""
    takes_in: bool = False
    """It brings content from outside into the turn."""
    sends: bool = False
    """It can carry data out."""
    context: dict[str, JsonValue] = Field(default_factory=dict)
    """What it goes by of the context of its turn, as far as that is not what every turn begins with."""
    given: dict[str, JsonValue] | None = None
    """The arguments as they were before hooks rewrote them."""
    rewritten_by: tuple[str, ...] = ()
    """Names of the hooks that did."""


class Allow(Variant):
    """The call may run without asking."""

    kind: Literal["allow"] = "allow"
    rule: str
    bound: BoundCall
    actor: Actor | None = None
    """Who says so; the policy, by the rule, when left out."""
    grant: str | None = None
    """The turn's grant that answered in place of a question."""
    diff: Text | None = None
    """What the call would change, where its tool tells."""


class Ask(Variant):
    """A person has to say."""

    kind: Literal["ask"] = "ask"
    rule: str
    bound: BoundCall
    actor: Actor | None = None
    confirmation: Confirmation


class Deny(Variant):
    """Policy, a hook or a person's standing refusal forbids the call."""

    kind: Literal["deny"] = "deny"
    rule: str
    message: str
    actor: Actor | None = None
    stop_turn: str | None = None
    """Why the turn is to end as well."""
    diff: Text | None = None
    """Of a call that a person's standing answer refuses: what it would change, where its tool tells."""


class Reject(Variant):
    """The call cannot run at all: unknown tool, invalid arguments, or validation itself broke."""

    kind: Literal["reject"] = "reject"
    error: CallError


Verdict = Annotated[Allow | Ask | Deny | Reject, Field(discriminator="kind")]


class Finished(Variant):
    """The tool ran and gave a result."""

    kind: Literal["finished"] = "finished"
    result: Result
    attempts: int = 1
    """How often the tool was tried, where its failures passed by themselves."""
    stop_turn: str | None = None
    """Why the turn is to end, when a hook says so."""


class Failed(Variant):
    """The tool ran and failed; what it had put out is kept."""

    kind: Literal["failed"] = "failed"
    error: CallError
    parts: tuple[Part, ...] = ()
    attempts: int = 1
    stop_turn: str | None = None


class Stopped(Variant):
    """The tool heard of a stop and obeyed; what it had put out is kept."""

    kind: Literal["stopped"] = "stopped"
    reason: str = ""
    parts: tuple[Part, ...] = ()


class Lost(Variant):
    """Nobody can say whether the tool ran: its worker is gone."""

    kind: Literal["lost"] = "lost"
    message: str
    parts: tuple[Part, ...] = ()
    repeatable: bool = False
    """The tool may be repeated, so the loss is an ordinary error and not an unknown outcome."""


class NeedsApprovalAgain(Variant):
    """Nothing ran: what the executing worker would run is not what was approved. Here is its own verdict."""

    kind: Literal["reconsider"] = "reconsider"
    verdict: Verdict


class QuestionRaised(Variant):
    """The tool ended in the middle of its work, and goes on from its state when a person has answered."""

    kind: Literal["asks"] = "asks"
    question: Confirmation
    state: JsonValue = None
    """What the tool goes on from, on any worker."""


ExecutionOutcome = Annotated[
    Finished | Failed | Stopped | Lost | NeedsApprovalAgain | QuestionRaised, Field(discriminator="kind")
]


def find_hook_stop(answers: Iterable[Verdict | ExecutionOutcome]) -> str | None:
    """Why a hook ends the turn; None when none does."""
    reasons = (answer.stop_turn for answer in answers if isinstance(answer, Deny | Finished | Failed))
    return next(filter(None, reasons), None)
