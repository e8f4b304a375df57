"""Does what a call brings along cover it, as this worker would run it (S22)?

Nothing in an activity's input is taken at its word: a decision must be about this call of this turn, signed where
approvers have keys, and from people whose word the rule wants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from pydantic import JsonValue

from holdfast.activities.policy.policy import Policy
from holdfast.domain.approvals.actors import Approver
from holdfast.domain.approvals.approval import (
    PROCEED_ACTIONS,
    ApprovalId,
    Confirmation,
    Decision,
    DecisionAction,
    QuestionAnswer,
    digest_call,
)
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.approvals.signing import check_signature
from holdfast.domain.calls.decision_checks import DecisionContext, check_needs, normalise_name
from holdfast.domain.calls.transitions import read_answer
from holdfast.domain.calls.verdicts import Ask, BoundCall
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.domain.turn.ids import find_family
from holdfast.errors import BadInput, DecisionRefused
from holdfast.util.digests import digest_canonical

ApplyChange = Callable[[dict[str, JsonValue], Decision], dict[str, JsonValue]]
"""The arguments that a decision makes of those that were shown, checked; ValueError when they do not fit."""


def is_approved(
    input: ExecuteInput, verdict: Ask, context: DecisionContext, now: datetime, apply_change: ApplyChange
) -> bool:
    """Do the decisions, or a deadline that passed, allow exactly this call?"""
    shown = verdict.confirmation
    if input.expired and not has_keys(context.approvers):
        return shown.deadline is not None and shown.deadline.default == "allow"
    decisions = input.decisions
    if not all(_is_approving(decision, input, verdict, context, now, apply_change) for decision in decisions):
        return False
    names = {normalise_name(decision.by) for decision in decisions}
    return len(names) >= shown.needs.approvals if shown.needs.approvals > 1 else bool(decisions)


def is_valid_answer(
    answer: QuestionAnswer, question: Confirmation, digest: str, call_id: str, context: DecisionContext, now: datetime
) -> bool:
    """Did somebody whose word counts here give this answer, to this question, under this digest?

    Without keys whoever writes to the namespace answers for anybody, so what the turn says is all that is known.
    """
    decision = answer.decision
    if decision is None or not has_keys(context.approvers):
        return not has_keys(context.approvers)
    try:
        approval = ApprovalId.parse(decision.approval_id)
        check_signature(decision, context.approvers, now)
        check_needs(question, decision, context)
        same = read_answer(question, decision) == answer
    except (BadInput, DecisionRefused, ValueError):
        return False
    about_this = (approval.turn, approval.call, decision.digest) == (context.turn_id, call_id, digest)
    return about_this and same and decision.outcome in (DecisionAction.RESPOND, DecisionAction.CANCEL)


def is_valid_grant(grant: Grant, context: DecisionContext, now: datetime) -> bool:
    """Was this grant given in this turn or, unless it was for that one alone, in its session, by somebody whose word
    counts here, for what it says?"""
    try:
        given_in = ApprovalId.parse(grant.decision.approval_id).turn
        elsewhere = find_family(given_in) != find_family(context.turn_id)
        check_signature(grant.decision, context.approvers, now)
    except (BadInput, DecisionRefused):
        return False
    if elsewhere or not (grant.scope == grant.decision.scope or not has_keys(context.approvers)):
        return False
    return not grant.is_allowance or grant.decision.lasting != "turn" or given_in == context.turn_id


def may_grant_answer(grant: Grant, shown: Confirmation, context: DecisionContext) -> bool:
    """May this grant answer this question: is it from somebody whose word the rule wants? A refusal is anybody's."""
    if not grant.is_allowance:
        return True
    try:
        check_needs(shown, grant.decision, context)
    except DecisionRefused:
        return False
    return shown.needs.approvals == 1


def check_roles(policy: Policy, approvers: Collection[Approver]) -> None:
    """BadInput when a rule wants the word of people whom there are not: such a call would wait for ever."""
    for role, wanted in policy.required_approvals.items():
        known = [approver.name for approver in approvers if role in approver.roles]
        if role is not None and len(known) < wanted:
            raise BadInput(
                f"a rule wants {wanted} with the role {role!r}, and {len(known)} of the [[approvers]] hold it: "
                "name them in the settings file (docs/how-to/approvers.md)"
            )


def has_keys(approvers: Collection[Approver]) -> bool:
    """Does anybody have a key, so that nothing unsigned counts?"""
    return any(approver.key is not None for approver in approvers)


def _is_approving(
    decision: Decision,
    input: ExecuteInput,
    verdict: Ask,
    context: DecisionContext,
    now: datetime,
    apply_change: ApplyChange,
) -> bool:
    try:
        approval = ApprovalId.parse(decision.approval_id)
        check_signature(decision, context.approvers, now)
        check_needs(verdict.confirmation, decision, context)
    except (BadInput, DecisionRefused):
        return False
    about_this = (approval.turn, approval.call) == (context.turn_id, input.call_id)
    return about_this and decision.outcome in PROCEED_ACTIONS and _is_for_call(decision, input, verdict, apply_change)


def _is_for_call(decision: Decision, input: ExecuteInput, verdict: Ask, apply_change: ApplyChange) -> bool:
    """Does it name what would run: by its digest, or by what it makes of what that digest is of?"""
    bound = verdict.bound
    if not decision.has_changes:
        return decision.digest == bound.digest
    if input.shown is None or decision.digest != _digest_shown(verdict, input.shown):
        return False
    try:
        return digest_canonical(apply_change(input.shown, decision)) == digest_canonical(bound.arguments)
    except ValueError:
        return False


def _digest_shown(verdict: Ask, arguments: dict[str, JsonValue]) -> str:
    tool = verdict.bound.tool
    return digest_call(
        tool=tool.name,
        server=tool.server,
        definition=tool.definition,
        arguments=arguments,
        context=verdict.bound.context,
    )


def is_as_shown(approved: BoundCall, now: BoundCall, wrote: Mapping[str, str]) -> bool:
    """Are the files that a call would change as they were when a person was shown them, or as the turn wrote them?

    Not as the turn has merely read them since: what somebody else did in between, nobody was shown.
    """
    return all(digest in (approved.basis.get(path), wrote.get(path)) for path, digest in now.basis.items())


def find_stale_file(bound: BoundCall, seen: Mapping[str, str]) -> str | None:
    """A file the call would change that is not as the turn last saw it."""
    return next((path for path, digest in bound.basis.items() if seen.get(path, digest) != digest), None)
