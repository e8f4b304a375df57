"""Matches rules with calls: each key of a rule becomes a condition, and all of them must hold.

An allow rule must cover everything that a call names: every path, every url, every program. A deny or ask rule matches
as soon as it is about one of them. An unknown fact counts against the call: an allow rule needs YES, an ask rule takes
MAYBE for YES, and a deny rule that is MAYBE is reported as such.

Why: docs/decisions/0013-rules-look-at-values.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from holdfast.activities.policy.command_phrases import parse_phrase
from holdfast.activities.policy.command_reading import CommandReading, Demand
from holdfast.activities.policy.patterns import (
    Expression,
    HostPattern,
    PathTest,
    build_child_path,
    compare_arguments,
    compare_values,
    find_host,
    is_one_file,
)
from holdfast.activities.policy.rules import Rule, RuleEffect
from holdfast.activities.policy.subject import Subject, Truth, combine_all, combine_any, is_inside, to_truth
from holdfast.util.globs import Glob
from holdfast.util.text import escape_controls, shorten_text

_SHOWN_LIMIT = 200
"""Characters of a condition in an explanation."""


class CallFacts:
    """A subject, and what is computed about it once for all rules."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    @cached_property
    def path_pairs(self) -> tuple[tuple[str, str], ...]:
        """Its paths, each with a path below it."""
        return tuple((path, build_child_path(path)) for path in self.subject.paths)

    @cached_property
    def hosts(self) -> tuple[str | None, ...]:
        """The hosts of its urls; None for an unknown one."""
        return tuple(find_host(url) for url in self.subject.urls)

    @cached_property
    def reading(self) -> CommandReading | None:
        """The analysis of its command; None without one."""
        subject = self.subject
        return None if subject.command is None else CommandReading(subject.command, subject.doubts)

    def split_programs(self) -> tuple[CallFacts, ...]:
        """One for each program of its command: allow rules have to cover that program, all others see the whole."""
        parts = []
        for reading in self.reading.split_programs() if self.reading else ():
            part = CallFacts(self.subject)
            part.reading = reading
            parts.append(part)
        return tuple(parts)

    @cached_property
    def stays_inside(self) -> Truth:
        """Does it stay in the workspace?"""
        stays = to_truth(self.subject.in_workspace and all(map(is_inside, self.subject.paths)))
        return min(stays, self.reading.stays_inside) if self.reading else stays


def may_take_in(subject: Subject, *, open_world: bool = False) -> bool:
    """May the result of a call hold content of others, so that the turn becomes tainted? Errs towards yes.

    `open_world` is what the tool declares; it matters for tools whose calls name no url or command.
    """
    reading = CallFacts(subject).reading
    return open_world or bool(subject.urls) or (reading is not None and reading.may_bring_in)


def may_send(subject: Subject, *, open_world: bool = False) -> bool:
    """May a call send data out? Errs towards yes: a url alone can carry data, and so can an unknown program."""
    reading = CallFacts(subject).reading
    may_leave = reading is not None and (subject.sets_variables or not reading.is_read_only)
    return open_world or bool(subject.urls) or may_leave


@dataclass(frozen=True)
class Condition:
    """The test of one key of a rule."""

    evaluate: Callable[[CallFacts], Truth]
    explain: Callable[[CallFacts], str]
    """Says why it does not hold."""


def build_conditions(rule: Rule) -> tuple[Condition, ...]:
    """The conditions of a rule, the cheap ones first."""
    return tuple(_list_conditions(rule))


def match_rule(rule: Rule, conditions: tuple[Condition, ...], facts: CallFacts) -> tuple[Truth, Condition | None]:
    """Does the rule match? With the condition that does not hold. MAYBE is only possible for a deny rule."""
    found = Truth.YES
    for condition in conditions:
        holds = condition.evaluate(facts)
        if holds is Truth.YES:
            continue
        if holds is Truth.NO or rule.decision is RuleEffect.ALLOW:
            return Truth.NO, condition
        found = holds
    return Truth.YES if rule.decision is RuleEffect.ASK else found, None


def _list_conditions(rule: Rule) -> Iterator[Condition]:
    yield from _build_tool_conditions(rule)
    yield from _build_turn_conditions(rule)
    yield from _build_argument_conditions(rule)
    yield from _build_target_conditions(rule)
    yield from _build_program_conditions(rule)
    if rule.decision is RuleEffect.ALLOW:
        yield from _build_remainder_conditions(rule)


def _build_tool_conditions(rule: Rule) -> Iterator[Condition]:
    if rule.tool:
        by_server = rule.server is not None
        why = f"the tool is not {_format_values(rule.tool)}"
        yield _build_plain_condition(
            _build_name_test(rule.tool, lambda subject: subject.tool_names if by_server else (subject.tool,)), why
        )
    if rule.server:
        of_none = rule.server == ("",)
        why = "the tool is of a server" if of_none else f"the server is not {_format_values(rule.server)}"
        yield _build_plain_condition(_build_name_test(rule.server, lambda subject: (subject.server or "",)), why)
    if effects := rule.effect:
        yield _build_plain_condition(
            lambda subject: subject.effect in effects, f"the effect is not {_format_values(effects)}"
        )
    if kinds := rule.kind:
        yield _build_plain_condition(lambda subject: subject.kind in kinds, f"the kind is not {_format_values(kinds)}")


def _build_turn_conditions(rule: Rule) -> Iterator[Condition]:
    if (tainted := rule.tainted) is not None:
        words = "has not" if tainted else "has"
        yield _build_plain_condition(
            lambda subject: subject.tainted is tainted, f"the turn {words} taken in content from outside"
        )
    if (sends := rule.sends) is not None:
        yield _build_plain_condition(
            lambda subject: subject.sends is sends, f"the call {'sends nothing' if sends else 'sends data'} out"
        )
    if rule.protected:
        yield _build_plain_condition(
            lambda subject: bool(subject.protected), "the call changes no file that decides what runs"
        )


def _build_argument_conditions(rule: Rule) -> Iterator[Condition]:
    if wanted := rule.arguments:
        yield _build_condition(
            lambda facts: compare_arguments(wanted, facts.subject.arguments, compare_values),
            "the arguments are not those of the rule",
        )
    if rule.patterns:
        compiled = _compile_patterns(rule.patterns)
        yield _build_condition(
            lambda facts: compare_arguments(compiled, facts.subject.arguments, _match_expression),
            "the arguments do not match `patterns`",
        )


def _build_target_conditions(rule: Rule) -> Iterator[Condition]:
    all_of, word = (combine_all, "not every") if rule.decision is RuleEffect.ALLOW else (combine_any, "no")
    if rule.path:
        why = f"{word} path of the call is {_format_values(rule.path)}"
        yield _build_condition(_build_path_test(rule.path, covering=rule.decision is RuleEffect.ALLOW), why)
    if rule.host:
        hosts = [HostPattern(host) for host in rule.host]
        why = f"{word} host of the call is {_format_values(rule.host)}"
        yield _build_condition(
            lambda facts: all_of(combine_any(host.matches(name) for host in hosts) for name in facts.hosts), why
        )
    if (wanted := rule.in_workspace) is not None:
        why = f"the call {'leaves' if wanted else 'stays in'} the workspace, or may do so"
        yield _build_condition(
            lambda facts: facts.stays_inside if wanted else Truth(Truth.YES - facts.stays_inside), why
        )


def _build_program_conditions(rule: Rule) -> Iterator[Condition]:
    if not rule.is_about_programs:
        return
    demand = Demand(
        tuple(map(parse_phrase, rule.command or ())),
        bool(rule.harmless),
        bool(rule.destructive),
        anything=bool(rule.anything),
        sees_through=rule.decision is RuleEffect.DENY and not rule.harmless,
    )
    on_tools = bool(rule.destructive and not rule.command and not rule.harmless)
    if rule.decision is not RuleEffect.ALLOW:
        why = f"no program of the call is {_describe_demand(rule)}"

        def is_touched(facts: CallFacts) -> Truth:
            if on_tools and facts.subject.destructive:
                return Truth.YES
            return facts.reading.is_touched_by(demand) if facts.reading else Truth.NO

        yield _build_condition(is_touched, why)
        return

    def is_covered(facts: CallFacts) -> Truth:
        return to_truth(
            facts.reading.is_covered_by(demand) if facts.reading else on_tools and facts.subject.destructive
        )

    yield Condition(
        is_covered,
        lambda facts: _describe_uncovered(rule, facts),
    )
    if not rule.anything:
        yield Condition(
            lambda facts: to_truth(not _list_extras(facts)),
            lambda facts: f"{'; '.join(_list_extras(facts))}: an allow rule on commands does not cover that",
        )


def _build_remainder_conditions(rule: Rule) -> Iterator[Condition]:
    """An allow rule covers nothing that it does not mention: paths, urls, commands, destruction, protected files."""
    files = frozenset(filter(is_one_file, rule.path or ()))
    yield Condition(
        lambda facts: to_truth(files.issuperset(facts.subject.protected)),
        lambda facts: (
            f"the call changes {_format_values(tuple(facts.subject.protected))}, which decides what runs: "
            "an allow rule covers that only by naming the very file in `path`"
        ),
    )
    if rule.path or rule.host or rule.is_about_programs:
        yield Condition(
            lambda facts: to_truth(not _list_unmentioned(rule, facts.subject)),
            lambda facts: _describe_unmentioned(rule, facts),
        )
    arguments = rule.arguments or {}
    if "command" in arguments and "environment" not in arguments and not rule.anything:
        yield _build_plain_condition(
            lambda subject: not subject.sets_variables, "the call sets variables, which the rule does not mention"
        )
    if not (rule.is_about_programs or "command" in arguments):
        why = "the command is destructive, and a rule covers that only with `command` or `destructive`"
        yield _build_condition(lambda facts: to_truth(not (facts.reading and facts.reading.is_destructive)), why)


def _build_plain_condition(test: Callable[[Subject], bool], why: str) -> Condition:
    return _build_condition(lambda facts: to_truth(test(facts.subject)), why)


def _build_condition(test: Callable[[CallFacts], Truth], why: str) -> Condition:
    return Condition(test, lambda _: why)


def _build_name_test(
    patterns: tuple[str, ...], names: Callable[[Subject], tuple[str, ...]]
) -> Callable[[Subject], bool]:
    globs = [Glob(pattern) for pattern in patterns]
    literals = frozenset[str]().union(*(glob.literals for glob in globs))
    wild = [glob for glob in globs if not glob.is_literal]

    def matches_name(subject: Subject) -> bool:
        return any(name in literals or any(glob.matches(name) for glob in wild if name) for name in names(subject))

    return matches_name


def _build_path_test(patterns: tuple[str, ...], *, covering: bool) -> Callable[[CallFacts], Truth]:
    tests = [PathTest(pattern) for pattern in patterns]

    def is_covered(facts: CallFacts) -> Truth:
        return combine_all(to_truth(any(test.covers_path(path) for test in tests)) for path in facts.subject.paths)

    def is_touched(facts: CallFacts) -> Truth:
        return to_truth(any(test.touches_path(path, inner) for test in tests for path, inner in facts.path_pairs))

    return is_covered if covering else is_touched


def _compile_patterns(patterns: dict[str, object]) -> dict[str, object]:
    return {
        name: _compile_patterns(value) if isinstance(value, dict) else Expression(str(value))
        for name, value in patterns.items()
    }


def _match_expression(wanted: Expression, given: object) -> Truth:
    return wanted.matches(given) if isinstance(given, str) else Truth.NO


def _list_extras(facts: CallFacts) -> tuple[str, ...]:
    found = facts.reading.extra_effects if facts.reading else ()
    return (*found, "the call sets variables") if facts.subject.sets_variables else found


def _describe_uncovered(rule: Rule, facts: CallFacts) -> str:
    if facts.reading is None:
        return "it has no command"
    words = f"not every program of the call is {_describe_demand(rule)}"
    if not facts.reading.option_effects:
        return words
    return f"{words}; {'; '.join(facts.reading.option_effects)}, which a rule must spell out"


def _list_unmentioned(rule: Rule, subject: Subject) -> list[str]:
    named = {
        "paths": bool(subject.paths) and not rule.path,
        "urls": bool(subject.urls) and not rule.host,
        "command": subject.command is not None and not rule.is_about_programs,
    }
    return [word for word, left in named.items() if left]


def _describe_unmentioned(rule: Rule, facts: CallFacts) -> str:
    return f"the rule does not mention the call's {' and '.join(_list_unmentioned(rule, facts.subject))}"


def _describe_demand(rule: Rule) -> str:
    known = [word for word in ("harmless", "destructive") if getattr(rule, word)]
    return " and ".join([*known, *([_format_values(rule.command)] if rule.command else [])])


def _format_values(values: tuple[str, ...]) -> str:
    return shorten_text(escape_controls(" or ".join(f"`{value}`" for value in values)).replace("\n", "␊"), _SHOWN_LIMIT)
