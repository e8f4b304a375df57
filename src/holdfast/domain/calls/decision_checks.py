"""Which decisions count (S22). Pure: a decision, the call it is about, and what the turn knows of who may decide."""

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
    """What a turn knows of who may decide."""

    turn_id: str
    approvers: Collection[Approver] = ()
    requester: str | None = None


def check_decision(batch: Batch, decision: Decision, context: DecisionContext, now: datetime) -> Call:
    """The call a decision is for, or DecisionRefused with the reason. Changes nothing."""
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
    """The standing answer that a decision gives, as it was offered; DecisionRefused when it was not."""
    refusing = decision.outcome is DecisionAction.CANCEL
    fitting = [offer for offer in shown.offers if refusing or offer.outcome is decision.outcome]
    if decision.scope is not None:
        fitting = [offer for offer in fitting if offer.scope == decision.scope]
    if not fitting:
        known = ", ".join(dict.fromkeys(f"`{offer.outcome.value}`" for offer in shown.offers)) or "none"
        raise DecisionRefused(
            "not_offered", f"this approval offers no such standing answer (it offers: {known}): decide for once"
        )
    return fitting[0]


def _get_call(batch: Batch, decision: Decision, turn_id: str) -> Call:
    approval = _parse_approval_id(decision.approval_id)
    call = batch.get(approval.call) if approval.turn == turn_id else None
    if call is None:
        raise DecisionRefused("unknown_approval", f"nothing here is called {decision.approval_id!r}")
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
            "other_digest", f"the decision names another digest than approval {decision.approval_id!r} carries"
        )
    if call.changing:
        who = call.changing.by or "somebody"
        raise DecisionRefused("being_changed", f"{who} has just changed call {call.id!r}: look at it again")
    return call


def _check_person(call: Call, shown: Confirmation, decision: Decision, context: DecisionContext) -> None:
    """Is it for this person to say? Anybody may refuse."""
    if decision.outcome is DecisionAction.CANCEL and not decision.remember:
        return
    check_needs(shown, decision, context)
    if decision.outcome in PROCEED_ACTIONS and normalise_name(decision.by) in {
        normalise_name(each.by) for each in call.approvals
    }:
        raise DecisionRefused("already_approved", f"{decision.by!r} has approved this already: somebody else must")


def check_needs(shown: Confirmation, decision: Decision, context: DecisionContext) -> None:
    """DecisionRefused when a rule wants somebody else's word."""
    needs, who = shown.needs, decision.by
    if needs != type(needs)() and not who:
        raise DecisionRefused("nameless", "a rule says who may decide on this: say who you are with `by`")
    listed = [approver.name for approver in context.approvers if not approver.is_for_anyone]
    if needs != type(needs)() and listed and who not in listed:
        raise DecisionRefused("unknown_approver", f"a rule says who may decide on this, and {who!r} is no approver")
    if needs.role and needs.role not in find_roles(who, context.approvers):
        raise DecisionRefused("wrong_role", f"a rule wants somebody with the role {needs.role!r}, and {who!r} is not")
    if needs.not_requester and context.requester is None:
        raise DecisionRefused("no_requester", "a rule wants somebody other than who started this turn: nobody said who")
    if needs.not_requester and normalise_name(who) == normalise_name(context.requester):
        raise DecisionRefused("own_turn", f"a rule wants somebody other than {who!r}, who started this turn")


def normalise_name(name: str | None) -> str:
    """What two spellings of one name have in common."""
    return " ".join(unicodedata.normalize("NFKC", name or "").casefold().split())


def _check_answer(call: Call, shown: Confirmation, decision: Decision) -> None:
    """DecisionRefused for an answer that is none of the options when the question takes no other, or misses a field.

    A running tool is given the option that is meant. A call that is itself the question has the answer as its result,
    unchanged, so the answer must be the option.
    """
    if decision.outcome not in (DecisionAction.RESPOND, DecisionAction.CANCEL):
        raise DecisionRefused("needs_answer", "this is a question: it wants `respond`, with the answer as `content`")
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
    """What the answer must be."""
    if len(options) == 1:
        return f"the only answer to this is `{options[0]}`"
    return f"the answer must be one of: {', '.join(map(repr, options))}"


def _check_unknown(decision: Decision) -> None:
    """Of a call that may have run there are three things to say."""
    if (
        decision.outcome not in (DecisionAction.PROCEED_ONCE, DecisionAction.RESPOND, DecisionAction.CANCEL)
        or decision.has_changes
    ):
        raise DecisionRefused(
            "may_have_run",
            "nobody knows whether this call ran: `proceed_once` runs it again, `respond` takes it as done with your "
            "`content` as its result, `cancel` takes it as failed",
        )


def _check_change(shown: Confirmation, decision: Decision) -> None:
    if decision.content is not None and shown.edits is None:
        raise DecisionRefused("not_editable", "this tool has no text to be edited: give other `arguments` instead")
    if decision.outcome is DecisionAction.PROCEED_ONCE and shown.needs.approvals > 1:
        raise DecisionRefused("needs_others", "others must see what you changed: use `modify`, then approve")


def _parse_approval_id(approval_id: str) -> ApprovalId:
    try:
        return ApprovalId.parse(approval_id)
    except BadInput as error:
        raise DecisionRefused("unknown_approval", str(error)) from error
