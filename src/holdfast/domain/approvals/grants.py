"""Grants: decisions that also cover further calls (S24).

A grant holds the decision that gave it, so that whoever applies it can check who gave it and how far it reaches. What a
scope covers is known to the policy of a worker, not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from holdfast.domain.approvals.approval import Decision, DecisionAction, Offer, Scope
from holdfast.domain.base import Data
from holdfast.domain.content import Text
from holdfast.errors import DecisionRefused, RequestRefused

MAX_GRANTS = 200
"""Grants of one turn."""


class Grant(Data):
    """A decision to allow, or refuse, all calls that its scope covers."""

    id: str
    scope: Scope
    covers: Text
    """The scope in words, as the question showed it."""
    decision: Decision
    given_at: datetime
    used: int = 0

    @property
    def is_allowance(self) -> bool:
        """Does it allow calls, rather than refuse them?"""
        return self.decision.outcome is not DecisionAction.CANCEL

    @property
    def given_by(self) -> str:
        """The name of the person who gave it."""
        return self.decision.by or "somebody"

    def is_active(self, now: datetime) -> bool:
        """Has it neither expired nor been used up?"""
        decision = self.decision
        unspent = decision.uses is None or self.used < decision.uses
        return unspent and (decision.expires is None or now < decision.expires)


class Grants:
    """The grants of one turn."""

    def __init__(self, grants: Iterable[Grant] = (), given: int = 0) -> None:
        """`given`: the number of grants so far, revoked ones included."""
        self._all: dict[str, Grant] = {grant.id: grant for grant in grants}
        self._given = given

    @property
    def given_count(self) -> int:
        """The number of grants so far, revoked ones included."""
        return self._given

    @property
    def all_grants(self) -> tuple[Grant, ...]:
        """The grants, in the order in which they were given."""
        return tuple(self._all.values())

    def check_room(self) -> None:
        """DecisionRefused when there are `MAX_GRANTS`."""
        if len(self._all) >= MAX_GRANTS:
            message = f"this turn holds {MAX_GRANTS} grants: revoke some, or decide for once"
            raise DecisionRefused("too_many_grants", message)

    def add_grant(self, offer: Offer, decision: Decision, now: datetime) -> Grant:
        """Add the grant of a decision, and return it."""
        self._given += 1
        grant = Grant(id=f"g{self._given}", scope=offer.scope, covers=offer.covers, decision=decision, given_at=now)
        self._all[grant.id] = grant
        return grant

    def adopt_grants(self, grants: Iterable[Grant], before: Iterable[Grant]) -> bool:
        """Add grants that were given in a delegated turn, which began with those `before`; whether there were any.

        Grants beyond `MAX_GRANTS` are dropped.
        """
        known = {grant.decision.key for grant in (*self._all.values(), *before)}
        fresh = [grant for grant in grants if grant.decision.key not in known]
        for grant in fresh[: MAX_GRANTS - len(self._all)]:
            self._given += 1
            self._all[f"g{self._given}"] = grant.model_copy(update={"id": f"g{self._given}"})
        return bool(fresh)

    def get(self, grant_id: str) -> Grant:
        """The grant with this id. RequestRefused when there is none."""
        if grant_id not in self._all:
            raise RequestRefused("no_grant", f"this turn has no grant {grant_id!r}: it was revoked, or never was")
        return self._all[grant_id]

    def revoke(self, grant_id: str) -> Grant:
        """Remove a grant, and return it. RequestRefused when there is none."""
        grant = self.get(grant_id)
        del self._all[grant_id]
        return grant

    def restore_uses(self, grant_ids: Iterable[str]) -> tuple[Grant, ...]:
        """All grants, with these uses undone."""
        taken = Counter(grant_ids)
        return tuple(grant.model_copy(update={"used": grant.used - taken[grant.id]}) for grant in self.all_grants)

    def count_uses(self, grant_ids: Iterable[str | None]) -> None:
        """Count one use for each of these grants."""
        for grant_id in grant_ids:
            if grant_id and (grant := self._all.get(grant_id)):
                self._all[grant_id] = grant.model_copy(update={"used": grant.used + 1})

    def select_for_execution(self, grant_id: str | None) -> tuple[Grant, ...]:
        """The grant that allowed a call, unless it was revoked, and every refusal.

        With no uses counted: those of the call were counted when it was scheduled.
        """
        chosen = (grant for grant in self.all_grants if grant.id == grant_id or not grant.is_allowance)
        return tuple(grant.model_copy(update={"used": 0}) for grant in chosen)
