"""Finds the options of a program that do more than its name suggests: `sort -o FILE`, `tar --to-command`.

The tables are in `option_table`. An option that the table of a program lacks is "unknown" and treated as if it
did anything. Values are examined as options too: if the table is wrong about which options take one, too many effects
are found, not too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from holdfast.activities.shell.programs.option_parser import cannot_be_option
from holdfast.activities.shell.programs.option_table import (
    NO_OPTIONS,
    OptionEntry,
    OptionTable,
    compile_tables,
    find_table,
    list_plain_programs,
)
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.scripts import Effect, find_script_effects

_SCRIPT_FILES = frozenset(["-f", "--file", "-E", "--exec", "--from-file"])
"""Options whose value is the file of a script, so that no operand is a script."""


@dataclass(frozen=True)
class OptionEffect:
    """A word by which a program does more than its name suggests."""

    place: int
    option: str
    """The part of the word that names the option: `--output` of `--output=f`."""
    effect: Effect
    wrapped: bool = False
    """A command follows, which is judged by its own words."""


@lru_cache(maxsize=512)
def find_effects(program: Program) -> tuple[OptionEffect, ...]:
    """The words of a program that have an effect, in their order; none for a program without a table."""
    found = find_table(program.name or "")
    return () if found is None else tuple(sorted(_WordsReader(program, *found).read(), key=lambda one: one.place))


def may_run_unseen(program: Program) -> bool:
    """May it run code or a program that does not appear in its words?"""
    if program.interprets_code:
        return True
    found = find_table(program.name or "")
    if found is None or _is_interpreter(found[0]):
        return False
    runs = any(one.effect == "executes" for one in found[1].entries.values()) or found[1].subcommands
    effects = [one.effect for one in find_effects(program) if not one.wrapped]
    return "executes" in effects or (runs and "unknown" in effects)


def is_known(name: str) -> bool:
    """Is it known what a program of this name does with its words?"""
    return name in list_plain_programs() or find_table(name) is not None


def list_known_options() -> list[tuple[str, str, Effect, bool]]:
    """Every option with an effect: program, option, effect, and whether it takes a value. For tests."""
    return [
        (name.replace(" *", " x"), option.rstrip("*"), _to_effect(entry.effect), entry.takes_rest)
        for name, table in compile_tables().items()
        for option, entry in table.entries.items()
        if entry.effect not in ("harmless", "wrapped")
    ]


def _is_interpreter(name: str) -> bool:
    return name in ("python", "perl", "ruby", "node", "php", "lua")


class _WordsReader:
    """Finds the effects of the words of one program."""

    def __init__(self, program: Program, name: str, table: OptionTable) -> None:
        self._program = program
        self._name = name
        self._table = table
        self._operands = 0
        self._only_operands = False
        self._scripted = False
        self._waiting: list[str] = []
        """Options whose values come next, in their order."""

    def read(self) -> Iterator[OptionEffect]:
        """The effects, in no order."""
        words = self._program.words
        if self._table.style == "ps":
            yield from _read_ps(words)
            return
        skipping = False
        for place in range(1, len(words)):
            word = words[place]
            if skipping:
                skipping = not (word == ";" or (word == "+" and words[place - 1] == "{}"))
            elif word is None:
                yield from self._read_unknown(place)
            else:
                yield from self._match_patterns(place, word, self._table.words)
                yield from self._read_word(place, word)
                skipping = self._table.style == "words" and self._is_wrapped(word)

    def _is_wrapped(self, word: str) -> bool:
        entry = self._table.entries.get(word)
        return entry is not None and entry.effect == "wrapped"

    def _read_unknown(self, place: int) -> Iterator[OptionEffect]:
        text = self._program.texts[place]
        surely_operand = cannot_be_option(None, text) or (self._only_operands and not self._table.operands)
        if self._waiting:
            surely_operand = surely_operand and self._waiting.pop(0) not in self._table.scripts
        else:
            surely_operand = surely_operand and not (self._table.language and not self._scripted)
            surely_operand = surely_operand and self._table.most_operands is None and not self._table.operands
        if not surely_operand and (self._table.has_effects or self._table.language):
            yield OptionEffect(place, text, "unknown")

    def _read_word(self, place: int, word: str) -> Iterator[OptionEffect]:
        if self._waiting:
            yield from self._read_value(place, word, self._waiting.pop(0), word)
            if word.startswith("-"):
                waiting, self._waiting = self._waiting, []
                yield from (one for one in self._read_option(place, word) if one.effect != "unknown")
                self._waiting = waiting
        elif self._only_operands or not word.startswith(("-", "+") if self._table.style == "words" else "-"):
            yield from self._read_operand(place, word)
        elif word == "--":
            self._only_operands = self._table.style == "gnu"
        elif word == "-":
            yield from self._read_operand(place, word)
        else:
            yield from self._read_option(place, word)

    def _read_option(self, place: int, word: str) -> Iterator[OptionEffect]:
        if self._table.style == "words":
            return self._read_word_option(place, word)
        return self._read_long(place, word) if word.startswith("--") else self._read_letters(place, word[1:], "-")

    def _read_word_option(self, place: int, word: str) -> Iterator[OptionEffect]:
        entry = self._table.entries.get(word)
        if entry is not None:
            self._waiting += [word] * entry.values
            yield from self._report_option(place, word, entry)
            return
        name, equals, value = word.partition("=")
        starts = [one for one in self._table.entries if one.endswith("*") and word.startswith(one[:-1])]
        if equals and name in self._table.entries and not starts:
            yield from self._report_option(place, name, self._table.entries[name])
            yield from self._read_value(place, value, name, word)
        elif starts:
            longest = max(starts, key=len)
            yield from self._report_option(place, longest[:-1], self._table.entries[longest])
        elif word.startswith("+"):
            yield from self._read_operand(place, word)
        else:
            yield OptionEffect(place, word, "unknown")

    def _read_long(self, place: int, word: str) -> Iterator[OptionEffect]:
        name, equals, value = word.partition("=")
        chosen = self._find_option(name)
        if chosen is None:
            yield OptionEffect(place, name, "unknown")
            return
        entry = self._table.entries[chosen]
        yield from self._report_option(place, name, entry)
        if equals:
            yield from self._read_value(place, value, chosen, word)
        else:
            self._waiting += [chosen] * entry.values

    def _find_option(self, name: str) -> str | None:
        """The option that a long name or its beginning stands for; of several, one with an effect."""
        entries = self._table.entries
        if name in entries:
            return name
        longer = [one for one in entries if one.startswith(name) and len(name) > 2]
        longer += [one for one in entries if one.endswith("*") and name.startswith(one[:-1])]
        if not longer and name.startswith("--no-"):
            return "--help" if self._find_option(f"--{name[5:]}") else None
        return min(longer, key=lambda one: entries[one].effect == "harmless", default=None)

    def _read_letters(self, place: int, letters: str, start: str) -> Iterator[OptionEffect]:
        for at, letter in enumerate(letters):
            option, written = f"-{letter}", f"{start}{letters[: at + 1]}"
            entry = self._table.entries.get(option)
            if entry is None:
                if letter.isdigit():
                    continue
                yield OptionEffect(place, written, "unknown")
                return
            yield from self._report_option(place, written, entry)
            if entry.takes_rest and start:
                rest = letters[at + 1 :]
                if rest:
                    yield from self._read_value(place, rest, option, f"{start}{letters}")
                else:
                    self._waiting += [option] * entry.values
                return
            self._waiting += [option] * entry.values

    def _report_option(self, place: int, option: str, entry: OptionEntry) -> Iterator[OptionEffect]:
        if entry.effect == "wrapped":
            yield OptionEffect(place, option, "executes", wrapped=True)
        elif entry.effect != "harmless":
            yield OptionEffect(place, option, _to_effect(entry.effect))

    def _read_value(self, place: int, value: str, option: str, word: str) -> Iterator[OptionEffect]:
        for options, pattern, effect in self._table.values:
            if option in options and pattern.fullmatch(value):
                yield OptionEffect(place, word, _to_effect(effect))
        if option in _SCRIPT_FILES:
            self._scripted = True
        if option in self._table.scripts:
            self._scripted = True
            yield from self._read_script(place, value, word)

    def _read_script(self, place: int, script: str, word: str) -> Iterator[OptionEffect]:
        for effect in find_script_effects(self._table.language or "", script):
            yield OptionEffect(place, word, effect)

    def _read_operand(self, place: int, word: str) -> Iterator[OptionEffect]:
        self._operands += 1
        if self._operands == 1 and self._table.old_style and place == 1:
            yield from self._read_letters(place, word, "")
            return
        if self._table.subcommands:
            self._table = self._find_subtable(word)
            return
        self._only_operands = self._only_operands or not self._table.permutes
        if self._table.language and not self._scripted:
            self._scripted = True
            yield from self._read_script(place, word, word)
            return
        yield from self._match_patterns(place, word, self._table.operands)
        if self._table.most_operands is not None and self._operands > self._table.most_operands:
            yield OptionEffect(place, word, "writes")
        if self._table.one_address and self._operands > 1:
            yield OptionEffect(place, word, "sends")

    def _find_subtable(self, word: str) -> OptionTable:
        self._operands = 0
        tables = compile_tables()
        return tables.get(f"{self._name} {word}") or tables.get(f"{self._name} *") or NO_OPTIONS

    def _match_patterns(
        self, place: int, word: str, patterns: tuple[tuple[re.Pattern[str], str], ...]
    ) -> Iterator[OptionEffect]:
        effect = next((effect for pattern, effect in patterns if pattern.fullmatch(word)), "harmless")
        if effect != "harmless":
            yield OptionEffect(place, word, _to_effect(effect))


def _to_effect(text: str) -> Effect:
    return cast(Effect, text)


_PS_LETTERS = re.compile(r"-[AadefFjlLmMNPTwyZcHV]*([CGgopqstuUO].*)?")
_PS_LOOKS_UP = re.compile(r"-[A-Za-z]*[uUgG].*|--(u|U|g|G|user|User|group|Group).*")
_PS_TAKES_VALUE = re.compile(r"-[A-Za-z]*[CGgopqstuUO]|[A-Za-z]*[opqtUOk]|--\w+")
_PS_NAMES = re.compile(
    r"--(deselect|pid|ppid|quick-pid|sid|tty|format|context|headers?|no-headers?|cols|columns|width|rows|lines|sort|forest"
    r"|cumulative|help|version|info)(=.*)?"
)


def _read_ps(words: tuple[str | None, ...]) -> Iterator[OptionEffect]:
    """`ps` shows environments for a bare `e`, and parses every word as bare letters when it does not understand one."""
    known = [(place, word) for place, word in enumerate(words) if place and word is not None]
    understood = all(_PS_LETTERS.fullmatch(word) or _PS_NAMES.fullmatch(word) for _, word in known if word[:1] == "-")
    understood = understood and not any(_PS_LOOKS_UP.fullmatch(word) for _, word in known)
    before = ""
    for place, word in known:
        is_value = understood and _PS_TAKES_VALUE.fullmatch(before) is not None
        if word.startswith("--"):
            if not _PS_NAMES.fullmatch(word):
                yield OptionEffect(place, word, "unknown")
        elif word.startswith("-"):
            if "e" in re.split("[oO]", word)[0] and not understood:
                yield OptionEffect(place, word, "reads_elsewhere")
        elif "e" in re.split("[oO]", word)[0] and not is_value and word.isalpha():
            yield OptionEffect(place, word, "reads_elsewhere")
        before = word
    yield from (OptionEffect(place, "", "unknown") for place, word in enumerate(words) if place and word is None)
