"""Globs over a whole text: names of tools and servers, words of a command. In paths, `*` stops at a slash; here not.

`*` `?` `[abc]` `[!a-z]` `{a,b}`, backslash to escape, as everywhere else in Holdfast, and as cheap to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from holdfast.util.globs.charset import PatternError, parse_set
from holdfast.util.globs.path_globs import Pieces, expand_braces, is_match

SPECIAL_CHARACTERS = frozenset("*?[]{},\\")


class Glob:
    """A pattern; PatternError when it makes no sense."""

    def __init__(self, pattern: str) -> None:
        self.source = pattern
        alternatives = [tuple(_parse_pieces(one)) for one in expand_braces(pattern)]
        self.literals = frozenset(plain for one in alternatives if (plain := _find_plain_text(one)) is not None)
        """The texts it spells out."""
        self.spelled_texts = tuple(
            "".join(piece.character for piece in one if isinstance(piece, _IsCharacter)) for one in alternatives
        )
        """Of each alternative, the characters that every text it means must have."""
        self._wild = tuple((_find_prefix(one), one) for one in alternatives if _find_plain_text(one) is None)

    @property
    def is_literal(self) -> bool:
        """Does it mean nothing but the texts it spells out?"""
        return not self._wild

    def matches_below(self, text: str, start: str) -> bool:
        """Is this text meant, and do all texts that are meant so begin with `start`?"""
        if text in self.literals:
            return True
        return any(fixed.startswith(start) and is_match(pieces, text) for fixed, pieces in self._wild)

    def matches(self, text: str) -> bool:
        """Is this text meant?"""
        if text in self.literals:
            return True
        return any(text.startswith(start) and is_match(pieces, text) for start, pieces in self._wild)


def escape_glob(text: str) -> str:
    """A glob that means just this text."""
    return "".join(f"\\{character}" if character in SPECIAL_CHARACTERS else character for character in text)


@dataclass(frozen=True)
class _IsCharacter:
    character: str

    def __call__(self, other: str) -> bool:
        return self.character == other


def _find_plain_text(pieces: Pieces[str]) -> str | None:
    """The text, when every piece is a character of it."""
    characters = [piece.character for piece in pieces if isinstance(piece, _IsCharacter)]
    return "".join(characters) if len(characters) == len(pieces) else None


def _find_prefix(pieces: Pieces[str]) -> str:
    """What every text that is meant begins with."""
    return "".join(piece.character for piece in takewhile(_is_plain, pieces) if isinstance(piece, _IsCharacter))


def _is_plain(piece: object) -> bool:
    return isinstance(piece, _IsCharacter)


def _parse_pieces(pattern: str) -> Iterator[Callable[[str], bool] | None]:
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "[":
            found, index = parse_set(pattern, index)
            yield found.has_character
            continue
        if character == "\\":
            index += 1
            if index == len(pattern):
                raise PatternError(f"the pattern {pattern!r} ends in a backslash, which must escape something")
            yield _IsCharacter(pattern[index])
        else:
            yield None if character == "*" else _match_any if character == "?" else _IsCharacter(character)
        index += 1


def _match_any(_: str) -> bool:
    return True
