"""The verdict on a prepared call: by rules, hooks and grants.

Each can tighten what came before. A standing answer takes the place of a question and lifts no denial (S24, S29).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from holdfast.activities.gate.approval_checks import has_keys, is_valid_grant, may_grant_answer
from holdfast.activities.gate.prepare import (
    PreparedCall,
    add_reach,
    build_rule_subject,
    build_verdict,
    choose_sooner_deadline,
    find_confirmation,
    prepare_call,
    require_approval,
)
from holdfast.activities.hooks.combine import Phase
from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grant_matching import find_covering_grant, may_use_grants
from holdfast.activities.policy.grant_scopes import CandidateCall
from holdfast.activities.policy.policy import Policy, Ruling
from holdfast.activities.policy.protection.protected_files import ProtectedFiles
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.saved_grants import GrantSource
from holdfast.activities.policy.subject.shell_commands import rebuild_understood
from holdfast.activities.policy.subject.subject import Subject
from holdfast.activities.registry.registry import BUILT_IN, RegisteredTool
from holdfast.domain.approvals.actors import Actor, Approver
from holdfast.domain.approvals.approval import Needs
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.decision_checks import DecisionContext
from holdfast.domain.calls.verdicts import Allow, Ask, Deny, Verdict
from holdfast.domain.context import Context
from holdfast.domain.modes import Confirming, Mode
from holdfast.util.text import shorten_text


class GrantAnswer(NamedTuple):
    """What a standing answer says, and who gave it."""

    allows: bool
    rule: str
    actor: Actor
    message: str = ""
    """For the model, when it refuses."""
    grant: str | None = None
    """The turn's grant; None for one that is kept in a file."""
    exact: bool = False
    """It is about this very call, whatever is in it."""


def find_grant_answer(
    call: Subject | CallFacts, digest: str, grants: Iterable[Grant], saved: GrantSource | None, now: datetime
) -> GrantAnswer | None:
    """The turn's own answer, else one that was kept. A refusal of either comes before an allowance of the other."""
    own = find_covering_grant(grants, call, digest, now)
    kept = saved.find_covering(call, now) if saved else None
    answers = [*([_answer_from_grant(own)] if own else []), *([_answer_from_saved(kept)] if kept else [])]
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
        rule=f"kept: {rule.name}",
        actor=Actor(kind="policy", name=f"kept: {rule.name}"),
        message=f"Refused for good ({rule.name}: {rule.reason})",
    )


NOBODY_TO_ASK = "This call needs a person's approval, and in this turn nobody can be asked."
ALWAYS_ASKED = "Every call is asked about here (confirm = always), and no answer stands for another call."
HOW_TO_PROCEED = (
    "Unattended, it proceeds by a rule that allows it, or where the worker's settings say `yolo_asks = false`."
)
"""What is said where nobody can be asked."""
YOLO_RULE = "destructive-commands-ask"
SAVED_UNREADABLE = "The standing answers that were kept cannot be read, and one of them may refuse this."


@dataclass(frozen=True)
class CallContext:
    """What of its turn a call is judged by."""

    seen: Mapping[str, str] = field(default_factory=dict)
    """Files as the turn last read or wrote them, by their digests."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True
    grants: tuple[Grant, ...] = ()
    """Those that `PolicyJudge.select_valid_grants` let through."""
    tainted: bool = False
    requester: str | None = None
    approval_seconds: float | None = None
    turn_id: str = ""
    call_id: str = ""
    context: Context = field(default_factory=Context)
    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that the turn was started with; None for all."""
    confirm: Confirming = Confirming.POLICY
    phase: Phase = "validate"


class PolicyJudge:
    """One worker's rules, approvers and kept answers."""

    def __init__(
        self,
        policy: Policy,
        workspace: Path,
        approvers: tuple[Approver, ...] = (),
        saved: GrantSource | None = None,
        protected: ProtectedFiles | None = None,
        confirm: Confirming = Confirming.POLICY,
    ) -> None:
        self.policy = policy
        self._confirm = confirm
        self.approvers = approvers
        self._workspace = workspace
        self._saved = saved
        self._protected = protected or ProtectedFiles(workspace)

    def select_valid_grants(self, grants: tuple[Grant, ...], turn_id: str) -> tuple[Grant, ...]:
        """Those that were given in this turn, by somebody whose word counts: once for all calls of a batch."""
        context, now = DecisionContext(turn_id, self.approvers), datetime.now(UTC)
        return tuple(grant for grant in grants if is_valid_grant(grant, context, now))

    async def judge_call(
        self,
        entry: RegisteredTool,
        prepared: PreparedCall,
        call_context: CallContext,
        hook_reasons: tuple[str, ...] = (),
        *,
        was_changed: bool = False,
    ) -> tuple[Verdict, PreparedCall]:
        """The verdict, and the call as it would run. `hook_reasons` ask for a person; `was_changed`: by a person."""
        subject = await asyncio.to_thread(
            build_rule_subject, self._workspace, prepared, tainted=call_context.tainted, protected=self._protected
        )
        prepared = add_reach(prepared, subject)
        ruling = self.policy.find_ruling(subject, call_context.mode)
        always = Confirming.ALWAYS in (self._confirm, call_context.confirm)
        if ruling and ruling.decision is RuleEffect.ALLOW and not ruling.anything and not always:
            plain = await self._rewrite_as_understood(entry, prepared, subject, call_context)
            ruling, prepared = (ruling, plain) if plain else (None, prepared)
        verdict = await self._apply_saved(build_verdict(prepared, ruling, subject), prepared)
        if hook_reasons or was_changed:
            verdict = require_approval(verdict, prepared, hook_reasons, answerable=not hook_reasons)
        changed = prepared.invocation.describe_tool_change()
        if changed:
            verdict = require_approval(verdict, prepared, (changed,), answerable=False, by="the tool changed")
        if always and not _is_question(prepared):
            verdict = require_approval(
                verdict, prepared, (ALWAYS_ASKED,), answerable=False, by="every call is asked about"
            )
        if not isinstance(verdict, Deny):
            may_allow = may_use_grants(ruling) and not (hook_reasons or was_changed or changed or always)
            verdict, prepared = await self._apply_grants(
                entry, prepared, subject, verdict, call_context, may_allow=may_allow
            )
        if isinstance(verdict, Ask):
            verdict = self._apply_deadline(
                verdict,
                ruling,
                call_context,
                only_deny=bool(hook_reasons or was_changed or changed or always or subject.protected),
            )
        return verdict, prepared

    async def _apply_saved(self, verdict: Verdict, prepared: PreparedCall) -> Verdict:
        """Asked where a saved answer may refuse it that cannot be read; told of it where somebody is asked anyway."""
        if self._saved is None:
            return verdict
        await self._saved.refresh()
        note = (self._saved.note,) if self._saved.note else ()
        if self._saved.may_miss_refusals:
            return require_approval(verdict, prepared, (SAVED_UNREADABLE, *note), answerable=True)
        return (
            require_approval(verdict, prepared, note, answerable=True) if note and isinstance(verdict, Ask) else verdict
        )

    def _apply_deadline(
        self, verdict: Ask, ruling: Ruling | None, call_context: CallContext, *, only_deny: bool
    ) -> Ask | Deny:
        """With the deadline of the rule or the turn. Signed words cannot be had from a clock: where they count, and
        where a hook, a change or a file that decides what runs wants somebody to look, a deadline only denies."""
        if not call_context.interactive:
            why = verdict.confirmation.reason
            told = [
                NOBODY_TO_ASK,
                shorten_text(why, 500) if why else "",
                HOW_TO_PROCEED if _is_yolo_question(ruling, call_context) else "",
            ]
            return Deny(rule=verdict.rule, message=" ".join(filter(None, told)))
        deadline = choose_sooner_deadline(ruling.deadline if ruling else None, call_context.approval_seconds)
        if deadline and (only_deny or has_keys(self.approvers)):
            deadline = deadline.model_copy(update={"default": "deny"})
        return verdict.model_copy(
            update={"confirmation": verdict.confirmation.model_copy(update={"deadline": deadline})}
        )

    async def _rewrite_as_understood(
        self, entry: RegisteredTool, prepared: PreparedCall, subject: Subject, call_context: CallContext
    ) -> PreparedCall | None:
        """What runs unasked runs as it was understood (S30). None for a command that is more than a plain chain."""
        if subject.command is None:
            return prepared
        understood = rebuild_understood(subject.command)
        if understood == subject.command:
            return prepared
        if understood is None or entry.source != BUILT_IN:
            return None  # only our own shell is known to run what it is given
        arguments = {**prepared.bound.arguments, "command": understood}
        plain = await prepare_call(entry, arguments, self._workspace, call_context.context)
        return add_reach(plain.with_facts_of(prepared.bound), subject)

    def _find_answer_in_parts(
        self, subject: Subject, digest: str, grants: list[Grant], mode: Mode
    ) -> GrantAnswer | None:
        """The rules and grants that cover a plain chain of commands together, each of them a part.

        At most one grant of the turn, and none for a number of calls: a call uses up one.
        """
        whole = CandidateCall(subject).rebuilt_facts if subject.command is not None else None
        parts = whole.split_programs() if whole else ()
        lasting = [grant for grant in grants if grant.decision.uses is None]
        found: list[GrantAnswer] = []
        for part in parts if len(parts) > 1 else ():
            ruling = self.policy.find_ruling(part, mode)
            if ruling and ruling.decision is RuleEffect.ALLOW and not ruling.anything:
                label = f"{ruling.tier.value}: {ruling.rule}"
                found.append(GrantAnswer(True, label, Actor(kind="policy", name=label)))
                continue
            answer = find_grant_answer(part, digest, lasting, self._saved, datetime.now(UTC))
            if answer is None or not answer.allows or answer.exact:
                return None
            found.append(answer)
        if not found or len({answer.grant for answer in found if answer.grant}) > 1:
            return None
        by = next((answer for answer in found if answer.grant), found[0])
        return by._replace(rule="; ".join(dict.fromkeys(answer.rule for answer in found)))

    async def _apply_grants(
        self,
        entry: RegisteredTool,
        prepared: PreparedCall,
        subject: Subject,
        verdict: Verdict,
        call_context: CallContext,
        *,
        may_allow: bool,
    ) -> tuple[Verdict, PreparedCall]:
        """What a standing answer makes of it: a refusal always counts, a grant where it `may_allow`."""
        shown = verdict.confirmation if isinstance(verdict, Ask) else find_confirmation(prepared)
        standing = DecisionContext(call_context.turn_id, self.approvers, call_context.requester)
        grants = [grant for grant in call_context.grants if may_grant_answer(grant, shown, standing)]
        answer = find_grant_answer(subject, prepared.bound.digest, grants, self._saved, datetime.now(UTC))
        if answer is None and may_allow and isinstance(verdict, Ask) and shown.needs == Needs():
            answer = self._find_answer_in_parts(subject, prepared.bound.digest, grants, call_context.mode)
        if answer is None or shown.kind == "question":
            return verdict, prepared
        if not answer.allows:
            return Deny(rule=answer.rule, message=answer.message, actor=answer.actor, diff=shown.diff), prepared
        anybodys = shown.needs == Needs() or answer.actor.kind == "person"
        plain = prepared if answer.exact else await self._rewrite_as_understood(entry, prepared, subject, call_context)
        if isinstance(verdict, Allow) or not may_allow or not anybodys or plain is None:
            return verdict, prepared
        return Allow(
            rule=answer.rule, bound=plain.bound, actor=answer.actor, grant=answer.grant, diff=shown.diff
        ), plain


def _is_question(prepared: PreparedCall) -> bool:
    """Is a call itself a question? Then asking it is asking about it."""
    return prepared.confirmation is not None and prepared.confirmation.kind == "question"


def _is_yolo_question(ruling: Ruling | None, call_context: CallContext) -> bool:
    """Is it asked about only because yolo, too, asks about what destroys or cannot be read?"""
    shipped = ruling is not None and (ruling.tier, ruling.rule) == (Tier.DEFAULT, YOLO_RULE)
    return shipped and call_context.mode is Mode.YOLO and call_context.confirm is Confirming.POLICY
