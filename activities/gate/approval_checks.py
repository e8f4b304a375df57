"""Checks whether a decision, an answer or a grant covers a call, as this worker would run it (S22).

Nothing in an activity's input is taken at its word: a decision must be about this call of this turn, signed where
approvers have keys, and from people whose word the rule wants.

Why: docs/decisions/0005-approvals-are-bound-to-a-digest.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import JsonValue

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grants import CandidateCall, find_covering_grant
from holdfast.activities.policy.load_policy import build_policy, list_sources, load_files, load_shipped
from holdfast.activities.policy.policy import Policy
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.saved_grants import GrantSource
from holdfast.activities.policy.subject import Subject
from holdfast.config.settings import Settings
from holdfast.domain.approvals.approval import (
    PROCEED_ACTIONS,
    Actor,
    ApprovalId,
    Approver,
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
from holdfast.domain.modes import Mode
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.domain.turn.ids import find_family
from holdfast.errors import BadInput, DecisionRefused
from holdfast.util.findings import Finding, report_ok, report_warning
from holdfast.util.json_values import digest_canonical

ApplyChange = Callable[[dict[str, JsonValue], Decision], dict[str, JsonValue]]
"""Applies a decision to the arguments that were shown, and checks the result; ValueError when it does not fit."""


# Decisions


def is_approved(
    input: ExecuteInput, verdict: Ask, context: DecisionContext, now: datetime, apply_change: ApplyChange
) -> bool:
    """Do the decisions in the input, or a deadline that passed, allow exactly the call of this verdict?"""
    shown = verdict.confirmation
    if input.expired and not has_keys(context.approvers):
        return shown.deadline is not None and shown.deadline.default == "allow"
    decisions = input.approvals
    if not all(_is_approving(decision, input, verdict, context, now, apply_change) for decision in decisions):
        return False
    names = {normalise_name(decision.by) for decision in decisions}
    return len(names) >= shown.needs.approvals if shown.needs.approvals > 1 else bool(decisions)


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
    """Is the decision for the call as it would run: by its digest, or, where it changes arguments, by their result?"""
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

    That the turn has read a file since is not enough: nobody was shown what somebody else wrote in between.
    """
    return all(digest in (approved.basis.get(path), wrote.get(path)) for path, digest in now.basis.items())


def find_stale_file(bound: BoundCall, seen: Mapping[str, str]) -> str | None:
    """A file that the call would change and that is not as the turn last saw it; None when there is none."""
    return next((path for path, digest in bound.basis.items() if seen.get(path, digest) != digest), None)


# Answers to questions


def is_valid_answer(
    answer: QuestionAnswer, question: Confirmation, digest: str, call_id: str, context: DecisionContext, now: datetime
) -> bool:
    """Did an approver give this answer, to this question, under this digest?

    Where no approver has a key, anybody who can write to the namespace can answer, and the turn is believed.
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


# Grants


def is_valid_grant(grant: Grant, context: DecisionContext, now: datetime) -> bool:
    """Was this grant given by an approver, for what it covers, in this turn or, if it lasts longer, in its session?"""
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
    """May this grant answer this question: has its giver the role that the rule demands? A refusal needs none."""
    if not grant.is_allowance:
        return True
    try:
        check_needs(shown, grant.decision, context)
    except DecisionRefused:
        return False
    return shown.needs.approvals == 1


class GrantAnswer(NamedTuple):
    """The answer of a grant to a call, and who gave it."""

    allows: bool
    rule: str
    actor: Actor
    message: str = ""
    """The message for the model, when it refuses."""
    grant: str | None = None
    """The turn's grant; None for one that is kept in a file."""
    exact: bool = False
    """It covers exactly this call by its digest."""


def find_grant_answer(
    call: Subject | CallFacts, digest: str, grants: Iterable[Grant], saved: GrantSource | None, now: datetime
) -> GrantAnswer | None:
    """The answer of the turn's grants, else of the saved ones. A refusal of either comes before an allowance."""
    own = find_covering_grant(grants, call, digest, now)
    saved_rule = saved.find_covering(call, now) if saved else None
    answers = [*([_answer_from_grant(own)] if own else []), *([_answer_from_saved(saved_rule)] if saved_rule else [])]
    return min(answers, key=lambda answer: answer.allows, default=None)


def _answer_from_grant(grant: Grant) -> GrantAnswer:
    note = f": {grant.decision.note}" if grant.decision.note else ""
    return GrantAnswer(
        allows=grant.is_allowance,
        rule=f"grant {grant.id}: {grant.covers}",
        actor=Actor(kind="person", name=grant.given_by),
        message=f"Refused by {grant.given_by}, for every call of this kind ({grant.covers}){note}",
        grant=grant.id,
        exact=grant.scope.digest is not None,
    )


def _answer_from_saved(rule: Rule) -> GrantAnswer:
    return GrantAnswer(
        allows=rule.decision is RuleEffect.ALLOW,
        rule=f"saved grant: {rule.name}",
        actor=Actor(kind="policy", name=f"saved grant: {rule.name}"),
        message=f"Refused by the saved grant {rule.name}: {rule.reason}",
    )


def find_answer_in_parts(
    policy: Policy, subject: Subject, digest: str, grants: Iterable[Grant], saved: GrantSource | None, mode: Mode
) -> GrantAnswer | None:
    """The answer of rules and grants that together cover a plain chain of commands, each of them a part.

    At most one grant of the turn takes part, and none that is limited to a number of calls: a call uses up one.
    """
    whole = CandidateCall(subject).rebuilt_facts if subject.command is not None else None
    parts = whole.split_programs() if whole else ()
    lasting = [grant for grant in grants if grant.decision.uses is None]
    found: list[GrantAnswer] = []
    for part in parts if len(parts) > 1 else ():
        ruling = policy.find_ruling(part, mode)
        if ruling and ruling.decision is RuleEffect.ALLOW and not ruling.anything:
            label = f"{ruling.tier.value}: {ruling.rule}"
            found.append(GrantAnswer(True, label, Actor(kind="policy", name=label)))
            continue
        answer = find_grant_answer(part, digest, lasting, saved, datetime.now(UTC))
        if answer is None or not answer.allows or answer.exact:
            return None
        found.append(answer)
    if not found or len({answer.grant for answer in found if answer.grant}) > 1:
        return None
    by = next((answer for answer in found if answer.grant), found[0])
    return by._replace(rule="; ".join(dict.fromkeys(answer.rule for answer in found)))


# Approvers


def check_roles(policy: Policy, approvers: Collection[Approver]) -> None:
    """BadInput when a rule demands more approvers of a role than there are: its calls would wait for ever."""
    for role, wanted in policy.required_approvals.items():
        known = [approver.name for approver in approvers if role in approver.roles]
        if role is not None and len(known) < wanted:
            raise BadInput(
                f"a rule demands {wanted} approvers with the role {role!r}, and {len(known)} of the [[approvers]] "
                "have it: name them in the settings file (docs/how-to/approvers.md)"
            )


def has_keys(approvers: Collection[Approver]) -> bool:
    """Has an approver a key? Then only signed decisions count."""
    return any(approver.key is not None for approver in approvers)


def check_rules(settings: Settings) -> Iterator[Finding]:
    """Load the policy as a worker would; BadInput with every problem of every file."""
    sources = list_sources(settings)
    loaded = load_files(sources)
    check_roles(build_policy([load_shipped(), *loaded]), settings.approvers)
    yours = sum(source.tier is not Tier.DEFAULT for source in sources)
    files = f"{yours} files of yours" if yours else "none of yours"
    yield report_ok(f"the rules can be loaded: those that come with Holdfast, and {files}")
    for one in loaded:
        for found in one.warnings:
            yield report_warning(
                f"{one.document.content.file}, line {found.line}: {found.message}",
                "correct the rule, if it says something else than you mean; see `holdfast policy check`",
            )
