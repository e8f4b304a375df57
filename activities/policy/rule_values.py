"""The types of the values in a rule of a policy file, each with the check of its text (docs/reference/policy.md)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from holdfast.activities.policy.command_phrases import parse_phrase
from holdfast.activities.policy.patterns import Expression, HostPattern, explain_unfit_value
from holdfast.util.durations import parse_duration
from holdfast.util.globs import Glob, PathPattern
from holdfast.util.text import drop_surrogates, escape_controls

MAX_ALTERNATIVES = 1_000
"""Entries of one condition."""
NAME_LIMIT, REASON_LIMIT, MESSAGE_LIMIT = 100, 1_000, 4_000


def _wrap_single(value: object) -> object:
    """A text stands for a list of one text."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError("must be text, or an array of texts")
    if not value:
        raise ValueError("must not be empty: it would match nothing")
    if len(value) > MAX_ALTERNATIVES:
        raise ValueError(f"has over {MAX_ALTERNATIVES:,} entries")
    return value


def _translate_false(value: object) -> object:
    """`false` becomes the empty name: a tool of no server."""
    if value is False:
        return ("",)
    if value == "" or (isinstance(value, list) and "" in value):
        raise ValueError("is empty: say `false` for tools of no server")
    return _wrap_single(value)


def _check_server(text: str) -> str:
    Glob(text)
    return text


def _build_check(read: Callable[[str], object]) -> AfterValidator:
    def check_text(text: str) -> str:
        if not text.strip():
            raise ValueError("is empty")
        read(text)
        return text

    return AfterValidator(check_text)


def _check_path(text: str) -> None:
    """ValueError for a pattern that can match no normalised path."""
    PathPattern(text)
    names = text.removeprefix("/").split("/")
    if text != "." and ("." in names or "" in names):
        raise ValueError(f"{text!r} matches nothing: leave out `./` and empty names, and end a folder in `/**`")
    climbing = len(names) - len([name for name in names if name != ".."])
    if names[:climbing] != [".."] * climbing or (climbing and text.startswith("/")):
        raise ValueError(f"{text!r} matches nothing: paths of calls are without `..`, save at the start of one outside")


def _check_true(value: object) -> object:
    if value is False:
        raise ValueError("can only be true: leave it out otherwise")
    return value


def _check_name(text: str) -> str:
    if not text.strip() or len(text) > NAME_LIMIT or escape_controls(text) != text or "\n" in text:
        raise ValueError(f"must be one line of 1 to {NAME_LIMIT} characters, all of them visible")
    return text


def _check_harmless(text: str) -> str:
    """Escape what must not reach a terminal."""
    return escape_controls(drop_surrogates(text))


def _parse_moment(value: object) -> object:
    """A date means the end of that day, in UTC."""
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


def _check_filled(value: object) -> object:
    if value == {}:
        raise ValueError("must not be empty")
    return value


def _check_json(value: object) -> object:
    if isinstance(value, dict) and (complaint := explain_unfit_value(value)):
        raise ValueError(complaint)
    return value


def _check_expressions(value: dict[str, Any]) -> dict[str, Any]:
    for name, pattern in value.items():
        if isinstance(pattern, dict):
            _check_expressions(pattern)
        elif not isinstance(pattern, str):
            raise ValueError("holds something that is no regular expression in text")
        else:
            try:
                Expression(pattern)
            except ValueError as error:
                raise ValueError(f"{name!r} {error}") from None
    return value


def _check_duration(text: str) -> str:
    parse_duration(text)
    return text


Flag = Annotated[bool, Field(strict=True)]
OnlyTrue = Annotated[bool, BeforeValidator(_check_true), Field(strict=True)]
SingleOrList = BeforeValidator(_wrap_single)
Names = Annotated[tuple[Annotated[str, _build_check(Glob)], ...], SingleOrList]
Servers = Annotated[tuple[Annotated[str, AfterValidator(_check_server)], ...], BeforeValidator(_translate_false)]
Paths = Annotated[tuple[Annotated[str, _build_check(_check_path)], ...], SingleOrList]
Hosts = Annotated[tuple[Annotated[str, _build_check(HostPattern)], ...], SingleOrList]
Commands = Annotated[tuple[Annotated[str, _build_check(parse_phrase)], ...], SingleOrList]
Arguments = Annotated[dict[str, Any], BeforeValidator(_check_json)]
Table = Annotated[Arguments, BeforeValidator(_check_filled)]
SafeText = Annotated[str, AfterValidator(_check_harmless)]
ShortName = Annotated[str, AfterValidator(_check_name)]
Moment = Annotated[datetime, BeforeValidator(_parse_moment)]
Patterns = Annotated[Table, AfterValidator(_check_expressions)]
Duration = Annotated[str, AfterValidator(_check_duration)]
Reason = Annotated[SafeText, Field(max_length=REASON_LIMIT)]
LongText = Annotated[SafeText, Field(max_length=MESSAGE_LIMIT)]
