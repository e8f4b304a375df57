"""Grants as people choose and see them: those that an approval offers, those of turns, saved ones.

Pure. The text of what a grant covers comes with its offer and is shown unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.domain.approvals.approval import DecisionAction, Lasting, Offer
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.ids import ID_MARK
from holdfast.errors import BadInput, DecisionRefused
from holdfast.util.durations import format_duration
from holdfast.util.text import strip_controls
from holdfast.workers.terminal.render import format_age, format_line

if TYPE_CHECKING:
    from holdfast.activities.policy.rules import Rule

COVERS_LIMIT = 2_000
_GRANT_OPTIONS = {
    DecisionAction.PROCEED_ALWAYS: "--always",
    DecisionAction.PROCEED_ALWAYS_TOOL: "--always-tool",
    DecisionAction.PROCEED_ALWAYS_SERVER: "--always-server",
}
_TURN_END, _SESSION_END = "until the turn ends", "until the session ends"


@dataclass(frozen=True)
class GrantWish:
    """The grant that a person wants to give: which of the offers, for how many calls, and until when."""

    refuses: bool = False
    outcome: DecisionAction | None = None
    """The kind of the offer; None for any."""
    number: int | None = None
    """The number of the offer; None for the first that fits."""
    uses: int | None = None
    lasting: Lasting = "session"
    expires: datetime | None = None
    save: bool = False

    def get_offer(self, approval: ApprovalView) -> Offer:
        """The offer that fits; DecisionRefused when there is none, BadInput when it cannot be saved."""
        offers = approval.offers
        if not offers:
            raise DecisionRefused("not_offered", f"{approval.approval_id!r} offers no grants: approve or deny it once")
        if self.number is not None and self.number > len(offers):
            raise DecisionRefused(
                "not_offered", f"{approval.approval_id!r} offers {len(offers)} grants, not {self.number}"
            )
        fitting = [offer for offer in offers if self.outcome in (None, offer.outcome)]
        if not fitting:
            known = ", ".join(dict.fromkeys(_GRANT_OPTIONS[offer.outcome] for offer in offers))
            raise DecisionRefused("not_offered", f"{approval.approval_id!r} offers no such grant, only {known}")
        found = offers[self.number - 1] if self.number else fitting[0]
        if self.save and found.scope.digest is not None:
            raise BadInput("a grant for exactly one call cannot be saved: leave out --save, or choose a wider grant")
        return found


def number_offers(offers: Iterable[Offer]) -> Iterator[str]:
    """The offers, numbered, each with the option of the command line that chooses it."""
    named: set[DecisionAction] = set()
    for number, offer in enumerate(offers, start=1):
        option = f"  ({_GRANT_OPTIONS[offer.outcome]})" if offer.outcome not in named else ""
        named.add(offer.outcome)
        yield f"{number}. {format_line(offer.covers, COVERS_LIMIT)}{option}"


def describe_coverage(offer: Offer, wish: GrantWish, now: datetime, *, turn: str = "") -> str:
    """What a grant will cover and until when, before it is given."""
    verb = _choose_verb(not wish.refuses)
    return "; ".join(
        [f"{verb} from now on: {format_line(offer.covers, COVERS_LIMIT)}", *_describe_bounds(wish, now, turn)]
    )


def _describe_bounds(wish: GrantWish, now: datetime, turn: str) -> Iterator[str]:
    if wish.uses is not None:
        yield f"for {wish.uses:,} more call{'' if wish.uses == 1 else 's'}"
    if wish.expires is not None:
        left = format_duration(round((wish.expires - now).total_seconds()))
        yield f"until {wish.expires.astimezone():%Y-%m-%d %H:%M:%S} (in {left})"
    yield "permanently" if wish.save else _describe_end(wish.lasting, turn)


def _describe_end(lasting: Lasting, address: str) -> str:
    """The latest end of a grant of a turn, or of a session's turn."""
    return _SESSION_END if lasting == "session" and ID_MARK in address else _TURN_END


def render_grants(
    grants: Iterable[tuple[str, Grant]], saved: Iterable[Rule], now: datetime, shared: Iterable[Rule] = ()
) -> Group:
    """Grants, each with its id: of turns, saved on this host, and saved in a shared ledger."""
    blocks: list[RenderableType] = []
    for name, grant in grants:
        blocks += _render_block(
            name, _choose_verb(grant.is_allowance), grant.covers, "; ".join(_describe_state(grant, now))
        )
    for where, rules in (("on this host", saved), ("on every host", shared)):
        for rule in rules:
            rest = "; ".join((*_describe_saved_state(rule, now), where))
            blocks += _render_block(
                rule.name or "", _choose_verb(rule.decision == "allow"), describe_saved_grant(rule), rest
            )
    return Group(*(blocks or [Text("No grants.")]))


def grant_as_json(name: str, grant: Grant, now: datetime) -> dict[str, Any]:
    """A grant as JSON."""
    decision = grant.decision
    return {
        "id": name,
        "allows": grant.is_allowance,
        "covers": grant.covers,
        "scope": grant.scope.model_dump(mode="json", exclude_defaults=True),
        "by": grant.given_by,
        "given_at": grant.given_at.isoformat(),
        "for": decision.lasting,
        "uses_left": None if decision.uses is None else max(0, decision.uses - grant.used),
        "expires": decision.expires.isoformat() if decision.expires else None,
        "stands": grant.is_active(now),
    }


def saved_grant_as_json(rule: Rule, now: datetime, *, shared: bool = False) -> dict[str, Any]:
    """A saved grant as JSON."""
    return {
        "id": rule.name,
        "shared": shared,
        "allows": rule.decision == "allow",
        "covers": describe_saved_grant(rule),
        "rule": _dump_conditions(rule),
        "reason": rule.reason,
        "expires": rule.expires.isoformat() if rule.expires else None,
        "stands": rule.expires is None or now < rule.expires,
    }


def _dump_conditions(rule: Rule) -> dict[str, Any]:
    from holdfast.activities.policy.rules import CONDITION_KEYS  # not for the inbox, which shows no rules

    return rule.model_dump(mode="json", include=set(CONDITION_KEYS), exclude_none=True)


def describe_saved_grant(rule: Rule) -> str:
    """What a saved grant covers: its conditions, as a policy file has them."""
    conditions = {name: value for name, value in _dump_conditions(rule).items() if (name, value) != ("server", [""])}
    return ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in conditions.items())


def _render_block(name: str, verb: str, covers: str, rest: str) -> list[RenderableType]:
    head = Text(strip_controls(name), "bold")
    head.append(f"   {verb} ", "green" if verb == _choose_verb(True) else "magenta")
    head.append(format_line(covers, COVERS_LIMIT))
    return [head, Text(f"  {format_line(rest, COVERS_LIMIT)}", "dim")]


def _describe_state(grant: Grant, now: datetime) -> Iterator[str]:
    decision = grant.decision
    yield f"by {format_line(grant.given_by, 100)}, {format_age(grant.given_at)}"
    if decision.uses is not None:
        left = max(0, decision.uses - grant.used)
        yield f"{left:,} of {decision.uses:,} uses left" if left else "used up"
    if decision.expires is not None:
        yield _describe_expiry(decision.expires, now)
    yield _describe_end(decision.lasting, grant.decision.approval_id)


def _describe_saved_state(rule: Rule, now: datetime) -> Iterator[str]:
    yield rule.reason or "saved"
    if rule.expires is not None:
        yield _describe_expiry(rule.expires, now)
    yield "permanently"


def _choose_verb(allows: bool) -> str:
    return "allows" if allows else "refuses"


def _describe_expiry(moment: datetime, now: datetime) -> str:
    return "expired" if moment <= now else f"expires in {format_duration((moment - now).total_seconds())}"
