"""Approvals and decisions: what a person is shown, what they can decide, how far it reaches, and its digest.

An approval is addressed by `<workflow id>/<call id>/<revision>`; the digest is over what would run. A decision names
both, so it can only count for exactly what was shown. Nothing here knows how a decision travels.

A scope is told in the question before it is granted: `git status` and nothing else, this file, this host. Its fields
are those of a policy rule and mean the same (docs/reference/policy.md), so a grant can be kept as a rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, AwareDatetime, Field, JsonValue, field_validator, model_validator

from holdfast.domain.base import Data, Message, max_items
from holdfast.domain.content import Text
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical


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


ConfirmationKind = Literal["exec", "edit", "mcp", "info", "question", "outcome_unknown"]


class ToolNotes(Data):
    """What is known of a tool that is somebody else's, for whoever decides on a call of it.

    Words for people, and part of no digest: that is over the definition itself.
    """

    description: Text = ""
    """What its server says of it, or the beginning of that."""
    effect: Text = ""
    because: Text = ""
    """Why it counts as having this effect."""
    hints: tuple[Text, ...] = ()
    """What its server says of its effect, believed or not."""


class Confirmation(Data):
    """What a person is shown before a call may run (S20). A tool fills what it knows; validation adds the rest."""

    kind: ConfirmationKind
    title: Text
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments as they will execute."""
    told: tuple[str, ...] = ()
    """Names of arguments that the command, the diff, the url or the question already tells; the rest is shown as is."""
    command: Text | None = None
    description: Text | None = None
    """What the model says that the command is for: its words, and nothing that anybody has checked."""
    programs: tuple[Text, ...] = ()
    doubts: tuple[Text, ...] = ()
    """What is not known of the command before it runs."""
    reason: Text | None = None
    """Why the policy asks."""
    diff: Text | None = None
    path: Text | None = None
    server: Text | None = None
    about: ToolNotes | None = None
    urls: tuple[Text, ...] = ()
    question: Text | None = None
    """What a person is asked in a question's own words."""
    options: tuple[Text, ...] = ()
    """Of a question: answers to choose from."""
    other: bool = True
    """Of a question: may the answer be something else than the options?"""
    form: dict[str, JsonValue] | None = None
    """Of a question: the fields that it asks for (`holdfast.domain.forms.validation`). The answer is a JSON object
    then.
    """
    edits: str | None = None
    """The argument whose text a person may change in an editor."""
    current: Text | None = None
    """All of the file as it is, where the call replaces `old_text` in it by `new_text`: whoever changes it in an editor
    sees the whole, with that applied (`holdfast.util.text_replacement`)."""
    offers: tuple[Offer, ...] = ()
    """Standing answers that may be given, the narrowest first."""
    needs: Needs = Needs()
    deadline: Deadline | None = None

    def untold(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The arguments to be shown beside it. A command counts as told where it is the one that would run."""
        told = {name for name in self.told if name != "command" or arguments.get(name) == self.command}
        return {name: value for name, value in arguments.items() if name not in told}


class Decision(Message):
    """What somebody said about one approval: the body of the `decide` signal and update.

    `id` makes it count once however often it is delivered. `by` is what the sender says of itself, or, where approvers
    have keys, the approver whose key signed all the rest.
    """

    approval_id: str = Field(max_length=2_000)
    digest: str = Field(max_length=200)
    outcome: DecisionAction
    id: str | None = Field(default=None, max_length=200)
    by: str | None = Field(default=None, max_length=500)
    at: datetime | None = None
    note: str | None = Field(default=None, max_length=20_000)
    content: str | None = Field(default=None, max_length=1_000_000)
    """The answer, when a person responds in the tool's place; else the tool's text as a person changed it."""
    arguments: Arguments | None = None
    """Other arguments: with `modify` to be asked again, with `proceed_once` to run at once (S25)."""
    scope: Scope | None = None
    """Of a standing answer: one that was offered. The first of its outcome when left out."""
    remember: bool = False
    """With `cancel`: refuse what the scope covers from now on."""
    uses: int | None = Field(default=None, ge=1, le=1_000_000)
    """Of a standing answer: how many calls it answers, this one not counted."""
    lasting: Lasting = "session"
    expires: AwareDatetime | None = None
    """Until when it counts, and the standing answer that it leaves."""
    stop_turn: bool = False
    """With `cancel`: end the turn as well (S19)."""
    signer: str | None = Field(default=None, max_length=200)
    """The id of the key that signed it."""
    signature: str | None = Field(default=None, max_length=500)

    @field_validator("outcome", mode="before")
    @classmethod
    def _read_alias(cls, value: object) -> object:
        return ACTION_ALIASES.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        outcome = self.outcome
        if self.stop_turn and outcome is not DecisionAction.CANCEL:
            raise ValueError("stop_turn goes with the outcome `cancel` only")
        if self.remember and outcome is not DecisionAction.CANCEL:
            raise ValueError("remember goes with the outcome `cancel` only: to allow always is an outcome of its own")
        if (self.scope or self.uses) and not self.is_grant:
            raise ValueError("scope and uses go with `proceed_always…`, or with `cancel` and remember")
        changes = (self.arguments is not None) + (self.content is not None)
        if self.arguments is not None and outcome not in (DecisionAction.MODIFY, DecisionAction.PROCEED_ONCE):
            raise ValueError("arguments go with `modify` and `proceed_once` only")
        if outcome is DecisionAction.MODIFY and changes != 1:
            raise ValueError("modify needs the new `arguments`, or the changed text as `content`, and not both")
        if outcome is DecisionAction.PROCEED_ONCE and changes > 1:
            raise ValueError("give `arguments` or `content`, not both")
        return self

    @property
    def is_grant(self) -> bool:
        """Does it answer further calls too?"""
        return self.remember or self.outcome in ALWAYS_ACTIONS

    @property
    def has_changes(self) -> bool:
        """Does it give the call other arguments?"""
        return self.outcome is DecisionAction.MODIFY or (
            self.outcome is DecisionAction.PROCEED_ONCE and (self.arguments is not None or self.content is not None)
        )

    @property
    def key(self) -> str:
        """What makes this decision itself: its approval and its id, or, without one, everything it says."""
        return f"{self.approval_id}#{self.id or digest_canonical(self.model_dump(mode='json'))}"


class QuestionAnswer(Data):
    """What a person said to a tool that asked in the middle of its run."""

    action: Literal["accept", "decline", "cancel"]
    """`decline`: they would not say. `cancel`: nobody could be asked."""
    text: str = ""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """Of a form."""
    decision: Decision | None = None
    """By which they said it. The worker that runs the tool checks it: the rest of this is what the turn says."""


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
        if len(parts) != 3 or not all(parts) or not re.fullmatch("0|[1-9][0-9]{0,8}", parts[2]):
            raise BadInput(
                f"{text!r} is not an approval id: it reads <turn>/<call>/<revision>, as `holdfast inbox` lists it"
            )
        return cls(parts[0], parts[1], int(parts[2]))


def digest_call(
    *,
    tool: str,
    server: str | None,
    definition: str,
    arguments: dict[str, Any],
    context: Mapping[str, object] = MappingProxyType({}),
) -> str:
    """The digest an approval carries and the executing activity checks again (S22).

    `context` is what the call goes by of that of its turn, as far as there is any.
    """
    said = {"tool": tool, "server": server, "definition": definition, "arguments": arguments}
    return digest_canonical({**said, "context": dict(context)} if context else said)


def digest_question(call: str, question: Confirmation, state: JsonValue) -> str:
    """The digest that an answer to a running tool names: over the call's own, what is asked, and where it goes on.

    So an answer counts for that question alone. Fields that have their default are left out: one that questions learn
    later changes no digest.
    """
    asked = question.model_dump(mode="json", exclude_defaults=True)
    return digest_canonical({"call": call, "question": asked, "state": state})
