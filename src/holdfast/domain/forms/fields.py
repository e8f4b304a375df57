"""The fields of a form, and the formats of their values.

A field is a JSON schema of MCP's elicitation: a text, a number, a boolean, or a choice of one or several texts. It
comes from a server, so every part may be malformed. Other keywords are ignored.

The checks help the person who types: they refuse clear mistakes, and the server checks again. Every pattern runs in
linear time, as the checks run in a workflow task.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, time
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

from pydantic import JsonValue

MAIL_LIMIT = 254
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}"
_MOMENT = re.compile(rf"({_DATE})[Tt]({_CLOCK}):([0-9]{{2}})(?:\.[0-9]+)?(?:[Zz]|[+-]({_CLOCK}))")
_LABEL = r"[^\W_](?:[^\W_]|-)*"
_MAIL = re.compile(rf"[^\s@.,:;<>()\[\]\\\"]+(?:\.[^\s@.,:;<>()\[\]\\\"]+)*@{_LABEL}(?:\.{_LABEL})+")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):([^\x00-\x20\x7f\s<>\"{}|\\^`]+)")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"//(?:[^/?#@]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::[0-9]{0,5})?(?:[/?#].*)?")
_WEB = ("http", "https", "ws", "wss", "ftp")
"""Schemes of addresses that name a host."""


class Format(NamedTuple):
    """The format of a text."""

    words: str
    """A description with an example."""
    fits: Callable[[str], bool]


def _is_date(text: str) -> bool:
    if not re.fullmatch(_DATE, text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_moment(text: str) -> bool:
    found = _MOMENT.fullmatch(text)
    if found is None or not _is_date(found[1]):
        return False
    try:
        time.fromisoformat(found[2])
        time.fromisoformat(found[4] or "00:00")
    except ValueError:
        return False
    return int(found[3]) <= 60  # a leap second is one


def _is_mail(text: str) -> bool:
    if len(text) > MAIL_LIMIT or not _MAIL.fullmatch(text):
        return False
    return not any(label.endswith("-") for label in text.rpartition("@")[2].split("."))


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    if found is None or _BAD_ESCAPE.search(text):
        return False
    return found[1].lower() not in _WEB or _HOST.fullmatch(found[2]) is not None


FORMATS = {
    "date": Format("a date, as 2026-05-31", _is_date),
    "date-time": Format("a date with its time and zone, as 2026-05-31T14:30:00Z", _is_moment),
    "email": Format("a mail address, as ana@example.org", _is_mail),
    "uri": Format("an address, as https://example.org/page", _is_address),
}
"""The formats of MCP's elicitation. Others are ignored."""


Field = Mapping[str, Any]
NUMBER_LIMIT = 1e300
"""The largest number that is accepted: most programs read larger ones as infinity."""
KINDS = ("string", "integer", "number", "boolean", "array")
_BOOLEAN_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class Choice(NamedTuple):
    """One of the texts to choose from, and its title."""

    value: str
    title: str | None = None


class Limits(NamedTuple):
    """The bounds of a field; None for no bound."""

    least: float | None
    most: float | None


def find_kind(field: Field) -> str | None:
    """Return one of KINDS; None for a field that accepts any value."""
    kind = field.get("type")
    if kind is None and _read_choices(field):
        return "string"
    return kind if isinstance(kind, str) and kind in KINDS else None


def list_choices(field: Field) -> tuple[Choice, ...]:
    """List the choices of a field."""
    items = field.get("items")
    return _read_choices(items) if find_kind(field) == "array" and isinstance(items, Mapping) else _read_choices(field)


def read_limits(field: Field) -> Limits:
    """Read the bounds of a number, of the length of a text, or of the number of choices."""
    names = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
    least, most = names.get(find_kind(field) or "", ("minimum", "maximum"))
    return Limits(_read_limit(field, least), _read_limit(field, most))


def find_format(field: Field) -> Format | None:
    """Return the format of a text field, if it is one of FORMATS."""
    named = field.get("format")
    return FORMATS.get(named) if isinstance(named, str) and find_kind(field) == "string" else None


def find_default(field: Field) -> JsonValue:
    """Return the default of a field; None when it has none, or an invalid one."""
    value: JsonValue = field.get("default")
    if value is None or explain_misfit(field, value) or not _is_json_value(value):
        return None
    return normalise_value(field, value)


def _is_json_value(value: JsonValue) -> bool:
    """Can strict JSON express it?"""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def normalise_value(field: Field, value: JsonValue) -> JsonValue:
    """Convert a valid value to the type of the field: 7.0 becomes the integer 7."""
    if find_kind(field) == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def parse_typed(field: Field, text: str) -> JsonValue:
    """Parse what a person typed: a choice by its value, number or title, other values as JSON, else as text."""
    kind, choices = find_kind(field), list_choices(field)
    if kind == "array":
        return _parse_choices(choices, text)
    if kind == "string":
        found = _find_choice(choices, text)
        return found if found is not None else text.strip() if find_format(field) else text
    if kind == "boolean" and text.strip().casefold() in _BOOLEAN_WORDS:
        return _BOOLEAN_WORDS[text.strip().casefold()]
    return parse_json(text)


def explain_misfit(field: Field, value: JsonValue) -> str | None:
    """Describe why a value is invalid, to follow the name of the field; None when it is valid."""
    kind = find_kind(field)
    match kind:
        case "string":
            return _explain_text(field, value)
        case "boolean":
            return None if isinstance(value, bool) else "must be true or false"
        case "integer" | "number":
            return _explain_number(field, value, whole=kind == "integer")
        case "array":
            return _explain_choices(field, value)
    return None


def parse_json(text: str) -> JsonValue:
    """Parse a text as JSON; return the text itself when it is not JSON."""
    try:
        found: JsonValue = json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_finite)
    except (ValueError, RecursionError):
        return text
    return found


def format_number(value: float) -> str:
    """Format a number for people."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"


def format_choice(choice: Choice) -> str:
    """Format a choice in quotes, with its title."""
    return f"{choice.value!r} ({choice.title})" if choice.title else repr(choice.value)


def _parse_choices(choices: tuple[Choice, ...], text: str) -> JsonValue:
    if (whole := _find_choice(choices, text)) is not None:
        return [whole]
    if isinstance(found := parse_json(text), list):
        return found
    parts = [part.strip() for part in text.split(",") if part.strip()]
    chosen = ((part, _find_choice(choices, part)) for part in parts)
    return list(dict.fromkeys(part if one is None else one for part, one in chosen))


def _find_choice(choices: tuple[Choice, ...], text: str) -> str | None:
    """Find the choice that a person typed. A number that is itself a value is that value, not a position."""
    typed = text.strip()
    for value, _ in choices:
        if value in (text, typed):
            return value
    if typed.isascii() and typed.isdigit() and len(typed) < 6 and 0 < int(typed) <= len(choices):
        return choices[int(typed) - 1].value
    found = [one.value for one in choices if typed.casefold() in (one.value.casefold(), (one.title or "").casefold())]
    return found[0] if len(found) == 1 and typed else None


def _explain_text(field: Field, value: JsonValue) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    choices = list_choices(field)
    if choices and value not in {one.value for one in choices}:
        return f"must be one of {', '.join(map(format_choice, choices))}"
    least, most = read_limits(field)
    if least is not None and len(value) < least:
        return f"must have at least {_format_characters(least)}"
    if most is not None and len(value) > most:
        return f"must have at most {_format_characters(most)}"
    wanted = find_format(field)
    return f"must be {wanted.words}" if wanted and not wanted.fits(value) else None


def _explain_number(field: Field, value: JsonValue, *, whole: bool) -> str | None:
    wanted = "must be a whole number" if whole else "must be a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wanted
    if not abs(value) <= NUMBER_LIMIT:
        return "is too large a number"
    if whole and value != int(value):
        return wanted
    least, most = read_limits(field)
    if least is not None and value < least:
        return f"must be at least {format_number(least)}"
    if most is not None and value > most:
        return f"must be at most {format_number(most)}"
    return None


def _explain_choices(field: Field, value: JsonValue) -> str | None:
    choices = list_choices(field)
    known = {one.value for one in choices}
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return "must be a list of texts"
    if choices and (others := [one for one in value if one not in known]):
        return f"must hold only {', '.join(map(format_choice, choices))}, and not {others[0]!r}"
    least, most = read_limits(field)
    if least is not None and len(value) < least:
        return f"must hold at least {format_number(least)}"
    if most is not None and len(value) > most:
        return f"must hold at most {format_number(most)}"
    return None


def _read_choices(field: Field) -> tuple[Choice, ...]:
    """Read choices from `enum`, with titles in `enumNames`, or from `oneOf` and `anyOf` with titles of their own."""
    plain, titled = field.get("enum"), field.get("oneOf") or field.get("anyOf")
    if isinstance(plain, list):
        titles = field.get("enumNames")
        pairs = zip_longest(plain, titles[: len(plain)] if isinstance(titles, list) else ())
        return tuple(Choice(value, _find_title(title, value)) for value, title in pairs if isinstance(value, str))
    if isinstance(titled, list):
        found = ((one.get("const"), one.get("title")) for one in titled if isinstance(one, Mapping))
        return tuple(Choice(value, _find_title(title, value)) for value, title in found if isinstance(value, str))
    return ()


def _find_title(title: object, value: object) -> str | None:
    return title if isinstance(title, str) and title and title != value else None


def _read_limit(field: Field, name: str) -> float | None:
    value = field.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= NUMBER_LIMIT
    return float(value) if is_number and value is not None else None


def _format_characters(count: float) -> str:
    return f"{format_number(count)} character{'' if count == 1 else 's'}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    """Parse a number. ValueError for one that overflows, such as `1e999`."""
    value = float(text)
    return value if math.isfinite(value) else _refuse_constant(text)
