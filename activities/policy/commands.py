"""A shell command as rules see it: the programs it would run, and what keeps an allow rule from covering it (S30).

The one module that knows the shell analysis. An analysis that fails is one that is certain of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache

from holdfast.activities.policy.phrases import Phrase, Words
from holdfast.activities.policy.truths import Truth, every, some, truth
from holdfast.activities.shell.analysis import analyse, canonical
from holdfast.activities.shell.builtins import is_builtin
from holdfast.activities.shell.effects import find_effects, is_known, may_run_unseen
from holdfast.activities.shell.interpreters import runs_files
from holdfast.activities.shell.knowledge import destructive, destructive_write, harmless
from holdfast.activities.shell.model import NOWHERE, Analysis, Program
from holdfast.activities.shell.runners import runner_phrases
from holdfast.activities.shell.scripts import Effect
from holdfast.content import shorten, visible

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
_SHOWN = 40
"""Characters of an option that an explanation repeats."""
_MOVING = frozenset(["cd", "pushd", "popd"])
"""They lead elsewhere when they name no folder: home, or back."""


PASSED_ON = 50
"""Words of a program that nobody knows which may begin a command that it runs."""
KEPT = 10_000
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


class Reading:
    """One command, read once for all rules."""

    def __init__(self, command: str, doubts: tuple[str, ...] = ()) -> None:
        """`doubts` are what is known beside the command: of the repository that it would work on."""
        self.command = command
        self._analysis = _analysed(command)
        self._more = doubts
        self.programs = self._analysis.programs
        self.to_cover = self.programs
        """What an allow rule or a grant must cover."""

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Why this is perhaps not all that would run."""
        return tuple(dict.fromkeys((*self._analysis.uncertain, *self._more)))

    @cached_property
    def written(self) -> tuple[tuple[str | None, str], ...]:
        """The files that redirections write, by their names, and as they are written where that is not known."""
        known = [(target, target) for target in self._analysis.writes if target is not None]
        open_ones = (one for program in self.programs for one in program.redirections if one.writes and not one.target)
        return (*known, *((None, one.text.lstrip("0123456789<>&|")) for one in open_ones))

    @cached_property
    def extras(self) -> tuple[str, ...]:
        """What the command does beside running programs: no rule about programs covers it."""
        writes = ["it writes to a file"] if self._analysis.writes else []
        sets = ["it sets variables"] if any(program.assignments for program in self.programs) else []
        return (*self.doubts, *writes, *sets)

    @cached_property
    def inside(self) -> Truth:
        """Does it name nothing outside the folder it starts in? What a link leads to, nobody knows here."""
        words = [*self._analysis.writes, *(word for program in self.programs for word in _named(program))]
        if any(word is not None and _ELSEWHERE.search(word) for word in words) or any(map(_leaves, self.programs)):
            return Truth.NO
        return Truth.MAYBE if self.doubts or None in words else Truth.YES

    @cached_property
    def is_destructive(self) -> bool:
        """Is a program of it known to destroy, or a file that it writes not one to be written?"""
        return self._writes_badly or any(destructive(program) for program in self.programs)

    @cached_property
    def _writes_badly(self) -> bool:
        return any(destructive_write(target) for target in self._analysis.writes)

    def split(self) -> Iterator[Reading]:
        """One for each program, which alone is to be covered: all else is as in the whole command."""
        for program in self.programs:
            part = copy(self)
            part.to_cover = (program,)
            yield part

    def covered(self, demand: Demand) -> bool:
        """Is every program that is to be covered meant for certain?"""
        return bool(self.to_cover) and all(_covered(demand, program) for program in self.to_cover)

    def touched(self, demand: Demand) -> Truth:
        """Is any program of it meant?"""
        if demand.destructive and not demand.phrases and not demand.harmless and self._writes_badly:
            return Truth.YES
        found = some(_touched(demand, program) for program in self.programs)
        if demand.sees_through and any(may_run_unseen(one) or _may_pass_on(demand, one) for one in self.programs):
            found = max(found, Truth.MAYBE)
        return max(found, Truth.MAYBE) if self.doubts else found

    @cached_property
    def further(self) -> tuple[str, ...]:
        """Options of its programs that go further than their names suggest, in words for a person."""
        return tuple(
            f"`{shorten(visible(one.option), _SHOWN)}` of {program.name} {_EFFECTS[one.effect]}"
            for program in self.programs
            for one in find_effects(program)
            if not one.wrapped
        )

    @cached_property
    def heads(self) -> frozenset[str] | None:
        """The first words that a rule may know its programs by; None when they may not be all."""
        forms = [form for program in self.programs for form in _forms(program)]
        forms += [words for program in self.programs for words in _passed_on(program)]
        known = frozenset(form[0] for form in forms if form and form[0] is not None)
        unseen = self.doubts or any(map(may_run_unseen, self.programs))
        return None if unseen or any(form[:1] == (None,) for form in forms) else known


def _analysed(command: str) -> Analysis:
    """Read once for the question, the rules and the grants alike; long ones are not kept."""
    return _kept(command) if len(command) <= KEPT else _read(command)


@lru_cache(maxsize=256)
def _kept(command: str) -> Analysis:
    return _read(command)


def _read(command: str) -> Analysis:
    try:
        return analyse(command)
    except Exception:  # nothing a model writes may stop the judging
        return Analysis(command, uncertain=("the command cannot be read",))


def _covered(demand: Demand, program: Program) -> bool:
    """By its own words as they stand: inside `timeout` or `bash -c` it is the same program."""
    if demand.phrases and not any(_spells(phrase, program, demand.anything) for phrase in demand.phrases):
        return False
    if demand.harmless and (None in program.words or not harmless(program)):
        return False
    return not demand.destructive or destructive(program) is not None


def _spells(phrase: Phrase, program: Program, anything: bool) -> bool:
    """Whether a phrase covers a program, by its own words or by those of its runner, with its command and options."""
    further = {} if anything else {one.place: one.option for one in find_effects(program) if not one.wrapped}
    if phrase.covers(program.words, further):
        return True
    if not program.runner:
        return False
    begins = len(program.runner) - len(program.words)
    in_runner = {max(program.runner_at, begins + place): option for place, option in further.items()}
    command = {place: program.runner[place] or "" for place in (program.runner_at, max(program.runner_at, begins))}
    return phrase.covers(program.runner, {} if anything else {**in_runner, **command})


def _touched(demand: Demand, program: Program) -> Truth:
    known = program.name is not None
    found = [truth(harmless(program))] if demand.harmless else []
    if demand.destructive:
        found.append(Truth.YES if destructive(program) else truth(False) if known else Truth.MAYBE)
    if demand.phrases:
        found.append(some(phrase.touches(form) for form in _forms(program) for phrase in demand.phrases))
    return every(found)


def _forms(program: Program) -> Iterator[Words]:
    """The ways to name a program in a rule: as it stands, without what says nothing, by its name, with its wrappers."""
    for words in dict.fromkeys((program.words, program.normal)):
        yield words
        if words and words[0] is not None and "/" in words[0]:
            yield (words[0].rpartition("/")[2], *words[1:])
    for start in range(len(program.wrappers)):
        yield (*_wrapping(program.wrappers[start:]), *program.words)


def _may_pass_on(demand: Demand, program: Program) -> bool:
    """Is a program of which nothing is known given the words of one that is meant? `chpst -u x rm y` runs it."""
    return any(
        phrase.first is not None and words[0] in phrase.first and phrase.touches(words) is Truth.YES
        for words in _passed_on(program)
        for phrase in demand.phrases
    )


def _passed_on(program: Program) -> Iterator[Words]:
    """What a program of which nothing is known may run of its words: some of the last, or those in one of them."""
    if program.name is None or program.runner or is_known(program.name) or is_builtin(program.name):
        return
    for place, word in enumerate(program.words[1:PASSED_ON], 1):
        if word is None:
            continue
        yield (word.rpartition("/")[2], *program.words[place + 1 :])
        inner = word.split() if len(word) < KEPT else []
        for at in range(min(len(inner), PASSED_ON) if len(inner) > 1 else 0):
            yield (inner[at].rpartition("/")[2], *inner[at + 1 :])


def _wrapping(wrappers: Iterable[str]) -> list[str]:
    return [word for wrapper in wrappers for word in wrapper.split()]


def _named(program: Program) -> Iterator[str | None]:
    """What it is given: words, and files it reads from."""
    yield from program.words[1:]
    yield from (one.target for one in program.redirections if one.kind == "read" and one.target != NOWHERE)


def _leaves(program: Program) -> bool:
    return program.name in _MOVING and all(word is not None and word[:1] == "-" for word in program.words[1:])


def warn_of_phrase(phrase: Phrase) -> str | None:
    """Why an allow rule with these words may allow more, or less, than it seems to; None when nothing is known."""
    any_file = "any-file"
    for name in sorted(phrase.first or ("python3", "bash")):
        if runs_files(name.rpartition("/")[2]) and phrase.covers((name, any_file)):
            return f"`{phrase.source}` lets every program in a file run: name the file, or `-m` and the module"
    for runner in runner_phrases():
        words = (*runner, any_file)
        if phrase.covers(words, {len(runner): any_file}):
            return f"`{phrase.source}` lets every program run that `{' '.join(runner)}` finds: name the command"
        if phrase.first is not None and phrase.covers(words):
            return f"`{phrase.source}` names no command: what `{' '.join(runner)}` runs must be covered by itself"
    return None


def as_understood(command: str) -> str | None:
    """The command rebuilt from the words that rules judge; None when it is more than a plain chain of programs."""
    return canonical(_analysed(command))


def told_of(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """For a person: the programs a command would run, and what is not known of it before it runs."""
    found = _analysed(command)
    return tuple(dict.fromkeys(program.name for program in found.programs if program.name)), found.uncertain
