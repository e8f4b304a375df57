"""Phrases: the words of a rule, compared with the words of one program (S30).

    git status          git, status, and whatever words follow, as long as all of them are known
    git status $        exactly these two words
    git diff **         git, diff, and any words, also unknown ones, and options with an effect of their own
                        (`--output=f`), which a phrase must spell out otherwise
    npm {test,run} *    globs within a word; `**` is any number of words, wherever it stands
    grep '*.c'          what is quoted, or escaped by a backslash, stands for itself

A phrase is about one program: what would chain or redirect commands is an error, not a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from holdfast.activities.policy.subject import Truth
from holdfast.util.globs import Glob, PatternError, escape_glob

Words = Sequence[str | None]
"""The words of a program; None stands for any number of unknown words."""

MAX_WORDS = 50
"""Words of one phrase."""
END_MARK, ANY_WORDS = "$", "**"
_TOKEN = re.compile(
    r"""(?P<blank>\s+)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escape>.)|(?P<other>.)""", re.DOTALL
)
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+^-]+")
_OPERATORS = frozenset(";&|<>()`\n")


@dataclass(frozen=True)
class Phrase:
    """The words of a rule, compiled; None among the globs stands for any number of words."""

    source: str
    globs: tuple[Glob | None, ...]
    exact: bool

    @cached_property
    def first_words(self) -> frozenset[str] | None:
        """The possible first words of a match; None when any word is possible."""
        head = self.globs[0]
        return head.literals if head is not None and head.is_literal else None

    def covers_words(self, words: Words, effects: Mapping[int, str] = MappingProxyType({})) -> bool:
        """Does the phrase certainly match all of these words? Only `**` matches an unknown word.

        `effects` has the indexes of words with an effect of their own, with the option that each names. Such a word is
        matched by a word of the phrase that spells the option out, and by `**` at the end of the phrase.
        """
        if self.first_words is not None and (not words or words[0] not in self.first_words):
            return False
        states = self._close_states({0})
        last = len(self.globs)
        for place, word in enumerate(words):
            option = effects.get(place)
            moved = {state + 1 for state in states if word is not None and self._covers_word(state, word, option)}
            stayed = {state for state in states if self._is_at_any(state) and (option is None or state == last - 1)}
            ended = {last} if last in states and not self.exact and word is not None and option is None else set[int]()
            states = self._close_states(moved | stayed | ended)
        return last in states

    def touches_words(self, words: Words) -> Truth:
        """May the phrase match these words? An unknown word in the place of a glob counts as a match."""
        if self._reaches_end(words, guessing=False):
            return Truth.YES
        return Truth.MAYBE if None in words and self._reaches_end(words, guessing=True) else Truth.NO

    def _reaches_end(self, words: Words, *, guessing: bool) -> bool:
        states, last = self._close_states({0}), len(self.globs)
        for word in words:
            if word is None and guessing:
                states = set(range(min(states), last + 1)) if states else states
                continue
            moved = {state + 1 for state in states if self._matches_word(state, word)}
            stayed = {state for state in states if self._is_at_any(state) or (state == last and not self.exact)}
            states = self._close_states(moved | stayed)
        return last in states

    def _close_states(self, states: set[int]) -> set[int]:
        """Add the states behind a `**`, which may match no word."""
        for state in range(len(self.globs)):
            if state in states and self.globs[state] is None:
                states.add(state + 1)
        return states

    def _is_at_any(self, state: int) -> bool:
        return state < len(self.globs) and self.globs[state] is None

    def _covers_word(self, state: int, word: str, option: str | None) -> bool:
        """Like `_matches_word`, but `tests/*` does not cover `tests/../../etc`, nor `-*` the option `--output`."""
        glob = self.globs[state] if state < len(self.globs) else None
        if glob is not None and option is not None and not glob.matches_below(word, option):
            return False
        climbs = glob is not None and not glob.is_literal and "/" in glob.source and ".." in word.split("/")
        return not climbs and self._matches_word(state, word)

    def _matches_word(self, state: int, word: str | None) -> bool:
        glob = self.globs[state] if state < len(self.globs) else None
        if glob is None:
            return False
        return glob.matches(word) if word is not None else not glob.is_literal


def parse_phrase(text: str) -> Phrase:
    """Compile the words of a rule. PatternError says what is wrong with them."""
    words = _split_words(text)
    exact = words[-1:] == [END_MARK]
    words = words[:-1] if exact else words
    if not words or words[0] == "":
        raise PatternError("names no program")
    if len(words) > MAX_WORDS:
        raise PatternError(f"has over {MAX_WORDS} words")
    if any(re.search(r"(?<!\\)(\\\\)*\$", word) for word in words):
        raise PatternError(f"has a `{END_MARK}` that is not its last word, where it means nothing: quote it")
    return Phrase(text, tuple(None if word == ANY_WORDS else Glob(word) for word in words), exact)


def quote_word(word: str) -> str:
    """A word as a phrase must hold it to mean just this word."""
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "'\\''") + "'"


def _split_words(text: str) -> list[str]:
    """The words of a phrase as globs, with quoted characters escaped."""
    words: list[str] = []
    open_word = False
    for token in _TOKEN.finditer(text):
        if token["blank"] is not None:
            open_word = False
            continue
        if not open_word:
            words.append("")
            open_word = True
        words[-1] += _parse_token(token, text)
    return words


def _parse_token(token: re.Match[str], text: str) -> str:
    if token["single"] is not None:
        return _escape_literal(token["single"])
    if token["double"] is not None:
        return _escape_literal(re.sub(r'\\(["\\$`])', r"\1", token["double"]))
    if token["escape"] is not None:
        return f"\\{token['escape']}"
    character = token["other"]
    if character in "'\"\\":
        raise PatternError(f"{text!r} has a quote or a backslash without its partner")
    if character in _OPERATORS:
        raise PatternError(f"is about one command, and {character!r} would join or redirect several: quote it")
    return character


def _escape_literal(text: str) -> str:
    return escape_glob(text).replace(END_MARK, rf"\{END_MARK}")
