"""The settings file `holdfast.toml`: what may stand in it, with defaults for all of it. docs/settings.md explains it.

Frozen data. Where the file comes from and whether it counts is in `trust`; what the environment and the command line
say besides is in `settings`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from holdfast.content import OUTPUT_LIMIT
from holdfast.documents import Content, Document, check
from holdfast.model import Message
from holdfast.modes import PERMITTED, Mode
from holdfast.tools import Effect

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_OURS = ("TEMPORAL_", "HOLDFAST_")
_QUEUE_LIMIT = 1_000
"""Temporal's own."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _written(text: str) -> str:
    """Text that a program can be given."""
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


def _some(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    if not modes:
        raise ValueError("is empty")
    return modes


def _queue(text: str) -> str:
    if len(text) > _QUEUE_LIMIT:
        raise ValueError(f"is over {_QUEUE_LIMIT:,} characters")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("must be 1 to 40 letters, digits, `_` or `-`")
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("is not the name of an environment variable: letters, digits and `_`, no digit first")
    return text


def _not_ours(text: str) -> str:
    if text.upper().startswith(_OURS):
        raise ValueError("is not for commands: TEMPORAL_… and HOLDFAST_… are kept from them")
    return text


def _reference(text: str) -> str:
    module, colon, name = text.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise ValueError("must be `module:name`, as in `my_package.tools:tools`")
    return text


def _words(value: object) -> object:
    """One string is split as a shell would; what follows checks the words."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {str(error).lower()}") from None


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0].strip():
        raise ValueError("is empty: it names no program")
    return words


def _place(value: object, info: ValidationInfo) -> object:
    """A path from the file's folder, with ~ for a home."""
    if not isinstance(value, str):
        return value
    folder = info.context["folder"] if info.context else Path()
    try:
        return Path(folder, Path(_filled(_written(value))).expanduser())
    except RuntimeError:
        raise ValueError("names a home folder that nobody has") from None


def _destination(text: str) -> str:
    """A network, or a host with or without a port."""
    from holdfast.activities.web.addresses import AddressRules  # it brings an HTTP client along, which few files need

    try:
        AddressRules(allow=(text,))
    except ValidationError:
        raise ValueError("must be a host, host:port, or a network as 10.0.0.0/8") from None
    return text


Flag = Annotated[bool, Field(strict=True)]
Word = Annotated[str, AfterValidator(_written)]
Filled = Annotated[Word, AfterValidator(_filled)]
Name = Annotated[str, AfterValidator(_name)]
Variable = Annotated[str, AfterValidator(_variable)]
Command = Annotated[tuple[Word, ...], BeforeValidator(_words), AfterValidator(_program)]
Environment = Mapping[Annotated[Variable, AfterValidator(_not_ours)], Word]
Place = Annotated[Path, BeforeValidator(_place)]
Limit = Annotated[float, Field(strict=True, ge=1, le=3_600)]
"""Seconds of one run."""


class ShellSettings(Message):
    """What commands get: variables beside or instead of the worker's own, and a time limit."""

    environment: Environment = Field(default_factory=dict)
    inherit_environment: Flag = True
    timeout_seconds: Limit = 600


class FetchSettings(Message):
    """Private hosts that may be fetched all the same, and how much of an answer is read."""

    allow: tuple[Annotated[str, AfterValidator(_destination)], ...] = ()
    max_bytes: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] = 5_000_000


class ToolSettings(Message):
    """Which tools there are, and how the built-in ones behave."""

    modules: tuple[Annotated[str, AfterValidator(_reference)], ...] = ()
    entry_points: Flag = True
    disable: tuple[Filled, ...] = ()
    shell: ShellSettings = ShellSettings()
    fetch: FetchSettings = FetchSettings()


class DiscoverySettings(Message):
    """A command that declares tools, and one that calls them."""

    name: Name
    discovery_command: Command
    call_command: Command
    timeout_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 10
    call_timeout_seconds: Limit = 600
    effect: Effect = Effect.ONCE
    environment: Environment = Field(default_factory=dict)
    folder: Annotated[Path, Field(exclude=True, validate_default=True)] = Path()
    """Where both run: the file's folder. Not a key of the file."""

    @field_validator("folder", mode="before")
    @classmethod
    def _of_the_file(cls, value: object, info: ValidationInfo) -> object:
        if not info.context:
            return value
        if value != Path():
            raise PydanticCustomError("extra_forbidden", "not a setting")
        return info.context["folder"]

    @field_validator("name")
    @classmethod
    def _is_unique(cls, value: str, info: ValidationInfo) -> str:
        if info.context:
            if value in info.context["names"]:
                raise ValueError(f"is taken: another [[discovery]] is called {value!r}")
            info.context["names"].add(value)
        return value


class McpServerSettings(Message):
    """An MCP server: a command to start, or a URL to reach."""

    command: Filled | None = None
    args: tuple[Word, ...] = ()
    env: Mapping[Variable, Word] = Field(default_factory=dict)
    url: str | None = None

    @field_validator("url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s/?#]+\S*", value):
            raise ValueError("must begin with http:// or https:// and name a host")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs `command` or `url`, and not both")
        if self.url and (self.args or self.env):
            raise ValueError("has a `url`: `args` and `env` are for a `command`")
        return self


class McpSettings(Message):
    """MCP servers by name."""

    servers: Mapping[Name, McpServerSettings] = Field(default_factory=dict)


class LimitSettings(Message):
    """How much is taken in at once."""

    output_characters: Annotated[int, Field(strict=True, ge=1_000, le=1_000_000)] = OUTPUT_LIMIT
    """Of a result, that reach the model."""
    concurrent_calls: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 100
    """Per worker."""
    saved_output_bytes: Annotated[int, Field(strict=True, ge=1, le=10**15)] = 5_000_000_000
    """Of one whole output, kept on disk."""


class Configuration(Message):
    """The whole file. None where it says nothing and the environment or a default decides."""

    workspace: Place | None = None
    data: Place | None = None
    task_queue: Annotated[Filled, AfterValidator(_queue)] | None = None
    policy: tuple[Place, ...] = ()
    modes: Annotated[tuple[Mode, ...], AfterValidator(_some)] = PERMITTED
    tools: ToolSettings = ToolSettings()
    discovery: tuple[DiscoverySettings, ...] = ()
    mcp: McpSettings = McpSettings()
    limits: LimitSettings = LimitSettings()


def configuration_of(content: Content) -> Document[Configuration]:
    """Check a settings file. Relative paths count from the folder where it is."""
    return check(content, Configuration, {"folder": content.file.parent, "names": set()})
