"""A shell command as rules see it: the programs it would run, and what keeps an allow rule from covering it (S30).

The one module that knows the shell analysis. An analysis that fails is one that is certain of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache

from holdfast.activities.policy.subject.command_patterns import Phrase, Words
from holdfast.activities.policy.subject.ternary import Truth, combine_all, combine_any, to_truth
from holdfast.activities.shell.analyze import analyse_command, rebuild_command
from holdfast.activities.shell.programs.builtins import is_builtin
from holdfast.activities.shell.programs.option_effects import find_effects, is_known, may_run_unseen
from holdfast.activities.shell.programs.program import NOWHERE, Analysis, Program
from holdfast.activities.shell.programs.program_effects import (
    explain_destructive,
    explain_destructive_write,
    is_harmless,
    may_run_files,
)
from holdfast.activities.shell.programs.scripts import Effect
from holdfast.activities.shell.programs.wrappers import list_runner_phrases
from holdfast.util.text import escape_controls, shorten_text

_ELSEWHERE = re.compile(r"(^|[=:,@'\"\s])[/~]|(^|[/=:,])\.\.(/|$)|^-.*(/|\.\.)", re.DOTALL)
"""In a word: a path that is absolute, in a home, or climbs; and any path in an option, where it may be all of these."""
_EFFECTS: Mapping[Effect, str] = {
    "executes": "may run a program",
    "writes": "writes to a file",
    "deletes": "removes something",
    "sends": "sends data",
    "reads_elsewhere": "reads what no word names",
    "unknown": "is not known",
}
_OPTION_SHOWN = 40
"""Characters of an option that an explanation repeats."""
_FOLDER_COMMANDS = frozenset(["cd", "pushd", "popd"])
"""They lead elsewhere when they name no folder: home, or back."""


MAX_PASSED_WORDS = 50
"""Words of a program that nobody knows which may begin a command that it runs."""
CACHED_LENGTH = 10_000
"""Characters of a command whose reading is kept for the next who asks."""


@dataclass(frozen=True)
class Demand:
    """What a rule says of programs; all of it must hold of the same one."""

    phrases: tuple[Phrase, ...] = ()
    harmless: bool = False
    destructive: bool = False
    anything: bool = False
    """Options that go further count as covered."""
    sees_through: bool = False
    """A program that may run what no word shows is perhaps meant."""


class CommandReading:
    """One command, read once for all rules."""

    def __init__(self, command: str, doubts: tuple[str, ...] = ()) -> None:
        """`doubts` are what is known beside the command: of the repository that it would work on."""
        self.command = command
        self._analysis = _analyse_command(command)
        self._more_doubts = doubts
        self.programs = self._analysis.programs
        self.covered_programs = self.programs
        """What an allow rule or a grant must cover."""

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Why this is perhaps not all that would run."""
        return tuple(dict.fromkeys((*self._analysis.uncertain, *self._more_doubts)))

    @cached_property
    def written_files(self) -> tuple[tuple[str | None, str], ...]:
        """The files that redirections write, by their names, and as they are written where that is not known."""
        known = [(target, target) for target in self._analysis.writes if target is not None]
        open_ones = (
            one for program in self.programs for one in program.redirections if one.is_writing and not one.target
        )
        return (*known, *((None, one.text.lstrip("0123456789<>&|")) for one in open_ones))

    @cached_property
    def extra_effects(self) -> tuple[str, ...]:
        """What the command does beside running programs: no rule about programs covers it."""
        writes = ["it writes to a file"] if self._analysis.writes else []
        sets = ["it sets variables"] if any(program.assignments for program in self.programs) else []
        return (*self.doubts, *writes, *sets)

    @cached_property
    def stays_inside(self) -> Truth:
        """Does it name nothing outside the folder it starts in? What a link leads to, nobody knows here."""
        words = [*self._analysis.writes, *(word for program in self.programs for word in _list_inputs(program))]
        if any(word is not None and _ELSEWHERE.search(word) for word in words) or any(
            map(_may_leave_folder, self.programs)
        ):
            return Truth.NO
        return Truth.MAYBE if self.doubts or None in words else Truth.YES

    @cached_property
    def is_destructive(self) -> bool:
        """Is a program of it known to destroy, or a file that it writes not one to be written?"""
        return self._has_destructive_write or any(explain_destructive(program) for program in self.programs)

    @cached_property
    def _has_destructive_write(self) -> bool:
        return any(explain_destructive_write(target) for target in self._analysis.writes)

    def split_programs(self) -> Iterator[CommandReading]:
        """One for each program, which alone is to be covered: all else is as in the whole command."""
        for program in self.programs:
            part = copy(self)
            part.covered_programs = (program,)
            yield part

    def is_covered_by(self, demand: Demand) -> bool:
        """Is every program that is to be covered meant for certain?"""
        return bool(self.covered_programs) and all(_is_covered(demand, program) for program in self.covered_programs)

    def is_touched_by(self, demand: Demand) -> Truth:
        """Is any program of it meant?"""
        if demand.destructive and not demand.phrases and not demand.harmless and self._has_destructive_write:
            return Truth.YES
        found = combine_any(_is_touched(demand, program) for program in self.programs)
        if demand.sees_through and any(may_run_unseen(one) or _may_pass_on(demand, one) for one in self.programs):
            found = max(found, Truth.MAYBE)
        return max(found, Truth.MAYBE) if self.doubts else found

    @cached_property
    def option_effects(self) -> tuple[str, ...]:
        """Options of its programs that go further than their names suggest, in words for a person."""
        return tuple(
            f"`{shorten_text(escape_controls(one.option), _OPTION_SHOWN)}` of {program.name} {_EFFECTS[one.effect]}"
            for program in self.programs
            for one in find_effects(program)
            if not one.wrapped
        )

    @cached_property
    def first_words(self) -> frozenset[str] | None:
        """The first words that a rule may know its programs by; None when they may not be all."""
        forms = [form for program in self.programs for form in _list_forms(program)]
        forms += [words for program in self.programs for words in _list_passed_words(program)]
        known = frozenset(form[0] for form in forms if form and form[0] is not None)
        unseen = self.doubts or any(map(may_run_unseen, self.programs))
        return None if unseen or any(form[:1] == (None,) for form in forms) else known


def _analyse_command(command: str) -> Analysis:
    """Read once for the question, the rules and the grants alike; long ones are not kept."""
    return _analyse_cached(command) if len(command) <= CACHED_LENGTH else _analyse_safely(command)


@lru_cache(maxsize=256)
def _analyse_cached(command: str) -> Analysis:
    return _analyse_safely(command)


def _analyse_safely(command: str) -> Analysis:
    try:
        return analyse_command(command)
    except Exception:  # nothing a model writes may stop the judging
        return Analysis(command, uncertain=("the command cannot be read",))


def _is_covered(demand: Demand, program: Program) -> bool:
    """By its own words as they stand: inside `timeout` or `bash -c` it is the same program."""
    if demand.phrases and not any(_is_spelled(phrase, program, demand.anything) for phrase in demand.phrases):
        return False
    if demand.harmless and (None in program.words or not is_harmless(program)):
        return False
    return not demand.destructive or explain_destructive(program) is not None


def _is_spelled(phrase: Phrase, program: Program, anything: bool) -> bool:
    """Whether a phrase covers a program, by its own words or by those of its runner, with its command and options."""
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
    known = program.name is not None
    found = [to_truth(is_harmless(program))] if demand.harmless else []
    if demand.destructive:
        found.append(Truth.YES if explain_destructive(program) else to_truth(False) if known else Truth.MAYBE)
    if demand.phrases:
        found.append(
            combine_any(phrase.touches_words(form) for form in _list_forms(program) for phrase in demand.phrases)
        )
    return combine_all(found)


def _list_forms(program: Program) -> Iterator[Words]:
    """The ways to name a program in a rule: as it stands, without what says nothing, by its name, with its wrappers."""
    for words in dict.fromkeys((program.words, program.normal)):
        yield words
        if words and words[0] is not None and "/" in words[0]:
            yield (words[0].rpartition("/")[2], *words[1:])
    for start in range(len(program.wrappers)):
        yield (*_split_wrappers(program.wrappers[start:]), *program.words)


def _may_pass_on(demand: Demand, program: Program) -> bool:
    """Is a program of which nothing is known given the words of one that is meant? `chpst -u x rm y` runs it."""
    return any(
        phrase.first_words is not None and words[0] in phrase.first_words and phrase.touches_words(words) is Truth.YES
        for words in _list_passed_words(program)
        for phrase in demand.phrases
    )


def _list_passed_words(program: Program) -> Iterator[Words]:
    """What a program of which nothing is known may run of its words: some of the last, or those in one of them."""
    if program.name is None or program.runner or is_known(program.name) or is_builtin(program.name):
        return
    for place, word in enumerate(program.words[1:MAX_PASSED_WORDS], 1):
        if word is None:
            continue
        yield (word.rpartition("/")[2], *program.words[place + 1 :])
        inner = word.split() if len(word) < CACHED_LENGTH else []
        for at in range(min(len(inner), MAX_PASSED_WORDS) if len(inner) > 1 else 0):
            yield (inner[at].rpartition("/")[2], *inner[at + 1 :])


def _split_wrappers(wrappers: Iterable[str]) -> list[str]:
    return [word for wrapper in wrappers for word in wrapper.split()]


def _list_inputs(program: Program) -> Iterator[str | None]:
    """What it is given: words, and files it reads from."""
    yield from program.words[1:]
    yield from (one.target for one in program.redirections if one.kind == "read" and one.target != NOWHERE)


def _may_leave_folder(program: Program) -> bool:
    return program.name in _FOLDER_COMMANDS and all(word is not None and word[:1] == "-" for word in program.words[1:])


def explain_phrase_risk(phrase: Phrase) -> str | None:
    """Why an allow rule with these words may allow more, or less, than it seems to; None when nothing is known."""
    any_file = "any-file"
    for name in sorted(phrase.first_words or ("python3", "bash")):
        if may_run_files(name.rpartition("/")[2]) and phrase.covers_words((name, any_file)):
            return f"`{phrase.source}` lets every program in a file run: name the file, or `-m` and the module"
    for runner in list_runner_phrases():
        words = (*runner, any_file)
        if phrase.covers_words(words, {len(runner): any_file}):
            return f"`{phrase.source}` lets every program run that `{' '.join(runner)}` finds: name the command"
        if phrase.first_words is not None and phrase.covers_words(words):
            return f"`{phrase.source}` names no command: what `{' '.join(runner)}` runs must be covered by itself"
    return None


def rebuild_understood(command: str) -> str | None:
    """The command rebuilt from the words that rules judge; None when it is more than a plain chain of programs."""
    return rebuild_command(_analyse_command(command))


def describe_programs(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """For a person: the programs a command would run, and what is not known of it before it runs."""
    found = _analyse_command(command)
    return tuple(dict.fromkeys(program.name for program in found.programs if program.name)), found.uncertain
