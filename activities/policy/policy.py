"""The policy: all rules of all files, and the one that decides about a call (S29).

Rules are ordered by tier, then priority, then deny before ask before allow, then their place in the files. The first
rule that matches decides, with three exceptions, each towards caution:

- a deny rule that only may match (MAYBE) makes the call asked about, unless a later rule denies it;
- an ask rule of a workspace file does not lift a deny of the defaults: such files only tighten;
- in plan mode, a rule without modes loosens nothing: it applies if it denies, or if the call only reads.

In the first two cases the call is asked about as strictly as the later ask rules demand, and denied when they want
people of different roles: one approval has one role.

Pure, except for the clock that rules with an expiry need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from holdfast.activities.policy.command_phrases import parse_phrase
from holdfast.activities.policy.conditions import CallFacts, Condition, build_conditions, match_rule
from holdfast.activities.policy.lint import precedence_key
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.subject import Subject, Truth
from holdfast.domain.approvals.approval import Deadline, Needs
from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.util.globs import Glob
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import escape_controls

CACHED_TOOLS = 500
"""Tools whose candidate rules are cached."""


class _ToolRules(NamedTuple):
    """The indexes of the rules for one tool: those that spell out a program, and the others."""

    others: tuple[int, ...]
    programs: tuple[int, ...]
    by_program: dict[str, list[int]]


class RuleIndex:
    """Finds the rules that may match a call without trying each: by its tool and its programs."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [(_parse_globs(rule), _list_first_words(rule)) for rule in rules]
        self._find_tool_rules = lru_cache(maxsize=CACHED_TOOLS)(self._sort_rules)

    def find_candidates(self, facts: CallFacts) -> Iterable[int]:
        """The indexes of all rules that may match this call, in order."""
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
    """The first words of the programs that a rule matches; empty when these may be any."""
    firsts = [parse_phrase(text).first_words for text in rule.command or ()]
    known = [first for first in firsts if first is not None]
    return frozenset[str]().union(*known) if len(known) == len(firsts) else frozenset()


DOUBT_REASON = "it may be what this rule denies: that is not known before it runs"
_TIER_ORDER = {tier: place for place, tier in enumerate(Tier)}


class Ruling(Data):
    """The decision of the policy on a call. `rule` is the name of the rule, or its FILE:LINE."""

    decision: RuleEffect
    rule: str
    tier: Tier
    reason: str | None = None
    """The reason for the person."""
    message: str | None = None
    """The message for the model, when denied."""
    anything: bool = False
    """The rule matches every call."""
    always_ask: bool = False
    """No grant applies."""
    needs: Needs = Needs()
    deadline: Deadline | None = None

    def tighten_to(self, other: Ruling) -> Ruling:
        """This ruling, tightened to the demands of another one; a denial when they want different roles."""
        mine, theirs = self.needs, other.needs
        if mine.role and theirs.role and mine.role != theirs.role:
            words = f"it needs the role {mine.role!r}, and by the rule {other.rule!r} the role {theirs.role!r}"
            reason = f"{words}: nobody can be asked for both, until one of the rules is changed"
            return self.model_copy(update={"decision": RuleEffect.DENY, "reason": reason, "message": reason})
        needs = Needs(
            role=mine.role or theirs.role,
            approvals=max(mine.approvals, theirs.approvals),
            not_requester=mine.not_requester or theirs.not_requester,
        )
        deadline = self.deadline or other.deadline
        if deadline:
            deadline = deadline.model_copy(update={"default": "deny"})
        always = self.always_ask or other.always_ask
        return self.model_copy(update={"always_ask": always, "needs": needs, "deadline": deadline})


class PassedRule(Data):
    """A rule that did not decide, and the reason."""

    rule: str
    where: str
    tier: Tier
    decision: RuleEffect
    why: str


class RulingExplanation(Data):
    """A ruling, the place of its rule, and the rules that did not decide."""

    ruling: Ruling | None
    where: str | None = None
    passed: tuple[PassedRule, ...] = ()


@dataclass(frozen=True)
class PolicyRule:
    """A rule with its tier and its place in a file."""

    rule: Rule
    tier: Tier
    file: str = "policy"
    line: int = 1

    @property
    def location(self) -> str:
        """FILE:LINE."""
        return escape_controls(f"{self.file}:{self.line}").replace("\n", "␊")

    @property
    def label(self) -> str:
        """Its name, else its location."""
        return self.rule.name or self.location

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The compiled conditions of the rule."""
        return build_conditions(self.rule)

    def build_ruling(self, *, is_doubtful: bool = False) -> Ruling:
        """Its decision; a question when it only may match."""
        rule = self.rule
        if is_doubtful:
            reason = f"{rule.reason} ({DOUBT_REASON})" if rule.reason else DOUBT_REASON
            return Ruling(decision=RuleEffect.ASK, rule=self.label, tier=self.tier, reason=reason)
        return Ruling(
            decision=rule.decision,
            rule=self.label,
            tier=self.tier,
            reason=rule.reason,
            message=rule.message,
            anything=bool(rule.anything),
            always_ask=bool(rule.always_ask),
            needs=rule.needs,
            deadline=rule.approval_deadline,
        )


@dataclass(frozen=True)
class _RuleResult:
    """How far one rule matches a call."""

    entry: PolicyRule
    truth: Truth
    why: str = ""
    after: tuple[PolicyRule, ...] = ()
    """Later ask rules that match as well, and may be stricter."""


class Policy:
    """All rules, in the order of precedence."""

    def __init__(
        self, entries: Iterable[PolicyRule], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        given = list(entries)
        places = sorted(
            range(len(given)), key=lambda at: (_TIER_ORDER[given[at].tier], *precedence_key(given[at].rule), at)
        )
        self.entries = tuple(given[place] for place in places)
        self._index = RuleIndex(entry.rule for entry in self.entries)
        self._clock = clock

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all rules in their order. It does not depend on the places of their files."""
        return digest_canonical(self.rule_texts)

    @property
    def rule_texts(self) -> list[dict[str, Any]]:
        """All rules in their order, without examples, as JSON values."""
        left_out = {"match", "not_match"}
        return [
            {"tier": entry.tier.value, **entry.rule.model_dump(mode="json", exclude=left_out, exclude_none=True)}
            for entry in self.entries
        ]

    @cached_property
    def required_approvals(self) -> dict[str | None, int]:
        """The highest number of approvals that rules ask for, by role; None stands for any person."""
        found: dict[str | None, int] = {}
        for entry in self.entries:
            if entry.rule.decision is RuleEffect.ASK:
                needs = entry.rule.needs
                found[needs.role] = max(found.get(needs.role, 0), needs.approvals)
        return found

    @property
    def roles(self) -> frozenset[str]:
        """The roles that rules name."""
        return frozenset(role for role in self.required_approvals if role is not None)

    def find_ruling(self, call: Subject | CallFacts, mode: Mode) -> Ruling | None:
        """The ruling on a call; None when no rule matches and the tool's own wish decides."""
        facts = call if isinstance(call, CallFacts) else CallFacts(call)
        return _build_ruling(_find_deciding(self._examine_candidates(facts, mode)))

    def explain_ruling(self, subject: Subject, mode: Mode) -> RulingExplanation:
        """The ruling on a call, with every rule that did not decide and the reason."""
        facts = CallFacts(subject)
        seen: list[_RuleResult] = []

        def examine_rules() -> Iterator[_RuleResult]:
            for entry in self.entries:
                seen.append(self._examine_rule(entry, facts, mode))
                yield seen[-1]

        found = _find_deciding(examine_rules())
        passed = tuple(_describe_passed(one) for one in seen if found is None or one.entry is not found.entry)
        return RulingExplanation(
            ruling=_build_ruling(found), where=found.entry.location if found else None, passed=passed
        )

    def _examine_candidates(self, facts: CallFacts, mode: Mode) -> Iterator[_RuleResult]:
        """The rules that match a call, or may match it."""
        for place in self._index.find_candidates(facts):
            entry = self.entries[place]
            if not self._explain_silence(entry.rule, facts.subject, mode):
                truth, _ = match_rule(entry.rule, entry.conditions, facts)
                if truth is not Truth.NO:
                    yield _RuleResult(entry, truth)

    def _examine_rule(self, entry: PolicyRule, facts: CallFacts, mode: Mode) -> _RuleResult:
        if silence := self._explain_silence(entry.rule, facts.subject, mode):
            return _RuleResult(entry, Truth.NO, silence)
        truth, condition = match_rule(entry.rule, entry.conditions, facts)
        return _RuleResult(entry, truth, condition.explain(facts) if condition else "")

    def _explain_silence(self, rule: Rule, subject: Subject, mode: Mode) -> str | None:
        """Explain why a rule does not apply in this mode or at this time; None when it does."""
        if rule.modes is not None and mode not in rule.modes:
            return f"it is not for mode `{mode.value}`"
        loosens = rule.modes is None and rule.decision is not RuleEffect.DENY
        if mode is Mode.PLAN and loosens and subject.effect is not Effect.READ:
            return "it does not name mode `plan`, in which only tools that merely read proceed"
        return "it has expired" if rule.expires and rule.expires <= self._clock() else None


def _find_deciding(results: Iterable[_RuleResult]) -> _RuleResult | None:
    """The rule that decides: the first that matches, or behind one that only makes the call asked about, a deny."""
    floor: _RuleResult | None = None
    done: Tier | None = None
    for found in results:
        tier, decision = found.entry.tier, found.entry.rule.decision
        if found.truth is Truth.NO or tier is done:
            continue
        if found.truth is Truth.YES and decision is RuleEffect.DENY:
            return found
        floor = found if floor is None else _tighten_result(floor, found)
        if found.truth is Truth.MAYBE:
            continue
        if tier is not Tier.WORKSPACE:
            return floor
        done = tier
    return floor


def _tighten_result(floor: _RuleResult, found: _RuleResult) -> _RuleResult:
    """The result of a call that is asked about already, with the demands of one more ask rule."""
    asks = found.truth is Truth.YES and found.entry.rule.decision is RuleEffect.ASK
    return replace(floor, after=(*floor.after, found.entry)) if asks else floor


def _build_ruling(found: _RuleResult | None) -> Ruling | None:
    if found is None:
        return None
    ruling = found.entry.build_ruling(is_doubtful=found.truth is Truth.MAYBE)
    for entry in found.after:
        ruling = ruling.tighten_to(entry.build_ruling())
    return ruling


def _describe_passed(found: _RuleResult) -> PassedRule:
    entry = found.entry
    why = found.why or (DOUBT_REASON if found.truth is Truth.MAYBE else "another rule comes first, or is stricter")
    return PassedRule(rule=entry.label, where=entry.location, tier=entry.tier, decision=entry.rule.decision, why=why)
