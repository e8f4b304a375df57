"""What the two tool activities answer: a verdict before a call may run, an outcome after it ran.

Both are unions discriminated by `kind`, so that every expected ending is data in the history and none is an
exception. The batch turns them into transitions (`batches.py`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from holdfast.approvals import Confirmation
from holdfast.content import CallError, Part, Result, Text
from holdfast.model import Data
from holdfast.tools import ToolRef


class Bound(Data):
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


class Allow(Data):
    """The call may run without asking."""

    kind: Literal["allow"] = "allow"
    rule: str
    bound: Bound


class Ask(Data):
    """A person has to say."""

    kind: Literal["ask"] = "ask"
    rule: str
    bound: Bound
    confirmation: Confirmation


class Deny(Data):
    """Policy forbids the call."""

    kind: Literal["deny"] = "deny"
    rule: str
    message: str


class Reject(Data):
    """The call cannot run at all: unknown tool, invalid arguments, or validation itself broke."""

    kind: Literal["reject"] = "reject"
    error: CallError


Verdict = Annotated[Allow | Ask | Deny | Reject, Field(discriminator="kind")]


class Finished(Data):
    """The tool ran and gave a result."""

    kind: Literal["finished"] = "finished"
    result: Result


class Failed(Data):
    """The tool ran and failed; what it had put out is kept."""

    kind: Literal["failed"] = "failed"
    error: CallError
    parts: tuple[Part, ...] = ()


class Stopped(Data):
    """The tool heard of a stop and obeyed; what it had put out is kept."""

    kind: Literal["stopped"] = "stopped"
    reason: str = ""
    parts: tuple[Part, ...] = ()


class Lost(Data):
    """Nobody can say whether the tool ran: its worker is gone."""

    kind: Literal["lost"] = "lost"
    message: str
    parts: tuple[Part, ...] = ()
    repeatable: bool = False
    """The tool may be repeated, so the loss is an ordinary error and not an unknown outcome."""


class Reconsider(Data):
    """Nothing ran: what the executing worker would run is not what was approved. Here is its own verdict."""

    kind: Literal["reconsider"] = "reconsider"
    verdict: Verdict


CallOutcome = Annotated[Finished | Failed | Stopped | Lost | Reconsider, Field(discriminator="kind")]
