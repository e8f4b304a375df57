"""A rule, and a file of rules: what may stand in it. docs/policy.md explains it.

Frozen data, checked when it is made: a pattern that cannot be read, an empty list or a rule that says nothing is an
error. What needs other rules, or a call to try it on, is for whoever loads the file: `inspect` and `compare` in the
context of the validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from holdfast.activities.files.patterns import PathPattern
from holdfast.activities.policy.globs import Glob
from holdfast.activities.policy.hosts import HostPattern
from holdfast.activities.policy.phrases import phrase_of
from holdfast.activities.policy.subjects import Kind
from holdfast.activities.policy.values import Expression, complaint_about
from holdfast.content import encodable, visible
from holdfast.documents import SENTENCE
from holdfast.model import Message
from holdfast.modes import Mode
from holdfast.tools import Effect

RULES = 5_000
"""Of one file."""
ALTERNATIVES = 1_000
"""Of one condition."""
NAME_LIMIT, REASON_LIMIT, MESSAGE_LIMIT = 100, 1_000, 4_000
CONDITIONS = (
    "tool", "server", "effect", "kind", "path", "host", "command", "harmless", "destructive", "arguments", "patterns",
    "in_workspace", "tainted", "sends",
)  # fmt: skip
"""The keys of a rule that narrow it down."""


class Answer(StrEnum):
    """What a rule says; the stricter first."""

    DENY = "deny"
    ASK = "ask"
    ALLOW = "allow"


class Tier(StrEnum):
    """Where a rule comes from; the stronger first."""

    ADMIN = "admin"
    USER = "user"
    WORKSPACE = "workspace"
    DEFAULT = "default"


class Fault(NamedTuple):
    """Something wrong with a rule, and the keys that lead to it."""

    path: tuple[str | int, ...]
    message: str


Inspect = Callable[["Rule"], Iterable[Fault]]
"""What a loader has to say of a rule that is right by itself."""


def _several(value: object) -> object:
    """One text stands for a list of one."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError("must be text, or an array of texts")
    if not value:
        raise ValueError("is empty: it would match nothing")
    if len(value) > ALTERNATIVES:
        raise ValueError(f"has over {ALTERNATIVES:,} entries")
    return value


def _of_a_server(value: object) -> object:
    """`false` is "of no server", for which no name can stand."""
    if value is False:
        return ("",)
    if value == "" or (isinstance(value, list) and "" in value):
        raise ValueError("is empty: say `false` for tools of no server")
    return _several(value)


def _server(text: str) -> str:
    Glob(text)
    return text


def _checked(read: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        if not text.strip():
            raise ValueError("is empty")
        read(text)
        return text

    return AfterValidator(check)


def _path(text: str) -> None:
    """Paths of calls are normalised: some patterns can never match one."""
    PathPattern(text)
    names = text.removeprefix("/").split("/")
    if text != "." and ("." in names or "" in names):
        raise ValueError(f"{text!r} matches nothing: leave out `./` and empty names, and end a folder in `/**`")
    climbing = len(names) - len([name for name in names if name != ".."])
    if names[:climbing] != [".."] * climbing or (climbing and text.startswith("/")):
        raise ValueError(f"{text!r} matches nothing: paths of calls are without `..`, save at the start of one outside")


def _flag(value: object) -> object:
    if value is False:
        raise ValueError("can only be true: leave it out otherwise")
    return value


def _named(text: str) -> str:
    if not text.strip() or len(text) > NAME_LIMIT or visible(text) != text or "\n" in text:
        raise ValueError(f"must be one line of 1 to {NAME_LIMIT} characters, all of them visible")
    return text


def _harmless(text: str) -> str:
    """What a terminal may be shown."""
    return visible(encodable(text))


def _moment(value: object) -> object:
    """A date counts to its end."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("must say its offset, as in 2030-01-31T12:00:00Z")
        return value
    if isinstance(value, date):
        try:
            return datetime.combine(value, time(), UTC) + timedelta(days=1)
        except OverflowError:
            raise ValueError("is too far away") from None
    raise ValueError("must be a date, or a date and time with its offset")


def _filled(value: object) -> object:
    if value == {}:
        raise ValueError("is empty: it would say nothing")
    return value


def _json(value: object) -> object:
    if isinstance(value, dict) and (complaint := complaint_about(value)):
        raise ValueError(complaint)
    return value


def _expressions(value: dict[str, Any]) -> dict[str, Any]:
    for name, pattern in value.items():
        if isinstance(pattern, dict):
            _expressions(pattern)
        elif not isinstance(pattern, str):
            raise ValueError("holds something that is no regular expression in text")
        else:
            try:
                Expression(pattern)
            except ValueError as error:
                raise ValueError(f"{name!r} {error}") from None
    return value


def _few(value: object) -> object:
    if isinstance(value, list) and len(value) > RULES:
        raise PydanticCustomError(SENTENCE, f"there are over {RULES:,} rules")
    return value


Flag = Annotated[bool, Field(strict=True)]
OnlyTrue = Annotated[bool, BeforeValidator(_flag), Field(strict=True)]
Texts = BeforeValidator(_several)
Names = Annotated[tuple[Annotated[str, _checked(Glob)], ...], Texts]
Servers = Annotated[tuple[Annotated[str, AfterValidator(_server)], ...], BeforeValidator(_of_a_server)]
Paths = Annotated[tuple[Annotated[str, _checked(_path)], ...], Texts]
Hosts = Annotated[tuple[Annotated[str, _checked(HostPattern)], ...], Texts]
Commands = Annotated[tuple[Annotated[str, _checked(phrase_of)], ...], Texts]
Arguments = Annotated[dict[str, Any], BeforeValidator(_json)]
Table = Annotated[Arguments, BeforeValidator(_filled)]
Spoken = Annotated[str, AfterValidator(_harmless)]


class Example(Message):
    """A call that a rule must, or must not, match. What is left out is as the built-in tool has it."""

    tool: str | None = None
    arguments: Arguments = Field(default_factory=dict)
    command: str | None = None
    path: str | None = None
    url: str | None = None
    server: str | None = None
    effect: Effect | None = None
    kind: Kind | None = None
    in_workspace: Flag | None = None
    tainted: Flag = False
    sends: Flag = False


class Rule(Message):
    """What to say of calls of which every condition holds."""

    decision: Answer
    name: Annotated[str, AfterValidator(_named)] | None = None
    tool: Names | None = None
    server: Servers | None = None
    """An empty name for tools of no server."""
    effect: Annotated[tuple[Effect, ...], Texts] | None = None
    kind: Annotated[tuple[Kind, ...], Texts] | None = None
    path: Paths | None = None
    host: Hosts | None = None
    command: Commands | None = None
    harmless: OnlyTrue | None = None
    destructive: OnlyTrue | None = None
    arguments: Table | None = None
    patterns: Annotated[Table, AfterValidator(_expressions)] | None = None
    in_workspace: Flag | None = None
    tainted: Flag | None = None
    sends: Flag | None = None
    anything: OnlyTrue | None = None
    modes: Annotated[tuple[Mode, ...], Texts] | None = None
    """All of them when left out."""
    priority: Annotated[int, Field(strict=True, ge=0, le=999)] = 100
    reason: Annotated[Spoken, Field(max_length=REASON_LIMIT)] | None = None
    """For the person."""
    message: Annotated[Spoken, Field(max_length=MESSAGE_LIMIT)] | None = None
    """For the model, when denying."""
    expires: Annotated[datetime, BeforeValidator(_moment)] | None = None
    match: tuple[Example, ...] = ()
    not_match: tuple[Example, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The keys that narrow it down."""
        return tuple(name for name in CONDITIONS if getattr(self, name) is not None)

    @property
    def tools(self) -> frozenset[str]:
        """The tools it is about, when it spells them all out; else none."""
        globs = [Glob(text) for text in self.tool or ()]
        spelled = all(glob.literal for glob in globs)
        return frozenset[str]().union(*(glob.literals for glob in globs)) if spelled else frozenset()

    @property
    def on_programs(self) -> bool:
        """Does it speak of what a command runs?"""
        return bool(self.command or self.harmless or self.destructive)

    @model_validator(mode="after")
    def _says_something(self, info: ValidationInfo) -> Self:
        faults = [Fault((), words) for words in self._mistakes()]
        faults += info.context["inspect"](self) if info.context and not faults else []
        if faults:
            raise ValidationError.from_exception_data("rule", [_detail(fault) for fault in faults])
        return self

    def _mistakes(self) -> Iterable[str]:
        if not self.conditions and not self.anything:
            yield "a rule without conditions is about every call: say `anything = true` if that is meant"
        if self.anything and self.conditions and not (self.decision is Answer.ALLOW and self.on_programs):
            yield "`anything = true` goes with no condition, or with an allow rule on commands: leave it out"
        if self.message is not None and self.decision is not Answer.DENY:
            yield "`message` is what a model reads of a denial: use `reason` to tell a person"
        if self.decision is Answer.ALLOW and "command" in (self.patterns or {}):
            yield "an allow rule judges a command by its words, not by its text: use `command` instead of `patterns`"


class PolicyFile(Message):
    """A file: its rules, in order."""

    rule: Annotated[tuple[Rule, ...], BeforeValidator(_few)] = ()

    @model_validator(mode="after")
    def _fit_together(self, info: ValidationInfo) -> Self:
        faults = list(info.context["compare"](self.rule)) if info.context else []
        if faults:
            raise ValidationError.from_exception_data("policy", [_detail(fault) for fault in faults])
        return self


def _detail(fault: Fault) -> InitErrorDetails:
    kind = PydanticCustomError(SENTENCE, "{words}", {"words": visible(fault.message).replace("\n", "␊")})
    return InitErrorDetails(type=kind, loc=fault.path, input=None)
