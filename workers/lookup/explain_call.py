"""The verdict of the gate of a worker with these settings on a call, without running anything (S20).

A call of a built-in tool is judged by the gate itself: arguments, paths, modes, rules, saved grants. Another tool is
not loaded, since that may run other people's code: only the rules and saved grants are applied to the described call.
For the same reason no hook runs; lists the hooks. Grants of turns and sessions are not considered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Literal

from holdfast.activities.builtin import build_builtin_tools
from holdfast.activities.gate.approval_checks import find_grant_answer
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext, build_rule_subject, check_call_arguments, prepare_call
from holdfast.activities.hooks.load_hooks import ENTRY_POINT_GROUP
from holdfast.activities.policy.find_protected import build_protected
from holdfast.activities.policy.grant_sources import open_saved_grants
from holdfast.activities.policy.grants import build_offers, may_use_grants
from holdfast.activities.policy.policy import Policy, RulingExplanation
from holdfast.activities.policy.saved_grants import GrantSource, SavedGrants
from holdfast.activities.policy.subject import Subject
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import BUILT_IN, Registry
from holdfast.client.owner_key import find_approvers
from holdfast.config.schema import When
from holdfast.config.settings import Settings
from holdfast.domain.approvals.approval import Needs, Offer
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.verdicts import Ask, Reject, Verdict
from holdfast.domain.context import Context
from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from holdfast.util.globs import Glob
from holdfast.workers.lookup.described_call import build_subject

ForeseenDecision = Literal["allow", "ask", "deny", "reject"]


@dataclass(frozen=True)
class ForeseenVerdict:
    """The verdict that a call would get."""

    decision: ForeseenDecision | None
    """None: no rule matches, and whether its tool asks is not known here."""
    by: str = ""
    """The rule, or what else decides."""
    message: str = ""
    """The message for the model if it does not run, else the reason why a person is asked."""
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True)
class CallExplanation:
    """How a call would be judged."""

    foreseen: ForeseenVerdict
    rules: RulingExplanation
    subject: Subject
    mode: Mode
    """The effective mode: one that the settings do not permit becomes `default`."""
    hooks: tuple[str, ...]
    """The hooks that a worker would run first. They may deny the call, require approval, or change it."""
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
) -> CallExplanation:
    """Judge a call as a worker with these settings and rules would."""
    left_out = None
    try:
        saved = open_saved_grants(settings)
    except BadInput as error:  # a worker does not start then, but rules can be explained
        saved, left_out = SavedGrants(settings.grants_file), f"Ignored the grants of the shared ledger: {error}."
    try:
        found = await _explain_with_grants(settings, policy, request, mode, saved, server, tainted=tainted, sends=sends)
    finally:
        await saved.disconnect()
    remarks = " ".join(filter(None, (found.remark, left_out)))
    return replace(found, remark=remarks or None)


async def _explain_with_grants(
    settings: Settings,
    policy: Policy,
    request: CallRequest,
    mode: Mode,
    saved: GrantSource,
    server: str | None,
    *,
    tainted: bool,
    sends: bool,
) -> CallExplanation:
    arguments = request.arguments if isinstance(request.arguments, dict) else {}
    gate, registry = _build_gate(settings, policy, saved)
    mode = gate.limit_mode(mode)
    subject, remark = build_subject(request.tool, arguments, settings, server, tainted=tainted, sends=sends)
    entry = None if server is not None or sends else registry.get(request.tool)
    if entry is None:
        found = policy.explain_ruling(subject, mode)
        await saved.refresh()
        foreseen = _foresee_by_rules(found, subject, saved)
    else:
        verdict = (await gate.judge(request, CallContext(mode=mode, tainted=tainted))).verdict
        if not isinstance(verdict, Reject):
            checked = await check_call_arguments(entry, request.arguments)
            prepared = await prepare_call(entry, checked, settings.workspace, Context())
            protected = build_protected(settings)
            subject = build_rule_subject(settings.workspace, prepared, tainted=tainted, protected=protected)
        found = policy.explain_ruling(subject, mode)
        foreseen = _foresee_by_gate(verdict, found)
    return CallExplanation(foreseen, found, subject, mode, tuple(_list_hooks(settings, subject.tool)), remark)


def _build_gate(settings: Settings, policy: Policy, saved: GrantSource) -> tuple[Gate, Registry]:
    outputs = OutputStore(
        settings.outputs_folder, settings.limits.output_characters, settings.limits.saved_output_bytes
    )
    registry = Registry(build_builtin_tools(outputs, settings.tools), source=BUILT_IN)
    for name in settings.tools.disable:
        registry.remove(name)
    approvers = find_approvers(settings)
    gate = Gate(
        registry,
        settings.workspace,
        policy,
        settings.permitted_modes,
        approvers=approvers,
        saved=saved,
        protected=build_protected(settings),
        confirm=settings.confirm,
    )
    return gate, registry


def _foresee_by_gate(verdict: Verdict, found: RulingExplanation) -> ForeseenVerdict:
    if isinstance(verdict, Reject):
        return ForeseenVerdict("reject", verdict.error.type, verdict.error.message)
    if isinstance(verdict, Ask):
        shown = verdict.confirmation
        return ForeseenVerdict("ask", verdict.rule, shown.reason or "", shown.offers)
    return ForeseenVerdict(verdict.kind, verdict.rule, verdict.message if verdict.kind == "deny" else "")


def _foresee_by_rules(found: RulingExplanation, subject: Subject, saved: GrantSource) -> ForeseenVerdict:
    """The verdict by rules and saved grants alone: a refusal always applies, an allowance if the rule permits it."""
    ruling = found.ruling
    decision: ForeseenDecision | None = ruling.decision.value if ruling else None
    answer = find_grant_answer(subject, "", (), saved, datetime.now(UTC))
    if answer and decision != "deny" and not answer.allows:
        return ForeseenVerdict("deny", answer.rule, answer.message)
    if answer and decision != "allow" and may_use_grants(ruling) and (ruling is None or ruling.needs == Needs()):
        return ForeseenVerdict("allow", answer.rule)
    if ruling is None:
        return ForeseenVerdict(None)
    words = (ruling.message or ruling.reason) if decision == "deny" else ruling.reason
    offered = build_offers(subject, "", ruling) if decision == "ask" else ()
    return ForeseenVerdict(decision, f"{ruling.tier.value}: {ruling.rule}", words or "", offered)


def _list_hooks(settings: Settings, tool: str) -> list[str]:
    ours = [
        hook.name
        for hook in settings.hooks
        if hook.when is When.BEFORE and any(Glob(pattern).matches(tool) for pattern in hook.tools)
    ]
    return [*ours, *(one.name for one in entry_points(group=ENTRY_POINT_GROUP) if settings.hook_entry_points)]
