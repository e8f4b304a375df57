"""Sets of characters in brackets, `[a-z]`, `[!x]`, `[[:digit:]]`, read exactly as git reads them."""

from __future__ import annotations

import string
from dataclasses import dataclass


class PatternError(ValueError):
    """A pattern that says nothing."""


CHARACTER_CLASSES = {
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

    def has_character(self, character: str) -> bool:
        """Is the character in the set?"""
        found = character in self.singles or any(low <= character <= high for low, high in self.ranges)
        return found is not self.negated


def parse_set(pattern: str, start: int) -> tuple[CharacterSet, int]:
    """The set whose bracket opens at `start`, and where the pattern goes on. PatternError when it is never closed."""
    reading = _SetReader(pattern, start + 1)
    negated = pattern[reading.index : reading.index + 1] in ("!", "^")
    reading.index += negated
    reading.read_member()  # a bracket that closes at once is a member
    while reading.current != "]":
        reading.read_member()
    return CharacterSet(negated, tuple(reading.ranges), reading.singles), reading.index + 1


class _SetReader:
    """Reading the members of a set, one after the other."""

    def __init__(self, pattern: str, index: int) -> None:
        self.pattern = pattern
        self.index = index
        self.ranges: list[tuple[str, str]] = []
        self.singles = ""
        self._previous = ""

    @property
    def current(self) -> str:
        if self.index >= len(self.pattern):
            raise PatternError(f"a bracket of the pattern {self.pattern!r} is never closed: escape it with a backslash")
        return self.pattern[self.index]

    def read_member(self) -> None:
        """Read one character, range or class."""
        following = self.pattern[self.index + 1 : self.index + 2]
        if self.current == "-" and self._previous and following not in ("", "]"):
            self.index += 1
            self.ranges.append((self._previous, self._read_character()))
            self._previous = ""
        elif self.current == "[" and following == ":" and (name := self._read_class_name()) is not None:
            self.singles += CHARACTER_CLASSES[name]
            self._previous = ""
        else:
            self._previous = self._read_character()
            self.singles += self._previous
        self.index += 1

    def _read_character(self) -> str:
        if self.current == "\\":
            self.index += 1
        return self.current

    def _read_class_name(self) -> str | None:
        """The name in `[:name:]`, and its bracket is read; None when it is only a bracket and a colon."""
        end = self.pattern.find("]", self.index + 2)
        inside = self.pattern[self.index + 2 : end]
        if end >= 0 and not inside.endswith(":"):
            return None
        if end < 0 or inside[:-1] not in CHARACTER_CLASSES:
            raise PatternError(f"a bracket of the pattern {self.pattern!r} holds no class that we know")
        self.index = end
        return inside[:-1]
