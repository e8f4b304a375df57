"""Globs: patterns for paths and for names, as people and models write them. Pure: nothing is looked up on a disk.

A pattern never becomes a regular expression: it is compared piece by piece, and only the last star is ever tried again,
so the worst pattern costs its length times that of the text. `[a-z]`, `[!x]` and `[[:digit:]]` are read exactly as git
reads them. Names are compared by character, where git compares bytes.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Pieces: TypeAlias = tuple[Callable[[T], bool] | None, ...]
"""A test for each item of a sequence; None stands for any number of items."""

MAX_ALTERNATIVES = 256
"""Patterns that the braces of one may stand for."""
MAX_EXPANSIONS = 2_000
"""Braces that are expanded before we give up: they may be nested."""
SPECIAL_CHARACTERS = frozenset("*?[]{},\\")
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


class PatternError(ValueError):
    """A pattern that cannot be read. The message says why."""


class PathPattern:
    """A glob for paths: `*` `?` `[abc]` `[!a-z]` `{a,b}` within a name, `**` for folders, a backslash to escape."""

    def __init__(self, pattern: str, *, anywhere: bool = False) -> None:
        """`anywhere`: a pattern without a slash matches names in every folder. Raises PatternError."""
        self.source = pattern
        self._alternatives = tuple(_compile_alternative(one, anywhere=anywhere) for one in expand_braces(pattern))

    def matches(self, path: str) -> bool:
        """Does the pattern match `path`, which is relative and has slashes?"""
        names = path.split("/")
        return any(is_match(pieces, names) for pieces in self._alternatives)

    def may_reach(self, folder: str) -> bool:
        """May the pattern match anything below this folder? A walk need not enter the others."""
        names = folder.split("/")
        return any(_may_lead(pieces, names) for pieces in self._alternatives)


class Glob:
    """A glob for whole texts: as for paths, but `*` also matches slashes. Raises PatternError."""

    def __init__(self, pattern: str) -> None:
        self.source = pattern
        alternatives = [_parse_pieces(one) for one in expand_braces(pattern)]
        self.literals = frozenset(plain for one in alternatives if (plain := _find_literal(one)) is not None)
        """The texts that it spells out."""
        self.spelled_texts = tuple(
            "".join(piece.text for piece in one if isinstance(piece, _IsEqual)) for one in alternatives
        )
        """For each alternative, the characters that every match has."""
        self._wild = tuple((_find_prefix(one), one) for one in alternatives if _find_literal(one) is None)

    @property
    def is_literal(self) -> bool:
        """Does it match nothing but the texts that it spells out?"""
        return not self._wild

    def matches(self, text: str) -> bool:
        """Does it match this text?"""
        return text in self.literals or any(text.startswith(start) and is_match(one, text) for start, one in self._wild)

    def matches_below(self, text: str, start: str) -> bool:
        """Does an alternative match this text of which every match begins with `start`?"""
        return text in self.literals or any(
            fixed.startswith(start) and is_match(one, text) for fixed, one in self._wild
        )


def escape_glob(text: str) -> str:
    """A glob that matches this text alone."""
    return "".join(f"\\{character}" if character in SPECIAL_CHARACTERS else character for character in text)


def is_match(pieces: Pieces[T], items: Sequence[T]) -> bool:
    """Do the pieces match the items? Only the last star is tried again: earlier ones cannot do better."""
    piece = item = mark = 0
    star = -1
    while item < len(items):
        test = pieces[piece] if piece < len(pieces) else _match_none
        if test is None:
            star, mark = piece, item
            piece += 1
        elif test(items[item]):
            piece += 1
            item += 1
        elif star >= 0:
            mark += 1
            piece, item = star + 1, mark
        else:
            return False
    return all(one is None for one in pieces[piece:])


def compile_name(pattern: str) -> Callable[[str], bool]:
    """A test for one name. Braces are ordinary characters here. Raises PatternError."""
    return _build_name_test(_parse_pieces(pattern))


def compile_path(pattern: str) -> Pieces[str]:
    """A test for each name of a path; braces are ordinary characters here. Raises PatternError.

    A name of two stars or more is any number of folders; at the end of the pattern, at least one name.
    """
    segments = [tuple(map(_parse_token, segment)) for segment in _split_segments(pattern)]
    tests = [None if len(one) > 1 and not any(one) else _build_name_test(one) for one in segments]
    if tests[-1] is None:
        tests.insert(-1, _match_all)
    return tuple(tests)


def expand_braces(pattern: str) -> list[str]:
    """Every pattern that the braces of this one stand for, in order. PatternError when there are too many."""
    done: list[str] = []
    waiting = [pattern]
    for _ in range(MAX_EXPANSIONS):
        if not waiting or len(done) + len(waiting) > MAX_ALTERNATIVES:
            break
        first = waiting.pop()
        if alternatives := _list_alternatives(first):
            waiting += reversed(alternatives)
        else:
            done.append(first)
    if waiting:
        raise PatternError(f"the braces of the pattern stand for too many others (over {MAX_ALTERNATIVES}): use fewer")
    return list(dict.fromkeys(done))


def _list_alternatives(pattern: str) -> list[str]:
    """The pattern once for each alternative of its first braces; none when it has no braces."""
    depth, marks, index = 0, [], 0
    while index < len(pattern):
        character = pattern[index]
        depth += (character == "{") - (character == "}" and depth > 0)
        if (character == "{" and depth == 1) or (character == "," and depth == 1):
            marks.append(index)
        elif character == "}" and depth == 0 and marks:
            before, after = pattern[: marks[0]], pattern[index + 1 :]
            return [before + pattern[start + 1 : end] + after for start, end in pairwise([*marks, index])]
        index = _find_token_end(pattern, index)
    if depth:
        raise PatternError(f"a brace of the pattern {pattern!r} is never closed: escape it with a backslash")
    return []


def _compile_alternative(pattern: str, *, anywhere: bool) -> Pieces[str]:
    if anywhere and len(list(_split_segments(pattern))) == 1:
        return (None, compile_name(pattern))
    return compile_path(pattern)


def _may_lead(pieces: Pieces[str], folders: Sequence[str]) -> bool:
    for index, name in enumerate(folders):
        piece = pieces[index] if index < len(pieces) else _match_none
        if piece is None:
            return True
        if not piece(name):
            return False
    return len(pieces) > len(folders)


@dataclass(frozen=True)
class _IsEqual:
    text: str

    def __call__(self, other: str) -> bool:
        return self.text == other


def _build_name_test(pieces: Pieces[str]) -> Callable[[str], bool]:
    """A test for a whole name; without a loop for the two most frequent shapes, `name` and `*.suffix`."""
    plain = "".join(piece.text for piece in pieces if isinstance(piece, _IsEqual))
    if len(plain) == len(pieces):
        return _IsEqual(plain)
    if len(plain) == len(pieces) - 1 and pieces[0] is None:
        return lambda name: name.endswith(plain)
    return lambda name: is_match(pieces, name)


def _find_literal(pieces: Pieces[str]) -> str | None:
    """The text, when every piece is one character."""
    characters = [piece.text for piece in pieces if isinstance(piece, _IsEqual)]
    return "".join(characters) if len(characters) == len(pieces) else None


def _find_prefix(pieces: Pieces[str]) -> str:
    """The text that every match begins with."""
    known = takewhile(lambda piece: isinstance(piece, _IsEqual), pieces)
    return "".join(piece.text for piece in known if isinstance(piece, _IsEqual))


def _match_all(_: object) -> bool:
    return True


def _match_none(_: object) -> bool:
    return False


# Tokens: one character, escaped or not, or one set in brackets


def _parse_pieces(pattern: str) -> Pieces[str]:
    return tuple(map(_parse_token, _split_tokens(pattern)))


def _parse_token(token: str) -> Callable[[str], bool] | None:
    if token == "*":
        return None
    if token == "?":
        return _match_all
    return _parse_set(token, 0)[0].has_character if token[0] == "[" else _IsEqual(token[-1])


def _split_segments(pattern: str) -> Iterator[list[str]]:
    """The tokens between slashes."""
    segment: list[str] = []
    for token in _split_tokens(pattern):
        if token in ("/", "\\/"):
            yield segment
            segment = []
        else:
            segment.append(token)
    yield segment


def _split_tokens(pattern: str) -> Iterator[str]:
    index = 0
    while index < len(pattern):
        end = _find_token_end(pattern, index)
        yield pattern[index:end]
        index = end


def _find_token_end(pattern: str, index: int) -> int:
    if pattern[index] == "[":
        return _parse_set(pattern, index)[1]
    if pattern[index] != "\\":
        return index + 1
    if index + 1 == len(pattern):
        raise PatternError(f"the pattern {pattern!r} ends in a backslash, which must escape something")
    return index + 2


@dataclass(frozen=True)
class _CharacterSet:
    negated: bool
    ranges: tuple[tuple[str, str], ...]
    singles: str

    def has_character(self, character: str) -> bool:
        found = character in self.singles or any(low <= character <= high for low, high in self.ranges)
        return found is not self.negated


def _parse_set(pattern: str, start: int) -> tuple[_CharacterSet, int]:
    """The set whose bracket opens at `start`, and the index behind it. PatternError when it is never closed."""
    reader = _SetReader(pattern, start + 1)
    negated = pattern[reader.index : reader.index + 1] in ("!", "^")
    reader.index += negated
    reader.read_member()  # a bracket that closes at once is a member
    while reader.current != "]":
        reader.read_member()
    return _CharacterSet(negated, tuple(reader.ranges), reader.singles), reader.index + 1


class _SetReader:
    """Reads the members of a set, one after the other."""

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
        """The name in `[:name:]`, moving to its bracket; None when it is only a bracket and a colon."""
        end = self.pattern.find("]", self.index + 2)
        inside = self.pattern[self.index + 2 : end]
        if end >= 0 and not inside.endswith(":"):
            return None
        if end < 0 or inside[:-1] not in CHARACTER_CLASSES:
            raise PatternError(f"a bracket of the pattern {self.pattern!r} holds no known class")
        self.index = end
        return inside[:-1]
