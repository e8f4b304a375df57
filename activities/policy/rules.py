"""A rule of a policy file, and the file: its keys and their types (docs/reference/policy.md).

Frozen data, checked when it is made: a pattern that cannot be read, an empty list or a rule without conditions is an
error. Checks that need the other rules or a call to try come from the loader, by `inspect` and `compare` in the context
of the validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from holdfast.activities.policy.rule_values import (
    Arguments,
    Commands,
    Duration,
    Flag,
    Hosts,
    LongText,
    Moment,
    Names,
    OnlyTrue,
    Paths,
    Patterns,
    Reason,
    Servers,
    ShortName,
    SingleOrList,
    Table,
)
from holdfast.activities.policy.subject import CallKind
from holdfast.config.toml_document import SENTENCE_ERROR
from holdfast.domain.approvals.approval import Deadline, Needs
from holdfast.domain.base import StrictData
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.util.durations import parse_duration
from holdfast.util.globs import Glob
from holdfast.util.text import escape_controls

MAX_RULES = 5_000
"""Rules of one file."""
CONDITION_KEYS = (
    "tool", "server", "effect", "kind", "path", "host", "command", "harmless", "destructive", "arguments", "patterns",
    "in_workspace", "tainted", "sends", "protected",
)  # fmt: skip
"""The keys of a rule that are conditions."""
ASKING_KEYS = ("always_ask", "role", "approvals", "not_requester", "deadline", "warning", "on_deadline")
"""The keys of a rule for how a person is asked."""
WARNING_SHARE = 0.1
"""The share of a deadline that is left at its warning, unless a rule says otherwise."""


class RuleEffect(StrEnum):
    """The decision of a rule, the strictest first."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class Tier(StrEnum):
    """The origin of a rule, the strongest first."""

    ADMIN = "admin"
    USER = "user"
    WORKSPACE = "workspace"
    DEFAULT = "default"


class RuleFault(NamedTuple):
    """A mistake in a rule, and the keys that lead to it."""

    path: tuple[str | int, ...]
    message: str


def _check_count(value: object) -> object:
    if isinstance(value, list) and len(value) > MAX_RULES:
        raise PydanticCustomError(SENTENCE_ERROR, f"there are over {MAX_RULES:,} rules")
    return value


class CallDescription(StrictData):
    """Facts about a call beside its tool and arguments. Those that are left out are as the built-in tool has them."""

    server: str | None = None
    effect: Effect | None = None
    kind: CallKind | None = None
    in_workspace: Flag | None = None
    tainted: Flag = False
    sends: Flag | None = None
    """Derived from the command or url when left out."""

    @property
    def known_facts(self) -> dict[str, Any]:
        """The facts that are given, as fields of a `Subject`; without `sends`."""
        return self.model_dump(include={"server", "effect", "kind", "in_workspace", "tainted"}, exclude_none=True)


class Example(CallDescription):
    """A call that a rule must, or must not, match."""

    tool: str | None = None
    arguments: Arguments = Field(default_factory=dict)
    command: str | None = None
    path: str | None = None
    url: str | None = None


class Rule(StrictData):
    """A decision on the calls of which every condition holds."""

    decision: RuleEffect
    name: ShortName | None = None
    tool: Names | None = None
    server: Servers | None = None
    """The empty name stands for tools of no server."""
    effect: Annotated[tuple[Effect, ...], SingleOrList] | None = None
    kind: Annotated[tuple[CallKind, ...], SingleOrList] | None = None
    path: Paths | None = None
    host: Hosts | None = None
    command: Commands | None = None
    harmless: OnlyTrue | None = None
    destructive: OnlyTrue | None = None
    arguments: Table | None = None
    patterns: Patterns | None = None
    in_workspace: Flag | None = None
    tainted: Flag | None = None
    sends: Flag | None = None
    protected: OnlyTrue | None = None
    anything: OnlyTrue | None = None
    modes: Annotated[tuple[Mode, ...], SingleOrList] | None = None
    """Every mode when left out."""
    priority: Annotated[int, Field(strict=True, ge=0, le=999)] = 100
    reason: Reason | None = None
    """The reason for the person."""
    message: LongText | None = None
    """The message for the model, when denying."""
    always_ask: OnlyTrue | None = None
    """No grant applies."""
    role: ShortName | None = None
    """The role of the people who may decide."""
    approvals: Annotated[int, Field(strict=True, ge=1, le=10)] | None = None
    not_requester: OnlyTrue | None = None
    deadline: Duration | None = None
    warning: Duration | None = None
    """The time before the deadline."""
    on_deadline: Literal["deny", "allow"] | None = None
    expires: Moment | None = None
    match: tuple[Example, ...] = ()
    not_match: tuple[Example, ...] = ()

    @property
    def condition_keys(self) -> tuple[str, ...]:
        """The conditions that it has."""
        return tuple(name for name in CONDITION_KEYS if getattr(self, name) is not None)

    @property
    def tools(self) -> frozenset[str]:
        """The tools that it is about, when it spells out all of them; else empty."""
        globs = [Glob(text) for text in self.tool or ()]
        spelled = all(glob.is_literal for glob in globs)
        return frozenset[str]().union(*(glob.literals for glob in globs)) if spelled else frozenset()

    @property
    def is_about_programs(self) -> bool:
        """Has it a condition on the programs of a command?"""
        return bool(self.command or self.harmless or self.destructive)

    @property
    def needs(self) -> Needs:
        """The people whose decisions it asks for."""
        return Needs(role=self.role, approvals=self.approvals or 1, not_requester=bool(self.not_requester))

    @property
    def approval_deadline(self) -> Deadline | None:
        """The deadline of its approvals; None without one."""
        if self.deadline is None:
            return None
        seconds = parse_duration(self.deadline)
        warning = parse_duration(self.warning) if self.warning else seconds * WARNING_SHARE
        return Deadline(seconds=seconds, warning_seconds=warning, default=self.on_deadline or "deny")

    @model_validator(mode="after")
    def _check_rule(self, info: ValidationInfo) -> Self:
        faults = [*(RuleFault((), words) for words in self._find_mistakes()), *self._find_asking_mistakes()]
        faults += info.context["inspect"](self) if info.context and not faults else []
        if faults:
            raise ValidationError.from_exception_data("rule", [_build_detail(fault) for fault in faults])
        return self

    def _find_mistakes(self) -> Iterable[str]:
        if not self.condition_keys and not self.anything:
            yield "a rule without conditions is about every call: say `anything = true` if that is meant"
        if self.anything and self.condition_keys and not (self.decision is RuleEffect.ALLOW and self.is_about_programs):
            yield "`anything = true` goes with no condition, or with an allow rule on commands: leave it out"
        if self.message is not None and self.decision is not RuleEffect.DENY:
            yield "`message` is what a model reads of a denial: use `reason` to tell a person"
        if self.decision is RuleEffect.ALLOW and "command" in (self.patterns or {}):
            yield "an allow rule judges a command by its words, not by its text: use `command` instead of `patterns`"

    def _find_asking_mistakes(self) -> Iterable[RuleFault]:
        given = [key for key in ASKING_KEYS if getattr(self, key) is not None]
        if self.decision is not RuleEffect.ASK:
            yield from (
                RuleFault((key,), f"`{key}` says how a person is asked: it goes with `ask` only") for key in given
            )
            return
        if self.deadline is None:
            deadline_keys = (key for key in ("warning", "on_deadline") if key in given)
            yield from (
                RuleFault((key,), f"`{key}` is about a deadline: say `deadline` as well") for key in deadline_keys
            )
        elif self.warning and parse_duration(self.warning) >= parse_duration(self.deadline):
            yield RuleFault(("warning",), "`warning` must be shorter than the deadline that it warns of")
        if self.on_deadline == "allow" and self.needs != Needs():
            words = "would let a call run that nobody approved: leave out `role`, `approvals` and `not_requester`"
            yield RuleFault(("on_deadline",), f'`on_deadline = "allow"` {words}, or deny')


class PolicyFile(StrictData):
    """A policy file: its rules, in order."""

    rule: Annotated[tuple[Rule, ...], BeforeValidator(_check_count)] = ()

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        faults = list(info.context["compare"](self.rule)) if info.context else []
        if faults:
            raise ValidationError.from_exception_data("policy", [_build_detail(fault) for fault in faults])
        return self


def _build_detail(fault: RuleFault) -> InitErrorDetails:
    kind = PydanticCustomError(SENTENCE_ERROR, "{words}", {"words": escape_controls(fault.message).replace("\n", "␊")})
    return InitErrorDetails(type=kind, loc=fault.path, input=None)
