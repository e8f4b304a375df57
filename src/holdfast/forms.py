"""Forms: what a question may ask for field by field, and whether an answer fits.

The schema is that of MCP's elicitation: an object whose properties are single values, or choices of some. What it says
beyond that is not looked at. An answer is an object of JSON, or text in its place: for a form with one field, the value
of that field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import JsonValue

from holdfast.content import shorten

NUMBER_LIMIT = 1e300
"""More is no number to most programs."""
NAMES_SHOWN = 20
Form = Mapping[str, JsonValue]
_SPOKEN = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


def answer_of(form: Form, text: str) -> dict[str, JsonValue]:
    """The answer that somebody gave as text; ValueError with every way in which it does not fit."""
    answer = _read(form, text)
    if found := list(problems(form, answer)):
        raise ValueError(shorten("; ".join(found[:20]), 4_000))
    return answer


def problems(form: Form, answer: Mapping[str, JsonValue]) -> Iterator[str]:
    """Each way in which an answer does not fit."""
    fields = fields_of(form)
    known = ", ".join(repr(shorten(name, 100)) for name in islice(fields, NAMES_SHOWN)) or "none"
    for name in answer:
        if name not in fields:
            yield f"{shorten(name, 100)!r} is not asked for (the fields are: {known})"
    for name in _required(form):
        if name not in answer:
            yield f"{name!r} is missing"
    for name, field in fields.items():
        if name in answer and (complaint := _misfit(field, answer[name])):
            yield f"{name!r} {complaint}"


def fields_of(form: Form) -> dict[str, Mapping[str, Any]]:
    """The fields, in order."""
    found = form.get("properties")
    fields = found.items() if isinstance(found, Mapping) else ()
    return {name: field for name, field in fields if isinstance(field, Mapping)}


def described(form: Form) -> Iterator[str]:
    """A line for each field: its name, what it is, and what may stand there."""
    needed = _required(form)
    for name, field in fields_of(form).items():
        title = field.get("title")
        words = f" ({title})" if isinstance(title, str) and title != name else ""
        told = field.get("description")
        optional = "" if name in needed else ", may be left out"
        yield f"{name}{words}: {_kind(field)}{optional}{f'. {told}' if isinstance(told, str) else ''}"


def typed(field: Mapping[str, Any], text: str) -> JsonValue:
    """What somebody means who typed this for a field: text as it is, choices by commas, the rest as JSON."""
    kind = field.get("type")
    if kind == "string":
        return text
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind == "boolean" and text.strip().casefold() in _SPOKEN:
        return _SPOKEN[text.strip().casefold()]
    try:
        found: JsonValue = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    return found


def _read(form: Form, text: str) -> dict[str, JsonValue]:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        found = text
    if isinstance(found, dict):
        return found
    fields = fields_of(form)
    if len(fields) != 1:
        example = json.dumps(dict.fromkeys(fields, "…"), ensure_ascii=False)
        raise ValueError(f"the answer must be a JSON object with the fields asked for, as {shorten(example, 300)}")
    [(name, field)] = fields.items()
    return {name: text if field.get("type") == "string" else found}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _required(form: Form) -> tuple[str, ...]:
    found = form.get("required")
    fields = fields_of(form)
    return tuple(name for name in found if isinstance(name, str) and name in fields) if isinstance(found, list) else ()


def _misfit(field: Mapping[str, Any], value: JsonValue) -> str | None:
    match field.get("type"):
        case "string":
            return _misfit_text(field, value)
        case "boolean":
            return None if isinstance(value, bool) else "must be true or false"
        case "integer" | "number" as kind:
            return _misfit_number(field, value, whole=kind == "integer")
        case "array":
            return _misfit_choices(field, value)
    return None


def _misfit_text(field: Mapping[str, Any], value: JsonValue) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    options = _options(field)
    if options and value not in options:
        return f"must be one of {', '.join(map(repr, options))}"
    least, most = _limit(field, "minLength"), _limit(field, "maxLength")
    if least is not None and len(value) < least:
        return f"must have at least {least:g} characters"
    if most is not None and len(value) > most:
        return f"must have at most {most:g} characters"
    return None


def _misfit_number(field: Mapping[str, Any], value: JsonValue, *, whole: bool) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= NUMBER_LIMIT:
        return f"must be a number, and at most {NUMBER_LIMIT:g}"
    if whole and value != int(value):
        return "must be a whole number"
    least, most = _limit(field, "minimum"), _limit(field, "maximum")
    if least is not None and value < least:
        return f"must be at least {least:g}"
    if most is not None and value > most:
        return f"must be at most {most:g}"
    return None


def _misfit_choices(field: Mapping[str, Any], value: JsonValue) -> str | None:
    items = field.get("items")
    options = _options(items) if isinstance(items, Mapping) else ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return "must be a list of texts"
    if options and (others := [one for one in value if one not in options]):
        return f"must hold only {', '.join(map(repr, options))}, and not {others[0]!r}"
    least, most = _limit(field, "minItems"), _limit(field, "maxItems")
    if least is not None and len(value) < least:
        return f"must hold at least {least:g}"
    if most is not None and len(value) > most:
        return f"must hold at most {most:g}"
    return None


def _options(field: Mapping[str, Any]) -> tuple[str, ...]:
    """What may be chosen: plain, or each with a title."""
    plain = field.get("enum")
    titled = field.get("oneOf") or field.get("anyOf")
    if isinstance(plain, list):
        return tuple(option for option in plain if isinstance(option, str))
    if isinstance(titled, list):
        return tuple(one["const"] for one in titled if isinstance(one, Mapping) and isinstance(one.get("const"), str))
    return ()


def _limit(field: Mapping[str, Any], name: str) -> float | None:
    value = field.get(name)
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= NUMBER_LIMIT
    return float(value) if number and value is not None else None


def _kind(field: Mapping[str, Any]) -> str:
    items = field.get("items")
    if options := _options(field):
        return f"one of {', '.join(options)}"
    if isinstance(items, Mapping):
        return f"any of {', '.join(_options(items))}"
    kind = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
    return kind.get(str(field.get("type")), "anything")
