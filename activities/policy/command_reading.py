"""The analysis of one shell command, with the questions that rules and grants ask about its programs (S30)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache

from holdfast.activities.policy.command_phrases import Phrase, Words
from holdfast.activities.policy.subject import Truth, combine_all, combine_any, to_truth
from holdfast.activities.shell.programs.builtins import is_builtin
from holdfast.activities.shell.programs.option_effects import find_effects, is_known, may_run_unseen
from holdfast.activities.shell.programs.program import NOWHERE, Analysis, Program
from holdfast.activities.shell.programs.program_effects import (
    explain_destructive,
    explain_destructive_write,
    is_harmless,
    may_bring_in,
)
from holdfast.activities.shell.programs.scripts import Effect
from holdfast.util.text import escape_controls, shorten_text

MAX_PASSED_WORDS = 50
"""Words of an unknown program that may each begin a command that it runs."""
CACHED_LENGTH = 10_000
"""Characters of a command whose analysis is cached."""
_ELSEWHERE = re.compile(r"(^|[=:,@'\"\s])[/~]|(^|[/=:,])\.\.(/|$)|^-.*(/|\.\.)", re.DOTALL)
"""A path in a word that is absolute, in a home or climbing; in an option any path, since it may be all of these."""
_EFFECT_TEXTS: Mapping[Effect, str] = {
    "executes": "may run a program",
    "writes": "writes to a file",
    "deletes": "removes something",
    "sends": "sends data",
    "reads_elsewhere": "reads what no word names",
    "unknown": "is not known",
}
_OPTION_SHOWN = 40
"""Characters of an option in an explanation."""
_FOLDER_COMMANDS = frozenset(["cd", "pushd", "popd"])
"""Without a folder they lead elsewhere: home, or back."""


@dataclass(frozen=True)
class Demand:
    """The conditions of one rule on programs; one program must meet all of them."""

    phrases: tuple[Phrase, ...] = ()
    harmless: bool = False
    destructive: bool = False
    anything: bool = False
    """Options with an effect of their own are covered too."""
    sees_through: bool = False
    """A program that may run others that no word names counts as a possible match."""


class CommandReading:
    """The analysis of one command, with what rules and grants ask about it. Computed once for all rules."""

    def __init__(self, command: str, doubts: tuple[str, ...] = ()) -> None:
        """`doubts` are known beside the command: about the repository that it would work on."""
        self.command = command
        self._analysis = _analyse_cached(command) if len(command) <= CACHED_LENGTH else _analyse_safely(command)
        self._more_doubts = doubts
        self.programs = self._analysis.programs
        self.covered_programs = self.programs
        """The programs that an allow rule or a grant must cover."""

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Reasons why the programs may not be all that would run."""
        return tuple(dict.fromkeys((*self._analysis.uncertain, *self._more_doubts)))

    @cached_property
    def program_names(self) -> tuple[str, ...]:
        """The known names of its programs, each once."""
        return tuple(dict.fromkeys(program.name for program in self.programs if program.name))

    @cached_property
    def rebuilt(self) -> str | None:
        """The command rebuilt from the words that are judged; None when it is more than a plain chain of programs."""
        from holdfast.activities.shell.analyze import rebuild_command

        return rebuild_command(self._analysis)

    @cached_property
    def written_files(self) -> tuple[tuple[str | None, str], ...]:
        """The files that redirections write: the name, None when unknown, and the text of the redirection."""
        known = [(target, target) for target in self._analysis.writes if target is not None]
        redirections = (one for program in self.programs for one in program.redirections)
        unknown = (one for one in redirections if one.is_writing and not one.target)
        return (*known, *((None, one.text.lstrip("0123456789<>&|")) for one in unknown))

    @cached_property
    def extra_effects(self) -> tuple[str, ...]:
        """The effects of the command beside running programs, for a person: no rule about programs covers them."""
        writes = ["it writes to a file"] if self._analysis.writes else []
        sets = ["it sets variables"] if any(program.assignments for program in self.programs) else []
        return (*self.doubts, *writes, *sets)

    @cached_property
    def option_effects(self) -> tuple[str, ...]:
        """Options of its programs with an effect of their own, for a person."""
        found = ((program, one) for program in self.programs for one in find_effects(program) if not one.wrapped)
        return tuple(
            f"`{_shorten(one.option)}` of {program.name} {_EFFECT_TEXTS[one.effect]}" for program, one in found
        )

    @cached_property
    def stays_inside(self) -> Truth:
        """Are all paths that it names inside of the folder that it starts in? Links are not resolved."""
        words = [*self._analysis.writes, *(word for program in self.programs for word in _list_inputs(program))]
        if any(word and _ELSEWHERE.search(word) for word in words) or any(map(_may_leave_folder, self.programs)):
            return Truth.NO
        return Truth.MAYBE if self.doubts or None in words else Truth.YES

    @cached_property
    def is_destructive(self) -> bool:
        """Does one of its programs or redirections certainly destroy something?"""
        return self._has_destructive_write or any(explain_destructive(program) for program in self.programs)

    @cached_property
    def may_bring_in(self) -> bool:
        """May its output hold content from other machines?"""
        return bool(self.doubts) or any(map(may_bring_in, self.programs))

    @cached_property
    def is_read_only(self) -> bool:
        """Is it certain that all of its programs only read?"""
        known = all(is_harmless(program) and None not in program.words for program in self.programs)
        return not self.doubts and bool(self.programs) and known

    @cached_property
    def first_words(self) -> frozenset[str] | None:
        """The first words by which a rule may know its programs; None when these may not be all."""
        forms = [form for program in self.programs for form in _list_forms(program)]
        forms += [words for program in self.programs for words in _list_passed_words(program)]
        known = frozenset(form[0] for form in forms if form and form[0] is not None)
        unseen = self.doubts or any(map(may_run_unseen, self.programs))
        return None if unseen or any(form[:1] == (None,) for form in forms) else known

    def split_programs(self) -> Iterator[CommandReading]:
        """One reading for each program, in which only that program has to be covered."""
        for program in self.programs:
            part = copy(self)
            part.covered_programs = (program,)
            yield part

    def is_covered_by(self, demand: Demand) -> bool:
        """Does every program that has to be covered certainly meet the demand?"""
        return bool(self.covered_programs) and all(_is_covered(demand, program) for program in self.covered_programs)

    def is_touched_by(self, demand: Demand) -> Truth:
        """Does any program meet the demand?"""
        if demand.destructive and not demand.phrases and not demand.harmless and self._has_destructive_write:
            return Truth.YES
        found = combine_any(_is_touched(demand, program) for program in self.programs)
        if demand.sees_through and any(may_run_unseen(one) or _may_pass_on(demand, one) for one in self.programs):
            found = max(found, Truth.MAYBE)
        return max(found, Truth.MAYBE) if self.doubts else found

    @cached_property
    def _has_destructive_write(self) -> bool:
        return any(explain_destructive_write(target) for target in self._analysis.writes)


@lru_cache(maxsize=256)
def _analyse_cached(command: str) -> Analysis:
    """One command is analysed for the question, the rules and the grants alike."""
    return _analyse_safely(command)


def _analyse_safely(command: str) -> Analysis:
    # The parser is loaded with the first command: many workers never get one.
    from holdfast.activities.shell.analyze import analyse_command

    try:
        return analyse_command(command)
    except Exception:  # no text of a model may stop the judgement
        return Analysis(command, uncertain=("the command cannot be read",))


def _is_covered(demand: Demand, program: Program) -> bool:
    """Compare by the program's own words: inside of `timeout` or `bash -c` it is the same program."""
    if demand.phrases and not any(_is_spelled(phrase, program, demand.anything) for phrase in demand.phrases):
        return False
    if demand.harmless and (None in program.words or not is_harmless(program)):
        return False
    return not demand.destructive or explain_destructive(program) is not None


def _is_spelled(phrase: Phrase, program: Program, anything: bool) -> bool:
    """Does a phrase cover a program, by its own words or by those of its runner with its command and options?"""
    further = {} if anything else {one.place: one.option for one in find_effects(program) if not one.wrapped}
    if phrase.covers_words(program.words, further):
        return True
    if not program.runner:
        return False
    begins = len(program.runner) - len(program.words)
    in_runner = {max(program.runner_at, begins + place): option for place, option in further.items()}
    command = {place: program.runner[place] or "" for place in (program.runner_at, max(program.runner_at, begins))}
    return phrase.covers_words(program.runner, {} if anything else {**in_runner, **command})


def _is_touched(demand: Demand, program: Program) -> Truth:
    found = [to_truth(is_harmless(program))] if demand.harmless else []
    if demand.destructive:
        unknown = Truth.MAYBE if program.name is None else Truth.NO
        found.append(Truth.YES if explain_destructive(program) else unknown)
    if demand.phrases:
        forms = list(_list_forms(program))
        found.append(combine_any(phrase.touches_words(form) for form in forms for phrase in demand.phrases))
    return combine_all(found)


def _list_forms(program: Program) -> Iterator[Words]:
    """The ways in which a rule may name a program: as written, normalised, without folder, with its wrappers."""
    for words in dict.fromkeys((program.words, program.normal)):
        yield words
        if words and words[0] is not None and "/" in words[0]:
            yield (words[0].rpartition("/")[2], *words[1:])
    for start in range(len(program.wrappers)):
        outer = [word for wrapper in program.wrappers[start:] for word in wrapper.split()]
        yield (*outer, *program.words)


def _may_pass_on(demand: Demand, program: Program) -> bool:
    """Do the words of an unknown program hold a command that the demand is about? `chpst -u x rm y` runs `rm`."""
    return any(
        phrase.first_words is not None and words[0] in phrase.first_words and phrase.touches_words(words) is Truth.YES
        for words in _list_passed_words(program)
        for phrase in demand.phrases
    )


def _list_passed_words(program: Program) -> Iterator[Words]:
    """The commands that an unknown program may run: its last words from any on, or the words in one of them."""
    if program.name is None or program.runner or is_known(program.name) or is_builtin(program.name):
        return
    for place, word in enumerate(program.words[1:MAX_PASSED_WORDS], 1):
        if word is None:
            continue
        yield (word.rpartition("/")[2], *program.words[place + 1 :])
        inner = word.split() if len(word) < CACHED_LENGTH else []
        for at in range(min(len(inner), MAX_PASSED_WORDS) if len(inner) > 1 else 0):
            yield (inner[at].rpartition("/")[2], *inner[at + 1 :])


def _list_inputs(program: Program) -> Iterator[str | None]:
    """Its words, and the files that it reads from."""
    yield from program.words[1:]
    yield from (one.target for one in program.redirections if one.kind == "read" and one.target != NOWHERE)


def _shorten(option: str) -> str:
    return shorten_text(escape_controls(option), _OPTION_SHOWN)


def _may_leave_folder(program: Program) -> bool:
    return program.name in _FOLDER_COMMANDS and all(word is not None and word[:1] == "-" for word in program.words[1:])
