"""Validation of answers to questions: against the options, or against the fields of a form.

A form has the schema of MCP's elicitation: an object whose properties are single values or choices. An answer is a JSON
object; for a form with one field it may be the value of that field. A field that the answer leaves out gets the default
of the form, if any; a field that is `null` in the answer stays out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pydantic import JsonValue

from holdfast.domain.forms.fields import (
    Field,
    explain_misfit,
    find_default,
    find_kind,
    normalise_value,
    parse_json,
    parse_typed,
)
from holdfast.util.text import shorten_text

NAMES_SHOWN = 20
Form = Mapping[str, JsonValue]


def parse_answer(form: Form, text: str) -> dict[str, JsonValue]:
    """Parse an answer from text. ValueError with every way in which it does not fit the form."""
    answer = _complete_answer(form, _read_answer(form, text))
    if found := list(find_problems(form, answer)):
        raise ValueError(shorten_text("; ".join(found[:20]), 4_000))
    return answer


def find_option(options: Sequence[str], text: str) -> str | None:
    """Find the option that a text means, ignoring case and outer space; None when there is none."""
    typed = text.strip().casefold()
    return next((option for option in options if option.strip().casefold() == typed), None)


def find_problems(form: Form, answer: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield each way in which an answer does not fit the form."""
    fields = list_fields(form)
    known = ", ".join(repr(shorten_text(name, 100)) for name in islice(fields, NAMES_SHOWN)) or "none"
    for name in answer:
        if name not in fields:
            yield f"{shorten_text(name, 100)!r} is not a field of the form (the fields are: {known})"
    for name in list_required(form):
        if name not in answer:
            yield f"{name!r} is missing"
    for name, field in fields.items():
        if name in answer and (complaint := explain_misfit(field, answer[name])):
            yield f"{name!r} {complaint}"


def list_fields(form: Form) -> dict[str, Field]:
    """Return the fields by name, in order."""
    found = form.get("properties")
    fields = found.items() if isinstance(found, Mapping) else ()
    return {name: field for name, field in fields if isinstance(field, Mapping)}


def list_required(form: Form) -> tuple[str, ...]:
    """List the names of the required fields."""
    found = form.get("required")
    fields = list_fields(form)
    return tuple(name for name in found if isinstance(name, str) and name in fields) if isinstance(found, list) else ()


def _complete_answer(form: Form, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Add defaults for the fields that an answer leaves out, and remove those that are `null`."""
    fields = list_fields(form)
    answer: dict[str, JsonValue] = {}
    for name, field in fields.items():
        value = normalise_value(field, given[name]) if name in given else find_default(field)
        if value is not None or (name in given and find_kind(field) is None):
            answer[name] = value
    return answer | {name: value for name, value in given.items() if name not in fields}


def _read_answer(form: Form, text: str) -> dict[str, JsonValue]:
    found = parse_json(text)
    if isinstance(found, dict):
        return found
    fields = list_fields(form)
    if len(fields) != 1:
        example = json.dumps(dict.fromkeys(fields, "…"), ensure_ascii=False)
        raise ValueError(f"the answer must be a JSON object with the fields asked for, as {shorten_text(example, 300)}")
    [(name, field)] = fields.items()
    return {name: parse_typed(field, text)}
