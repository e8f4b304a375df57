"""Answers to questions: whether one is an option that was offered, or fits a form that asks for fields.

The schema of a form is that of MCP's elicitation: an object whose properties are single values, or choices of some. An
answer is an object of JSON, or text in its place: for a form with one field, the value of that field. What an answer
does not name has its default, if the form gives one; what it says to be `null` is left out all the same.
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
    """The answer that somebody gave as text; ValueError with every way in which it does not fit."""
    answer = _complete_answer(form, _read_answer(form, text))
    if found := list(find_problems(form, answer)):
        raise ValueError(shorten_text("; ".join(found[:20]), 4_000))
    return answer


def find_option(options: Sequence[str], text: str) -> str | None:
    """The option that a text means, whatever its case and the space around it; None when it is none of them."""
    words = text.strip().casefold()
    return next((option for option in options if option.strip().casefold() == words), None)


def find_problems(form: Form, answer: Mapping[str, JsonValue]) -> Iterator[str]:
    """Each way in which an answer does not fit."""
    fields = list_fields(form)
    known = ", ".join(repr(shorten_text(name, 100)) for name in islice(fields, NAMES_SHOWN)) or "none"
    for name in answer:
        if name not in fields:
            yield f"{shorten_text(name, 100)!r} is not asked for (the fields are: {known})"
    for name in list_required(form):
        if name not in answer:
            yield f"{name!r} is missing"
    for name, field in fields.items():
        if name in answer and (complaint := explain_misfit(field, answer[name])):
            yield f"{name!r} {complaint}"


def list_fields(form: Form) -> dict[str, Field]:
    """The fields, in order."""
    found = form.get("properties")
    fields = found.items() if isinstance(found, Mapping) else ()
    return {name: field for name, field in fields if isinstance(field, Mapping)}


def list_required(form: Form) -> tuple[str, ...]:
    """The fields that an answer must have."""
    found = form.get("required")
    fields = list_fields(form)
    return tuple(name for name in found if isinstance(name, str) and name in fields) if isinstance(found, list) else ()


def _complete_answer(form: Form, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """An answer with the defaults of what it does not name, and without what it says to leave out."""
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
