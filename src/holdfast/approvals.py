"""Asking and answering: what a person is shown, what they said, and the digest that binds the two.

An approval is addressed by `<workflow id>/<call id>/<revision>`; the digest is over what would run. A decision names
both, so it can only count for exactly what was shown. Nothing here knows how a decision travels.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from holdfast.content import Text
from holdfast.errors import BadInput
from holdfast.model import Data, Message

ConfirmationKind = Literal["exec", "edit", "mcp", "info", "question", "outcome_unknown"]


class Confirmation(Data):
    """What a person is shown before a call may run (S20). A tool fills what it knows; validation adds the rest."""

    kind: ConfirmationKind
    title: Text
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments as they will execute."""
    told: tuple[str, ...] = ()
    """Names of arguments that the command, the diff, the url or the question already tells; the rest is shown as is."""
    command: Text | None = None
    programs: tuple[Text, ...] = ()
    doubts: tuple[Text, ...] = ()
    """What is not known of the command before it runs."""
    reason: Text | None = None
    """Why the policy asks."""
    diff: Text | None = None
    path: Text | None = None
    server: Text | None = None
    urls: tuple[Text, ...] = ()
    question: Text | None = None
    """What a person is asked in a question's own words."""
    options: tuple[Text, ...] = ()
    """Of a question: answers to choose from."""
    other: bool = True
    """Of a question: may the answer be something else than the options?"""


class Outcome(StrEnum):
    """What a person can say of a call (S21). The three outcomes this version knows."""

    PROCEED_ONCE = "proceed_once"
    RESPOND = "respond"
    CANCEL = "cancel"


_ALIASES = {"yes": Outcome.PROCEED_ONCE, "no": Outcome.CANCEL}


class Decision(Message):
    """What somebody said about one approval: the body of the `decide` signal and update.

    `id` makes it count once however often it is delivered. `by` is what the sender says of itself.
    """

    approval_id: str = Field(max_length=2_000)
    digest: str = Field(max_length=200)
    outcome: Outcome
    id: str | None = Field(default=None, max_length=200)
    by: str | None = Field(default=None, max_length=500)
    at: datetime | None = None
    note: str | None = Field(default=None, max_length=20_000)
    content: str | None = Field(default=None, max_length=1_000_000)
    """The answer, when a person responds in the tool's place."""
    stop_turn: bool = False
    """With `cancel`: end the turn as well (S19)."""

    @field_validator("outcome", mode="before")
    @classmethod
    def _read_alias(cls, value: object) -> object:
        return _ALIASES.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _stop_goes_with_refusal(self) -> Self:
        if self.stop_turn and self.outcome is not Outcome.CANCEL:
            raise ValueError("stop_turn goes with the outcome `cancel` only")
        return self

    @property
    def key(self) -> str:
        """What makes this decision itself: its approval and its id, or, without one, everything it says."""
        return f"{self.approval_id}#{self.id or canonical_digest(self.model_dump(mode='json'))}"


class ApprovalId(NamedTuple):
    """The parts of an approval's address."""

    turn: str
    call: str
    revision: int

    def __str__(self) -> str:
        return f"{self.turn}/{self.call}/{self.revision}"

    @classmethod
    def parse(cls, text: str) -> ApprovalId:
        """Read `<workflow id>/<call id>/<revision>`; the workflow id may itself hold slashes."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not all(parts) or not re.fullmatch("[0-9]{1,9}", parts[2]):
            raise BadInput(
                f"{text!r} is not an approval id: it reads <turn>/<call>/<revision>, as `holdfast inbox` lists it"
            )
        return cls(parts[0], parts[1], int(parts[2]))


def canonical_digest(value: Any) -> str:
    """SHA-256 over JSON with sorted keys and no white space. Raises ValueError for what JSON cannot say (NaN)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def call_digest(*, tool: str, server: str | None, definition: str, arguments: dict[str, Any]) -> str:
    """The digest an approval carries and the executing activity checks again (S22)."""
    return canonical_digest({"tool": tool, "server": server, "definition": definition, "arguments": arguments})
