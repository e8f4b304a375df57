"""Options of programs that run other programs, by table: an option that is not in it is never guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.activities.shell.variables import why_not

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[0-9][0-9a-fA-Fxsmhd.,:-]*")
_NO_OPTION = re.compile(r"[A-Za-z0-9_./~][^$`{]*")


class Doubt(Exception):
    """It is not known what a program would run."""


@dataclass(frozen=True)
class Options:
    """What may stand between a program and the command it runs."""

    flags: str = ""
    """Letters that stand alone."""
    valued: str = ""
    """Letters that take a value, in the same word or the next."""
    attached: str = ""
    """Letters whose value, if any, is in the same word."""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    numeric: bool = False
    """`-10` is an option."""
    operands: int = 0
    """How many numbers come first: the seconds of `timeout`."""
    assigns: bool = False
    """Variables may be set first: `env A=1 make`."""


@dataclass
class Begun:
    """Where the command begins, and what was said before it."""

    at: int
    values: dict[str, list[str]] = field(default_factory=dict)
    """Of each option, by its name, as often as it was given; an empty one for a flag."""
    assignments: list[tuple[str, str | None]] = field(default_factory=list)

    def give(self, option: str, value: str) -> None:
        """Note an option."""
        self.values.setdefault(option, []).append(value)


def begin(words: Sequence[str | None], options: Options) -> Begun:
    """Move past a program's own words; Doubt when they are not known."""
    begun = Begun(1)
    while begun.at < len(words):
        word = _known(words, begun.at)
        if word == "--":
            begun.at += 1
            break
        if word.startswith("--"):
            _long(words, word, options, begun)
        elif len(word) > 1 and word.startswith("-"):
            _short(words, word, options, begun)
        else:
            break
        begun.at += 1
    _operands(words, options, begun)
    return begun


def cannot_be_option(word: str | None, text: str) -> bool:
    """Whether a word, known or not, is surely an operand, and only one or more of those."""
    return not word.startswith("-") if word is not None else _NO_OPTION.fullmatch(text) is not None


def _known(words: Sequence[str | None], at: int) -> str:
    word = words[at] if at < len(words) else None
    if word is None:
        raise Doubt(f"the words of {words[0]} are not known")
    return word


def _long(words: Sequence[str | None], word: str, options: Options, begun: Begun) -> None:
    name, equals, value = word[2:].partition("=")
    if name in options.long_valued:
        if not equals:
            begun.at += 1
            value = _known(words, begun.at)
        begun.give(name, value)
    elif name not in options.long or equals:
        raise Doubt(f"the option --{name[:40]} of {words[0]} is not known")


def _short(words: Sequence[str | None], word: str, options: Options, begun: Begun) -> None:
    if options.numeric and word[1:].lstrip("+-").isdigit():
        return
    for place, letter in enumerate(word[1:], 2):
        if letter in options.flags:
            begun.give(letter, "")
        elif letter in options.attached:
            begun.give(letter, word[place:])
            return
        elif letter in options.valued:
            if place == len(word):
                begun.at += 1
            begun.give(letter, word[place:] or _known(words, begun.at))
            return
        else:
            raise Doubt(f"the option -{letter} of {words[0]} is not known")


def _operands(words: Sequence[str | None], options: Options, begun: Begun) -> None:
    if options.assigns:
        while begun.at < len(words) and "=" in (word := _known(words, begun.at)):
            _assign(word, begun)
    for _ in range(options.operands):
        if begun.at < len(words) and not _NUMBER.fullmatch(_known(words, begun.at)):
            raise Doubt(f"{_known(words, begun.at)[:40]!r} of {words[0]} is no number")
        begun.at += 1


def _assign(word: str, begun: Begun) -> None:
    found = _ASSIGNED.fullmatch(word)
    if reason := why_not(found[1] if found else None):
        raise Doubt(reason)
    if found:
        begun.assignments.append((found[1], found[2]))
    begun.at += 1
