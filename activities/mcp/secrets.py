"""References to the environment in a server's settings, and keeping what they stand for out of everything we say.

`${NAME}` is the worker's variable of that name, `${NAME:-other}` has an answer when there is none; `${env:NAME}` is the
same, as some files write it. What a reference gave goes to the server and nowhere else: wherever the server repeats it,
its name stands instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from holdfast.content import shorten
from holdfast.errors import BadInput

SHORTEST = 8
"""Characters of a secret. Hiding a shorter one would hide words that only look like it."""
LATER_LIMIT = 100
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_FOREIGN = re.compile(r"\$\{[A-Za-z]+:[^}]*\}")
"""What other programs fill in: an answer that they ask for, a folder of theirs."""
_TELLING = re.compile(r"(?i)auth|cookie|credential|key|pass|secret|session|signature|token")
_USUAL = frozenset(["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "PWD"])


class Secret(NamedTuple):
    """A value that nobody is told, and what stands for it."""

    name: str
    value: str


class Secrets:
    """The values of one server that nobody is told."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._given = list(dict.fromkeys(secrets))
        self._later: list[Secret] = []
        self._learn()

    def add(self, secrets: Iterable[Secret]) -> None:
        """Such as came later: tokens, which change. The last of them are remembered, old ones too."""
        new = [one for one in secrets if len(one.value) >= SHORTEST and one.value not in self._names]
        if new:
            self._later = [*self._later, *new][-LATER_LIMIT:]
            self._learn()

    def _learn(self) -> None:
        longest_first = sorted([*self._given, *self._later], key=lambda secret: -len(secret.value))
        self._names = {secret.value: secret.name for secret in longest_first}
        self._pattern = re.compile("|".join(map(re.escape, self._names))) if self._names else None

    def hide(self, text: str) -> str:
        """A text with names in the place of secrets."""
        return self._pattern.sub(lambda found: f"[{self._names[found[0]]}]", text) if self._pattern else text

    def hidden(self, value: JsonValue) -> JsonValue:
        """The same for everything in a value."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hidden(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(key): self.hidden(item) for key, item in value.items()}
        return value


def references(text: str) -> Iterator[str]:
    """The names of the variables that a text refers to."""
    return (found[1] for found in _REFERENCE.finditer(text))


def unfilled(text: str) -> str:
    """A text with its references by name, without what stands there for the case that a variable is not set."""
    return _REFERENCE.sub(lambda found: f"${{{found[1]}}}", text)


def telling(name: str) -> bool:
    """Is something called so that is secret?"""
    return bool(_TELLING.search(name))


def filled(text: str, environment: Mapping[str, str]) -> str:
    """A text with the values of what it refers to; BadInput when there is none, or only another program knows it."""

    def value(found: re.Match[str]) -> str:
        name, other = found[1], found[2]
        if name in environment:
            return environment[name]
        if other is None:
            raise BadInput(f"it needs the environment variable {name!r}, which is not set where the worker runs")
        return other

    if foreign := _FOREIGN.search(_REFERENCE.sub("", text)):
        known = "only variables of the environment can be referred to here, as ${NAME}"
        raise BadInput(f"it needs {shorten(foreign[0], 80)!r}, which another program fills in: {known}")
    return _REFERENCE.sub(value, text)


def secrets_of(texts: Iterable[str], assigned: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Secret]:
    """What is secret in these words, and in what is assigned to variables or headers.

    In words only what is called so, for they also name folders and hosts; of what is assigned all that came by
    reference, unless it is a path.
    """
    for text in texts:
        yield from _known(environment, (name for name in references(text) if _TELLING.search(name)))
    for name, text in assigned.items():
        referred = [one for one in references(text) if one not in _USUAL]
        yield from _known(environment, (one for one in referred if _is_secret(one, environment.get(one, ""))))
        if _TELLING.search(name) and not referred:
            yield from (Secret(name, word) for word in {text, *text.split()} if len(word) >= SHORTEST)


def _known(environment: Mapping[str, str], names: Iterable[str]) -> Iterator[Secret]:
    found = ((name, environment.get(name, "")) for name in names)
    return (Secret(name, value) for name, value in found if len(value) >= SHORTEST)


def _is_secret(name: str, value: str) -> bool:
    return bool(_TELLING.search(name)) or not value.startswith(("/", "./", "~"))
