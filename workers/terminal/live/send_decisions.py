"""Sending several decisions: a refused one does not stop the others.

All decisions are complete before the first is sent, and their results are printed after the last, so that a closed pipe
stops no decision.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.client.client import Holdfast
from holdfast.domain.approvals.approval import ApprovalId, DecisionAction, Offer
from holdfast.domain.content import escape_name
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.errors import HoldfastError, NoWorker, Refused, TurnNotFound
from holdfast.util.text import strip_controls
from holdfast.workers.exit_codes import FAILED, UNREACHABLE
from holdfast.workers.lookup.approvals import fetch_pending_approval
from holdfast.workers.terminal.approval_text import resolve_option
from holdfast.workers.terminal.grant_store import GrantStore
from holdfast.workers.terminal.grant_text import GrantWish, describe_coverage
from holdfast.workers.terminal.live.edit_call import is_new
from holdfast.workers.terminal.render import quote_shell

_REPORTED_ERRORS = (Refused, TurnNotFound, NoWorker)
"""Errors of one approval, after which the others are still decided."""
_ANSWERED_WORDS = {
    ("respond", "scheduled"): "answered; the tool goes on with it",
    ("respond", "success"): "answered; the model reads it as the result of the call",
    ("cancel", "scheduled"): "declined; the tool goes on without an answer",
}
"""The result of an answered question, by the decision and the state of its call."""
_STATUS_WORDS = {
    "success": "succeeded",
    "error": "failed",
    "validating": "is judged again",
    "executing": "runs",
}


@dataclass(frozen=True)
class DecisionChoice:
    """A decision that is to be sent."""

    approval: str
    outcome: str
    digest: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    offer: Offer | None = None
    """The grant that it gives."""


@dataclass(frozen=True)
class DecisionReport:
    """The result of a decision: for programs, for a person, and for the exit code."""

    body: dict[str, Any]
    sentence: str
    code: int = 0
    """Not 0 for a decision that was refused, or a grant that was not saved."""


async def with_offer(holdfast: Holdfast, choice: DecisionChoice, wish: GrantWish) -> DecisionChoice | DecisionReport:
    """The choice with the grant that is wanted, as the approval offers it now."""
    try:
        found = await fetch_pending_approval(holdfast, choice.approval)
        offer = wish.get_offer(found.approval)
    except _REPORTED_ERRORS as error:
        return report_refusal(choice.approval, error)
    grant = {"scope": offer.scope, "uses": wish.uses, "lasting": wish.lasting, "remember": wish.refuses}
    return DecisionChoice(
        choice.approval,
        DecisionAction.CANCEL if wish.refuses else offer.outcome,
        digest=choice.digest or found.approval.digest,
        details={**choice.details, **grant},
        offer=offer,
    )


async def with_change(
    holdfast: Holdfast, choice: DecisionChoice, change: dict[str, Any]
) -> DecisionChoice | DecisionReport:
    """The choice with changed content or arguments; without the change if it equals the call's arguments."""
    try:
        found = await fetch_pending_approval(holdfast, choice.approval)
    except _REPORTED_ERRORS as error:
        return report_refusal(choice.approval, error)
    new = change if is_new(change, found) else {}
    return replace(choice, digest=found.approval.digest, details={**choice.details, **new})


async def with_option(holdfast: Holdfast, choice: DecisionChoice) -> DecisionChoice:
    """The choice with the option that was given by its number, if the question is known."""
    waiting = await holdfast.list_approvals()
    found = next((item for item in waiting if item.approval_id == choice.approval), None)
    if found is None or not found.options:
        return choice
    return replace(choice, details={**choice.details, "content": resolve_option(found, choice.details["content"])})


def describe_choice(choice: DecisionChoice, wish: GrantWish) -> str:
    """A line on what the grant of the decision will cover."""
    assert choice.offer, "it gives one"
    coverage = describe_coverage(choice.offer, wish, datetime.now(UTC), turn=choice.approval)
    return f"{escape_name(choice.approval)}: {coverage}"


async def decide_all(
    holdfast: Holdfast, choices: list[DecisionChoice | DecisionReport], keep_in: GrantStore | None = None
) -> AsyncIterator[DecisionReport]:
    """Send the decisions; save their grants where `keep_in` is given."""
    grants: set[str] = set()
    for choice in choices:
        if isinstance(choice, DecisionReport):
            yield choice
            continue
        try:
            answer = await holdfast.decide(choice.approval, choice.outcome, digest=choice.digest, **choice.details)
        except _REPORTED_ERRORS as error:
            by = await _find_covering_grant(holdfast, choice.approval, grants) if grants else None
            yield _report_covered(choice, by) if by else report_refusal(choice.approval, error)
            continue
        grant = grant_id(choice.approval, answer)
        grants |= {grant} if grant else set()
        yield await _report_counted(holdfast, choice, answer, grant, keep_in)


def report_refusal(approval: str, error: HoldfastError) -> DecisionReport:
    """The report of a refused decision."""
    code = getattr(error, "code", type(error).__name__)
    body = {"approval_id": approval, "counted": False, "error": str(error), "code": code}
    return DecisionReport(body, strip_controls(str(error)), UNREACHABLE if isinstance(error, NoWorker) else FAILED)


def grant_id(approval: str, answer: DecisionResult | None) -> str | None:
    """The id of the grant that a decision left, across all turns."""
    return f"{ApprovalId.parse(approval).turn}/{answer.grant}" if answer and answer.grant else None


async def _find_covering_grant(holdfast: Holdfast, approval: str, grants: set[str]) -> str | None:
    """Which of these grants has allowed a call before it could be decided on."""
    address = ApprovalId.parse(approval)
    try:
        rule = (await holdfast.get_turn(address.turn).fetch_call(address.call)).rule or ""
    except HoldfastError:
        return None
    return next(
        (grant for grant in grants if rule.startswith(f"grant {grant.removeprefix(f'{address.turn}/')}:")), None
    )


def _report_covered(choice: DecisionChoice, grant: str) -> DecisionReport:
    body = {"approval_id": choice.approval, "counted": False, "code": "answered", "grant": grant}
    return DecisionReport(body, f"{escape_name(choice.approval)}: already covered by grant {escape_name(grant)}.")


async def _report_counted(
    holdfast: Holdfast,
    choice: DecisionChoice,
    answer: DecisionResult | None,
    grant: str | None,
    keep_in: GrantStore | None,
) -> DecisionReport:
    body: dict[str, Any] = {
        "approval_id": choice.approval,
        "counted": True if answer else None,
        "call": answer.call if answer else None,
        "status": answer.status if answer else None,
        "by_signal": answer is None,
        "grant": grant,
        "covers": choice.offer.covers if choice.offer else None,
    }
    sentences = [describe_decision(choice.approval, answer, choice.outcome)]
    if grant:
        sentences.append(f"Gave grant {escape_name(grant)} (holdfast grants revoke {quote_shell(grant)}).")
    if keep_in is None:
        return DecisionReport(body, " ".join(sentences))
    try:
        name = await _save_grant(holdfast, choice.approval, answer, keep_in)
    except HoldfastError as error:
        reason = strip_controls(str(error))
        return DecisionReport(
            {**body, "saved": None, "not_saved": reason}, " ".join([*sentences, f"It was not saved: {reason}"]), FAILED
        )
    sentences.append(keep_in.describe_place(strip_controls(name)))
    return DecisionReport({**body, "saved": keep_in.place_as_json(name)}, " ".join(sentences))


async def _save_grant(holdfast: Holdfast, approval: str, answer: DecisionResult | None, keeper: GrantStore) -> str:
    """Save the grant that a decision left; its name."""
    if answer is None or answer.grant is None:
        raise NoWorker("no worker has applied the decision yet")
    grants = await holdfast.get_turn(ApprovalId.parse(approval).turn).fetch_grants()
    grant = next((grant for grant in grants if grant.id == answer.grant), None)
    if grant is None:
        raise HoldfastError("it was revoked meanwhile")
    return await keeper.save(grant)


def describe_decision(approval: str, answer: DecisionResult | None, outcome: str = "") -> str:
    """The result of a decision that was sent."""
    named = escape_name(approval)
    if answer is None:
        return (
            f"{named}: no worker answered, so the decision was sent as a signal; a worker applies or refuses it later."
        )
    if answer.status == "awaiting_approval":
        return f"{named}: decided; the call needs another approver too."
    if words := _ANSWERED_WORDS.get((outcome, answer.status)):
        return f"{named}: {words}."
    became = _STATUS_WORDS.get(answer.status, f"is {answer.status.replace('_', ' ')}")
    return f"{named}: decided; the call {became}."
