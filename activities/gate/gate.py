"""The gate: the one judgement on a call, made when it is validated and made again where it executes.

It looks the tool up, reads the arguments, asks the tool what a person should see, and lets policy speak. What breaks
on the way becomes a rejection of this one call, never an exception (S5, S6, S7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import JsonValue

from holdfast.activities.execution.run_tool import contain_exits
from holdfast.activities.gate.approval_checks import find_stale_file, is_approved, is_valid_answer
from holdfast.activities.gate.prepare import prepare_call
from holdfast.activities.gate.verdict import CallContext, PolicyJudge
from holdfast.activities.hooks.combine import BeforeOutcome, Denial
from holdfast.activities.hooks.hook_chain import Hooks
from holdfast.activities.hooks.hook_io import BeforeTool
from holdfast.activities.policy.load_policy import load_policy
from holdfast.activities.policy.policy import Policy
from holdfast.activities.policy.protection.protected_files import ProtectedFiles
from holdfast.activities.policy.saved_grants import GrantSource
from holdfast.activities.registry.arguments import InvalidArguments, check_arguments
from holdfast.activities.registry.registry import BUILT_IN, RegisteredTool, Registry
from holdfast.domain.approvals.actors import Actor, Approver
from holdfast.domain.approvals.approval import Confirmation, Decision, DecisionAction, QuestionAnswer, digest_question
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.decision_checks import DecisionContext
from holdfast.domain.calls.tool import Declaration, Effect, Invocation, Retries
from holdfast.domain.calls.verdicts import Ask, BoundCall, Deny, Reject, Verdict
from holdfast.domain.content import CallError
from holdfast.domain.context import Context, names_tool
from holdfast.domain.modes import DEFAULT_PERMITTED, Confirming, Mode
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.errors import BadInput
from holdfast.util.digests import digest_canonical
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import exception_text, shorten_text

T = TypeVar("T")

ARGUMENTS_LIMIT = 1_048_576
"""Bytes of one call's arguments."""
JUDGE_SECONDS = 20.0
"""What one call's validation may take: a tool's own checks are other people's code, and may hang."""


class Judgement(NamedTuple):
    """A verdict, and, when the call could run, the invocation it is about."""

    verdict: Verdict
    invocation: Invocation | None = None
    retries: Retries | None = None


class Gate:
    """Judges calls with one worker's registry, policy, hooks and approvers."""

    def __init__(
        self,
        registry: Registry,
        workspace: Path,
        policy: Policy | None = None,
        modes: Collection[Mode] = DEFAULT_PERMITTED,
        *,
        approvers: tuple[Approver, ...] = (),
        saved: GrantSource | None = None,
        protected: ProtectedFiles | None = None,
        hooks: Hooks | None = None,
        host_queue: str | None = None,
        keeps_once: bool = False,
        confirm: Confirming = Confirming.POLICY,
    ) -> None:
        """`keeps_once`: what must not run twice stays on this host, since no other knows what became of it."""
        self._registry = registry
        self._modes = modes
        self._policy_judge = PolicyJudge(policy or load_policy(()), workspace, approvers, saved, protected, confirm)
        self.hooks = hooks or Hooks()
        self.approvers = approvers
        self.host_queue = host_queue
        self._keeps_once = keeps_once
        self._confirm = confirm
        self.workspace = workspace
        self.rules_digest = self._policy_judge.policy.digest
        self.explain_missing_tool: Callable[[], str] = lambda: ""
        """What a call of an unknown tool is told besides: other workers may have it."""

    @property
    def catalogue_digest(self) -> str:
        """The digest of the tools that there are now."""
        return self._registry.digest

    @property
    def digest(self) -> str:
        """Changes whenever a tool, a rule or a hook does, and with what every call is asked about."""
        always = [self._confirm.value] if self._confirm is Confirming.ALWAYS else []
        return digest_canonical([self.catalogue_digest, self.rules_digest, self.hooks.hook_descriptions, *always])

    @property
    def digest_texts(self) -> dict[str, Any]:
        """What its digests stand for: the rules, the hooks, and the tools that there are now."""
        return {
            "policy": self._policy_judge.policy.rule_texts,
            "hooks": self.hooks.hook_descriptions,
            "catalogue": self._registry.definition_digests,
        }

    def find_slow_part(self, names: Iterable[str]) -> Literal["hooks", "tools"] | None:
        """What may take long in judging calls of these tools: hooks, or tools that do not promise a quick check."""
        if not self.hooks.is_empty:
            return "hooks"
        entries = [self._registry.get(name) for name in names if not self._registry.is_unknown(name)]
        quick = all(entry and (entry.source == BUILT_IN or entry.tool.checks_quickly) for entry in entries)
        return None if quick else "tools"

    def list_definitions(self, names: Collection[str]) -> list[dict[str, JsonValue]]:
        """What these tools say of themselves."""
        found = (self._registry.get(name) for name in names)
        return [entry.declaration.definition for entry in found if entry]

    def limit_mode(self, mode: Mode) -> Mode:
        """The mode that counts when a turn wishes for this one. Planning loosens nothing, and is anybody's."""
        return mode if mode in self._modes or mode is Mode.PLAN else Mode.DEFAULT

    def select_valid_grants(self, grants: tuple[Grant, ...], turn_id: str) -> tuple[Grant, ...]:
        """The grants that calls of this turn may be judged by."""
        return self._policy_judge.select_valid_grants(grants, turn_id)

    async def judge(
        self, request: CallRequest, call_context: CallContext | None = None, change: Decision | None = None
    ) -> Judgement:
        """The verdict on one call, as asked for or as a person changed it.

        A tool or a hook that hangs or breaks costs its own call, and no more.
        """
        given = call_context or CallContext()
        if not names_tool(given.tools, request.tool):
            return Judgement(Reject(error=self.build_not_allowed(request.tool, given.tools or ())))
        entry = await self._registry.wait_for_tool(request.tool)
        if entry is None:
            return Judgement(Reject(error=self._build_unknown(request.tool)))
        if not given.context.has_tool(request.tool):
            return Judgement(Reject(error=self._build_not_offered(request.tool, given.context)))
        return await self._judge_entry(
            entry, request.arguments, replace(given, mode=self.limit_mode(given.mode)), change
        )

    async def _judge_entry(
        self, entry: RegisteredTool, arguments: JsonValue, call_context: CallContext, change: Decision | None
    ) -> Judgement:
        """Hear the hooks, if there are any, then let the call be prepared and the rules speak."""
        was_changed = change is not None and change.outcome is DecisionAction.MODIFY
        if change:
            try:
                arguments = _apply_change(entry, arguments, change)
            except ValueError as error:
                return _reject_invalid(entry, error)
        if self.hooks.is_empty:
            return await self._run_in_time(
                entry, self._prepare_and_rule(entry, arguments, call_context, was_changed=was_changed)
            )
        checked = await self._run_in_time(entry, _check_entry_arguments(entry, arguments))
        if isinstance(checked, Judgement):
            return checked
        hook_answer = await self.hooks.ask_before(self._build_hook_input(entry, checked, call_context))
        if hook_answer.deny:
            return Judgement(_build_denial(hook_answer, hook_answer.deny))
        return await self._run_in_time(
            entry, self._prepare_and_rule(entry, checked, call_context, hook_answer, was_changed=was_changed)
        )

    def _build_hook_input(
        self, entry: RegisteredTool, arguments: dict[str, JsonValue], call_context: CallContext
    ) -> BeforeTool:
        declaration = entry.declaration
        return BeforeTool(
            turn_id=call_context.turn_id,
            call_id=call_context.call_id,
            tool=declaration.name,
            server=declaration.server,
            effect=declaration.effect,
            arguments=arguments,
            mode=call_context.mode,
            workspace=self.workspace,
            phase=call_context.phase,
        )

    async def _run_in_time(self, entry: RegisteredTool, work: Coroutine[Any, Any, T]) -> T | Judgement:
        """Other people's checks, which may hang or break: at the cost of their own call."""
        name = entry.declaration.name
        judging = asyncio.create_task(contain_exits(work))
        try:
            await asyncio.wait({judging}, timeout=JUDGE_SECONDS)
        finally:
            judging.cancel()
        if not judging.done():
            return _reject("validation_failed", f"{name!r} took over {JUDGE_SECONDS:g} seconds to be prepared")
        if judging.cancelled():
            return _reject("validation_failed", f"{name!r} cancelled its own preparation")
        error = judging.exception()
        if isinstance(error, ValueError):
            return _reject_invalid(entry, error)
        if isinstance(error, BadInput):
            return _reject("validation_failed", f"{name!r} cannot be called: {exception_text(error)}")
        if error is not None:
            return _reject(type(error).__name__, f"{name!r} could not be prepared: {exception_text(error)}")
        return judging.result()

    def is_approved(self, input: ExecuteInput, verdict: Ask, turn_id: str) -> bool:
        """Do the decisions that a call brings along cover it, as this worker would run it?"""
        entry = self._registry.get(verdict.bound.tool.name)
        if entry is None or entry.declaration.digest != verdict.bound.tool.definition:
            return False  # it went or changed this very moment

        def apply_change(shown: dict[str, JsonValue], decision: Decision) -> dict[str, JsonValue]:
            return entry.schema.check(_apply_change(entry, shown, decision))[0]

        context = DecisionContext(turn_id, self.approvers, input.requester)
        return is_approved(input, verdict, context, datetime.now(UTC), apply_change)

    def is_valid_answer(
        self,
        answer: QuestionAnswer,
        question: Confirmation,
        state: JsonValue,
        bound: BoundCall,
        turn_id: str,
        call_id: str,
    ) -> bool:
        """Did a person give this answer to what this call, as this worker runs it, asks in the middle of its run?"""
        context, digest = DecisionContext(turn_id, self.approvers), digest_question(bound.digest, question, state)
        return is_valid_answer(answer, question, digest, call_id, context, datetime.now(UTC))

    async def _prepare_and_rule(
        self,
        entry: RegisteredTool,
        arguments: JsonValue,
        call_context: CallContext,
        hook_answer: BeforeOutcome | None = None,
        *,
        was_changed: bool,
    ) -> Judgement:
        rewritten = hook_answer.arguments if hook_answer else arguments
        _check_size(entry, rewritten)
        prepared = await prepare_call(entry, rewritten, self.workspace, call_context.context)
        if self._is_bound_to_host(entry.declaration):
            prepared = prepared._replace(bound=prepared.bound.model_copy(update={"host": self.host_queue}))
        if hook_answer and hook_answer.rewritten_by:
            record = {"rewritten_by": hook_answer.rewritten_by, "given": arguments}
            prepared = prepared._replace(bound=prepared.bound.model_copy(update=record))
        if stale := find_stale_file(prepared.bound, call_context.seen):
            message = f"{stale!r} has changed since it was read: read it again, then decide anew"
            return _reject("file_changed", message)
        asks = hook_answer.ask if hook_answer else ()
        verdict, prepared = await self._policy_judge.judge_call(
            entry, prepared, call_context, asks, was_changed=was_changed
        )
        verdict.model_dump_json()  # what cannot be written down must fail here, not for the whole batch
        return Judgement(verdict, prepared.invocation, entry.tool.retries)

    def _is_bound_to_host(self, tool: Declaration) -> bool:
        """Do its calls live on this host?"""
        kept = self._keeps_once and tool.effect is Effect.ONCE and tool.traits.task_queue is None
        return kept or tool.traits.on_host

    def build_not_allowed(self, name: str, tools: tuple[str, ...]) -> CallError:
        """What a call is told whose turn was started with other tools."""
        known = [entry.declaration.name for entry in self._registry.entries]
        there = _describe_tools([tool for tool in known if names_tool(tools, tool)])
        message = f"{shorten_text(name, 100)!r} is not among the tools that this turn was started with. {there}"
        return CallError(type="tool_not_available", message=shorten_text(message, 2_000))

    async def find_unknown_tools(self, tools: Collection[str]) -> tuple[str, ...]:
        """The entries of a list that name no tool, each with what may have been meant.

        None that may name a tool of a source which cannot be asked at present.
        """
        for name in tools:
            await self._registry.wait_for_tool(name)  # one whose source is not there yet is waited for
        known = [entry.declaration.name for entry in self._registry.entries]
        named = (name for name in tools if not self._registry.is_source_missing(name))
        unknown = [name for name in named if not any(names_tool((name,), one) for one in known)]
        return tuple(f"{shorten_text(name, 100)!r}. {did_you_mean(name, known)}".rstrip() for name in unknown)

    def _build_not_offered(self, name: str, context: Context) -> CallError:
        known = [tool for tool in context.tools or () if self._registry.get(tool)]
        message = f"{shorten_text(name, 100)!r} cannot be used at this point of the turn. {_describe_tools(known)}"
        return CallError(type="tool_not_available", message=shorten_text(message, 2_000))

    def _build_unknown(self, name: str) -> CallError:
        if known := self._registry.explain_missing(name):
            return known
        hint = did_you_mean(name, [entry.declaration.name for entry in self._registry.entries])
        missing = ", ".join(dict.fromkeys(problem.source for problem in self._registry.problems))
        left_out = f"Some tools are not available, from: {shorten_text(missing, 300)}." if missing else ""
        parts = (f"No tool is called {shorten_text(name, 100)!r}.", hint, left_out, self.explain_missing_tool())
        message = " ".join(filter(None, parts))
        return CallError(type="tool_not_registered", message=message)


def _describe_tools(known: list[str]) -> str:
    """The tools that there are, as far as they fit."""
    there = f"There are {', '.join(map(repr, known[:10]))}" if known else "There is none"
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    return f"{there}{more}."


def _apply_change(entry: RegisteredTool, arguments: JsonValue, change: Decision) -> JsonValue:
    """The arguments as a person wants them: given as such, or as the text that the tool lets them edit (S25)."""
    if change.arguments is not None:
        return change.arguments
    if entry.tool.edits is None or not isinstance(arguments, dict):
        raise ValueError("it has no text that can be edited")
    return {**arguments, entry.tool.edits: change.content}


def _build_denial(hook_answer: BeforeOutcome, denial: Denial) -> Deny:
    actor = Actor(kind="hook", name=denial.hook)
    return Deny(rule=f"hook: {denial.hook}", message=denial.reason, actor=actor, stop_turn=hook_answer.stop_turn)


async def _check_entry_arguments(entry: RegisteredTool, arguments: JsonValue) -> dict[str, JsonValue]:
    _check_size(entry, arguments)
    return (await check_arguments(entry.schema, arguments))[0]


def _check_size(entry: RegisteredTool, arguments: JsonValue) -> None:
    size = len(CallRequest(tool=entry.declaration.name, arguments=arguments).model_dump_json().encode())
    if size > ARGUMENTS_LIMIT:
        limit = f"they take {size:,} bytes; the limit is {ARGUMENTS_LIMIT:,}"
        raise InvalidArguments(f"{limit}. Pass large content in smaller pieces or by file.")


def _reject_invalid(entry: RegisteredTool, error: ValueError) -> Judgement:
    name = entry.declaration.name
    return _reject(
        "invalid_tool_params", f"Invalid arguments for {name!r}: {exception_text(error, _find_message_limit(error))}"
    )


def _reject(kind: str, message: str) -> Judgement:
    return Judgement(Reject(error=CallError(type=kind, message=message)))


def _find_message_limit(error: ValueError) -> int:
    """Our own words are as long as they need to be; a tool's are cut."""
    return 4_000 if isinstance(error, InvalidArguments) else 1_000
