"""The first half of a judgement: the tool is resolved, the arguments are checked, the call is prepared.

A step that cannot go on raises `CallRefused` with the verdict that ends the judgement. No rule is read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from holdfast.activities.files.workspace import Workspace
from holdfast.activities.hooks.hook_chain import Phase
from holdfast.activities.policy.conditions import may_send
from holdfast.activities.policy.protected_files import ProtectedFiles, complete_subject
from holdfast.activities.policy.subject import (
    BUILT_IN,
    FOLDER_ARGUMENT,
    VARIABLES_ARGUMENT,
    Subject,
    build_call_subject,
)
from holdfast.activities.registry.arguments import CheckedArguments, InvalidArguments, check_arguments
from holdfast.activities.registry.registry import RegisteredTool, Registry
from holdfast.domain.approvals.approval import Confirmation, Decision, digest_call
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Invocation
from holdfast.domain.calls.verdicts import BoundCall, Deny, Reject
from holdfast.domain.content import CallError
from holdfast.domain.context import Context, names_tool, select_context
from holdfast.domain.turn.activity_io import JudgementFacts
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import drop_surrogates, shorten_text

ARGUMENTS_LIMIT = 1_048_576
"""Bytes of one call's arguments."""


class CallContext(JudgementFacts):
    """The facts of its turn that one call is judged by, and which call it is.

    `grants` are those that `Gate.select_valid_grants` let through.
    """

    turn_id: str = ""
    call_id: str = ""
    approval_seconds: float | None = None
    """The turn's limit for an approval, where it has one."""
    phase: Phase = "validate"


class CallRefused(Exception):
    """Ends the judgement of a call with a verdict that lets nothing run."""

    def __init__(self, verdict: Reject | Deny) -> None:
        super().__init__(verdict.kind)
        self.verdict = verdict


def reject_call(error_type: str, message: str) -> CallRefused:
    """The exception that rejects a call with an error of this type."""
    return CallRefused(Reject(error=CallError(type=error_type, message=message)))


# Resolving the tool


async def resolve_tool(
    registry: Registry, name: str, context: CallContext, explain_missing: Callable[[], str] = lambda: ""
) -> RegisteredTool:
    """The tool that a call names; CallRefused when there is none, or none for this turn now (S5).

    A tool whose source is not there yet is waited for a little. `explain_missing` says where else a tool may be.
    """
    if not names_tool(context.tools, name):
        known = [tool for tool in _list_names(registry) if names_tool(context.tools, tool)]
        raise _reject_unavailable(name, "is not among the tools that this turn was started with", known)
    entry = await registry.wait_for_tool(name)
    if entry is None:
        raise _reject_unknown(registry, name, explain_missing)
    if not context.context.has_tool(name):
        known = [tool for tool in context.context.tools or () if registry.get(tool)]
        raise _reject_unavailable(name, "cannot be used at this point of the turn", known)
    return entry


def _list_names(registry: Registry) -> list[str]:
    return [entry.declaration.name for entry in registry.entries]


def _reject_unavailable(name: str, reason: str, known: list[str]) -> CallRefused:
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    there = f"There are {', '.join(map(repr, known[:10]))}{more}" if known else "There is none"
    return reject_call("tool_not_available", shorten_text(f"{shorten_text(name, 100)!r} {reason}. {there}.", 2_000))


def _reject_unknown(registry: Registry, name: str, explain_missing: Callable[[], str]) -> CallRefused:
    if known := registry.explain_missing(name):
        return CallRefused(Reject(error=known))
    hint = did_you_mean(name, _list_names(registry))
    missing = ", ".join(dict.fromkeys(problem.source for problem in registry.problems))
    left_out = f"Some tools are not available, from: {shorten_text(missing, 300)}." if missing else ""
    parts = (f"No tool is called {shorten_text(name, 100)!r}.", hint, left_out, explain_missing())
    return reject_call("tool_not_registered", " ".join(filter(None, parts)))


async def find_unknown_tools(registry: Registry, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The names and patterns that match no tool, each with what may have been meant.

    Not those that a source may still bring which cannot be reached at present.
    """
    for pattern in patterns:
        await registry.wait_for_tool(pattern)
    known = _list_names(registry)
    candidates = (pattern for pattern in patterns if not registry.is_source_missing(pattern))
    unknown = [pattern for pattern in candidates if not any(names_tool((pattern,), name) for name in known)]
    return tuple(f"{shorten_text(name, 100)!r}. {did_you_mean(name, known)}".rstrip() for name in unknown)


# Checking the arguments


async def check_call_arguments(
    entry: RegisteredTool, arguments: JsonValue, change: Decision | None = None
) -> CheckedArguments:
    """The arguments of a call, as asked for or as a person changed them; ValueError when they do not fit (S6)."""
    if change:
        arguments = apply_change(entry, arguments, change)
    size = len(CallRequest(tool=entry.declaration.name, arguments=arguments).model_dump_json().encode())
    if size > ARGUMENTS_LIMIT:
        limit = f"they take {size:,} bytes; the limit is {ARGUMENTS_LIMIT:,}"
        raise InvalidArguments(f"{limit}. Pass large content in smaller pieces or by file.")
    return await check_arguments(entry.schema, arguments)


def apply_change(entry: RegisteredTool, arguments: JsonValue, change: Decision) -> JsonValue:
    """The arguments as a person wants them: given as such, or as the text that the tool lets them edit (S25)."""
    if change.arguments is not None:
        return change.arguments
    if entry.tool.edits is None or not isinstance(arguments, dict):
        raise ValueError("it has no text that can be edited")
    return {**arguments, entry.tool.edits: change.content}


# Preparing the call


@dataclass(frozen=True)
class PreparedCall:
    """A call that could run: its tool bound to checked arguments, and what the tool would ask a person."""

    entry: RegisteredTool
    bound: BoundCall
    invocation: Invocation
    asked: Confirmation | None
    """The question of its tool; None when the call would simply run."""
    preview: Confirmation | None = None
    """The confirmation for a person when its tool does not ask."""

    @property
    def confirmation(self) -> Confirmation:
        """The confirmation for a person, also of a call that its tool does not ask about."""
        shown = self.asked or self.preview or Confirmation(kind="info", title=self.bound.title)
        return shown.model_copy(update={"arguments": self.bound.arguments, "edits": self.entry.tool.edits})

    @property
    def is_question(self) -> bool:
        """Is the call itself a question to a person? Then asking it is asking about it."""
        return self.asked is not None and self.asked.kind == "question"

    def update_bound(self, **changes: Any) -> PreparedCall:
        """Return a copy with these fields of `bound` replaced."""
        return replace(self, bound=self.bound.model_copy(update=changes))


async def prepare_call(
    entry: RegisteredTool, checked: CheckedArguments, workspace: Path, context: Context
) -> PreparedCall:
    """Build the invocation, and query its confirmation, paths and effect. ValueError when it takes no such
    arguments.
    """
    tool, declaration = entry.tool, entry.declaration
    invocation = tool.build_in(checked.given, workspace, context)
    if not isinstance(invocation, Invocation):
        raise TypeError(f"its build gave {invocation!r}, and no Invocation")
    goes_by = invocation.list_dependences()
    within = select_context(context, declaration.traits.depends_on if goes_by is None else goes_by)
    basis = await asyncio.to_thread(invocation.digest_before)
    leaves = await asyncio.to_thread(invocation.digest_after)
    bound = BoundCall(
        tool=declaration.build_ref(),
        title=shorten_text(invocation.describe(), 500),
        arguments=checked.written,
        digest=digest_call(
            tool=declaration.name,
            server=declaration.server,
            definition=declaration.digest,
            arguments=checked.written,
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
        asked = asked.model_copy(update={"arguments": checked.written, "edits": tool.edits})
    return PreparedCall(entry, bound, invocation, asked, None if asked else invocation.build_confirmation())


def _is_concurrency_safe(invocation: Invocation) -> bool:
    try:
        return bool(invocation.is_concurrency_safe())
    except Exception:
        return False


# The subject of the rules


def build_rule_subject(
    workspace: Path, prepared: PreparedCall, *, tainted: bool = False, protected: ProtectedFiles | None = None
) -> Subject:
    """Build the subject of the rules: the call's own facts, paths with links followed, and whether its turn is tainted.
    Blocks.
    """
    bound, asked = prepared.bound, prepared.asked
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
    subject = build_call_subject(tool.name, build_rule_arguments(bound), workspace=workspace, **known)
    sends = may_send(subject, open_world=tool.traits.open_world)
    return complete_subject(subject, sends, protected or ProtectedFiles(workspace))


def build_rule_arguments(bound: BoundCall) -> dict[str, JsonValue]:
    """Add to a call's arguments, for the rules, the folder it would run in and the variables that its turn adds.

    By the names of `shell`; a variable that is added by reference is given as `$NAME`.
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
    """List the paths that the call changes or, if its tool is built in, reads, with links followed."""
    if bound.basis:
        return tuple(bound.basis)
    what = BUILT_IN.get(bound.tool.name)
    given = bound.arguments.get(what.path) if what and what.path else None
    return (Workspace(workspace).resolve_path(given),) if isinstance(given, str) else ()
