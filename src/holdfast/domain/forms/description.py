"""Descriptions of form fields for people: title, accepted values, default.

Texts of the form's author are not escaped here: the caller escapes them for its output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import JsonValue

from holdfast.domain.forms.fields import (
    Choice,
    Field,
    find_default,
    find_format,
    find_kind,
    format_number,
    list_choices,
    read_limits,
)
from holdfast.domain.forms.validation import Form, list_fields, list_required

_KINDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def describe_fields(form: Form) -> Iterator[str]:
    """Yield a line for each field, for a person who writes the answer as JSON."""
    needed = list_required(form)
    for name, field in list_fields(form).items():
        title = f" ({called})" if (called := find_title(name, field)) else ""
        about = f". {text}" if (text := find_description(field)) else ""
        yield f"{name}{title}: {describe_wanted(field)}; {_describe_default(field, name in needed)}{about}"


def find_title(name: str, field: Field) -> str:
    """Return the title of a field; empty when it has none, or its name."""
    title = field.get("title")
    return title if isinstance(title, str) and title != name else ""


def find_description(field: Field) -> str:
    """Return the description of a field; empty when it has none."""
    text = field.get("description")
    return text if isinstance(text, str) else ""


def describe_wanted(field: Field, *, asked: bool = False) -> str:
    """Describe the values that a field accepts. `asked`: at a prompt, which lists the choices itself."""
    kind, choices, span = find_kind(field), list_choices(field), _describe_limits(field)
    if kind == "array":
        some = "these" if asked else ", ".join(map(format_choice_title, choices))
        return f"{span or 'any'} of {some}" if choices else f"{span or 'any'} texts"
    if choices:
        return "one of these" if asked else f"one of {', '.join(map(format_choice_title, choices))}"
    if found := find_format(field):
        return found.words
    if kind == "string":
        return f"text of {span} characters" if span else "text"
    if kind == "boolean" and asked:
        return "yes or no"
    return _KINDS.get(kind or "", "anything") + _append_limits(span)


def format_value(field: Field, value: JsonValue, *, asked: bool = False) -> str:
    """Format a value for a person, choices by their titles."""
    titles = {one.value: format_choice_title(one) for one in list_choices(field)}
    if isinstance(value, list):
        return ", ".join(titles.get(str(one), str(one)) for one in value) or "none"
    if isinstance(value, bool) and asked:
        return "yes" if value else "no"
    if isinstance(value, str) and (asked or value in titles):
        return titles.get(value, value)
    return json.dumps(value, ensure_ascii=False)


def format_choice_title(choice: Choice) -> str:
    """Format a choice with its title."""
    return f"{choice.value} ({choice.title})" if choice.title else choice.value


def _describe_default(field: Field, needed: bool) -> str:
    """Describe what happens when an answer leaves a field out."""
    if (default := find_default(field)) is not None:
        return f"default {format_value(field, default)}"
    return "required" if needed else "may be left out"


def _describe_limits(field: Field) -> str:
    """Describe the limits of a field; empty when it has none."""
    least, most = read_limits(field)
    if find_kind(field) in ("string", "array") and least is not None and least <= 0:
        least = None
    if least is not None and most is not None:
        return format_number(least) if least == most else f"{format_number(least)} to {format_number(most)}"
    if least is not None:
        return f"at least {format_number(least)}"
    return f"at most {format_number(most)}" if most is not None else ""


def _append_limits(span: str) -> str:
    """Format limits to follow the name of a kind."""
    if not span:
        return ""
    return f" from {span}" if " to " in span else f", {span}"
