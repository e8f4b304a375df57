"""The words of a command in a rule, and whether a program's words begin with them.

    git status          git, status, and whatever words follow, as long as all of them are known
    git status $        exactly these two words
    git diff **         git, diff, and any words, also those that only running the command would tell, and options
                        that go further than `git diff` suggests (`--output=f`), which must be spelled out otherwise
    npm {test,run} *    globs within a word; `**` is any number of words, wherever it stands
    grep '*.c'          what is quoted, or escaped by a backslash, stands for itself

A rule is about one program: what would chain or redirect commands is an error, not a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from holdfast.activities.policy.subject.ternary import Truth
from holdfast.util.globs import Glob, PatternError, escape_glob

Words = Sequence[str | None]
"""Of a program; None stands for any number of words that nobody knows."""

MAX_WORDS = 50
"""Of one phrase."""
END_MARK, ANY_WORDS = "$", "**"
_NO_EFFECTS: Mapping[int, str] = {}
_TOKEN = re.compile(
    r"""(?P<blank>\s+)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escape>.)|(?P<other>.)""", re.DOTALL
)
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+^-]+")
_OPERATORS = frozenset(";&|<>()`\n")


@dataclass(frozen=True)
class Phrase:
    """Words to compare with a program's; `None` among the globs is any number of words."""

    source: str
    globs: tuple[Glob | None, ...]
    exact: bool

    @cached_property
    def first_words(self) -> frozenset[str] | None:
        """What the first word may be; None when it may be anything."""
        head = self.globs[0]
        return head.literals if head is not None and head.is_literal else None

    def covers_words(self, words: Words, effects: Mapping[int, str] = _NO_EFFECTS) -> bool:
        """Are these words meant for certain? One that is not known is covered by `**` alone.

        `effects` has the places of words that go further than the others suggest, each with the option that it names:
        they are covered by a word of the phrase that spells this option out, and by a `**` at its end.
        """
        if self.first_words is not None and (not words or words[0] not in self.first_words):
            return False
        states = self._find_start()
        last = len(self.globs)
        for place, word in enumerate(words):
            option = effects.get(place)
            moved = {state + 1 for state in states if word is not None and self._covers_word(state, word, option)}
            stayed = {state for state in states if self._is_at_any(state) and (option is None or state == last - 1)}
            ended = {last} if last in states and not self.exact and word is not None and option is None else set[int]()
            states = self._close_states(moved | stayed | ended)
        return last in states

    def touches_words(self, words: Words) -> Truth:
        """May these words be meant? YES also when a word that is not known stands where a glob does."""
        if self._reaches_end(words, guessing=False):
            return Truth.YES
        return Truth.MAYBE if None in words and self._reaches_end(words, guessing=True) else Truth.NO

    def _reaches_end(self, words: Words, *, guessing: bool) -> bool:
        states, last = self._find_start(), len(self.globs)
        for word in words:
            if word is None and guessing:
                states = set(range(min(states), last + 1)) if states else states
                continue
            moved = {state + 1 for state in states if self._matches_word(state, word)}
            stayed = {state for state in states if self._is_at_any(state) or (state == last and not self.exact)}
            states = self._close_states(moved | stayed)
        return last in states

    def _find_start(self) -> set[int]:
        return self._close_states({0})

    def _close_states(self, states: set[int]) -> set[int]:
        """With what follows a `**` that stands for no word."""
        for state in range(len(self.globs)):
            if state in states and self.globs[state] is None:
                states.add(state + 1)
        return states

    def _is_at_any(self, state: int) -> bool:
        return state < len(self.globs) and self.globs[state] is None

    def _covers_word(self, state: int, word: str, option: str | None) -> bool:
        """As `_matches_word`, but `tests/*` is not about `tests/../../elsewhere`, and `-*` not about `--output`."""
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
    """Read the words of a rule; PatternError says what is wrong with them."""
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
    """A word as a rule must write it to mean just this."""
    return word if _PLAIN.fullmatch(word) else "'" + word.replace("'", "'\\''") + "'"


def _split_words(text: str) -> list[str]:
    """The words as globs: what is quoted is escaped."""
    words: list[str] = []
    open_word = False
    for token in _TOKEN.finditer(text):
        if token["blank"] is not None:
            open_word = False
            continue
        if not open_word:
            words.append("")
            open_word = True
        words[-1] += _read_token(token, text)
    return words


def _read_token(token: re.Match[str], text: str) -> str:
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
