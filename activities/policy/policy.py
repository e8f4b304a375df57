"""The policy: all rules of all files, and the one that decides about a call.

The highest tier comes first, within it the highest priority, then deny before ask before allow, then the order of the
files. The first rule that is about the call decides, with three exceptions, each towards caution:

- a deny rule that is only perhaps about the call makes it asked about, unless a later one denies it;
- an ask of a workspace's file does not lift a deny of the defaults: such files only tighten;
- in plan mode, a rule that does not name its modes loosens nothing: it speaks if it denies, or if the call only reads.

Where one of the first two makes a call asked about, it is asked as strictly as the rules would that come after, and
denied where they want the word of different roles: a call has that of one.

Pure, but for the clock that rules with an end need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from holdfast.activities.policy.conditions import CallFacts, Condition, build_conditions, match_rule
from holdfast.activities.policy.lint import precedence_key
from holdfast.activities.policy.rule_index import RuleIndex
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.subject.subject import Subject
from holdfast.activities.policy.subject.ternary import Truth
from holdfast.domain.approvals.approval import Deadline, Needs
from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import escape_controls

DOUBT_REASON = "it may be what this rule denies: that is not known before it runs"
_TIER_ORDER = {tier: place for place, tier in enumerate(Tier)}


class Ruling(Data):
    """What the policy says of a call. `rule` is the rule's name, or its FILE:LINE."""

    decision: RuleEffect
    rule: str
    tier: Tier
    reason: str | None = None
    """For the person."""
    message: str | None = None
    """For the model, when denied."""
    anything: bool = False
    """The rule is about everything, and so about no command in particular."""
    always_ask: bool = False
    """No standing answer counts."""
    needs: Needs = Needs()
    deadline: Deadline | None = None

    def tighten_to(self, other: Ruling) -> Ruling:
        """The same, asking for no less than another one does; a denial when they want different roles."""
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
    """A rule that came before the one that decided, and why it did not."""

    rule: str
    where: str
    tier: Tier
    decision: RuleEffect
    why: str


class RulingExplanation(Data):
    """A ruling, where its rule stands, and the rules that were passed over on the way."""

    ruling: Ruling | None
    where: str | None = None
    passed: tuple[PassedRule, ...] = ()


@dataclass(frozen=True)
class PolicyRule:
    """A rule in its place."""

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
        """What a person knows it by."""
        return self.rule.name or self.location

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Its keys, as tests."""
        return build_conditions(self.rule)

    def build_ruling(self, *, is_doubtful: bool = False) -> Ruling:
        """What it says; when it only perhaps is about the call, that somebody must look."""
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
    """What became of one rule."""

    entry: PolicyRule
    truth: Truth
    why: str = ""
    after: tuple[PolicyRule, ...] = ()
    """Rules that would ask as well, and perhaps more strictly."""


class Policy:
    """Rules in order of precedence."""

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
        """SHA-256 over every rule in its place: the same rules have the same, wherever their files are."""
        return digest_canonical(self.rule_texts)

    @property
    def rule_texts(self) -> list[dict[str, Any]]:
        """Every rule in its place, without its examples."""
        left_out = {"match", "not_match"}
        return [
            {"tier": entry.tier.value, **entry.rule.model_dump(mode="json", exclude=left_out, exclude_none=True)}
            for entry in self.entries
        ]

    @cached_property
    def required_approvals(self) -> dict[str | None, int]:
        """How many people the rules ask for at most: by their role, and under None where anybody counts."""
        found: dict[str | None, int] = {}
        for entry in self.entries:
            if entry.rule.decision is RuleEffect.ASK:
                needs = entry.rule.needs
                found[needs.role] = max(found.get(needs.role, 0), needs.approvals)
        return found

    @property
    def roles(self) -> frozenset[str]:
        """The roles that rules ask for."""
        return frozenset(role for role in self.required_approvals if role is not None)

    def find_ruling(self, call: Subject | CallFacts, mode: Mode) -> Ruling | None:
        """What the rules say; None when they say nothing, and the tool's own wish decides."""
        facts = call if isinstance(call, CallFacts) else CallFacts(call)
        return _build_ruling(_find_deciding(self._examine_candidates(facts, mode)))

    def explain_ruling(self, subject: Subject, mode: Mode) -> RulingExplanation:
        """The same, with every rule that was passed over and the reason for it."""
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
        """The rules that are about a call, or perhaps are."""
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
        """Why a rule says nothing at all here."""
        if rule.modes is not None and mode not in rule.modes:
            return f"it is not for mode `{mode.value}`"
        loosens = rule.modes is None and rule.decision is not RuleEffect.DENY
        if mode is Mode.PLAN and loosens and subject.effect is not Effect.READ:
            return "it does not name mode `plan`, in which only tools that merely read proceed"
        return "it has expired" if rule.expires and rule.expires <= self._clock() else None


def _find_deciding(results: Iterable[_RuleResult]) -> _RuleResult | None:
    """The rule that decides: the first, or, after one that only asks for caution, the next that denies."""
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
    """It is asked about already: as strictly as this rule would."""
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
