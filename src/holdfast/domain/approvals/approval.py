"""Approvals, decisions, approvers and actors: what a person is shown, what they can decide, and how far it reaches.

An approval is addressed by `<workflow id>/<call id>/<revision>`; its digest is over what would run. A decision names
both, so it counts only for exactly what was shown. Nothing here knows how a decision travels.

The scope of a grant is shown before it is given: `git status` and nothing else, this file, this host. Its fields are
those of a policy rule and mean the same (docs/reference/policy.md), so a grant can be saved as a rule.

When any approver has a key, no unsigned decision counts. Names without keys give roles to people that a gateway vouches
for, or, where nobody has a key, to whoever uses the name.
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

from holdfast.domain.base import Data, StrictData, max_items
from holdfast.domain.content import Text
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical

ANYONE = "*"
"""The name of the approver with the key of a data folder. The settings allow this name for nobody else."""


class Approver(StrictData):
    """A person, or a gateway, who may decide."""

    name: str = Field(min_length=1, max_length=200)
    key: str | None = Field(default=None, max_length=200)
    """The public Ed25519 key: `ed25519:` and 32 bytes in base64."""
    roles: tuple[str, ...] = ()
    vouches: bool = False
    """The key of a gateway, which signs decisions of others: their `by` is the person it vouches for."""

    @property
    def is_for_anyone(self) -> bool:
        """May it vouch for any name? Only the key of a data folder may (`client.owner_key`)."""
        return self.name == ANYONE


ActorKind = Literal["person", "policy", "hook", "runtime"]


class Actor(Data):
    """Who decided about a call. `name` is a person, a rule, a hook, or a part of the runtime."""

    kind: ActorKind
    name: Text

    def __str__(self) -> str:
        return self.name if self.kind == "person" else f"{self.kind}: {self.name}"


class DecisionAction(StrEnum):
    """The outcome of a person's decision about a call (S21)."""

    PROCEED_ONCE = "proceed_once"
    PROCEED_ALWAYS = "proceed_always"
    """Also for this kind of call, as the question describes it."""
    PROCEED_ALWAYS_TOOL = "proceed_always_tool"
    PROCEED_ALWAYS_SERVER = "proceed_always_server"
    MODIFY = "modify"
    """Ask again, with other arguments."""
    RESPOND = "respond"
    """Answer in the place of the tool."""
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
"""The lifetime of a grant that does not expire before. Without a session, `session` means the turn."""


def _check_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """ValueError for values that strict JSON cannot express, such as NaN: they have no digest."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise ValueError("holds a value that JSON cannot express") from None
    return value


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_check_json)]

Patterns = Annotated[tuple[str, ...], max_items(1_000)]


class Scope(StrictData):
    """The calls that a grant covers: every field that is set must match a call. Texts are patterns, as in a rule."""

    tool: str | None = Field(default=None, max_length=1_000)
    server: str | None = Field(default=None, max_length=1_000)
    command: Patterns = ()
    path: Patterns = ()
    host: Patterns = ()
    arguments: Arguments = Field(default_factory=dict)
    digest: str | None = Field(default=None, max_length=200)
    """The digest of a call: the grant covers that call only."""


class Offer(Data):
    """A grant that a question offers: the outcome, the scope, and the scope in words."""

    outcome: DecisionAction
    scope: Scope
    covers: Text


class Needs(Data):
    """The people whose approval a call needs. The shipped policy asks for any one person."""

    role: str | None = None
    approvals: int = Field(default=1, ge=1, le=10)
    """The number of different people."""
    not_requester: bool = False
    """The approval of the turn's requester does not count."""


class Deadline(Data):
    """The time for a decision, and what applies without one (S28)."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    warning_seconds: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Viewers are notified this long before."""
    default: Literal["deny", "allow"] = "deny"


ConfirmationKind = Literal["exec", "edit", "mcp", "info", "question", "outcome_unknown"]


class ToolNotes(Data):
    """Notes about a tool of an MCP server, for the person who decides on a call of it.

    They are not part of any digest, which is over the definition itself.
    """

    description: Text = ""
    """The server's description, possibly shortened."""
    effect: Text = ""
    because: Text = ""
    """Why this effect is assumed."""
    hints: tuple[Text, ...] = ()
    """The server's own hints about its effect, trusted or not."""


class Confirmation(Data):
    """The question about a call that a person sees (S20). The tool fills what it knows; validation adds the rest."""

    kind: ConfirmationKind
    title: Text
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments as they will execute."""
    told: tuple[str, ...] = ()
    """Names of arguments that the command, the diff, the url or the question shows already."""
    command: Text | None = None
    description: Text | None = None
    """The model's own description of the command, unchecked."""
    programs: tuple[Text, ...] = ()
    doubts: tuple[Text, ...] = ()
    """Why it is uncertain what the command would run."""
    reason: Text | None = None
    """The reason of the policy for asking."""
    diff: Text | None = None
    path: Text | None = None
    server: Text | None = None
    about: ToolNotes | None = None
    urls: tuple[Text, ...] = ()
    question: Text | None = None
    """The text of a question."""
    options: tuple[Text, ...] = ()
    """The answers of a question to choose from."""
    other: bool = True
    """May the answer of a question be other than the options?"""
    form: dict[str, JsonValue] | None = None
    """The form of a question (`domain.forms.validation`); its answer is a JSON object."""
    edits: str | None = None
    """The argument whose text a person may edit."""
    current: Text | None = None
    """The present content of a file in which the call replaces `old_text` by `new_text`: an editor shows the whole
    file with the change applied (`util.text_replacement`)."""
    offers: tuple[Offer, ...] = ()
    """The grants that may be given, the narrowest first."""
    needs: Needs = Needs()
    deadline: Deadline | None = None

    def select_unshown(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The arguments that are not shown otherwise. A command is, if it is the one that would run."""
        shown = {name for name in self.told if name != "command" or arguments.get(name) == self.command}
        return {name: value for name, value in arguments.items() if name not in shown}


class Decision(StrictData):
    """A decision on one approval: the body of the `decide` signal and update.

    With an `id` it counts once however often it is delivered. `by` is what the sender claims, or, where approvers have
    keys, the approver whose key signed all other fields.
    """

    approval_id: str = Field(max_length=2_000)
    digest: str = Field(max_length=200)
    outcome: DecisionAction
    id: str | None = Field(default=None, max_length=200)
    by: str | None = Field(default=None, max_length=500)
    at: datetime | None = None
    note: str | None = Field(default=None, max_length=20_000)
    content: str | None = Field(default=None, max_length=1_000_000)
    """With `respond` the answer, otherwise the edited text of the tool."""
    arguments: Arguments | None = None
    """Other arguments: with `modify` to be asked about again, with `proceed_once` to run at once (S25)."""
    scope: Scope | None = None
    """The scope of a grant, one of those offered; the first of the same outcome when left out."""
    remember: bool = False
    """With `cancel`: also refuse further calls that the scope covers."""
    uses: int | None = Field(default=None, ge=1, le=1_000_000)
    """The number of further calls that a grant covers."""
    lasting: Lasting = "session"
    expires: AwareDatetime | None = None
    """The expiry of the decision, and of its grant."""
    stop_turn: bool = False
    """With `cancel`: also end the turn (S19)."""
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
            raise ValueError("remember goes with the outcome `cancel` only: use `proceed_always…` to allow always")
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
        """Does it leave a grant?"""
        return self.remember or self.outcome in ALWAYS_ACTIONS

    @property
    def has_changes(self) -> bool:
        """Does it change the arguments of the call?"""
        return self.outcome is DecisionAction.MODIFY or (
            self.outcome is DecisionAction.PROCEED_ONCE and (self.arguments is not None or self.content is not None)
        )

    @property
    def key(self) -> str:
        """The identity of the decision: its approval and its id, or a digest over all fields without one."""
        return f"{self.approval_id}#{self.id or digest_canonical(self.model_dump(mode='json'))}"


class QuestionAnswer(Data):
    """The answer of a person to a tool that asked while it ran."""

    action: Literal["accept", "decline", "cancel"]
    """`decline`: the person did not answer. `cancel`: nobody could be asked."""
    text: str = ""
    fields: dict[str, JsonValue] = Field(default_factory=dict)
    """The answers of a form."""
    decision: Decision | None = None
    """The decision with the answer. The worker checks it; the other fields are what the turn claims."""


class ApprovalId(NamedTuple):
    """The address of an approval."""

    turn: str
    call: str
    revision: int

    def __str__(self) -> str:
        return f"{self.turn}/{self.call}/{self.revision}"

    @classmethod
    def parse(cls, text: str) -> ApprovalId:
        """Parse `<workflow id>/<call id>/<revision>`; the workflow id may hold slashes. Raises BadInput."""
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
    """The digest of an approval, which the executing activity checks again (S22).

    `context` is the part of the turn's context that the call depends on.
    """
    fields = {"tool": tool, "server": server, "definition": definition, "arguments": arguments}
    return digest_canonical({**fields, "context": dict(context)} if context else fields)


def digest_question(call: str, question: Confirmation, state: JsonValue) -> str:
    """The digest of a question of a running tool: over the digest of the call, the question, and the saved state.

    So an answer counts for that question only. Fields with their default are left out: a field that is added later
    changes no digest.
    """
    asked = question.model_dump(mode="json", exclude_defaults=True)
    return digest_canonical({"call": call, "question": asked, "state": state})
