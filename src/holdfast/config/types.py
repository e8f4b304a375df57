"""The types of values in `holdfast.toml`, with their validators. An error continues the sentence "`key` …"."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from holdfast.config.provider_keys import OUR_PREFIXES
from holdfast.domain.base import StrictData

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")
_QUEUE_LIMIT = 1_000
"""Temporal's limit."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_text(text: str) -> str:
    """Check a text that is passed to a program: no NUL characters."""
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def _check_filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


def check_not_empty(values: tuple[T, ...]) -> tuple[T, ...]:
    """Check that there is at least one value."""
    if not values:
        raise ValueError("is empty")
    return values


def check_tool_name(text: str) -> str:
    """Check a name that a tool can have."""
    if not _TOOL_NAME.fullmatch(text):
        raise ValueError(f"cannot be the name of a tool: {text!r}")
    return text


def check_queue_name(text: str) -> str:
    """Check the name of a task queue."""
    if len(text) > _QUEUE_LIMIT:
        raise ValueError(f"is over {_QUEUE_LIMIT:,} characters")
    return text


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("must be 1 to 40 letters, digits, `_` or `-`")
    return text


def check_person_name(text: str) -> str:
    """Check the name of a person. Decisions are recorded under it, so it must be printable."""
    if not text.isprintable() or text != text.strip() or not 0 < len(text) <= 200:
        raise ValueError("must be 1 to 200 printable characters, without spaces around them")
    return text


def check_public_key(text: str) -> str:
    """Check a public Ed25519 key."""
    from holdfast.domain.approvals.signing import derive_key_id  # it brings cryptography along, which few files need

    derive_key_id(text)
    return text


def _check_variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("is not the name of an environment variable: letters, digits and `_`, no digit first")
    return text


def _check_header(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError("is not the name of a header")
    return text


def _check_not_ours(text: str) -> str:
    if text.upper().startswith(OUR_PREFIXES):
        raise ValueError("cannot be given to commands: TEMPORAL_…, HOLDFAST_… and OTEL_EXPORTER_… are never inherited")
    return text


def check_reference(text: str) -> str:
    """Check a reference `module:name`."""
    module, colon, name = text.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise ValueError("must be `module:name`, as in `my_package.tools:tools`")
    return text


def _split_words(value: object) -> object:
    """Split a string into words as a shell does. Other values are left to the next validator."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {str(error).lower()}") from None


def _check_program(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0].strip():
        raise ValueError("is empty: it names no program")
    return words


def _resolve_path(value: object, info: ValidationInfo) -> object:
    """Resolve a path relative to the folder of the file, with `~` for a home folder."""
    if not isinstance(value, str):
        return value
    folder = info.context["folder"] if info.context else Path()
    try:
        return Path(folder, Path(_check_filled(_check_text(value))).expanduser())
    except RuntimeError:
        raise ValueError("has an unknown user in `~name`") from None


def check_destination(text: str) -> str:
    """Check a network, or a host with or without a port."""
    from holdfast.config.address_rules import AddressRules  # it brings an HTTP client along, which few files need

    try:
        AddressRules(allow=(text,))
    except ValidationError:
        raise ValueError("must be a host, host:port, or a network as 10.0.0.0/8") from None
    return text


def check_host_name(text: str) -> str:
    """Check a host name or an IP address, without a port."""
    if len(text) > 255 or not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", text):
        raise ValueError("must be the name or the address of a host, without a port")
    return text


def check_listen_address(text: str) -> str:
    """Check a host and a port to listen at; an IPv6 address is in brackets."""
    host, _, port = text.rpartition(":")
    named = host[1:-1] if host.startswith("[") and host.endswith("]") else host if ":" not in host else ""
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        raise ValueError("must be host:port, as in 127.0.0.1:8235")
    try:
        check_host_name(named)
    except ValueError:
        raise ValueError("must be host:port, as in 127.0.0.1:8235 or [::1]:8235") from None
    return text


def check_web_address(text: str) -> str:
    """Check an HTTP URL, or a reference to one."""
    if not re.fullmatch(r"(https?://[^\s/?#]|\$\{)\S*", text):
        raise ValueError("must begin with http:// or https:// and name a host")
    return text


def check_plain_web_address(text: str) -> str:
    """Check an HTTP URL that is not a reference."""
    if "${" in text:
        raise ValueError("must be the address itself, not a reference to one")
    return check_web_address(text)


def check_variable_reference(text: str) -> str:
    """Check a reference to one variable: `${NAME}`."""
    if not re.fullmatch(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", text):
        raise ValueError("is secret, and must be a reference to one variable of the environment, as in ${NAME}")
    return text


def check_secret_reference(text: str) -> str:
    """Check a reference to the environment. The file itself never holds a secret."""
    if not re.fullmatch(r"\$\{[^}]+\}", text):
        raise ValueError("is secret, and must be a reference to the environment, as in ${NAME}")
    return text


def check_glob(text: str) -> str:
    """Check a glob for names of tools."""
    from holdfast.util.globs import Glob  # only here, as above

    Glob(text)
    return text


def check_tool_glob(text: str) -> str:
    """A pattern for names of tools."""
    for name in find_impossible_names(text):
        raise ValueError(f"can never match: no tool can be called {name!r}; a name alone is meant, as in 'shell'")
    return text


def find_impossible_names(pattern: str) -> list[str]:
    """What a pattern spells out and no name of a tool can hold. PatternError for a pattern that cannot be read."""
    from holdfast.util.globs import Glob  # only here, as above

    return [text for text in Glob(pattern).spelled_texts if text and not _TOOL_NAME.fullmatch(text)]


Flag = Annotated[bool, Field(strict=True)]
Word = Annotated[str, AfterValidator(_check_text)]
NonEmpty = Annotated[Word, AfterValidator(_check_filled)]
Name = Annotated[str, AfterValidator(_check_name)]
Variable = Annotated[str, AfterValidator(_check_variable)]
Header = Annotated[str, AfterValidator(_check_header)]
Command = Annotated[tuple[Word, ...], BeforeValidator(_split_words), AfterValidator(_check_program)]
Environment = Mapping[Annotated[Variable, AfterValidator(_check_not_ours)], Word]
SettingPath = Annotated[Path, BeforeValidator(_resolve_path)]
Limit = Annotated[float, Field(strict=True, ge=1, le=3_600)]
"""A time limit in seconds."""


def check_unique(name: str, table: str, info: ValidationInfo) -> str:
    """Check that no other entry of the table has this name."""
    if info.context:
        taken = info.context["names"].setdefault(table, set())
        if name in taken:
            raise ValueError(f"is taken: another [[{table}]] is called {name!r}")
        taken.add(name)
    return name


class BesideTheFile(StrictData):
    """An entry whose paths and commands are relative to the folder of the file."""

    folder: Annotated[Path, Field(exclude=True, validate_default=True)] = Path()
    """The folder of the file. Not a key of the file."""

    @field_validator("folder", mode="before")
    @classmethod
    def _take_file_folder(cls, value: object, info: ValidationInfo) -> object:
        if not info.context:
            return value
        if value != Path():
            raise PydanticCustomError("extra_forbidden", "not a setting")
        return info.context["folder"]
