"""What the gate of a worker with these settings would say of a call, without running anything (S20).

A call of a built-in tool is judged by the gate itself: arguments, paths, modes, rules, kept answers. Another tool is
not loaded here, since that may run other people's code: the rules and the kept answers are asked about what was said.
Hooks are not asked in either case, for the same reason; which there are is said. Answers that stand in a turn or a
session are that turn's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Literal

from holdfast.activities.answering import answer_to
from holdfast.activities.builtin import builtin_tools
from holdfast.activities.catalogue.registry import BUILT_IN, Registry
from holdfast.activities.gate import Gate
from holdfast.activities.hooks.loading import GROUP
from holdfast.activities.outputs import OutputStore
from holdfast.activities.policy.deciding import Explanation, Policy
from holdfast.activities.policy.globs import Glob
from holdfast.activities.policy.granting import answerable, offers
from holdfast.activities.policy.protecting import protected_by
from holdfast.activities.policy.saved import Saved, SavedGrants
from holdfast.activities.policy.shared import open_saved
from holdfast.activities.policy.subjects import Subject
from holdfast.activities.preparing import prepare, subject_in
from holdfast.activities.ruling import Circumstances
from holdfast.calls import CallRequest
from holdfast.configuration import When
from holdfast.contexts import Context
from holdfast.errors import BadInput
from holdfast.modes import Mode
from holdfast.outcomes import Needs, Offer
from holdfast.owner_key import find_approvers
from holdfast.settings import Settings
from holdfast.verdicts import Ask, Reject, Verdict
from holdfast.workers.described import described

Decision = Literal["allow", "ask", "deny", "reject"]


@dataclass(frozen=True)
class Foreseen:
    """What would become of a call."""

    decision: Decision | None
    """None: no rule speaks, and what its tool wishes is not known here."""
    by: str = ""
    """The rule, or what else decides."""
    message: str = ""
    """For the model when it does not run; why somebody is asked otherwise."""
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True)
class Explained:
    """A call as it would be judged."""

    foreseen: Foreseen
    rules: Explanation
    subject: Subject
    mode: Mode
    """The one that counts: a mode that the settings do not permit is `default`."""
    hooks: tuple[str, ...]
    """Those that a worker would ask first. They may deny the call, have it asked about, or change it."""
    remark: str | None = None
    """How the tool is known."""


async def explain_call(
    settings: Settings,
    policy: Policy,
    request: CallRequest,
    mode: Mode,
    *,
    server: str | None = None,
    tainted: bool = False,
    sends: bool = False,
) -> Explained:
    """Judge a call as a worker with these settings and rules would."""
    left_out = None
    try:
        saved = open_saved(settings)
    except BadInput as error:  # a worker does not start like this, and rules can be looked at all the same
        saved, left_out = SavedGrants(settings.granted), f"Answers in the shared ledger are left out: {error}."
    try:
        found = await _explained(settings, policy, request, mode, saved, server, tainted=tainted, sends=sends)
    finally:
        await saved.rest()
    remarks = " ".join(filter(None, (found.remark, left_out)))
    return replace(found, remark=remarks or None)


async def _explained(
    settings: Settings,
    policy: Policy,
    request: CallRequest,
    mode: Mode,
    saved: Saved,
    server: str | None,
    *,
    tainted: bool,
    sends: bool,
) -> Explained:
    arguments = request.arguments if isinstance(request.arguments, dict) else {}
    gate, registry = _gate(settings, policy, saved)
    mode = gate.permitted(mode)
    subject, remark = described(request.tool, arguments, settings, server, tainted=tainted, sends=sends)
    entry = None if server is not None or sends else registry.get(request.tool)
    if entry is None:
        found = policy.explain(subject, mode)
        await saved.look()
        foreseen = _by_rules(found, subject, saved)
    else:
        verdict = (await gate.judge(request, Circumstances(mode=mode, tainted=tainted))).verdict
        if not isinstance(verdict, Reject):
            prepared = await prepare(entry, request.arguments, settings.workspace, Context())
            protected = protected_by(settings)
            subject = subject_in(settings.workspace, prepared, tainted=tainted, protected=protected)
        found = policy.explain(subject, mode)
        foreseen = _by_gate(verdict, found)
    return Explained(foreseen, found, subject, mode, tuple(_hooks(settings, subject.tool)), remark)


def _gate(settings: Settings, policy: Policy, saved: Saved) -> tuple[Gate, Registry]:
    outputs = OutputStore(settings.outputs, settings.limits.output_characters, settings.limits.saved_output_bytes)
    registry = Registry(builtin_tools(outputs, settings.tools), source=BUILT_IN)
    for name in settings.tools.disable:
        registry.remove(name)
    approvers = find_approvers(settings)
    gate = Gate(
        registry,
        settings.workspace,
        policy,
        settings.permitted,
        approvers=approvers,
        saved=saved,
        protected=protected_by(settings),
        confirm=settings.confirm,
    )
    return gate, registry


def _by_gate(verdict: Verdict, found: Explanation) -> Foreseen:
    if isinstance(verdict, Reject):
        return Foreseen("reject", verdict.error.type, verdict.error.message)
    if isinstance(verdict, Ask):
        shown = verdict.confirmation
        return Foreseen("ask", verdict.rule, shown.reason or "", shown.offers)
    return Foreseen(verdict.kind, verdict.rule, verdict.message if verdict.kind == "deny" else "")


def _by_rules(found: Explanation, subject: Subject, saved: Saved) -> Foreseen:
    """As the gate does with what it knows of any tool: a refusal always counts, an answer where it may speak."""
    ruling = found.ruling
    decision: Decision | None = ruling.decision.value if ruling else None
    answer = answer_to(subject, "", (), saved, datetime.now(UTC))
    if answer and decision != "deny" and not answer.allows:
        return Foreseen("deny", answer.rule, answer.message)
    if answer and decision != "allow" and answerable(ruling) and (ruling is None or ruling.needs == Needs()):
        return Foreseen("allow", answer.rule)
    if ruling is None:
        return Foreseen(None)
    words = (ruling.message or ruling.reason) if decision == "deny" else ruling.reason
    offered = offers(subject, "", ruling) if decision == "ask" else ()
    return Foreseen(decision, f"{ruling.tier.value}: {ruling.rule}", words or "", offered)


def _hooks(settings: Settings, tool: str) -> list[str]:
    ours = [
        hook.name
        for hook in settings.hooks
        if hook.when is When.BEFORE and any(Glob(pattern).matches(tool) for pattern in hook.tools)
    ]
    return [*ours, *(one.name for one in entry_points(group=GROUP) if settings.hook_entry_points)]
