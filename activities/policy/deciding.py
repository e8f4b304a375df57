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

from holdfast.activities.policy.indexing import Index
from holdfast.activities.policy.matching import Condition, Facts, conditions_of, standing
from holdfast.activities.policy.reachable import order
from holdfast.activities.policy.rules import Answer, Rule, Tier
from holdfast.activities.policy.subjects import Subject
from holdfast.activities.policy.truths import Truth
from holdfast.approvals import canonical_digest
from holdfast.content import visible
from holdfast.model import Data
from holdfast.modes import Mode
from holdfast.outcomes import Deadline, Needs
from holdfast.tools import Effect

DOUBT = "it may be what this rule denies: that is not known before it runs"
_TIERS = {tier: place for place, tier in enumerate(Tier)}


class Ruling(Data):
    """What the policy says of a call. `rule` is the rule's name, or its FILE:LINE."""

    decision: Answer
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

    def as_strict_as(self, other: Ruling) -> Ruling:
        """The same, asking for no less than another one does; a denial when they want different roles."""
        mine, theirs = self.needs, other.needs
        if mine.role and theirs.role and mine.role != theirs.role:
            words = f"it needs the role {mine.role!r}, and by the rule {other.rule!r} the role {theirs.role!r}"
            reason = f"{words}: nobody can be asked for both, until one of the rules is changed"
            return self.model_copy(update={"decision": Answer.DENY, "reason": reason, "message": reason})
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


class Considered(Data):
    """A rule that came before the one that decided, and why it did not."""

    rule: str
    where: str
    tier: Tier
    decision: Answer
    why: str


class Explanation(Data):
    """A ruling, where its rule stands, and the rules that were passed over on the way."""

    ruling: Ruling | None
    where: str | None = None
    passed: tuple[Considered, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A rule in its place."""

    rule: Rule
    tier: Tier
    file: str = "policy"
    line: int = 1

    @property
    def where(self) -> str:
        """FILE:LINE."""
        return visible(f"{self.file}:{self.line}").replace("\n", "␊")

    @property
    def label(self) -> str:
        """What a person knows it by."""
        return self.rule.name or self.where

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Its keys, as tests."""
        return conditions_of(self.rule)

    def ruling(self, *, doubtful: bool = False) -> Ruling:
        """What it says; when it only perhaps is about the call, that somebody must look."""
        rule = self.rule
        if doubtful:
            reason = f"{rule.reason} ({DOUBT})" if rule.reason else DOUBT
            return Ruling(decision=Answer.ASK, rule=self.label, tier=self.tier, reason=reason)
        return Ruling(
            decision=rule.decision,
            rule=self.label,
            tier=self.tier,
            reason=rule.reason,
            message=rule.message,
            anything=bool(rule.anything),
            always_ask=bool(rule.always_ask),
            needs=rule.needs,
            deadline=rule.until,
        )


@dataclass(frozen=True)
class _Found:
    """What became of one rule."""

    entry: Entry
    truth: Truth
    why: str = ""
    after: tuple[Entry, ...] = ()
    """Rules that would ask as well, and perhaps more strictly."""


class Policy:
    """Rules in order of precedence."""

    def __init__(self, entries: Iterable[Entry], clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        given = list(entries)
        places = sorted(range(len(given)), key=lambda at: (_TIERS[given[at].tier], *order(given[at].rule), at))
        self.entries = tuple(given[place] for place in places)
        self._index = Index(entry.rule for entry in self.entries)
        self._clock = clock

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every rule in its place: the same rules have the same, wherever their files are."""
        return canonical_digest(self.said)

    @property
    def said(self) -> list[dict[str, Any]]:
        """Every rule in its place, without its examples."""
        left_out = {"match", "not_match"}
        return [
            {"tier": entry.tier.value, **entry.rule.model_dump(mode="json", exclude=left_out, exclude_none=True)}
            for entry in self.entries
        ]

    @cached_property
    def approvals(self) -> dict[str | None, int]:
        """How many people the rules ask for at most: by their role, and under None where anybody counts."""
        found: dict[str | None, int] = {}
        for entry in self.entries:
            if entry.rule.decision is Answer.ASK:
                needs = entry.rule.needs
                found[needs.role] = max(found.get(needs.role, 0), needs.approvals)
        return found

    @property
    def roles(self) -> frozenset[str]:
        """The roles that rules ask for."""
        return frozenset(role for role in self.approvals if role is not None)

    def rule_on(self, call: Subject | Facts, mode: Mode) -> Ruling | None:
        """What the rules say; None when they say nothing, and the tool's own wish decides."""
        facts = call if isinstance(call, Facts) else Facts(call)
        return _ruling(_settled(self._about(facts, mode)))

    def explain(self, subject: Subject, mode: Mode) -> Explanation:
        """The same, with every rule that was passed over and the reason for it."""
        facts = Facts(subject)
        seen: list[_Found] = []

        def looked_at() -> Iterator[_Found]:
            for entry in self.entries:
                seen.append(self._told(entry, facts, mode))
                yield seen[-1]

        found = _settled(looked_at())
        passed = tuple(_considered(one) for one in seen if found is None or one.entry is not found.entry)
        return Explanation(ruling=_ruling(found), where=found.entry.where if found else None, passed=passed)

    def _about(self, facts: Facts, mode: Mode) -> Iterator[_Found]:
        """The rules that are about a call, or perhaps are."""
        for place in self._index.candidates(facts):
            entry = self.entries[place]
            if not self._silent(entry.rule, facts.subject, mode):
                truth, _ = standing(entry.rule, entry.conditions, facts)
                if truth is not Truth.NO:
                    yield _Found(entry, truth)

    def _told(self, entry: Entry, facts: Facts, mode: Mode) -> _Found:
        if silence := self._silent(entry.rule, facts.subject, mode):
            return _Found(entry, Truth.NO, silence)
        truth, condition = standing(entry.rule, entry.conditions, facts)
        return _Found(entry, truth, condition.why(facts) if condition else "")

    def _silent(self, rule: Rule, subject: Subject, mode: Mode) -> str | None:
        """Why a rule says nothing at all here."""
        if rule.modes is not None and mode not in rule.modes:
            return f"it is not for mode `{mode.value}`"
        loosens = rule.modes is None and rule.decision is not Answer.DENY
        if mode is Mode.PLAN and loosens and subject.effect is not Effect.READ:
            return "it does not name mode `plan`, in which only tools that merely read proceed"
        return "it has expired" if rule.expires and rule.expires <= self._clock() else None


def _settled(results: Iterable[_Found]) -> _Found | None:
    """The rule that decides: the first, or, after one that only asks for caution, the next that denies."""
    floor: _Found | None = None
    done: Tier | None = None
    for found in results:
        tier, decision = found.entry.tier, found.entry.rule.decision
        if found.truth is Truth.NO or tier is done:
            continue
        if found.truth is Truth.YES and decision is Answer.DENY:
            return found
        floor = found if floor is None else _with(floor, found)
        if found.truth is Truth.MAYBE:
            continue
        if tier is not Tier.WORKSPACE:
            return floor
        done = tier
    return floor


def _with(floor: _Found, found: _Found) -> _Found:
    """It is asked about already: as strictly as this rule would."""
    asks = found.truth is Truth.YES and found.entry.rule.decision is Answer.ASK
    return replace(floor, after=(*floor.after, found.entry)) if asks else floor


def _ruling(found: _Found | None) -> Ruling | None:
    if found is None:
        return None
    ruling = found.entry.ruling(doubtful=found.truth is Truth.MAYBE)
    for entry in found.after:
        ruling = ruling.as_strict_as(entry.ruling())
    return ruling


def _considered(found: _Found) -> Considered:
    entry = found.entry
    why = found.why or (DOUBT if found.truth is Truth.MAYBE else "another rule comes first, or is stricter")
    return Considered(rule=entry.label, where=entry.where, tier=entry.tier, decision=entry.rule.decision, why=why)
