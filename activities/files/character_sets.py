"""Sets of characters in brackets, `[a-z]`, `[!x]`, `[[:digit:]]`, read exactly as git reads them."""

from __future__ import annotations

import string
from dataclasses import dataclass


class PatternError(ValueError):
    """A pattern that says nothing."""


CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}


@dataclass(frozen=True)
class CharacterSet:
    """What one character may be."""

    negated: bool
    ranges: tuple[tuple[str, str], ...]
    singles: str

    def holds(self, character: str) -> bool:
        """Is the character in the set?"""
        found = character in self.singles or any(low <= character <= high for low, high in self.ranges)
        return found is not self.negated


def set_at(pattern: str, start: int) -> tuple[CharacterSet, int]:
    """The set whose bracket opens at `start`, and where the pattern goes on. PatternError when it is never closed."""
    reading = _Reading(pattern, start + 1)
    negated = pattern[reading.index : reading.index + 1] in ("!", "^")
    reading.index += negated
    reading.member()  # a bracket that closes at once is a member
    while reading.now != "]":
        reading.member()
    return CharacterSet(negated, tuple(reading.ranges), reading.singles), reading.index + 1


class _Reading:
    """Reading the members of a set, one after the other."""

    def __init__(self, pattern: str, index: int) -> None:
        self.pattern = pattern
        self.index = index
        self.ranges: list[tuple[str, str]] = []
        self.singles = ""
        self._previous = ""

    @property
    def now(self) -> str:
        if self.index >= len(self.pattern):
            raise PatternError(f"a bracket of the pattern {self.pattern!r} is never closed: escape it with a backslash")
        return self.pattern[self.index]

    def member(self) -> None:
        """Read one character, range or class."""
        following = self.pattern[self.index + 1 : self.index + 2]
        if self.now == "-" and self._previous and following not in ("", "]"):
            self.index += 1
            self.ranges.append((self._previous, self._character()))
            self._previous = ""
        elif self.now == "[" and following == ":" and (name := self._class_name()) is not None:
            self.singles += CLASSES[name]
            self._previous = ""
        else:
            self._previous = self._character()
            self.singles += self._previous
        self.index += 1

    def _character(self) -> str:
        if self.now == "\\":
            self.index += 1
        return self.now

    def _class_name(self) -> str | None:
        """The name in `[:name:]`, and its bracket is read; None when it is only a bracket and a colon."""
        end = self.pattern.find("]", self.index + 2)
        inside = self.pattern[self.index + 2 : end]
        if end >= 0 and not inside.endswith(":"):
            return None
        if end < 0 or inside[:-1] not in CLASSES:
            raise PatternError(f"a bracket of the pattern {self.pattern!r} holds no class that we know")
        self.index = end
        return inside[:-1]
