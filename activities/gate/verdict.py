"""The second half of a judgement: rules, then grants, then the deadline, on a call that was prepared.

Each step tightens what came before, or, in the case of a grant, takes the place of a question. None lifts a denial
(S24, S29).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.activities.gate.approval_checks import (
    find_answer_in_parts,
    find_grant_answer,
    has_keys,
    may_grant_answer,
)
from holdfast.activities.gate.prepare_call import CallContext, PreparedCall, build_rule_subject, prepare_call
from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.conditions import may_take_in
from holdfast.activities.policy.grants import build_offers, may_use_grants
from holdfast.activities.policy.policy import Policy, Ruling
from holdfast.activities.policy.protected_files import ProtectedFiles
from holdfast.activities.policy.rules import RuleEffect, Tier
from holdfast.activities.policy.saved_grants import GrantSource
from holdfast.activities.policy.subject import Subject
from holdfast.activities.registry.arguments import check_arguments
from holdfast.activities.registry.registry import BUILT_IN
from holdfast.domain.approvals.approval import Approver, Deadline, Needs
from holdfast.domain.calls.decision_checks import DecisionContext
from holdfast.domain.calls.verdicts import Allow, Ask, Deny, Verdict
from holdfast.domain.modes import Confirming, Mode
from holdfast.util.text import escape_controls, shorten_text

NO_RULE = "no rule: the tool {wish}"
NOBODY_TO_ASK = "This call needs a person's approval, and in this turn nobody can be asked."
HOW_TO_PROCEED = (
    "Unattended, it proceeds by a rule that allows it, or where the worker's settings say `yolo_asks = false`."
)
"""The reason of a denial where nobody can be asked."""
ALWAYS_ASKED = "Every call is asked about here (confirm = always), and no grant covers another call."
YOLO_RULE = "destructive-commands-ask"
SAVED_UNREADABLE = "The saved grants cannot be read, and one of them may refuse this."


@dataclass(frozen=True)
class Rulebook:
    """The rules and grants by which one worker judges prepared calls."""

    policy: Policy
    workspace: Path
    protected: ProtectedFiles
    approvers: tuple[Approver, ...] = ()
    saved: GrantSource | None = None
    """The grants that are kept in files, beside those of the turn."""
    confirm: Confirming = Confirming.POLICY


class Demand(NamedTuple):
    """Why a person has to look at a call even where the rules would let it pass."""

    by: str
    reasons: tuple[str, ...] = ()
    answerable: bool = False
    """The person may also answer for further calls."""


@dataclass(frozen=True)
class RuledCall:
    """A prepared call as it would run, and the verdict on it so far."""

    prepared: PreparedCall
    subject: Subject
    ruling: Ruling | None
    verdict: Verdict
    must_ask: bool = False
    """Something other than a rule demands a person: no grant allows the call, and no deadline lets it run."""


# Rules


async def apply_rules(
    rulebook: Rulebook,
    prepared: PreparedCall,
    context: CallContext,
    hook_reasons: tuple[str, ...] = (),
    *,
    was_changed: bool = False,
) -> RuledCall:
    """The verdict of the rules, tightened by whatever else demands a person (S20).

    `hook_reasons`: why hooks want one. `was_changed`: a person has changed the arguments, and sees them again (S25).
    """
    subject = await asyncio.to_thread(
        build_rule_subject, rulebook.workspace, prepared, tainted=context.tainted, protected=rulebook.protected
    )
    prepared = _add_reach(prepared, subject)
    ruling = rulebook.policy.find_ruling(subject, context.mode)
    always = Confirming.ALWAYS in (rulebook.confirm, context.confirm)
    if ruling and ruling.decision is RuleEffect.ALLOW and not ruling.anything and not always:
        plain = await _rewrite_as_understood(rulebook, prepared, subject, context)
        ruling, prepared = (ruling, plain) if plain else (None, prepared)
    verdict = await _apply_saved_state(rulebook.saved, _build_verdict(prepared, ruling, subject), prepared)
    demands = list(_list_demands(prepared, hook_reasons, was_changed=was_changed, always=always))
    for demand in demands:
        verdict = _require_approval(verdict, prepared, demand)
    return RuledCall(prepared, subject, ruling, verdict, must_ask=bool(demands) or always)


def _list_demands(
    prepared: PreparedCall, hook_reasons: tuple[str, ...], *, was_changed: bool, always: bool
) -> Iterable[Demand]:
    if hook_reasons or was_changed:
        yield Demand("a hook asks", hook_reasons, answerable=not hook_reasons)
    if tool_change := prepared.invocation.describe_tool_change():
        yield Demand("the tool changed", (tool_change,))
    if always and not prepared.is_question:
        yield Demand("every call is asked about", (ALWAYS_ASKED,))


def _build_verdict(prepared: PreparedCall, ruling: Ruling | None, subject: Subject) -> Verdict:
    """The verdict of the policy or, where no rule matches, of the tool itself. A question is asked whatever a rule
    says.
    """
    bound, asked = prepared.bound, prepared.asked
    if ruling is None:
        rule = NO_RULE.format(wish="asks for confirmation" if asked else "needs no confirmation")
        if asked is None:
            return Allow(rule=rule, bound=bound)
    else:
        rule = f"{ruling.tier.value}: {ruling.rule}"
        if ruling.decision is RuleEffect.DENY:
            return Deny(rule=rule, message=ruling.message or ruling.reason or f"Denied by the rule {ruling.rule}.")
        if ruling.decision is RuleEffect.ALLOW and not prepared.is_question:
            return Allow(rule=rule, bound=bound, diff=asked.diff if asked else None)
    shown: dict[str, Any] = {"offers": build_offers(subject, bound.digest, ruling), "needs": Needs()}
    if ruling:
        shown |= {"reason": _build_reason(ruling, subject), "needs": ruling.needs}
    return Ask(rule=rule, bound=bound, confirmation=prepared.confirmation.model_copy(update=shown))


def _build_reason(ruling: Ruling, subject: Subject) -> str | None:
    """The reason of the rule, with a note about the files that decide what runs."""
    files = (f"{path}: {why}." for path, why in subject.protected.items())
    return shorten_text(escape_controls(" ".join(filter(None, (ruling.reason, *files)))), 1_000) or None


def _require_approval(verdict: Verdict, prepared: PreparedCall, demand: Demand) -> Verdict:
    """The question that a verdict becomes by a demand; a refusal stays what it is."""
    if not isinstance(verdict, Allow | Ask):
        return verdict
    shown = verdict.confirmation if isinstance(verdict, Ask) else prepared.confirmation
    reason = " ".join(filter(None, (shown.reason, *demand.reasons))) or None
    confirmation = shown.model_copy(update={"reason": reason, "offers": shown.offers if demand.answerable else ()})
    rule = verdict.rule if demand.answerable else f"{verdict.rule}, and {demand.by}"
    return Ask(rule=rule, bound=verdict.bound, confirmation=confirmation)


async def _apply_saved_state(saved: GrantSource | None, verdict: Verdict, prepared: PreparedCall) -> Verdict:
    """A question where a saved grant that cannot be read may refuse the call; where one is asked, a note about that."""
    if saved is None:
        return verdict
    await saved.refresh()
    note = (saved.note,) if saved.note else ()
    if saved.may_miss_refusals:
        return _require_approval(verdict, prepared, Demand("", (SAVED_UNREADABLE, *note), answerable=True))
    if note and isinstance(verdict, Ask):
        return _require_approval(verdict, prepared, Demand("", note, answerable=True))
    return verdict


def _add_reach(prepared: PreparedCall, subject: Subject) -> PreparedCall:
    """Add what is known of where the call's data goes and comes from."""
    takes_in = may_take_in(subject, open_world=prepared.bound.tool.traits.open_world)
    return prepared.update_bound(sends=subject.sends, takes_in=takes_in)


async def _rewrite_as_understood(
    rulebook: Rulebook, prepared: PreparedCall, subject: Subject, context: CallContext
) -> PreparedCall | None:
    """Replace a command that runs unasked by the one that was analysed (S30). None for more than a plain chain."""
    if subject.command is None:
        return prepared
    understood = CommandReading(subject.command).rebuilt
    if understood == subject.command:
        return prepared
    if understood is None or prepared.entry.source != BUILT_IN:
        return None  # only our own shell is known to run what it is given
    before = prepared.bound
    checked = await check_arguments(prepared.entry.schema, {**before.arguments, "command": understood})
    plain = await prepare_call(prepared.entry, checked, rulebook.workspace, context.context)
    plain = plain.update_bound(rewritten_by=before.rewritten_by, given=before.given, host=before.host)
    return _add_reach(plain, subject)


# Grants


async def apply_grants(rulebook: Rulebook, ruled: RuledCall, context: CallContext) -> RuledCall:
    """Apply grants to the verdict: one that refuses always counts, one that allows only where the rules ask."""
    verdict, prepared = ruled.verdict, ruled.prepared
    if not isinstance(verdict, Allow | Ask):
        return ruled
    may_allow = may_use_grants(ruled.ruling) and not ruled.must_ask
    shown = verdict.confirmation if isinstance(verdict, Ask) else prepared.confirmation
    within = DecisionContext(context.turn_id, rulebook.approvers, context.requester)
    grants = [grant for grant in context.grants if may_grant_answer(grant, shown, within)]
    answer = find_grant_answer(ruled.subject, prepared.bound.digest, grants, rulebook.saved, datetime.now(UTC))
    if answer is None and may_allow and isinstance(verdict, Ask) and shown.needs == Needs():
        answer = find_answer_in_parts(
            rulebook.policy, ruled.subject, prepared.bound.digest, grants, rulebook.saved, context.mode
        )
    if answer is None or shown.kind == "question":
        return ruled
    if not answer.allows:
        denied = Deny(rule=answer.rule, message=answer.message, actor=answer.actor, diff=shown.diff)
        return replace(ruled, verdict=denied)
    anybodys = shown.needs == Needs() or answer.actor.kind == "person"
    if isinstance(verdict, Allow) or not may_allow or not anybodys:
        return ruled
    plain = prepared if answer.exact else await _rewrite_as_understood(rulebook, prepared, ruled.subject, context)
    if plain is None:
        return ruled
    allowed = Allow(rule=answer.rule, bound=plain.bound, actor=answer.actor, grant=answer.grant, diff=shown.diff)
    return replace(ruled, verdict=allowed, prepared=plain)


# The deadline


def apply_deadline(rulebook: Rulebook, ruled: RuledCall, context: CallContext) -> Verdict:
    """The verdict, a question with the sooner deadline of the rule's and the turn's (S28).

    Where nobody can be asked, a question is a denial (S27). A deadline never lets a call run where approvers have keys,
    since a deadline has no signature, nor where something other than a rule, or a protected file, demands a person.
    """
    verdict, ruling = ruled.verdict, ruled.ruling
    if not isinstance(verdict, Ask):
        return verdict
    if not context.interactive:
        why = verdict.confirmation.reason
        hint = HOW_TO_PROCEED if _is_yolo_question(ruling, context) else ""
        message = " ".join(filter(None, (NOBODY_TO_ASK, shorten_text(why, 500) if why else "", hint)))
        return Deny(rule=verdict.rule, message=message)
    deadline = _choose_sooner_deadline(ruling.deadline if ruling else None, context.approval_seconds)
    if deadline and (ruled.must_ask or ruled.subject.protected or has_keys(rulebook.approvers)):
        deadline = deadline.model_copy(update={"default": "deny"})
    return verdict.model_copy(update={"confirmation": verdict.confirmation.model_copy(update={"deadline": deadline})})


def _choose_sooner_deadline(deadline: Deadline | None, seconds: float | None) -> Deadline | None:
    if seconds is None or (deadline and deadline.seconds <= seconds):
        return deadline
    return Deadline(seconds=seconds, warning_seconds=seconds / 10)


def _is_yolo_question(ruling: Ruling | None, context: CallContext) -> bool:
    """Is it asked about only because yolo, too, asks about what destroys or cannot be read?"""
    shipped = ruling is not None and (ruling.tier, ruling.rule) == (Tier.DEFAULT, YOLO_RULE)
    return shipped and context.mode is Mode.YOLO and context.confirm is Confirming.POLICY
