"""Sending decisions, each by itself: one that is refused keeps none of the others back.

What is to be said of each approval is settled before the first is sent, and what became of each is told after the last:
whoever stops reading stops no decision.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.approvals import ApprovalId
from holdfast.client import Holdfast
from holdfast.content import exact, plain
from holdfast.errors import HoldfastError, NoWorker, Refused, TurnNotFound
from holdfast.outcomes import Offer, Outcome
from holdfast.requests import Acknowledged
from holdfast.workers.answers import Wish, will_cover
from holdfast.workers.asked import asked
from holdfast.workers.changes import is_new
from holdfast.workers.commands.codes import FAILED, UNREACHABLE
from holdfast.workers.keeping_grants import Keeper
from holdfast.workers.questions import chosen
from holdfast.workers.render import quoted

_EACH = (Refused, TurnNotFound, NoWorker)
"""What is wrong with one approval, and not with all of them."""
_ANSWERED = {
    ("respond", "scheduled"): "answered; the tool goes on with it",
    ("respond", "success"): "answered; the model reads it as the result of the call",
    ("cancel", "scheduled"): "declined; the tool is told so, and goes on",
}
"""What became of a question, by what was said and the state of its call."""
_BECAME = {"success": "succeeded", "error": "counts as failed", "validating": "is checked again", "executing": "runs"}


@dataclass(frozen=True)
class Choice:
    """What is to be said of one approval."""

    approval: str
    outcome: str
    digest: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    offer: Offer | None = None
    """The standing answer that it gives."""


@dataclass(frozen=True)
class Told:
    """What became of it: for programs, for a person, and for the exit code."""

    body: dict[str, Any]
    sentence: str
    code: int = 0
    """Told as a complaint when it is not 0 and nothing counted."""


async def with_offer(holdfast: Holdfast, choice: Choice, wish: Wish) -> Choice | Told:
    """The choice with the standing answer that is wanted, as the question offers it now."""
    try:
        found = await asked(holdfast, choice.approval)
        offer = wish.offer_of(found.approval)
    except _EACH as error:
        return refused(choice.approval, error)
    standing = {"scope": offer.scope, "uses": wish.uses, "lasting": wish.lasting, "remember": wish.refuses}
    return Choice(
        choice.approval,
        Outcome.CANCEL if wish.refuses else offer.outcome,
        digest=choice.digest or found.approval.digest,
        details={**choice.details, **standing},
        offer=offer,
    )


async def with_change(holdfast: Holdfast, choice: Choice, change: dict[str, Any]) -> Choice | Told:
    """The choice with other content or arguments; with the same ones it is an approval as any other."""
    try:
        found = await asked(holdfast, choice.approval)
    except _EACH as error:
        return refused(choice.approval, error)
    new = change if is_new(change, found) else {}
    return replace(choice, digest=found.approval.digest, details={**choice.details, **new})


async def with_option(holdfast: Holdfast, choice: Choice) -> Choice:
    """An option's number stands for the option, where the question is known."""
    waiting = await holdfast.inbox()
    found = next((item for item in waiting if item.approval_id == choice.approval), None)
    if found is None or not found.options:
        return choice
    return replace(choice, details={**choice.details, "content": chosen(found, choice.details["content"])})


def foretold(choice: Choice, wish: Wish) -> str:
    """What its standing answer will cover."""
    assert choice.offer, "it gives one"
    return f"{exact(choice.approval)}: {will_cover(choice.offer, wish, datetime.now(UTC), turn=choice.approval)}"


async def decide_all(
    holdfast: Holdfast, choices: list[Choice | Told], keep_in: Keeper | None = None
) -> AsyncIterator[Told]:
    """Send them; keep the standing answers that count for good, where a keeper is given."""
    grants: set[str] = set()
    for choice in choices:
        if isinstance(choice, Told):
            yield choice
            continue
        try:
            answer = await holdfast.decide(choice.approval, choice.outcome, digest=choice.digest, **choice.details)
        except _EACH as error:
            by = await _answered_by(holdfast, choice.approval, grants) if grants else None
            yield _covered(choice, by) if by else refused(choice.approval, error)
            continue
        grant = grant_id(choice.approval, answer)
        grants |= {grant} if grant else set()
        yield await _counted(holdfast, choice, answer, grant, keep_in)


def refused(approval: str, error: HoldfastError) -> Told:
    """What did not count."""
    code = getattr(error, "code", type(error).__name__)
    body = {"approval_id": approval, "counted": False, "error": str(error), "code": code}
    return Told(body, plain(str(error)), UNREACHABLE if isinstance(error, NoWorker) else FAILED)


def grant_id(approval: str, answer: Acknowledged | None) -> str | None:
    """How the standing answer that a decision left is addressed, across all turns."""
    return f"{ApprovalId.parse(approval).turn}/{answer.grant}" if answer and answer.grant else None


async def _answered_by(holdfast: Holdfast, approval: str, grants: set[str]) -> str | None:
    """Which of these grants has answered a call before it could be decided on."""
    address = ApprovalId.parse(approval)
    try:
        rule = (await holdfast.turn(address.turn).call(address.call)).rule or ""
    except HoldfastError:
        return None
    return next(
        (grant for grant in grants if rule.startswith(f"grant {grant.removeprefix(f'{address.turn}/')}:")), None
    )


def _covered(choice: Choice, grant: str) -> Told:
    body = {"approval_id": choice.approval, "counted": False, "code": "answered", "grant": grant}
    return Told(body, f"{exact(choice.approval)}: answered by {exact(grant)} already.")


async def _counted(
    holdfast: Holdfast, choice: Choice, answer: Acknowledged | None, grant: str | None, keep_in: Keeper | None
) -> Told:
    body: dict[str, Any] = {
        "approval_id": choice.approval,
        "counted": True if answer else None,
        "call": answer.call if answer else None,
        "status": answer.status if answer else None,
        "by_signal": answer is None,
        "grant": grant,
        "covers": choice.offer.covers if choice.offer else None,
    }
    said = [sentence(choice.approval, answer, choice.outcome)]
    if grant:
        said.append(f"The answer stands as {exact(grant)} (holdfast grants revoke {quoted(grant)}).")
    if keep_in is None:
        return Told(body, " ".join(said))
    try:
        name = await _kept(holdfast, choice.approval, answer, keep_in)
    except HoldfastError as error:
        reason = plain(str(error))
        return Told(
            {**body, "saved": None, "not_saved": reason}, " ".join([*said, f"It was not saved: {reason}"]), FAILED
        )
    said.append(keep_in.saved(plain(name)))
    return Told({**body, "saved": keep_in.body(name)}, " ".join(said))


async def _kept(holdfast: Holdfast, approval: str, answer: Acknowledged | None, keeper: Keeper) -> str:
    """The name under which the answer that a decision left is kept."""
    if answer is None or answer.grant is None:
        raise NoWorker("it is not known yet whether it counts")
    grants = await holdfast.turn(ApprovalId.parse(approval).turn).grants()
    grant = next((grant for grant in grants if grant.id == answer.grant), None)
    if grant is None:
        raise HoldfastError("it was revoked meanwhile")
    return await keeper.save(grant)


def sentence(approval: str, answer: Acknowledged | None, outcome: str = "") -> str:
    """What became of a decision that was taken."""
    named = exact(approval)
    if answer is None:
        return (
            f"{named}: no worker answered, so it was left as a signal; a worker that comes back says whether it counts."
        )
    if answer.status == "awaiting_approval":
        return f"{named}: decided; the call waits for somebody else's word too."
    if words := _ANSWERED.get((outcome, answer.status)):
        return f"{named}: {words}."
    became = _BECAME.get(answer.status, f"is {answer.status.replace('_', ' ')}")
    return f"{named}: decided; the call {became}."
