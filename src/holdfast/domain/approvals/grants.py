"""Grants: the standing answers that decisions left behind (S24).

A grant carries the decision that gave it, so that whoever goes by it can check who gave it and how far it reaches.
Nothing here knows what a scope covers: that is for the policy of the worker that judges a call.
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
"""Of one turn."""


class Grant(Data):
    """A standing answer: to allow, or to refuse, what its scope covers."""

    id: str
    scope: Scope
    covers: Text
    """The scope in words, as the question told it."""
    decision: Decision
    given_at: datetime
    used: int = 0

    @property
    def is_allowance(self) -> bool:
        """Does it allow, or refuse?"""
        return self.decision.outcome is not DecisionAction.CANCEL

    @property
    def given_by(self) -> str:
        """Who gave it."""
        return self.decision.by or "somebody"

    def is_active(self, now: datetime) -> bool:
        """Does it still answer anything?"""
        decision = self.decision
        unspent = decision.uses is None or self.used < decision.uses
        return unspent and (decision.expires is None or now < decision.expires)


class Grants:
    """The grants of one turn."""

    def __init__(self, grants: Iterable[Grant] = (), given: int = 0) -> None:
        """`given`: how many there ever were."""
        self._all: dict[str, Grant] = {grant.id: grant for grant in grants}
        self._given = given

    @property
    def given_count(self) -> int:
        """How many there ever were."""
        return self._given

    @property
    def all_grants(self) -> tuple[Grant, ...]:
        """In the order in which they were given."""
        return tuple(self._all.values())

    def check_room(self) -> None:
        """DecisionRefused when there are too many."""
        if len(self._all) >= MAX_GRANTS:
            message = f"this turn holds {MAX_GRANTS} grants: revoke some, or decide for once"
            raise DecisionRefused("too_many_grants", message)

    def add_grant(self, offer: Offer, decision: Decision, now: datetime) -> Grant:
        """Keep a standing answer."""
        self._given += 1
        grant = Grant(id=f"g{self._given}", scope=offer.scope, covers=offer.covers, decision=decision, given_at=now)
        self._all[grant.id] = grant
        return grant

    def adopt_grants(self, grants: Iterable[Grant], before: Iterable[Grant]) -> bool:
        """Keep those that were given in another turn, which had those `before`, as far as there is room. Any?"""
        known = {grant.decision.key for grant in (*self._all.values(), *before)}
        fresh = [grant for grant in grants if grant.decision.key not in known]
        for grant in fresh[: MAX_GRANTS - len(self._all)]:
            self._given += 1
            self._all[f"g{self._given}"] = grant.model_copy(update={"id": f"g{self._given}"})
        return bool(fresh)

    def get(self, grant_id: str) -> Grant:
        """The grant with this id, or RequestRefused."""
        if grant_id not in self._all:
            raise RequestRefused("no_grant", f"this turn has no grant {grant_id!r}: it was revoked, or never was")
        return self._all[grant_id]

    def revoke(self, grant_id: str) -> Grant:
        """Take one back."""
        grant = self.get(grant_id)
        del self._all[grant_id]
        return grant

    def restore_uses(self, grant_ids: Iterable[str]) -> tuple[Grant, ...]:
        """All, as they were before they were used this often."""
        taken = Counter(grant_ids)
        return tuple(grant.model_copy(update={"used": grant.used - taken[grant.id]}) for grant in self.all_grants)

    def count_uses(self, grant_ids: Iterable[str | None]) -> None:
        """Count the calls that were answered."""
        for grant_id in grant_ids:
            if grant_id and (grant := self._all.get(grant_id)):
                self._all[grant_id] = grant.model_copy(update={"used": grant.used + 1})

    def select_for_execution(self, grant_id: str | None) -> tuple[Grant, ...]:
        """The grant that let a call proceed, if it still stands, and every refusal.

        Uses were counted when the call was scheduled, so none is counted again.
        """
        kept = (grant for grant in self.all_grants if grant.id == grant_id or not grant.is_allowance)
        return tuple(grant.model_copy(update={"used": 0}) for grant in kept)
