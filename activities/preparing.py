"""Preparing one call: its tool bound to checked arguments, what rules are told of it, and the verdict that follows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from holdfast.activities.catalogue.registry import Entry
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.policy.deciding import Ruling
from holdfast.activities.policy.rules import Answer
from holdfast.activities.policy.subjects import BUILT_IN, Subject, subject_of
from holdfast.approvals import Confirmation, call_digest
from holdfast.content import encodable, shorten
from holdfast.tools import Invocation
from holdfast.verdicts import Allow, Ask, Bound, Deny, Verdict

NOBODY = "This call needs a person's approval, and in this turn nobody can be asked."
NO_RULE = "no rule: the tool {wish}"


class Prepared(NamedTuple):
    """A call that could run, and what its tool would ask."""

    bound: Bound
    invocation: Invocation
    confirmation: Confirmation | None


async def prepare(entry: Entry, arguments: JsonValue, workspace: Path) -> Prepared:
    """Check the arguments, build the invocation, and hear what it says of itself. ValueError when they do not fit."""
    tool, declaration = entry.tool, entry.declaration
    written, given = entry.schema.check(arguments)
    invocation = tool.build(given, workspace)
    if not isinstance(invocation, Invocation):
        raise TypeError(f"its build gave {invocation!r}, and no Invocation")
    basis = await asyncio.to_thread(invocation.basis)
    bound = Bound(
        tool=declaration.ref(),
        title=shorten(invocation.describe(), 500),
        arguments=written,
        digest=call_digest(
            tool=declaration.name, server=declaration.server, definition=declaration.digest, arguments=written
        ),
        concurrency_safe=_safe(invocation),
        timeout_seconds=tool.timeout_seconds,
        heartbeat_seconds=tool.heartbeat_seconds,
        basis={encodable(path): digest for path, digest in basis.items()},
    )
    asked = await invocation.should_confirm()
    return Prepared(bound, invocation, asked.model_copy(update={"arguments": written}) if asked else None)


def subject_in(workspace: Path, prepared: Prepared) -> Subject:
    """What rules look at: the call's own facts, and paths where they really are."""
    bound, asked = prepared.bound, prepared.confirmation
    known: dict[str, Any] = {"effect": bound.tool.effect, "server": bound.tool.server}
    known["kind"] = asked.kind if asked and asked.kind != "outcome_unknown" else None
    if asked and asked.command is not None:
        known["command"] = asked.command
    if asked and asked.urls:
        known["urls"] = asked.urls
    if paths := _paths(workspace, bound):
        known["paths"] = paths
    return subject_of(bound.tool.name, bound.arguments, workspace=workspace, **known)


def _paths(workspace: Path, bound: Bound) -> tuple[str, ...]:
    """What the call changes or, of a built-in tool, reads, with links followed."""
    if bound.basis:
        return tuple(bound.basis)
    what = BUILT_IN.get(bound.tool.name)
    given = bound.arguments.get(what.path) if what and what.path else None
    return (Workspace(workspace).place(given),) if isinstance(given, str) else ()


def verdict_of(prepared: Prepared, ruling: Ruling | None, *, interactive: bool = True) -> Verdict:
    """What the policy said or, where it is silent, what the tool wishes. A question is asked whatever a rule says."""
    bound, asked = prepared.bound, prepared.confirmation
    if ruling is None:
        rule = NO_RULE.format(wish="asks for confirmation" if asked else "needs no confirmation")
        verdict: Verdict = Ask(rule=rule, bound=bound, confirmation=asked) if asked else Allow(rule=rule, bound=bound)
    else:
        verdict = _ruled(bound, asked, ruling)
    if isinstance(verdict, Ask) and not interactive:
        return Deny(rule=verdict.rule, message=NOBODY)
    return verdict


def _ruled(bound: Bound, asked: Confirmation | None, ruling: Ruling) -> Verdict:
    rule = f"{ruling.tier.value}: {ruling.rule}"
    if ruling.decision is Answer.DENY:
        return Deny(rule=rule, message=ruling.message or ruling.reason or f"Denied by the rule {ruling.rule}.")
    question = asked is not None and asked.kind == "question"
    if ruling.decision is Answer.ALLOW and not question:
        return Allow(rule=rule, bound=bound)
    shown = asked or Confirmation(kind="info", title=bound.title, arguments=bound.arguments)
    return Ask(rule=rule, bound=bound, confirmation=shown.model_copy(update={"reason": ruling.reason}))


def _safe(invocation: Invocation) -> bool:
    try:
        return bool(invocation.concurrency_safe())
    except Exception:
        return False
