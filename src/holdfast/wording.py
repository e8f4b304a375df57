"""Fields of a form in words: what they are called, what may stand there, and what does if nobody says otherwise.

The words of whoever made the form are repeated as they are: making them harmless is for whoever shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import JsonValue

from holdfast.fields import Choice, Field, choices_of, default_of, format_of, kind_of, limits_of, number
from holdfast.forms import Form, fields_of, required_of

_KINDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}


def described(form: Form) -> Iterator[str]:
    """A line for each field, for whoever writes the answer as JSON."""
    needed = required_of(form)
    for name, field in fields_of(form).items():
        title = f" ({called})" if (called := title_of(name, field)) else ""
        about = f". {told}" if (told := description_of(field)) else ""
        yield f"{name}{title}: {wanted(field)}; {_unsaid(field, name in needed)}{about}"


def title_of(name: str, field: Field) -> str:
    """What a field is called, where that is not its name."""
    title = field.get("title")
    return title if isinstance(title, str) and title != name else ""


def description_of(field: Field) -> str:
    """What a field is about."""
    words = field.get("description")
    return words if isinstance(words, str) else ""


def wanted(field: Field, *, asked: bool = False) -> str:
    """What may stand there. `asked`: it is typed at a prompt, which lists the choices."""
    kind, choices, span = kind_of(field), choices_of(field), _span(field)
    if kind == "array":
        some = "these" if asked else ", ".join(map(called, choices))
        return f"{span or 'any'} of {some}" if choices else f"{span or 'any'} texts"
    if choices:
        return "one of these" if asked else f"one of {', '.join(map(called, choices))}"
    if found := format_of(field):
        return found.words
    if kind == "string":
        return f"text of {span} characters" if span else "text"
    if kind == "boolean" and asked:
        return "yes or no"
    return _KINDS.get(kind or "", "anything") + _range(span)


def shown(field: Field, value: JsonValue, *, asked: bool = False) -> str:
    """A value as a person reads it, its choices by their titles."""
    titles = {one.value: called(one) for one in choices_of(field)}
    if isinstance(value, list):
        return ", ".join(titles.get(str(one), str(one)) for one in value) or "none"
    if isinstance(value, bool) and asked:
        return "yes" if value else "no"
    if isinstance(value, str) and (asked or value in titles):
        return titles.get(value, value)
    return json.dumps(value, ensure_ascii=False)


def called(choice: Choice) -> str:
    """A choice with its title."""
    return f"{choice.value} ({choice.title})" if choice.title else choice.value


def _unsaid(field: Field, needed: bool) -> str:
    """What becomes of a field that an answer does not name."""
    if (default := default_of(field)) is not None:
        return f"default {shown(field, default)}"
    return "required" if needed else "may be left out"


def _span(field: Field) -> str:
    """From where to where, in words; empty when both are open."""
    least, most = limits_of(field)
    if kind_of(field) in ("string", "array") and least is not None and least <= 0:
        least = None
    if least is not None and most is not None:
        return number(least) if least == most else f"{number(least)} to {number(most)}"
    if least is not None:
        return f"at least {number(least)}"
    return f"at most {number(most)}" if most is not None else ""


def _range(span: str) -> str:
    """A span behind what it is a span of."""
    if not span:
        return ""
    return f" from {span}" if " to " in span else f", {span}"
