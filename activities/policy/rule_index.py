"""Which rules may be about a call at all, without trying each: by its tool, and by the programs they spell out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.rules import Rule
from holdfast.activities.policy.subject.command_patterns import parse_phrase
from holdfast.util.globs import Glob

CACHED_TOOLS = 500
"""Tools whose rules are remembered: a worker has few."""


class _ToolRules(NamedTuple):
    """Places of the rules for one tool: those that spell out a program, and the others."""

    others: tuple[int, ...]
    programs: tuple[int, ...]
    by_program: dict[str, list[int]]


class RuleIndex:
    """Places of rules in their order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [(_parse_globs(rule), _list_first_words(rule)) for rule in rules]
        self._find_tool_rules = lru_cache(maxsize=CACHED_TOOLS)(self._sort_rules)

    def find_candidates(self, facts: CallFacts) -> Iterable[int]:
        """The places of every rule that may be about this call, in order."""
        rules = self._find_tool_rules(facts.subject.tool_names)
        if not rules.programs or facts.reading is None:
            return rules.others
        if facts.reading.first_words is None:
            return sorted((*rules.others, *rules.programs))
        named = {place for head in facts.reading.first_words for place in rules.by_program.get(head, ())}
        return sorted((*rules.others, *named))

    def _sort_rules(self, names: tuple[str, ...]) -> _ToolRules:
        places = [place for place, (globs, _) in enumerate(self._rules) if not globs or _matches_any(globs, names)]
        by_program: dict[str, list[int]] = {}
        for place in places:
            for head in self._rules[place][1]:
                by_program.setdefault(head, []).append(place)
        programs = tuple(place for place in places if self._rules[place][1])
        return _ToolRules(tuple(place for place in places if not self._rules[place][1]), programs, by_program)


def _matches_any(globs: list[Glob], names: tuple[str, ...]) -> bool:
    return any(glob.matches(name) for glob in globs for name in names)


def _parse_globs(rule: Rule) -> list[Glob]:
    return [Glob(text) for text in rule.tool or ()]


def _list_first_words(rule: Rule) -> frozenset[str]:
    """What a program must begin with for the rule to be about it; none when that may be anything."""
    firsts = [parse_phrase(text).first_words for text in rule.command or ()]
    known = [first for first in firsts if first is not None]
    return frozenset[str]().union(*known) if len(known) == len(firsts) else frozenset()
