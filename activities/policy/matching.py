"""Does a rule hold of a call? Each of its keys becomes a condition, and all of them must hold.

An allow rule must cover everything a call names: every path, every url, every program. A deny or an ask rule is about
a call as soon as it is about one of them. What nobody can know counts against the call: an allow rule needs a plain
yes, an ask rule takes a perhaps for a yes, and a perhaps of a deny rule is told as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from holdfast.activities.policy.commands import Demand, Reading
from holdfast.activities.policy.globs import Glob
from holdfast.activities.policy.hosts import HostPattern, host_of
from holdfast.activities.policy.paths import PathTest, below, is_one_file
from holdfast.activities.policy.phrases import phrase_of
from holdfast.activities.policy.rules import Answer, Rule
from holdfast.activities.policy.subjects import Subject, is_inside
from holdfast.activities.policy.truths import Truth, every, some, truth
from holdfast.activities.policy.values import Expression, compared, equal
from holdfast.content import shorten, visible

_SHOWN = 200
"""Characters of a condition that an explanation repeats."""


class Facts:
    """A subject, and what is found out about it once for all rules."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    @cached_property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Its paths, each with one below it."""
        return tuple((path, below(path)) for path in self.subject.paths)

    @cached_property
    def hosts(self) -> tuple[str | None, ...]:
        """Of its urls; None for one that cannot be told."""
        return tuple(host_of(url) for url in self.subject.urls)

    @cached_property
    def reading(self) -> Reading | None:
        """Of its command."""
        subject = self.subject
        return None if subject.command is None else Reading(subject.command, subject.doubts)

    def split(self) -> tuple[Facts, ...]:
        """One for each program of its command: rules that allow must cover that one, and all others see the whole."""
        parts = []
        for reading in self.reading.split() if self.reading else ():
            part = Facts(self.subject)
            part.reading = reading
            parts.append(part)
        return tuple(parts)

    @cached_property
    def inside(self) -> Truth:
        """Does it stay in the workspace?"""
        stays = truth(self.subject.in_workspace and all(map(is_inside, self.subject.paths)))
        return min(stays, self.reading.inside) if self.reading else stays


@dataclass(frozen=True)
class Condition:
    """One key of a rule, as a test."""

    test: Callable[[Facts], Truth]
    why: Callable[[Facts], str]
    """Why it does not hold."""


def conditions_of(rule: Rule) -> tuple[Condition, ...]:
    """The tests of a rule, the cheap ones first."""
    return tuple(_conditions(rule))


def standing(rule: Rule, conditions: tuple[Condition, ...], facts: Facts) -> tuple[Truth, Condition | None]:
    """Is the rule about this call? With the condition that says no. MAYBE is for a deny rule alone."""
    found = Truth.YES
    for condition in conditions:
        holds = condition.test(facts)
        if holds is Truth.YES:
            continue
        if holds is Truth.NO or rule.decision is Answer.ALLOW:
            return Truth.NO, condition
        found = holds
    return Truth.YES if rule.decision is Answer.ASK else found, None


def _conditions(rule: Rule) -> Iterator[Condition]:
    yield from _on_the_tool(rule)
    yield from _on_the_turn(rule)
    yield from _on_arguments(rule)
    yield from _on_what_it_names(rule)
    yield from _on_programs(rule)
    if rule.decision is Answer.ALLOW:
        yield from _on_what_is_left(rule)


def _on_the_tool(rule: Rule) -> Iterator[Condition]:
    if rule.tool:
        by_server = rule.server is not None
        why = f"the tool is not {_listed(rule.tool)}"
        yield _plain(_names(rule.tool, lambda subject: subject.names if by_server else (subject.tool,)), why)
    if rule.server:
        of_none = rule.server == ("",)
        why = "the tool is of a server" if of_none else f"the server is not {_listed(rule.server)}"
        yield _plain(_names(rule.server, lambda subject: (subject.server or "",)), why)
    if effects := rule.effect:
        yield _plain(lambda subject: subject.effect in effects, f"the effect is not {_listed(effects)}")
    if kinds := rule.kind:
        yield _plain(lambda subject: subject.kind in kinds, f"the kind is not {_listed(kinds)}")


def _on_the_turn(rule: Rule) -> Iterator[Condition]:
    if (tainted := rule.tainted) is not None:
        words = "has not" if tainted else "has"
        yield _plain(lambda subject: subject.tainted is tainted, f"the turn {words} taken in content from outside")
    if (sends := rule.sends) is not None:
        yield _plain(
            lambda subject: subject.sends is sends, f"the call {'sends nothing' if sends else 'sends data'} out"
        )
    if rule.protected:
        yield _plain(lambda subject: bool(subject.protected), "the call changes no file that decides what runs")


def _on_arguments(rule: Rule) -> Iterator[Condition]:
    if wanted := rule.arguments:
        yield _fixed(
            lambda facts: compared(wanted, facts.subject.arguments, equal), "the arguments are not those of the rule"
        )
    if rule.patterns:
        compiled = _compiled(rule.patterns)
        yield _fixed(
            lambda facts: compared(compiled, facts.subject.arguments, _matches), "the arguments do not match `patterns`"
        )


def _on_what_it_names(rule: Rule) -> Iterator[Condition]:
    all_of, word = (every, "not every") if rule.decision is Answer.ALLOW else (some, "no")
    if rule.path:
        why = f"{word} path of the call is {_listed(rule.path)}"
        yield _fixed(_path_test(rule.path, covering=rule.decision is Answer.ALLOW), why)
    if rule.host:
        hosts = [HostPattern(host) for host in rule.host]
        why = f"{word} host of the call is {_listed(rule.host)}"
        yield _fixed(lambda facts: all_of(some(host.matches(name) for host in hosts) for name in facts.hosts), why)
    if (wanted := rule.in_workspace) is not None:
        why = f"the call {'leaves' if wanted else 'stays in'} the workspace, or may do so"
        yield _fixed(lambda facts: facts.inside if wanted else Truth(Truth.YES - facts.inside), why)


def _on_programs(rule: Rule) -> Iterator[Condition]:
    if not rule.on_programs:
        return
    demand = Demand(
        tuple(map(phrase_of, rule.command or ())),
        bool(rule.harmless),
        bool(rule.destructive),
        anything=bool(rule.anything),
        sees_through=rule.decision is Answer.DENY and not rule.harmless,
    )
    on_tools = bool(rule.destructive and not rule.command and not rule.harmless)
    if rule.decision is not Answer.ALLOW:
        why = f"no program of the call is {_demanded(rule)}"

        def touched(facts: Facts) -> Truth:
            if on_tools and facts.subject.destructive:
                return Truth.YES
            return facts.reading.touched(demand) if facts.reading else Truth.NO

        yield _fixed(touched, why)
        return

    def covered(facts: Facts) -> Truth:
        return truth(facts.reading.covered(demand) if facts.reading else on_tools and facts.subject.destructive)

    yield Condition(
        covered,
        lambda facts: _not_covered(rule, facts),
    )
    if not rule.anything:
        yield Condition(
            lambda facts: truth(not _extras(facts)),
            lambda facts: f"{'; '.join(_extras(facts))}: an allow rule on commands does not cover that",
        )


def _on_what_is_left(rule: Rule) -> Iterator[Condition]:
    """What an allow rule does not mention, it does not cover: of what a call names, destroys, or lets run later."""
    files = frozenset(filter(is_one_file, rule.path or ()))
    yield Condition(
        lambda facts: truth(files.issuperset(facts.subject.protected)),
        lambda facts: (
            f"the call changes {_listed(tuple(facts.subject.protected))}, which decides what runs: "
            "an allow rule covers that only by naming the very file in `path`"
        ),
    )
    if rule.path or rule.host or rule.on_programs:
        yield Condition(
            lambda facts: truth(not _unmentioned(rule, facts.subject)), lambda facts: _uncovered(rule, facts)
        )
    arguments = rule.arguments or {}
    if "command" in arguments and "environment" not in arguments and not rule.anything:
        yield _plain(
            lambda subject: not subject.sets_variables, "the call sets variables, which the rule does not mention"
        )
    if not (rule.on_programs or "command" in arguments):
        why = "the command is destructive, and a rule covers that only with `command` or `destructive`"
        yield _fixed(lambda facts: truth(not (facts.reading and facts.reading.is_destructive)), why)


def _plain(test: Callable[[Subject], bool], why: str) -> Condition:
    return _fixed(lambda facts: truth(test(facts.subject)), why)


def _fixed(test: Callable[[Facts], Truth], why: str) -> Condition:
    return Condition(test, lambda _: why)


def _names(patterns: tuple[str, ...], names: Callable[[Subject], tuple[str, ...]]) -> Callable[[Subject], bool]:
    globs = [Glob(pattern) for pattern in patterns]
    literals = frozenset[str]().union(*(glob.literals for glob in globs))
    wild = [glob for glob in globs if not glob.literal]

    def test(subject: Subject) -> bool:
        return any(name in literals or any(glob.matches(name) for glob in wild if name) for name in names(subject))

    return test


def _path_test(patterns: tuple[str, ...], *, covering: bool) -> Callable[[Facts], Truth]:
    tests = [PathTest(pattern) for pattern in patterns]

    def covered(facts: Facts) -> Truth:
        return every(truth(any(test.covers(path) for test in tests)) for path in facts.subject.paths)

    def touched(facts: Facts) -> Truth:
        return truth(any(test.touches(path, inner) for test in tests for path, inner in facts.places))

    return covered if covering else touched


def _compiled(patterns: dict[str, object]) -> dict[str, object]:
    return {
        name: _compiled(value) if isinstance(value, dict) else Expression(str(value))
        for name, value in patterns.items()
    }


def _matches(wanted: Expression, given: object) -> Truth:
    return wanted.matches(given) if isinstance(given, str) else Truth.NO


def _extras(facts: Facts) -> tuple[str, ...]:
    found = facts.reading.extras if facts.reading else ()
    return (*found, "the call sets variables") if facts.subject.sets_variables else found


def _not_covered(rule: Rule, facts: Facts) -> str:
    if facts.reading is None:
        return "it has no command"
    words = f"not every program of the call is {_demanded(rule)}"
    if not facts.reading.further:
        return words
    return f"{words}; {'; '.join(facts.reading.further)}, which a rule must spell out"


def _unmentioned(rule: Rule, subject: Subject) -> list[str]:
    named = {
        "paths": bool(subject.paths) and not rule.path,
        "urls": bool(subject.urls) and not rule.host,
        "command": subject.command is not None and not rule.on_programs,
    }
    return [word for word, left in named.items() if left]


def _uncovered(rule: Rule, facts: Facts) -> str:
    return f"the rule does not mention the call's {' and '.join(_unmentioned(rule, facts.subject))}"


def _demanded(rule: Rule) -> str:
    known = [word for word in ("harmless", "destructive") if getattr(rule, word)]
    return " and ".join([*known, *([_listed(rule.command)] if rule.command else [])])


def _listed(values: tuple[str, ...]) -> str:
    return shorten(visible(" or ".join(f"`{value}`" for value in values)).replace("\n", "␊"), _SHOWN)
