"""Standing answers: what somebody said of calls like this one, in this turn or for good (S24)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from holdfast.activities.policy.granting import covering
from holdfast.activities.policy.matching import Facts
from holdfast.activities.policy.rules import Answer, Rule
from holdfast.activities.policy.saved import Saved
from holdfast.activities.policy.subjects import Subject
from holdfast.actors import Actor
from holdfast.grants import Grant


class Answered(NamedTuple):
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


def answer_to(
    call: Subject | Facts, digest: str, grants: Iterable[Grant], saved: Saved | None, now: datetime
) -> Answered | None:
    """The turn's own answer, else one that was kept. A refusal of either comes before an allowance of the other."""
    own = covering(grants, call, digest, now)
    kept = saved.covering(call, now) if saved else None
    answers = [*([_own(own)] if own else []), *([_kept(kept)] if kept else [])]
    return min(answers, key=lambda answer: answer.allows, default=None)


def _own(grant: Grant) -> Answered:
    note = f": {grant.decision.note}" if grant.decision.note else ""
    return Answered(
        allows=grant.allows,
        rule=f"grant {grant.id}: {grant.covers}",
        actor=Actor(kind="person", name=grant.by),
        message=f"Refused by {grant.by}, for every call of this kind ({grant.covers}){note}",
        grant=grant.id,
        exact=grant.scope.digest is not None,
    )


def _kept(rule: Rule) -> Answered:
    return Answered(
        allows=rule.decision is Answer.ALLOW,
        rule=f"kept: {rule.name}",
        actor=Actor(kind="policy", name=f"kept: {rule.name}"),
        message=f"Refused for good ({rule.name}: {rule.reason})",
    )
