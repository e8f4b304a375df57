"""Checks of a decision against its call and against the people who may decide (S22). Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from holdfast.domain.approvals.approval import (
    PROCEED_ACTIONS,
    ApprovalId,
    Approver,
    Confirmation,
    Decision,
    DecisionAction,
    Offer,
)
from holdfast.domain.approvals.signing import check_signature, find_roles
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.forms.validation import find_option, parse_answer
from holdfast.errors import BadInput, DecisionRefused


@dataclass(frozen=True)
class DecisionContext:
    """The turn's facts that decisions are checked against: its id, its approvers, and who started it."""

    turn_id: str
    approvers: Collection[Approver] = ()
    requester: str | None = None


def check_decision(batch: Batch, decision: Decision, context: DecisionContext, now: datetime) -> Call:
    """Return the call that a decision is for. DecisionRefused when it is not valid. Changes nothing."""
    call = _get_call(batch, decision, context.turn_id)
    check_signature(decision, context.approvers, now)
    shown = call.confirmation or Confirmation(kind="info", title=call.tool)
    _check_person(call, shown, decision, context)
    if decision.outcome is DecisionAction.RESPOND and not decision.content:
        raise DecisionRefused("no_content", "to respond in the tool's place, give the response as `content`")
    if shown.kind == "question":
        _check_answer(call, shown, decision)
    if shown.kind == "outcome_unknown":
        _check_unknown(decision)
    if decision.has_changes:
        _check_change(shown, decision)
    if decision.is_grant:
        get_offer(shown, decision)
    return call


def get_offer(shown: Confirmation, decision: Decision) -> Offer:
    """Return the offer of the grant that a decision gives. DecisionRefused when the question did not offer it."""
    refusing = decision.outcome is DecisionAction.CANCEL
    fitting = [offer for offer in shown.offers if refusing or offer.outcome is decision.outcome]
    if decision.scope is not None:
        fitting = [offer for offer in fitting if offer.scope == decision.scope]
    if not fitting:
        known = ", ".join(dict.fromkeys(f"`{offer.outcome.value}`" for offer in shown.offers)) or "none"
        raise DecisionRefused(
            "not_offered", f"this approval does not offer this grant (it offers: {known}): decide for once"
        )
    return fitting[0]


def _get_call(batch: Batch, decision: Decision, turn_id: str) -> Call:
    approval = _parse_approval_id(decision.approval_id)
    call = batch.get(approval.call) if approval.turn == turn_id else None
    if call is None:
        raise DecisionRefused("unknown_approval", f"this turn has no approval {decision.approval_id!r}")
    if call.status is not Status.AWAITING_APPROVAL:
        raise DecisionRefused("not_waiting", f"call {call.id!r} does not wait for a decision: it is {call.status}")
    if approval.revision > call.revision:
        raise DecisionRefused("unknown_approval", f"call {call.id!r} was asked about {call.revision} times only")
    if approval.revision != call.revision:
        raise DecisionRefused(
            "old_revision",
            f"approval {decision.approval_id!r} was replaced; look at revision {call.revision} and decide on that",
        )
    if call.bound is None or decision.digest != call.approval_digest:
        raise DecisionRefused(
            "other_digest", f"the digest of the decision is not that of approval {decision.approval_id!r}"
        )
    if call.changing:
        who = call.changing.by or "somebody"
        raise DecisionRefused("being_changed", f"{who} has just changed call {call.id!r}: look at it again")
    return call


def _check_person(call: Call, shown: Confirmation, decision: Decision, context: DecisionContext) -> None:
    """DecisionRefused when this person may not decide. Anybody may refuse a call."""
    if decision.outcome is DecisionAction.CANCEL and not decision.remember:
        return
    check_needs(shown, decision, context)
    if decision.outcome in PROCEED_ACTIONS and normalise_name(decision.by) in {
        normalise_name(each.by) for each in call.approvals
    }:
        raise DecisionRefused(
            "already_approved", f"{decision.by!r} has already approved this call: another person must"
        )


def check_needs(shown: Confirmation, decision: Decision, context: DecisionContext) -> None:
    """DecisionRefused when the rule needs the approval of another person."""
    needs, who = shown.needs, decision.by
    if needs != type(needs)() and not who:
        raise DecisionRefused("nameless", "a rule says who may decide on this call: give your name as `by`")
    listed = [approver.name for approver in context.approvers if not approver.is_for_anyone]
    if needs != type(needs)() and listed and who not in listed:
        raise DecisionRefused(
            "unknown_approver", f"a rule says who may decide on this call, and {who!r} is no approver"
        )
    if needs.role and needs.role not in find_roles(who, context.approvers):
        raise DecisionRefused("wrong_role", f"a rule needs an approver with the role {needs.role!r}; {who!r} lacks it")
    if needs.not_requester and context.requester is None:
        raise DecisionRefused(
            "no_requester", "a rule needs an approver other than the requester, and this turn has no `requester`"
        )
    if needs.not_requester and normalise_name(who) == normalise_name(context.requester):
        raise DecisionRefused("own_turn", f"a rule needs an approver other than {who!r}, who started this turn")


def normalise_name(name: str | None) -> str:
    """Normalise a person's name: NFKC, case-folded, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name or "").casefold().split())


def _check_answer(call: Call, shown: Confirmation, decision: Decision) -> None:
    """DecisionRefused for an answer that is not one of the options, if it must be, or does not fit the form.

    For the question of a running tool, case and outer space are ignored: the tool gets the option itself. A call that
    is the question returns the answer as its result, so there the answer must equal the option.
    """
    if decision.outcome not in (DecisionAction.RESPOND, DecisionAction.CANCEL):
        raise DecisionRefused("needs_answer", "this is a question: use `respond`, with the answer as `content`")
    if decision.outcome is DecisionAction.CANCEL:
        return
    answer = decision.content or ""
    is_option = find_option(shown.options, answer) is not None if call.pause else answer in shown.options
    if not shown.other and not is_option:
        how = "to give no answer, use `holdfast deny` (the outcome `cancel`)"
        raise DecisionRefused("not_an_option", f"{_describe_options(shown.options)}; {how}")
    if shown.form is not None:
        try:
            parse_answer(shown.form, answer)
        except ValueError as error:
            raise DecisionRefused("does_not_fit", f"the answer does not fit: {error}") from None


def _describe_options(options: tuple[str, ...]) -> str:
    """Describe the answers that a question takes."""
    if len(options) == 1:
        return f"the only answer to this is `{options[0]}`"
    return f"the answer must be one of: {', '.join(map(repr, options))}"


def _check_unknown(decision: Decision) -> None:
    """DecisionRefused for what cannot be decided about a call of unknown outcome."""
    if (
        decision.outcome not in (DecisionAction.PROCEED_ONCE, DecisionAction.RESPOND, DecisionAction.CANCEL)
        or decision.has_changes
    ):
        raise DecisionRefused(
            "may_have_run",
            "it is unknown whether this call ran: `proceed_once` runs it again, `respond` ends it as done with your "
            "`content` as its result, `cancel` ends it as failed",
        )


def _check_change(shown: Confirmation, decision: Decision) -> None:
    if decision.content is not None and shown.edits is None:
        raise DecisionRefused("not_editable", "this tool has no editable text: give new `arguments` instead")
    if decision.outcome is DecisionAction.PROCEED_ONCE and shown.needs.approvals > 1:
        raise DecisionRefused("needs_others", "the other approvers must see your change: use `modify`, then approve")


def _parse_approval_id(approval_id: str) -> ApprovalId:
    try:
        return ApprovalId.parse(approval_id)
    except BadInput as error:
        raise DecisionRefused("unknown_approval", str(error)) from error
