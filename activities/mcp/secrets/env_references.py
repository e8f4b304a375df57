"""References to the worker's environment in a server's settings.

`${NAME}` is the worker's variable of that name, `${NAME:-other}` has an answer when there is none; `${env:NAME}` is the
same, as some files write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from holdfast.errors import BadInput
from holdfast.util.text import shorten_text

_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_FOREIGN = re.compile(r"\$\{[A-Za-z]+:[^}]*\}")
"""What other programs fill in: an answer that they ask for, a folder of theirs."""


def find_references(text: str) -> Iterator[str]:
    """The names of the variables that a text refers to."""
    return (found[1] for found in _REFERENCE.finditer(text))


def fill_references(text: str, environment: Mapping[str, str]) -> str:
    """A text with the values of what it refers to; BadInput when there is none, or only another program knows it."""

    def find_value(found: re.Match[str]) -> str:
        name, other = found[1], found[2]
        if name in environment:
            return environment[name]
        if other is None:
            raise BadInput(f"it needs the environment variable {name!r}, which is not set where the worker runs")
        return other

    if foreign := _FOREIGN.search(_REFERENCE.sub("", text)):
        known = "only variables of the environment can be referred to here, as ${NAME}"
        raise BadInput(f"it needs {shorten_text(foreign[0], 80)!r}, which another program fills in: {known}")
    return _REFERENCE.sub(find_value, text)


def name_references(text: str) -> str:
    """A text with its references by name, without what stands there for the case that a variable is not set."""
    return _REFERENCE.sub(lambda found: f"${{{found[1]}}}", text)


def blank_references(text: str, environment: Mapping[str, str]) -> str:
    """What of a text stands in the settings themselves: a space where the environment has the rest."""
    return _REFERENCE.sub(lambda found: " " if found[1] in environment else found[2] or "", text)
