"""Does what a call brings along cover it, as this worker would run it (S22)?

Nothing in an activity's input is taken at its word: a decision must be about this call of this turn, signed where
approvers have keys, and from people whose word the rule wants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from pydantic import JsonValue

from holdfast.activities.policy.deciding import Policy
from holdfast.approvals import Answer, ApprovalId, Confirmation, Decision, call_digest, canonical_digest
from holdfast.approvers import Approver
from holdfast.decisions import Standing, check_needs, same_name
from holdfast.errors import BadInput, DecisionRefused
from holdfast.families import family
from holdfast.grants import Grant
from holdfast.moves import read_answer
from holdfast.outcomes import PROCEEDS, Outcome
from holdfast.signing import check_signed
from holdfast.verdicts import Ask, Bound
from holdfast.work import ExecuteInput

Changed = Callable[[dict[str, JsonValue], Decision], dict[str, JsonValue]]
"""The arguments that a decision makes of those that were shown, checked; ValueError when they do not fit."""


def approved(input: ExecuteInput, verdict: Ask, of: Standing, now: datetime, changed: Changed) -> bool:
    """Do the decisions, or a deadline that passed, allow exactly this call?"""
    shown = verdict.confirmation
    if input.expired and not keyed(of.approvers):
        return shown.deadline is not None and shown.deadline.default == "allow"
    decisions = input.decisions
    if not all(_covers(decision, input, verdict, of, now, changed) for decision in decisions):
        return False
    names = {same_name(decision.by) for decision in decisions}
    return len(names) >= shown.needs.approvals if shown.needs.approvals > 1 else bool(decisions)


def answered(answer: Answer, question: Confirmation, digest: str, call_id: str, of: Standing, now: datetime) -> bool:
    """Did somebody whose word counts here give this answer, to this question, under this digest?

    Without keys whoever writes to the namespace answers for anybody, so what the turn says is all that is known.
    """
    decision = answer.decision
    if decision is None or not keyed(of.approvers):
        return not keyed(of.approvers)
    try:
        approval = ApprovalId.parse(decision.approval_id)
        check_signed(decision, of.approvers, now)
        check_needs(question, decision, of)
        same = read_answer(question, decision) == answer
    except (BadInput, DecisionRefused, ValueError):
        return False
    about_this = (approval.turn, approval.call, decision.digest) == (of.turn_id, call_id, digest)
    return about_this and same and decision.outcome in (Outcome.RESPOND, Outcome.CANCEL)


def counts(grant: Grant, of: Standing, now: datetime) -> bool:
    """Was this grant given in this turn or, unless it was for that one alone, in its session, by somebody whose word
    counts here, for what it says?"""
    try:
        given_in = ApprovalId.parse(grant.decision.approval_id).turn
        elsewhere = family(given_in) != family(of.turn_id)
        check_signed(grant.decision, of.approvers, now)
    except (BadInput, DecisionRefused):
        return False
    if elsewhere or not (grant.scope == grant.decision.scope or not keyed(of.approvers)):
        return False
    return not grant.allows or grant.decision.lasting != "turn" or given_in == of.turn_id


def wanted(grant: Grant, shown: Confirmation, of: Standing) -> bool:
    """May this grant answer this question: is it from somebody whose word the rule wants? A refusal is anybody's."""
    if not grant.allows:
        return True
    try:
        check_needs(shown, grant.decision, of)
    except DecisionRefused:
        return False
    return shown.needs.approvals == 1


def check_roles(policy: Policy, approvers: Collection[Approver]) -> None:
    """BadInput when a rule wants the word of people whom there are not: such a call would wait for ever."""
    for role, wanted in policy.approvals.items():
        known = [approver.name for approver in approvers if role in approver.roles]
        if role is not None and len(known) < wanted:
            raise BadInput(
                f"a rule wants {wanted} with the role {role!r}, and {len(known)} of the [[approvers]] hold it: "
                "name them in the settings file (docs/approvers.md)"
            )


def keyed(approvers: Collection[Approver]) -> bool:
    """Does anybody have a key, so that nothing unsigned counts?"""
    return any(approver.key is not None for approver in approvers)


def _covers(
    decision: Decision, input: ExecuteInput, verdict: Ask, of: Standing, now: datetime, changed: Changed
) -> bool:
    try:
        approval = ApprovalId.parse(decision.approval_id)
        check_signed(decision, of.approvers, now)
        check_needs(verdict.confirmation, decision, of)
    except (BadInput, DecisionRefused):
        return False
    about_this = (approval.turn, approval.call) == (of.turn_id, input.call_id)
    return about_this and decision.outcome in PROCEEDS and _names(decision, input, verdict, changed)


def _names(decision: Decision, input: ExecuteInput, verdict: Ask, changed: Changed) -> bool:
    """Does it name what would run: by its digest, or by what it makes of what that digest is of?"""
    bound = verdict.bound
    if not decision.changes:
        return decision.digest == bound.digest
    if input.shown is None or decision.digest != _digest_of(verdict, input.shown):
        return False
    try:
        return canonical_digest(changed(input.shown, decision)) == canonical_digest(bound.arguments)
    except ValueError:
        return False


def _digest_of(verdict: Ask, arguments: dict[str, JsonValue]) -> str:
    tool = verdict.bound.tool
    return call_digest(
        tool=tool.name,
        server=tool.server,
        definition=tool.definition,
        arguments=arguments,
        context=verdict.bound.context,
    )


def as_shown(approved: Bound, now: Bound, wrote: Mapping[str, str]) -> bool:
    """Are the files that a call would change as they were when a person was shown them, or as the turn wrote them?

    Not as the turn has merely read them since: what somebody else did in between, nobody was shown.
    """
    return all(digest in (approved.basis.get(path), wrote.get(path)) for path, digest in now.basis.items())


def stale_file(bound: Bound, seen: Mapping[str, str]) -> str | None:
    """A file the call would change that is not as the turn last saw it."""
    return next((path for path, digest in bound.basis.items() if seen.get(path, digest) != digest), None)
