"""Preparing one call: its tool bound to checked arguments, what rules are told of it, and the verdict that follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from holdfast.activities.catalogue.registry import Entry
from holdfast.activities.catalogue.schemas import checked
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.policy.deciding import Ruling
from holdfast.activities.policy.granting import offers
from holdfast.activities.policy.outside import sends, takes_in, told_apart
from holdfast.activities.policy.protected import Protected
from holdfast.activities.policy.rules import Answer
from holdfast.activities.policy.subjects import BUILT_IN, FOLDER, VARIABLES, Subject, subject_of
from holdfast.approvals import Confirmation, call_digest
from holdfast.content import encodable, shorten, visible
from holdfast.contexts import Context, of_use
from holdfast.outcomes import Deadline, Needs
from holdfast.tools import Invocation
from holdfast.verdicts import Allow, Ask, Bound, Deny, Verdict

NO_RULE = "no rule: the tool {wish}"


class Prepared(NamedTuple):
    """A call that could run, and what its tool would ask."""

    bound: Bound
    invocation: Invocation
    confirmation: Confirmation | None
    edits: str | None = None
    """The argument that may be changed in an editor."""
    shown: Confirmation | None = None
    """What a person sees of it when its tool would not ask."""

    def rewritten_as(self, other: Bound) -> Prepared:
        """With what is known of another form of the same call: its host, and the hooks that rewrote it."""
        record = {"rewritten_by": other.rewritten_by, "given": other.given, "host": other.host}
        return self._replace(bound=self.bound.model_copy(update=record))


async def prepare(entry: Entry, arguments: JsonValue, workspace: Path, context: Context) -> Prepared:
    """Check the arguments, build the invocation, and hear what it says of itself. ValueError when they do not fit."""
    tool, declaration = entry.tool, entry.declaration
    written, given = await checked(entry.schema, arguments)
    invocation = tool.build_in(given, workspace, context)
    if not isinstance(invocation, Invocation):
        raise TypeError(f"its build gave {invocation!r}, and no Invocation")
    goes_by = invocation.goes_by()
    within = of_use(context, declaration.traits.depends_on if goes_by is None else goes_by)
    basis = await asyncio.to_thread(invocation.basis)
    leaves = await asyncio.to_thread(invocation.leaves)
    bound = Bound(
        tool=declaration.ref(),
        title=shorten(invocation.describe(), 500),
        arguments=written,
        digest=call_digest(
            tool=declaration.name,
            server=declaration.server,
            definition=declaration.digest,
            arguments=written,
            context=within,
        ),
        concurrency_safe=_safe(invocation),
        timeout_seconds=tool.timeout_seconds,
        heartbeat_seconds=tool.heartbeat_seconds,
        basis={encodable(path): digest for path, digest in basis.items()},
        leaves={encodable(path): digest for path, digest in leaves.items()},
        context=within,
    )
    asked = await invocation.should_confirm()
    if asked:
        asked = asked.model_copy(update={"arguments": written, "edits": tool.edits})
    return Prepared(bound, invocation, asked, tool.edits, None if asked else invocation.shown())


def subject_in(
    workspace: Path, prepared: Prepared, *, tainted: bool = False, protected: Protected | None = None
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
    if paths := _paths(workspace, bound):
        known["paths"] = paths
    subject = subject_of(bound.tool.name, as_ruled(bound), workspace=workspace, **known)
    told = sends(subject, open_world=bound.tool.traits.open_world)
    return told_apart(subject, told, protected or Protected(workspace))


def as_ruled(bound: Bound) -> dict[str, JsonValue]:
    """A call's arguments as rules see them: with where it would run and what its turn adds to its environment.

    By the names of `shell`; a variable that is added by reference is told as `$NAME`.
    """
    given, within = dict(bound.arguments), bound.context
    if "folder" in within and given.get(FOLDER) is None:
        given[FOLDER] = within["folder"]
    if isinstance(added := within.get("environment"), dict):
        own = given.get(VARIABLES)
        referred: dict[str, JsonValue] = {name: f"${source}" for name, source in added.items()}
        given[VARIABLES] = {**referred, **own} if isinstance(own, dict) else referred
    return given


def _paths(workspace: Path, bound: Bound) -> tuple[str, ...]:
    """What the call changes or, of a built-in tool, reads, with links followed."""
    if bound.basis:
        return tuple(bound.basis)
    what = BUILT_IN.get(bound.tool.name)
    given = bound.arguments.get(what.path) if what and what.path else None
    return (Workspace(workspace).place(given),) if isinstance(given, str) else ()


def verdict_of(prepared: Prepared, ruling: Ruling | None, subject: Subject) -> Verdict:
    """What the policy said or, where it is silent, what the tool wishes. A question is asked whatever a rule says."""
    bound, asked = prepared.bound, prepared.confirmation
    if ruling is None:
        rule = NO_RULE.format(wish="asks for confirmation" if asked else "needs no confirmation")
        if asked is None:
            return Allow(rule=rule, bound=bound)
    else:
        rule = f"{ruling.tier.value}: {ruling.rule}"
        if ruling.decision is Answer.DENY:
            return Deny(rule=rule, message=ruling.message or ruling.reason or f"Denied by the rule {ruling.rule}.")
        if ruling.decision is Answer.ALLOW and not (asked and asked.kind == "question"):
            return Allow(rule=rule, bound=bound, diff=asked.diff if asked else None)
    told: dict[str, Any] = {"offers": offers(subject, bound.digest, ruling), "needs": Needs()}
    if ruling:
        told |= {"reason": _reason(ruling, subject), "needs": ruling.needs}
    return Ask(rule=rule, bound=bound, confirmation=asked_anyway(prepared).model_copy(update=told))


def _reason(ruling: Ruling, subject: Subject) -> str | None:
    """What the rule says, and what is to be known of the files that decide what runs."""
    files = (f"{path}: {why}." for path, why in subject.protected.items())
    return shorten(visible(" ".join(filter(None, (ruling.reason, *files)))), 1_000) or None


def with_reach(prepared: Prepared, subject: Subject) -> Prepared:
    """With what is known of where the call's data goes and comes from."""
    bound = prepared.bound
    reach = {"sends": subject.sends, "takes_in": takes_in(subject, open_world=bound.tool.traits.open_world)}
    return prepared._replace(bound=bound.model_copy(update=reach))


def asked_anyway(prepared: Prepared) -> Confirmation:
    """What a person is shown, also of a call that its tool would not ask about."""
    bound = prepared.bound
    shown = prepared.confirmation or prepared.shown or Confirmation(kind="info", title=bound.title)
    return shown.model_copy(update={"arguments": bound.arguments, "edits": prepared.edits})


def asked_for(
    verdict: Verdict, prepared: Prepared, reasons: tuple[str, ...], *, answerable: bool, by: str = "a hook asks"
) -> Verdict:
    """What a person is to say whatever the policy would let pass; for good, too, where that is `answerable`."""
    if not isinstance(verdict, Allow | Ask):
        return verdict
    shown = verdict.confirmation if isinstance(verdict, Ask) else asked_anyway(prepared)
    reason = " ".join(filter(None, (shown.reason, *reasons))) or None
    confirmation = shown.model_copy(update={"reason": reason, "offers": shown.offers if answerable else ()})
    rule = verdict.rule if answerable else f"{verdict.rule}, and {by}"
    return Ask(rule=rule, bound=verdict.bound, confirmation=confirmation)


def sooner(deadline: Deadline | None, seconds: float | None) -> Deadline | None:
    """The rule's deadline, or the turn's when that is sooner."""
    if seconds is None or (deadline and deadline.seconds <= seconds):
        return deadline
    return Deadline(seconds=seconds, warning_seconds=seconds / 10)


def _safe(invocation: Invocation) -> bool:
    try:
        return bool(invocation.concurrency_safe())
    except Exception:
        return False
