"""A form that somebody fills in at a terminal, field by field: what they said so far, and what is asked next. Pure.

Nothing that was said is lost: what does not fit is asked again, alone, and everything can be changed until it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from holdfast.fields import Field, choices_of, default_of, kind_of, misfit, typed
from holdfast.forms import Form, fields_of, required_of
from holdfast.wording import called, description_of, shown, title_of, wanted
from holdfast.workers.render import line

LEAVE_OUT = "/none"
CHOICES_SHOWN = 100


@dataclass(frozen=True)
class Filling:
    """How far it is."""

    form: Form
    given: Mapping[str, JsonValue] = field(default_factory=dict)
    """What was said of the fields that were asked; None of those that are left out."""
    again: str | None = None
    """The field that is to be changed."""

    @property
    def name(self) -> str | None:
        """The field that is asked; None when each has been."""
        if self.again is not None:
            return self.again
        return next((name for name in self._fields if name not in self.given), None)

    @property
    def content(self) -> str:
        """The answer, as it is sent: with a null where a default is not wanted."""
        fields = self._fields
        said = {name: value for name, value in self.given.items() if value is not None or _stands(fields[name])}
        return json.dumps(said, ensure_ascii=False)

    def take(self, text: str) -> Filling:
        """With what was typed for the field that is asked; ValueError says why it cannot be that."""
        name = self._asked
        value = self._meant(name, text)
        return replace(self, given={**self.given, name: value}, again=None)

    def back(self) -> Filling:
        """One field back."""
        names = list(self._fields)
        place = names.index(self.name) if self.name is not None else len(names)
        return replace(self, again=names[max(0, place - 1)]) if names else self

    def change(self, which: str) -> Filling:
        """To a field, by its name or number; ValueError when there is none."""
        names = list(self._fields)
        number = int(which) if which.isascii() and which.isdigit() and len(which) < 6 else 0
        found = which if which in names else names[number - 1] if 0 < number <= len(names) else None
        if found is None:
            raise ValueError(f"no field is called {which!r}: an empty line sends the answer")
        return replace(self, again=found)

    def question(self) -> Iterator[str]:
        """The field that is asked, line by line: which, what about, what may stand there, what an empty line does."""
        name = self._asked
        asked, names = self._fields[name], list(self._fields)
        needed = ", required" if name in required_of(self.form) else ""
        yield f"({names.index(name) + 1} of {len(names)}) {line(name, 100)}{needed}"
        about = [title_of(name, asked), description_of(asked)]
        yield from (f"  {line(words, 1_000)}" for words in about if words)
        yield from _listed(asked)
        yield f"  {line('; '.join((_wanted(asked), *self._empty(name))), 500)}"

    def review(self) -> Iterator[str]:
        """All that was said, line by line."""
        for number, (name, asked) in enumerate(self._fields.items(), start=1):
            value = self.given.get(name)
            words = "left out" if value is None else shown(asked, value, asked=True)
            yield f"  {number}. {line(name, 100)}: {line(words, 500)}"

    @property
    def _fields(self) -> dict[str, Field]:
        return fields_of(self.form)

    @property
    def _asked(self) -> str:
        assert self.name is not None, "a field is asked"
        return self.name

    def _meant(self, name: str, text: str) -> JsonValue:
        asked, needed = self._fields[name], name in required_of(self.form)
        if text.strip() == LEAVE_OUT or (not text.strip() and self._unsaid(name) is None):
            if needed:
                raise ValueError("is required")
            return None
        value = typed(asked, text) if text.strip() else self._unsaid(name)
        if complaint := misfit(asked, value):
            raise ValueError(f"must be {_wanted(asked)}" if _is_listed(asked) else complaint)
        return value

    def _unsaid(self, name: str) -> JsonValue:
        """What an empty line stands for: what was said before, or the default; None for nothing."""
        return self.given[name] if name in self.given else default_of(self._fields[name])

    def _empty(self, name: str) -> Iterator[str]:
        asked, value, needed = self._fields[name], self._unsaid(name), name in required_of(self.form)
        if value is not None:
            words = line(shown(asked, value, asked=True), 200)
            yield f"an empty line {'keeps' if name in self.given else 'takes'} {words}"
            if not needed:
                yield f"{LEAVE_OUT} leaves it out"
        elif not needed:
            yield "an empty line leaves it out"


def _stands(asked: Field) -> bool:
    """Would something stand there if nothing were said?"""
    return default_of(asked) is not None


def _is_listed(asked: Field) -> bool:
    """Does what stands above the prompt say all that may be typed?"""
    return kind_of(asked) == "boolean" or (kind_of(asked) == "string" and bool(choices_of(asked)))


def _listed(asked: Field) -> Iterator[str]:
    """Its choices, numbered."""
    choices = choices_of(asked)
    for number, choice in enumerate(choices[:CHOICES_SHOWN], start=1):
        yield f"  {number}. {line(called(choice), 200)}"
    if len(choices) > CHOICES_SHOWN:
        yield f"  … and {len(choices) - CHOICES_SHOWN:,} more"


def _wanted(asked: Field) -> str:
    several = kind_of(asked) == "array"
    how = ", by numbers or words with commas between them" if several else ", by number or in words"
    return wanted(asked, asked=True) + (how if choices_of(asked) else ", with commas between them" if several else "")
