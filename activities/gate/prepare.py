"""Preparing one call: its tool bound to checked arguments, what rules are told of it, and the verdict that follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from holdfast.activities.files.workspace import Workspace
from holdfast.activities.policy.grant_matching import build_offers
from holdfast.activities.policy.policy import Ruling
from holdfast.activities.policy.protection.protected_files import ProtectedFiles
from holdfast.activities.policy.rules import RuleEffect
from holdfast.activities.policy.subject.subject import (
    BUILT_IN,
    FOLDER_ARGUMENT,
    VARIABLES_ARGUMENT,
    Subject,
    build_call_subject,
)
from holdfast.activities.policy.taint import complete_subject, may_send, may_take_in
from holdfast.activities.registry.arguments import check_arguments
from holdfast.activities.registry.registry import RegisteredTool
from holdfast.domain.approvals.approval import Confirmation, Deadline, Needs, digest_call
from holdfast.domain.calls.tool import Invocation
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Deny, Verdict
from holdfast.domain.context import Context, select_context
from holdfast.util.text import drop_surrogates, escape_controls, shorten_text

NO_RULE = "no rule: the tool {wish}"


class PreparedCall(NamedTuple):
    """A call that could run, and what its tool would ask."""

    bound: BoundCall
    invocation: Invocation
    confirmation: Confirmation | None
    edits: str | None = None
    """The argument that may be changed in an editor."""
    shown: Confirmation | None = None
    """What a person sees of it when its tool would not ask."""

    def with_facts_of(self, other: BoundCall) -> PreparedCall:
        """With what is known of another form of the same call: its host, and the hooks that rewrote it."""
        record = {"rewritten_by": other.rewritten_by, "given": other.given, "host": other.host}
        return self._replace(bound=self.bound.model_copy(update=record))


async def prepare_call(entry: RegisteredTool, arguments: JsonValue, workspace: Path, context: Context) -> PreparedCall:
    """Check the arguments, build the invocation, and hear what it says of itself. ValueError when they do not fit."""
    tool, declaration = entry.tool, entry.declaration
    written, given = await check_arguments(entry.schema, arguments)
    invocation = tool.build_in(given, workspace, context)
    if not isinstance(invocation, Invocation):
        raise TypeError(f"its build gave {invocation!r}, and no Invocation")
    goes_by = invocation.list_dependences()
    within = select_context(context, declaration.traits.depends_on if goes_by is None else goes_by)
    basis = await asyncio.to_thread(invocation.digest_before)
    leaves = await asyncio.to_thread(invocation.digest_after)
    bound = BoundCall(
        tool=declaration.build_ref(),
        title=shorten_text(invocation.describe(), 500),
        arguments=written,
        digest=digest_call(
            tool=declaration.name,
            server=declaration.server,
            definition=declaration.digest,
            arguments=written,
            context=within,
        ),
        concurrency_safe=_is_concurrency_safe(invocation),
        timeout_seconds=tool.timeout_seconds,
        heartbeat_seconds=tool.heartbeat_seconds,
        basis={drop_surrogates(path): digest for path, digest in basis.items()},
        leaves={drop_surrogates(path): digest for path, digest in leaves.items()},
        context=within,
    )
    asked = await invocation.should_confirm()
    if asked:
        asked = asked.model_copy(update={"arguments": written, "edits": tool.edits})
    return PreparedCall(bound, invocation, asked, tool.edits, None if asked else invocation.build_confirmation())


def build_rule_subject(
    workspace: Path, prepared: PreparedCall, *, tainted: bool = False, protected: ProtectedFiles | None = None
) -> Subject:
    """What rules look at: the call's own facts, paths where they really are, and what its turn has taken in."""
    bound, asked = prepared.bound, prepared.confirmation
    tool = bound.tool
    known: dict[str, Any] = {"effect": tool.effect, "server": tool.server, "own_name": tool.own_name}
    known["tainted"] = tainted
    known["destructive"] = tool.traits.destructive
    known["kind"] = asked.kind if asked and asked.kind != "outcome_unknown" else None
    if asked and asked.command is not None:
        known["command"] = asked.command
    if asked and asked.doubts:
        known["doubts"] = asked.doubts
    if asked and asked.urls:
        known["urls"] = asked.urls
    if paths := _list_paths(workspace, bound):
        known["paths"] = paths
    subject = build_call_subject(bound.tool.name, build_rule_arguments(bound), workspace=workspace, **known)
    told = may_send(subject, open_world=bound.tool.traits.open_world)
    return complete_subject(subject, told, protected or ProtectedFiles(workspace))


def build_rule_arguments(bound: BoundCall) -> dict[str, JsonValue]:
    """A call's arguments as rules see them: with where it would run and what its turn adds to its environment.

    By the names of `shell`; a variable that is added by reference is told as `$NAME`.
    """
    given, within = dict(bound.arguments), bound.context
    if "folder" in within and given.get(FOLDER_ARGUMENT) is None:
        given[FOLDER_ARGUMENT] = within["folder"]
    if isinstance(added := within.get("environment"), dict):
        own = given.get(VARIABLES_ARGUMENT)
        referred: dict[str, JsonValue] = {name: f"${source}" for name, source in added.items()}
        given[VARIABLES_ARGUMENT] = {**referred, **own} if isinstance(own, dict) else referred
    return given


def _list_paths(workspace: Path, bound: BoundCall) -> tuple[str, ...]:
    """What the call changes or, of a built-in tool, reads, with links followed."""
    if bound.basis:
        return tuple(bound.basis)
    what = BUILT_IN.get(bound.tool.name)
    given = bound.arguments.get(what.path) if what and what.path else None
    return (Workspace(workspace).resolve_path(given),) if isinstance(given, str) else ()


def build_verdict(prepared: PreparedCall, ruling: Ruling | None, subject: Subject) -> Verdict:
    """What the policy said or, where it is silent, what the tool wishes. A question is asked whatever a rule says."""
    bound, asked = prepared.bound, prepared.confirmation
    if ruling is None:
        rule = NO_RULE.format(wish="asks for confirmation" if asked else "needs no confirmation")
        if asked is None:
            return Allow(rule=rule, bound=bound)
    else:
        rule = f"{ruling.tier.value}: {ruling.rule}"
        if ruling.decision is RuleEffect.DENY:
            return Deny(rule=rule, message=ruling.message or ruling.reason or f"Denied by the rule {ruling.rule}.")
        if ruling.decision is RuleEffect.ALLOW and not (asked and asked.kind == "question"):
            return Allow(rule=rule, bound=bound, diff=asked.diff if asked else None)
    told: dict[str, Any] = {"offers": build_offers(subject, bound.digest, ruling), "needs": Needs()}
    if ruling:
        told |= {"reason": _build_reason(ruling, subject), "needs": ruling.needs}
    return Ask(rule=rule, bound=bound, confirmation=find_confirmation(prepared).model_copy(update=told))


def _build_reason(ruling: Ruling, subject: Subject) -> str | None:
    """What the rule says, and what is to be known of the files that decide what runs."""
    files = (f"{path}: {why}." for path, why in subject.protected.items())
    return shorten_text(escape_controls(" ".join(filter(None, (ruling.reason, *files)))), 1_000) or None


def add_reach(prepared: PreparedCall, subject: Subject) -> PreparedCall:
    """With what is known of where the call's data goes and comes from."""
    bound = prepared.bound
    reach = {"sends": subject.sends, "takes_in": may_take_in(subject, open_world=bound.tool.traits.open_world)}
    return prepared._replace(bound=bound.model_copy(update=reach))


def find_confirmation(prepared: PreparedCall) -> Confirmation:
    """What a person is shown, also of a call that its tool would not ask about."""
    bound = prepared.bound
    shown = prepared.confirmation or prepared.shown or Confirmation(kind="info", title=bound.title)
    return shown.model_copy(update={"arguments": bound.arguments, "edits": prepared.edits})


def require_approval(
    verdict: Verdict, prepared: PreparedCall, reasons: tuple[str, ...], *, answerable: bool, by: str = "a hook asks"
) -> Verdict:
    """What a person is to say whatever the policy would let pass; for good, too, where that is `answerable`."""
    if not isinstance(verdict, Allow | Ask):
        return verdict
    shown = verdict.confirmation if isinstance(verdict, Ask) else find_confirmation(prepared)
    reason = " ".join(filter(None, (shown.reason, *reasons))) or None
    confirmation = shown.model_copy(update={"reason": reason, "offers": shown.offers if answerable else ()})
    rule = verdict.rule if answerable else f"{verdict.rule}, and {by}"
    return Ask(rule=rule, bound=verdict.bound, confirmation=confirmation)


def choose_sooner_deadline(deadline: Deadline | None, seconds: float | None) -> Deadline | None:
    """The rule's deadline, or the turn's when that is sooner."""
    if seconds is None or (deadline and deadline.seconds <= seconds):
        return deadline
    return Deadline(seconds=seconds, warning_seconds=seconds / 10)


def _is_concurrency_safe(invocation: Invocation) -> bool:
    try:
        return bool(invocation.is_concurrency_safe())
    except Exception:
        return False
