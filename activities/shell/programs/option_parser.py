"""Parses the options in front of the command that a program runs, by a table. An unknown option is never guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.activities.shell.programs.variables import explain_dangerous

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[0-9][0-9a-fA-Fxsmhd.,:-]*")
_NO_OPTION = re.compile(r"[A-Za-z0-9_./~][^$`{]*")


class Doubt(Exception):
    """It is not known what a program would run. The message says why."""


@dataclass(frozen=True)
class Options:
    """The options of a program in front of the command that it runs."""

    flags: str = ""
    """Letters without a value."""
    valued: str = ""
    """Letters with a value, in the same word or the next."""
    attached: str = ""
    """Letters whose value, if any, is in the same word."""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    numeric: bool = False
    """`-10` is an option."""
    operands: int = 0
    """Numbers that come before the command: the seconds of `timeout`."""
    assigns: bool = False
    """Assignments may come before the command: `env A=1 make`."""


@dataclass
class ParsedOptions:
    """The index at which the command begins, and what comes before it."""

    at: int
    values: dict[str, list[str]] = field(default_factory=dict)
    """The values of each option, by its name; an empty text for a flag."""
    assignments: list[tuple[str, str | None]] = field(default_factory=list)

    def add_value(self, option: str, value: str) -> None:
        """Add an occurrence of an option."""
        self.values.setdefault(option, []).append(value)


def parse_options(words: Sequence[str | None], options: Options) -> ParsedOptions:
    """Parse the words of a program up to the command that it runs. Doubt when one of them is unknown."""
    parsed = ParsedOptions(1)
    while parsed.at < len(words):
        word = _get_word(words, parsed.at)
        if word == "--":
            parsed.at += 1
            break
        if word.startswith("--"):
            _parse_long(words, word, options, parsed)
        elif len(word) > 1 and word.startswith("-"):
            _parse_short(words, word, options, parsed)
        else:
            break
        parsed.at += 1
    _parse_operands(words, options, parsed)
    return parsed


def cannot_be_option(word: str | None, text: str) -> bool:
    """Is a word, known or not, certainly one or more operands?"""
    return not word.startswith("-") if word is not None else _NO_OPTION.fullmatch(text) is not None


def _get_word(words: Sequence[str | None], at: int) -> str:
    word = words[at] if at < len(words) else None
    if word is None:
        raise Doubt(f"the words of {words[0]} are not known")
    return word


def _parse_long(words: Sequence[str | None], word: str, options: Options, parsed: ParsedOptions) -> None:
    name, equals, value = word[2:].partition("=")
    if name in options.long_valued:
        if not equals:
            parsed.at += 1
            value = _get_word(words, parsed.at)
        parsed.add_value(name, value)
    elif name not in options.long or equals:
        raise Doubt(f"the option --{name[:40]} of {words[0]} is not known")


def _parse_short(words: Sequence[str | None], word: str, options: Options, parsed: ParsedOptions) -> None:
    if options.numeric and word[1:].lstrip("+-").isdigit():
        return
    for place, letter in enumerate(word[1:], 2):
        if letter in options.flags:
            parsed.add_value(letter, "")
        elif letter in options.attached:
            parsed.add_value(letter, word[place:])
            return
        elif letter in options.valued:
            if place == len(word):
                parsed.at += 1
            parsed.add_value(letter, word[place:] or _get_word(words, parsed.at))
            return
        else:
            raise Doubt(f"the option -{letter} of {words[0]} is not known")


def _parse_operands(words: Sequence[str | None], options: Options, parsed: ParsedOptions) -> None:
    if options.assigns:
        while parsed.at < len(words) and "=" in (word := _get_word(words, parsed.at)):
            _add_assignment(word, parsed)
    for _ in range(options.operands):
        if parsed.at < len(words) and not _NUMBER.fullmatch(_get_word(words, parsed.at)):
            raise Doubt(f"{_get_word(words, parsed.at)[:40]!r} of {words[0]} is no number")
        parsed.at += 1


def _add_assignment(word: str, parsed: ParsedOptions) -> None:
    found = _ASSIGNED.fullmatch(word)
    if reason := explain_dangerous(found[1] if found else None):
        raise Doubt(reason)
    if found:
        parsed.assignments.append((found[1], found[2]))
    parsed.at += 1
