"""A form that is filled in at a terminal, field by field: the values so far, and the field that is asked next. Pure.

An invalid value is asked for again without losing the others, and every value can be changed until the form is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from holdfast.domain.forms.description import (
    describe_wanted,
    find_description,
    find_title,
    format_choice_title,
    format_value,
)
from holdfast.domain.forms.fields import Field, explain_misfit, find_default, find_kind, list_choices, parse_typed
from holdfast.domain.forms.validation import Form, list_fields, list_required
from holdfast.workers.terminal.render import format_line

LEAVE_OUT = "/none"
CHOICES_SHOWN = 100


@dataclass(frozen=True)
class FormDraft:
    """A form and the values that were typed so far."""

    form: Form
    given: Mapping[str, JsonValue] = field(default_factory=dict)
    """The values of the fields that were asked; None for an omitted one."""
    again: str | None = None
    """The field that is to be changed."""

    @property
    def name(self) -> str | None:
        """The field that is asked; None when all have been."""
        if self.again is not None:
            return self.again
        return next((name for name in self._fields if name not in self.given), None)

    @property
    def content(self) -> str:
        """The answer as it is sent, with null for an omitted field that has a default."""
        fields = self._fields
        values = {name: value for name, value in self.given.items() if value is not None or _has_default(fields[name])}
        return json.dumps(values, ensure_ascii=False)

    def take_text(self, text: str) -> FormDraft:
        """The draft with a value for the field that is asked; ValueError for an invalid text."""
        name = self._asked_field
        value = self._parse_value(name, text)
        return replace(self, given={**self.given, name: value}, again=None)

    def step_back(self) -> FormDraft:
        """The draft that asks for the field before."""
        names = list(self._fields)
        place = names.index(self.name) if self.name is not None else len(names)
        return replace(self, again=names[max(0, place - 1)]) if names else self

    def change_field(self, which: str) -> FormDraft:
        """The draft that asks for a field, by its name or number; ValueError when there is none."""
        names = list(self._fields)
        number = int(which) if which.isascii() and which.isdigit() and len(which) < 6 else 0
        found = which if which in names else names[number - 1] if 0 < number <= len(names) else None
        if found is None:
            raise ValueError(f"no field is called {which!r}: an empty line sends the answer")
        return replace(self, again=found)

    def format_question(self) -> Iterator[str]:
        """The field that is asked, line by line: its name, description, choices, type, and what an empty line does."""
        name = self._asked_field
        asked, names = self._fields[name], list(self._fields)
        needed = ", required" if name in list_required(self.form) else ""
        yield f"({names.index(name) + 1} of {len(names)}) {format_line(name, 100)}{needed}"
        about = [find_title(name, asked), find_description(asked)]
        yield from (f"  {format_line(words, 1_000)}" for words in about if words)
        yield from _list_choices(asked)
        yield f"  {format_line('; '.join((_describe_kind(asked), *self._describe_empty(name))), 500)}"

    def format_review(self) -> Iterator[str]:
        """All values, line by line."""
        for number, (name, asked) in enumerate(self._fields.items(), start=1):
            value = self.given.get(name)
            words = "left out" if value is None else format_value(asked, value, asked=True)
            yield f"  {number}. {format_line(name, 100)}: {format_line(words, 500)}"

    @property
    def _fields(self) -> dict[str, Field]:
        return list_fields(self.form)

    @property
    def _asked_field(self) -> str:
        assert self.name is not None, "a field is asked"
        return self.name

    def _parse_value(self, name: str, text: str) -> JsonValue:
        asked, needed = self._fields[name], name in list_required(self.form)
        if text.strip() == LEAVE_OUT or (not text.strip() and self._find_fallback(name) is None):
            if needed:
                raise ValueError("is required")
            return None
        value = parse_typed(asked, text) if text.strip() else self._find_fallback(name)
        if complaint := explain_misfit(asked, value):
            raise ValueError(f"must be {_describe_kind(asked)}" if _is_listed(asked) else complaint)
        return value

    def _find_fallback(self, name: str) -> JsonValue:
        """The value of an empty line: the earlier value, or the default; None without either."""
        return self.given[name] if name in self.given else find_default(self._fields[name])

    def _describe_empty(self, name: str) -> Iterator[str]:
        asked, value, needed = self._fields[name], self._find_fallback(name), name in list_required(self.form)
        if value is not None:
            words = format_line(format_value(asked, value, asked=True), 200)
            yield f"an empty line {'keeps' if name in self.given else 'takes'} {words}"
            if not needed:
                yield f"{LEAVE_OUT} leaves it out"
        elif not needed:
            yield "an empty line leaves it out"


def _has_default(asked: Field) -> bool:
    """Whether the field has a default."""
    return find_default(asked) is not None


def _is_listed(asked: Field) -> bool:
    """Whether the lines above the prompt list all valid values."""
    return find_kind(asked) == "boolean" or (find_kind(asked) == "string" and bool(list_choices(asked)))


def _list_choices(asked: Field) -> Iterator[str]:
    """Its choices, numbered."""
    choices = list_choices(asked)
    for number, choice in enumerate(choices[:CHOICES_SHOWN], start=1):
        yield f"  {number}. {format_line(format_choice_title(choice), 200)}"
    if len(choices) > CHOICES_SHOWN:
        yield f"  … and {len(choices) - CHOICES_SHOWN:,} more"


def _describe_kind(asked: Field) -> str:
    several = find_kind(asked) == "array"
    how = ", by numbers or words with commas between them" if several else ", by number or in words"
    return describe_wanted(asked, asked=True) + (
        how if list_choices(asked) else ", with commas between them" if several else ""
    )
