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

from holdfast.content import shorten
from holdfast.fields import Field, default_of, exact, kind_of, misfit, read_json, typed

CHECKS = 2
"""The rules by which answers are checked now. A question carries those that it was asked by: whether an answer counts
is part of a turn, and must be the same whenever its history is replayed. 0 knows no formats and no defaults; below 2 an
answer names the digest of the call that asks, and not one of the question itself."""
BOUND_TO_QUESTION = 2
NAMES_SHOWN = 20
Form = Mapping[str, JsonValue]


def answer_of(form: Form, text: str, checks: int = CHECKS) -> dict[str, JsonValue]:
    """The answer that somebody gave as text; ValueError with every way in which it does not fit."""
    answer = _read(form, text, checks)
    answer = _completed(form, answer) if checks else answer
    if found := list(problems(form, answer, checks)):
        raise ValueError(shorten("; ".join(found[:20]), 4_000))
    return answer


def option_of(options: Sequence[str], text: str, checks: int = CHECKS) -> str | None:
    """The option that a text means, whatever its case and the space around it; None when it is none of them."""
    if not checks:
        return text if text in options else None
    words = text.strip().casefold()
    return next((option for option in options if option.strip().casefold() == words), None)


def problems(form: Form, answer: Mapping[str, JsonValue], checks: int = CHECKS) -> Iterator[str]:
    """Each way in which an answer does not fit."""
    fields = fields_of(form)
    known = ", ".join(repr(shorten(name, 100)) for name in islice(fields, NAMES_SHOWN)) or "none"
    for name in answer:
        if name not in fields:
            yield f"{shorten(name, 100)!r} is not asked for (the fields are: {known})"
    for name in required_of(form):
        if name not in answer:
            yield f"{name!r} is missing"
    for name, field in fields.items():
        if name in answer and (complaint := misfit(field, answer[name], strict=checks > 0)):
            yield f"{name!r} {complaint}"


def fields_of(form: Form) -> dict[str, Field]:
    """The fields, in order."""
    found = form.get("properties")
    fields = found.items() if isinstance(found, Mapping) else ()
    return {name: field for name, field in fields if isinstance(field, Mapping)}


def required_of(form: Form) -> tuple[str, ...]:
    """The fields that an answer must have."""
    found = form.get("required")
    fields = fields_of(form)
    return tuple(name for name in found if isinstance(name, str) and name in fields) if isinstance(found, list) else ()


def _completed(form: Form, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """An answer with the defaults of what it does not name, and without what it says to leave out."""
    fields = fields_of(form)
    answer: dict[str, JsonValue] = {}
    for name, field in fields.items():
        value = exact(field, given[name]) if name in given else default_of(field)
        if value is not None or (name in given and kind_of(field) is None):
            answer[name] = value
    return answer | {name: value for name, value in given.items() if name not in fields}


def _read(form: Form, text: str, checks: int) -> dict[str, JsonValue]:
    found = read_json(text)
    if isinstance(found, dict):
        return found
    fields = fields_of(form)
    if len(fields) != 1:
        example = json.dumps(dict.fromkeys(fields, "…"), ensure_ascii=False)
        raise ValueError(f"the answer must be a JSON object with the fields asked for, as {shorten(example, 300)}")
    [(name, field)] = fields.items()
    if checks:
        return {name: typed(field, text)}
    return {name: text if field.get("type") == "string" else found}
