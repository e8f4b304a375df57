"""Standing answers: what somebody said of calls like this one, in this turn or for good (S24)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from holdfast.activities.policy.granting import find_covering_grant
from holdfast.activities.policy.matching import CallFacts
from holdfast.activities.policy.rules import Rule, RuleEffect
from holdfast.activities.policy.saved import GrantSource
from holdfast.activities.policy.subjects import Subject
from holdfast.actors import Actor
from holdfast.grants import Grant


class GrantAnswer(NamedTuple):
    """What a standing answer says, and who gave it."""

    allows: bool
    rule: str
    actor: Actor
    message: str = ""
    """For the model, when it refuses."""
    grant: str | None = None
    """The turn's grant; None for one that is kept in a file."""
    exact: bool = False
    """It is about this very call, whatever is in it."""


def find_grant_answer(
    call: Subject | CallFacts, digest: str, grants: Iterable[Grant], saved: GrantSource | None, now: datetime
) -> GrantAnswer | None:
    """The turn's own answer, else one that was kept. A refusal of either comes before an allowance of the other."""
    own = find_covering_grant(grants, call, digest, now)
    kept = saved.find_covering(call, now) if saved else None
    answers = [*([_answer_from_grant(own)] if own else []), *([_answer_from_saved(kept)] if kept else [])]
    return min(answers, key=lambda answer: answer.allows, default=None)


def _answer_from_grant(grant: Grant) -> GrantAnswer:
    note = f": {grant.decision.note}" if grant.decision.note else ""
    return GrantAnswer(
        allows=grant.is_allowance,
        rule=f"grant {grant.id}: {grant.covers}",
        actor=Actor(kind="person", name=grant.given_by),
        message=f"Refused by {grant.given_by}, for every call of this kind ({grant.covers}){note}",
        grant=grant.id,
        exact=grant.scope.digest is not None,
    )


def _answer_from_saved(rule: Rule) -> GrantAnswer:
    return GrantAnswer(
        allows=rule.decision is RuleEffect.ALLOW,
        rule=f"kept: {rule.name}",
        actor=Actor(kind="policy", name=f"kept: {rule.name}"),
        message=f"Refused for good ({rule.name}: {rule.reason})",
    )
