"""Paths against patterns: globs as a model writes them, and the rules of .gitignore files. Pure: nothing is looked up.

A pattern never becomes a regular expression: it is compared piece by piece, going back to the last star only, so the
worst pattern costs its length times that of the path. Names are compared by character, where git compares bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

from holdfast.util.globs.charset import PatternError, parse_set

T = TypeVar("T")

Pieces: TypeAlias = tuple[Callable[[T], bool] | None, ...]
"""What each item must be; None stands for any number of items."""

MAX_ALTERNATIVES = 256
"""Patterns that the braces of one may stand for."""
MAX_EXPANSIONS = 2_000
"""Braces that are looked at before we give up: they may enclose each other."""


class PathPattern:
    """A glob: `*` `?` `[abc]` `[!a-z]` `{a,b}` within a name, `**` for any number of folders, backslash to escape."""

    def __init__(self, pattern: str, *, anywhere: bool = False) -> None:
        """`anywhere`: a pattern without a slash is about names, in whatever folder. PatternError for nonsense."""
        self.source = pattern
        self._alternatives = tuple(_parse_path_pieces(one, anywhere=anywhere) for one in expand_braces(pattern))

    def matches(self, path: str) -> bool:
        """Is `path`, relative and with slashes, meant?"""
        names = path.split("/")
        return any(is_match(pieces, names) for pieces in self._alternatives)

    def may_reach(self, folder: str) -> bool:
        """Can anything in this folder, or below it, be meant? It saves walking where nothing can."""
        names = folder.split("/")
        return any(_may_lead(pieces, names) for pieces in self._alternatives)


def is_match(pieces: Pieces[T], items: Sequence[T]) -> bool:
    """Do the pieces cover the items? Only the last star is ever tried again: earlier ones cannot do better."""
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


def _may_lead(pieces: Pieces[str], folders: Sequence[str]) -> bool:
    for index, name in enumerate(folders):
        piece = pieces[index] if index < len(pieces) else _match_none
        if piece is None:
            return True
        if not piece(name):
            return False
    return len(pieces) > len(folders)


def _parse_path_pieces(pattern: str, *, anywhere: bool) -> Pieces[str]:
    segments = [_parse_name_pieces(segment) for segment in _split_segments(pattern)]
    if anywhere and len(segments) == 1:
        return (None, _build_name_test(segments[0]))
    return _fold_segments(segments)


def _fold_segments(segments: list[Pieces[str]]) -> Pieces[str]:
    """Tests of whole names; a name of two stars or more is any number of folders, and at the end of at least one."""
    tests = [None if len(one) > 1 and not any(one) else _build_name_test(one) for one in segments]
    if tests[-1] is None:
        tests.insert(-1, _match_all)
    return tuple(tests)


def _split_segments(pattern: str) -> Iterator[list[str]]:
    """The tokens between slashes; a token is one character, escaped or not, or one set in brackets."""
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
        return parse_set(pattern, index)[1]
    if pattern[index] != "\\":
        return index + 1
    if index + 1 == len(pattern):
        raise PatternError(f"the pattern {pattern!r} ends in a backslash, which must escape something")
    return index + 2


def _parse_name_pieces(tokens: list[str]) -> Pieces[str]:
    return tuple(_parse_token(token) for token in tokens)


def _parse_token(token: str) -> Callable[[str], bool] | None:
    if token == "*":
        return None
    if token == "?":
        return _match_all
    return parse_set(token, 0)[0].has_character if token[0] == "[" else _IsEqual(token[-1])


@dataclass(frozen=True)
class _IsEqual:
    text: str

    def __call__(self, other: str) -> bool:
        return self.text == other


def _build_name_test(pieces: Pieces[str]) -> Callable[[str], bool]:
    """A test of a whole name; the two shapes that most patterns have are answered without a loop."""
    plain = "".join(piece.text for piece in pieces if isinstance(piece, _IsEqual))
    if len(plain) == len(pieces):
        return _IsEqual(plain)
    if len(plain) == len(pieces) - 1 and pieces[0] is None:
        return lambda name: name.endswith(plain)
    return lambda name: is_match(pieces, name)


def _match_all(_: object) -> bool:
    return True


def _match_none(_: object) -> bool:
    return False


# Braces


def expand_braces(pattern: str) -> list[str]:
    """Every pattern that the braces of this one stand for, in order."""
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
    """The pattern once for every alternative of its first braces; none when it has no braces."""
    depth, marks, index = 0, [], 0
    while index < len(pattern):
        character = pattern[index]
        depth += (character == "{") - (character == "}" and depth > 0)
        if (character == "{" and depth == 1) or (character == "," and depth == 1):
            marks.append(index)
        elif character == "}" and depth == 0 and marks:
            return _spell_alternatives(pattern, [*marks, index])
        index = _find_token_end(pattern, index)
    if depth:
        raise PatternError(f"a brace of the pattern {pattern!r} is never closed: escape it with a backslash")
    return []


def _spell_alternatives(pattern: str, marks: list[int]) -> list[str]:
    before, after = pattern[: marks[0]], pattern[marks[-1] + 1 :]
    return [before + pattern[start + 1 : end] + after for start, end in pairwise(marks)]


# Rules of .gitignore


@dataclass(frozen=True)
class _IgnoreRule:
    negated: bool
    folders_only: bool
    name: Callable[[str], bool] | None
    """Of a rule that is about a name, in whatever folder."""
    start: str = ""
    rest: Pieces[str] = ()
    """Git compares what is before the first wildcard as it is, and only then looks for names: `a/b**` spans folders."""

    def matches(self, path: str, *, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if self.name:
            return self.name(path[path.rfind("/") + 1 :])
        return path.startswith(self.start) and is_match(self.rest, path[len(self.start) :].split("/"))


class IgnoreRules:
    """The rules of one .gitignore file."""

    def __init__(self, text: str) -> None:
        rules = [_parse_rule(line) for line in text.removeprefix("\ufeff").split("\n")]
        self._rules = tuple(rule for rule in reversed(rules) if rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find_verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Is `path`, relative to the file's folder, ignored? None when no rule is about it.

        Do not ask about what an ignored folder holds: it is ignored, whatever the rules say.
        """
        for rule in self._rules:
            if rule.matches(path, is_folder=is_folder):
                return not rule.negated
        return None


def _parse_rule(line: str) -> _IgnoreRule | None:
    """The rule in a line, as git reads it; None for a comment, a blank, or what can match nothing."""
    if line.startswith("#"):
        return None
    line = _strip_spaces(line.removesuffix("\r"))
    pattern = line.removeprefix("!")
    negated = pattern != line
    body = pattern.removesuffix("/")
    if not body:
        return None
    try:
        return _build_rule(body, negated=negated, folders_only=body != pattern)
    except PatternError:
        return None


def _build_rule(body: str, *, negated: bool, folders_only: bool) -> _IgnoreRule:
    if "/" not in body:
        [tokens] = _split_segments(body)
        return _IgnoreRule(negated, folders_only, _build_name_test(_parse_name_pieces(tokens)))
    body = body.removeprefix("/")
    wild = next((index for index, character in enumerate(body) if character in "*?[\\"), len(body))
    rest = _fold_segments([_parse_name_pieces(segment) for segment in _split_segments(body[wild:])])
    return _IgnoreRule(negated, folders_only, None, body[:wild], rest)


def _strip_spaces(line: str) -> str:
    """Without the spaces at its end, except one that is escaped."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != line else bare
