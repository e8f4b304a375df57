"""What is said of a prepared call: by the policy, by hooks that want a person to look, by standing answers.

Each can tighten what came before. A standing answer takes the place of a question and lifts no denial (S24, S29).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from holdfast.activities.answering import Answered, answer_to
from holdfast.activities.catalogue.registry import BUILT_IN, Entry
from holdfast.activities.covering import counts, keyed, wanted
from holdfast.activities.hooks.results import Phase
from holdfast.activities.policy.commands import as_understood
from holdfast.activities.policy.deciding import Policy, Ruling
from holdfast.activities.policy.granting import answerable
from holdfast.activities.policy.protected import Protected
from holdfast.activities.policy.rules import Answer, Tier
from holdfast.activities.policy.saved import Saved
from holdfast.activities.policy.scopes import Call
from holdfast.activities.policy.subjects import Subject
from holdfast.activities.preparing import (
    Prepared,
    asked_anyway,
    asked_for,
    prepare,
    sooner,
    subject_in,
    verdict_of,
    with_reach,
)
from holdfast.actors import Actor
from holdfast.approvers import Approver
from holdfast.content import shorten
from holdfast.contexts import Context
from holdfast.decisions import Standing
from holdfast.grants import Grant
from holdfast.modes import Confirming, Mode
from holdfast.outcomes import Needs
from holdfast.verdicts import Allow, Ask, Deny, Verdict

NOBODY = "This call needs a person's approval, and in this turn nobody can be asked."
ALWAYS = "Every call is asked about here (confirm = always), and no answer stands for another call."
LIFTS = "Unattended, it proceeds by a rule that allows it, or where the worker's settings say `yolo_asks = false`."
"""What is said where nobody can be asked."""
ASKED_IN_YOLO = "destructive-commands-ask"
UNREADABLE = "The standing answers that were kept cannot be read, and one of them may refuse this."


@dataclass(frozen=True)
class Circumstances:
    """What of its turn a call is judged by."""

    seen: Mapping[str, str] = field(default_factory=dict)
    """Files as the turn last read or wrote them, by their digests."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True
    grants: tuple[Grant, ...] = ()
    """Those that `Rulings.admitted` let through."""
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


class Rulings:
    """One worker's rules, approvers and kept answers."""

    def __init__(
        self,
        policy: Policy,
        workspace: Path,
        approvers: tuple[Approver, ...] = (),
        saved: Saved | None = None,
        protected: Protected | None = None,
        confirm: Confirming = Confirming.POLICY,
    ) -> None:
        self.policy = policy
        self._confirm = confirm
        self.approvers = approvers
        self._workspace = workspace
        self._saved = saved
        self._protected = protected or Protected(workspace)

    def admitted(self, grants: tuple[Grant, ...], turn_id: str) -> tuple[Grant, ...]:
        """Those that were given in this turn, by somebody whose word counts: once for all calls of a batch."""
        of, now = Standing(turn_id, self.approvers), datetime.now(UTC)
        return tuple(grant for grant in grants if counts(grant, of, now))

    async def on(
        self, entry: Entry, prepared: Prepared, of: Circumstances, asks: tuple[str, ...] = (), *, again: bool = False
    ) -> tuple[Verdict, Prepared]:
        """The verdict, and the call as it would run. `asks` are hooks' reasons; `again`: somebody changed it."""
        subject = await asyncio.to_thread(
            subject_in, self._workspace, prepared, tainted=of.tainted, protected=self._protected
        )
        prepared = with_reach(prepared, subject)
        ruling = self.policy.rule_on(subject, of.mode)
        always = Confirming.ALWAYS in (self._confirm, of.confirm)
        if ruling and ruling.decision is Answer.ALLOW and not ruling.anything and not always:
            plain = await self._as_understood(entry, prepared, subject, of)
            ruling, prepared = (ruling, plain) if plain else (None, prepared)
        verdict = await self._with_saved(verdict_of(prepared, ruling, subject), prepared)
        if asks or again:
            verdict = asked_for(verdict, prepared, asks, answerable=not asks)
        changed = prepared.invocation.changed()
        if changed:
            verdict = asked_for(verdict, prepared, (changed,), answerable=False, by="the tool changed")
        if always and not _is_question(prepared):
            verdict = asked_for(verdict, prepared, (ALWAYS,), answerable=False, by="every call is asked about")
        if not isinstance(verdict, Deny):
            may = answerable(ruling) and not (asks or again or changed or always)
            verdict, prepared = await self._answered(entry, prepared, subject, verdict, of, may=may)
        if isinstance(verdict, Ask):
            verdict = self._in_time(
                verdict, ruling, of, only_deny=bool(asks or again or changed or always or subject.protected)
            )
        return verdict, prepared

    async def _with_saved(self, verdict: Verdict, prepared: Prepared) -> Verdict:
        """Asked where a saved answer may refuse it that cannot be read; told of it where somebody is asked anyway."""
        if self._saved is None:
            return verdict
        await self._saved.look()
        note = (self._saved.note,) if self._saved.note else ()
        if self._saved.uncertain:
            return asked_for(verdict, prepared, (UNREADABLE, *note), answerable=True)
        return asked_for(verdict, prepared, note, answerable=True) if note and isinstance(verdict, Ask) else verdict

    def _in_time(self, verdict: Ask, ruling: Ruling | None, of: Circumstances, *, only_deny: bool) -> Ask | Deny:
        """With the deadline of the rule or the turn. Signed words cannot be had from a clock: where they count, and
        where a hook, a change or a file that decides what runs wants somebody to look, a deadline only denies."""
        if not of.interactive:
            why = verdict.confirmation.reason
            told = [NOBODY, shorten(why, 500) if why else "", LIFTS if _yolo_asks(ruling, of) else ""]
            return Deny(rule=verdict.rule, message=" ".join(filter(None, told)))
        deadline = sooner(ruling.deadline if ruling else None, of.approval_seconds)
        if deadline and (only_deny or keyed(self.approvers)):
            deadline = deadline.model_copy(update={"default": "deny"})
        return verdict.model_copy(
            update={"confirmation": verdict.confirmation.model_copy(update={"deadline": deadline})}
        )

    async def _as_understood(
        self, entry: Entry, prepared: Prepared, subject: Subject, of: Circumstances
    ) -> Prepared | None:
        """What runs unasked runs as it was understood (S30). None for a command that is more than a plain chain."""
        if subject.command is None:
            return prepared
        understood = as_understood(subject.command)
        if understood == subject.command:
            return prepared
        if understood is None or entry.source != BUILT_IN:
            return None  # only our own shell is known to run what it is given
        arguments = {**prepared.bound.arguments, "command": understood}
        plain = await prepare(entry, arguments, self._workspace, of.context)
        return with_reach(plain.rewritten_as(prepared.bound), subject)

    def _answer_in_parts(self, subject: Subject, digest: str, grants: list[Grant], mode: Mode) -> Answered | None:
        """The rules and grants that cover a plain chain of commands together, each of them a part.

        At most one grant of the turn, and none for a number of calls: a call uses up one.
        """
        whole = Call(subject).understood if subject.command is not None else None
        parts = whole.split() if whole else ()
        lasting = [grant for grant in grants if grant.decision.uses is None]
        found: list[Answered] = []
        for part in parts if len(parts) > 1 else ():
            ruling = self.policy.rule_on(part, mode)
            if ruling and ruling.decision is Answer.ALLOW and not ruling.anything:
                label = f"{ruling.tier.value}: {ruling.rule}"
                found.append(Answered(True, label, Actor(kind="policy", name=label)))
                continue
            answer = answer_to(part, digest, lasting, self._saved, datetime.now(UTC))
            if answer is None or not answer.allows or answer.exact:
                return None
            found.append(answer)
        if not found or len({answer.grant for answer in found if answer.grant}) > 1:
            return None
        by = next((answer for answer in found if answer.grant), found[0])
        return by._replace(rule="; ".join(dict.fromkeys(answer.rule for answer in found)))

    async def _answered(
        self, entry: Entry, prepared: Prepared, subject: Subject, verdict: Verdict, of: Circumstances, *, may: bool
    ) -> tuple[Verdict, Prepared]:
        """What a standing answer makes of it: a refusal always counts, a grant where it `may`."""
        shown = verdict.confirmation if isinstance(verdict, Ask) else asked_anyway(prepared)
        standing = Standing(of.turn_id, self.approvers, of.requester)
        grants = [grant for grant in of.grants if wanted(grant, shown, standing)]
        answer = answer_to(subject, prepared.bound.digest, grants, self._saved, datetime.now(UTC))
        if answer is None and may and isinstance(verdict, Ask) and shown.needs == Needs():
            answer = self._answer_in_parts(subject, prepared.bound.digest, grants, of.mode)
        if answer is None or shown.kind == "question":
            return verdict, prepared
        if not answer.allows:
            return Deny(rule=answer.rule, message=answer.message, actor=answer.actor, diff=shown.diff), prepared
        anybodys = shown.needs == Needs() or answer.actor.kind == "person"
        plain = prepared if answer.exact else await self._as_understood(entry, prepared, subject, of)
        if isinstance(verdict, Allow) or not may or not anybodys or plain is None:
            return verdict, prepared
        return Allow(
            rule=answer.rule, bound=plain.bound, actor=answer.actor, grant=answer.grant, diff=shown.diff
        ), plain


def _is_question(prepared: Prepared) -> bool:
    """Is a call itself a question? Then asking it is asking about it."""
    return prepared.confirmation is not None and prepared.confirmation.kind == "question"


def _yolo_asks(ruling: Ruling | None, of: Circumstances) -> bool:
    """Is it asked about only because yolo, too, asks about what destroys or cannot be read?"""
    shipped = ruling is not None and (ruling.tier, ruling.rule) == (Tier.DEFAULT, ASKED_IN_YOLO)
    return shipped and of.mode is Mode.YOLO and of.confirm is Confirming.POLICY
