"""What a person can say of a call, and how far the answer reaches.

A scope is told in the question before it is granted: `git status` and nothing else, this file, this host. Its fields
are those of a policy rule and mean the same (docs/policy.md), so a grant can be kept as a rule.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from holdfast.content import Text
from holdfast.model import Data, Message, max_items


class DecisionAction(StrEnum):
    """What a person can say of a call (S21)."""

    PROCEED_ONCE = "proceed_once"
    PROCEED_ALWAYS = "proceed_always"
    """This kind of call, as the question tells it."""
    PROCEED_ALWAYS_TOOL = "proceed_always_tool"
    PROCEED_ALWAYS_SERVER = "proceed_always_server"
    MODIFY = "modify"
    """Ask again with other arguments."""
    RESPOND = "respond"
    """Answer in the tool's place."""
    CANCEL = "cancel"


ACTION_ALIASES = {
    "yes": DecisionAction.PROCEED_ONCE,
    "yes_always": DecisionAction.PROCEED_ALWAYS_TOOL,
    "no": DecisionAction.CANCEL,
}
ALWAYS_ACTIONS = frozenset(
    {DecisionAction.PROCEED_ALWAYS, DecisionAction.PROCEED_ALWAYS_TOOL, DecisionAction.PROCEED_ALWAYS_SERVER}
)
PROCEED_ACTIONS = ALWAYS_ACTIONS | {DecisionAction.PROCEED_ONCE}

Lasting = Literal["turn", "session"]
"""How long a grant lasts, unless it expires before. A turn without a session keeps its grants itself."""


def _check_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Only what can be written down again: what is not a number is not a value, and has no digest."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise ValueError("holds what JSON cannot say") from None
    return value


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_check_json)]

Patterns = Annotated[tuple[str, ...], max_items(1_000)]


class Scope(Message):
    """What a standing answer covers: every field that is set must hold of a call. Texts are patterns, as in a rule."""

    tool: str | None = Field(default=None, max_length=1_000)
    server: str | None = Field(default=None, max_length=1_000)
    command: Patterns = ()
    path: Patterns = ()
    host: Patterns = ()
    arguments: Arguments = Field(default_factory=dict)
    digest: str | None = Field(default=None, max_length=200)
    """Of a call: that one and no other, whatever is in it."""


class Offer(Data):
    """A standing answer that a person may give: the outcome, what it would cover, and that in words."""

    outcome: DecisionAction
    scope: Scope
    covers: Text


class Needs(Data):
    """Whose word a call needs. The shipped policy asks for anybody's."""

    role: str | None = None
    approvals: int = Field(default=1, ge=1, le=10)
    """From so many different people."""
    not_requester: bool = False
    """Not from whoever started the turn."""


class Deadline(Data):
    """Until when an answer is waited for, and what holds when none came (S28)."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    warning_seconds: float = Field(default=0, ge=0, allow_inf_nan=False)
    """So long before it passes, viewers are told."""
    default: Literal["deny", "allow"] = "deny"
