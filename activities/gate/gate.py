"""The gate: the one judgement on a call, made when it is validated and made again where it executes.

`Gate.judge` is the whole way. An error on the way rejects this one call, and is never raised (S5, S6, S7).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import JsonValue

from holdfast.activities.execution.run_tool import contain_exits
from holdfast.activities.gate.approval_checks import find_stale_file, is_approved, is_valid_answer, is_valid_grant
from holdfast.activities.gate.prepare_call import (
    CallContext,
    CallRefused,
    PreparedCall,
    apply_change,
    check_call_arguments,
    find_unknown_tools,
    prepare_call,
    reject_call,
    resolve_tool,
)
from holdfast.activities.gate.verdict import Rulebook, RuledCall, apply_deadline, apply_grants, apply_rules
from holdfast.activities.hooks.hook_chain import BeforeOutcome, Hooks
from holdfast.activities.hooks.hook_io import BeforeTool
from holdfast.activities.policy.load_policy import load_policy
from holdfast.activities.policy.policy import Policy
from holdfast.activities.policy.protected_files import ProtectedFiles
from holdfast.activities.policy.saved_grants import GrantSource
from holdfast.activities.registry.arguments import CheckedArguments, InvalidArguments
from holdfast.activities.registry.registry import BUILT_IN, RegisteredTool, Registry
from holdfast.domain.approvals.approval import (
    Actor,
    Approver,
    Confirmation,
    Decision,
    DecisionAction,
    QuestionAnswer,
    digest_question,
)
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.decision_checks import DecisionContext
from holdfast.domain.calls.tool import Declaration, Effect, Invocation, Retries
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Deny, Verdict
from holdfast.domain.modes import DEFAULT_PERMITTED, Confirming, Mode
from holdfast.domain.turn.activity_io import CallToValidate, ExecuteInput
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import exception_text

T = TypeVar("T")

JUDGE_SECONDS = 20.0
"""Seconds for judging one call, hooks apart: a tool's own checks are other people's code, and may hang."""


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
        policy, protected = policy or load_policy(()), protected or ProtectedFiles(workspace)
        self._registry = registry
        self._modes = modes
        self._rulebook = Rulebook(policy, workspace, protected, approvers, saved, confirm)
        self._keeps_once = keeps_once
        self.hooks = hooks or Hooks()
        self.approvers = approvers
        self.host_queue = host_queue
        self.workspace = workspace
        self.explain_missing_tool: Callable[[], str] = lambda: ""
        """Builds a note for calls of an unknown tool, which other workers may have."""

    # Judging

    async def judge(
        self, request: CallRequest, context: CallContext | None = None, change: Decision | None = None
    ) -> Judgement:
        """The verdict on one call, as asked for or as a person changed it, with its invocation when it could run.

        A tool or a hook that hangs, breaks or exits rejects its own call alone. Judging twice changes nothing.
        """
        context = self._limit_context(context or CallContext())
        return await self._judge_by_grants(await self._judge_by_rules(request, context, change), context)

    async def _judge_by_rules(
        self, request: CallRequest, context: CallContext, change: Decision | None
    ) -> _OpenCall | Verdict:
        """The first half of a judgement: hooks and tools are asked here, and grants do not count."""
        try:
            entry = await resolve_tool(self._registry, request.tool, context, self.explain_missing_tool)
            limit, was_changed = _TimeLimit(entry), change is not None and change.outcome is DecisionAction.MODIFY
            checked = await limit.run(check_call_arguments(entry, request.arguments, change))
            hooked = await self._ask_hooks(entry, checked, context)
            prepared = await limit.run(self._prepare(entry, checked, hooked, context))
            ruled = await limit.run(apply_rules(self._rulebook, prepared, context, hooked.ask, was_changed=was_changed))
        except CallRefused as refused:
            return refused.verdict
        return _OpenCall(entry, ruled, limit)

    async def _judge_by_grants(self, call: _OpenCall | Verdict, context: CallContext) -> Judgement:
        """The second half, from the grants on. Repeating it with other grants asks no hook."""
        if not isinstance(call, _OpenCall):
            return Judgement(call)
        try:
            granted = await call.limit.run(apply_grants(self._rulebook, call.ruled, context))
            verdict = await call.limit.run(_check_writable(apply_deadline(self._rulebook, granted, context)))
        except CallRefused as refused:
            return Judgement(refused.verdict)
        return Judgement(verdict, granted.prepared.invocation, call.entry.tool.retries)

    async def judge_batch(self, calls: Collection[CallToValidate], context: CallContext) -> dict[str, Judgement]:
        """One judgement per call; none for a call that is asked about as it was known to be.

        A grant that is good for two calls answers the first two that it covers, and no third (S24): the third is judged
        without it, and its hooks are not asked again. `context` is that of all of them, with the grants of the turn.
        """
        grants = self.select_valid_grants(context.grants, context.turn_id)
        room = {grant.id: grant.decision.uses - grant.used for grant in grants if grant.decision.uses is not None}
        context = self._limit_context(context)
        ruled = await asyncio.gather(
            *(
                self._judge_by_rules(one.request, context.model_copy(update={"call_id": one.id}), one.change)
                for one in calls
            )
        )
        left = {call.id: found for call, found in zip(calls, ruled, strict=True)}
        judgements: dict[str, Judgement] = {}
        while left:
            usable = tuple(grant for grant in grants if room.get(grant.id, 1) > 0)
            within = context.model_copy(update={"grants": usable})
            judged = await asyncio.gather(*(self._judge_by_grants(call, within) for call in left.values()))
            judgements |= zip(left, judged, strict=True)
            left = {id: call for id, call in left.items() if not _take_grant_use(judgements[id].verdict, room)}
        asked = {call.id: call.known for call in calls}
        return {id: one for id, one in judgements.items() if not _is_known_question(one.verdict, asked[id])}

    def limit_mode(self, mode: Mode) -> Mode:
        """The mode that counts when a turn wishes for this one. Planning loosens nothing, and is anybody's."""
        return mode if mode in self._modes or mode is Mode.PLAN else Mode.DEFAULT

    def _limit_context(self, context: CallContext) -> CallContext:
        return context.model_copy(update={"mode": self.limit_mode(context.mode)})

    async def _ask_hooks(self, entry: RegisteredTool, checked: CheckedArguments, context: CallContext) -> BeforeOutcome:
        """Ask the hooks about a call; CallRefused when one denies it (S35). Each has a time limit of its own."""
        if self.hooks.is_empty:
            return BeforeOutcome(checked.written)
        declaration = entry.declaration
        outcome = await self.hooks.ask_before(
            BeforeTool(
                turn_id=context.turn_id,
                call_id=context.call_id,
                tool=declaration.name,
                server=declaration.server,
                effect=declaration.effect,
                arguments=checked.written,
                mode=context.mode,
                workspace=self.workspace,
                phase=context.phase,
            )
        )
        if denial := outcome.deny:
            by, actor = f"hook: {denial.hook}", Actor(kind="hook", name=denial.hook)
            raise CallRefused(Deny(rule=by, message=denial.reason, actor=actor, stop_turn=outcome.stop_turn))
        return outcome

    async def _prepare(
        self, entry: RegisteredTool, checked: CheckedArguments, hooked: BeforeOutcome, context: CallContext
    ) -> PreparedCall:
        """The call as hooks left it; CallRefused when a file it would change is not as the turn last saw it."""
        given = checked.written
        if hooked.rewritten_by:
            checked = await check_call_arguments(entry, hooked.arguments)
        prepared = await prepare_call(entry, checked, self.workspace, context.context)
        if hooked.rewritten_by:
            prepared = prepared.update_bound(rewritten_by=hooked.rewritten_by, given=given)
        if self._is_bound_to_host(entry.declaration):
            prepared = prepared.update_bound(host=self.host_queue)
        if stale := find_stale_file(prepared.bound, context.seen):
            raise reject_call(
                "file_changed", f"{stale!r} has changed since it was read: read it again, then decide anew"
            )
        return prepared

    def _is_bound_to_host(self, tool: Declaration) -> bool:
        """Do its calls live on this host?"""
        is_local_once = self._keeps_once and tool.effect is Effect.ONCE and tool.traits.task_queue is None
        return is_local_once or tool.traits.on_host

    # Decisions of people

    def select_valid_grants(self, grants: tuple[Grant, ...], turn_id: str) -> tuple[Grant, ...]:
        """Select the grants for calls of this turn: those given by people who may decide here."""
        context, now = DecisionContext(turn_id, self.approvers), datetime.now(UTC)
        return tuple(grant for grant in grants if is_valid_grant(grant, context, now))

    def is_approved(self, input: ExecuteInput, verdict: Ask, turn_id: str) -> bool:
        """Do the decisions that a call brings along cover it, as this worker would run it?"""
        entry = self._registry.get(verdict.bound.tool.name)
        if entry is None or entry.declaration.digest != verdict.bound.tool.definition:
            return False  # it went or changed this very moment

        def apply_checked(shown: dict[str, JsonValue], decision: Decision) -> dict[str, JsonValue]:
            return entry.schema.check(apply_change(entry, shown, decision)).written

        context = DecisionContext(turn_id, self.approvers, input.requester)
        return is_approved(input, verdict, context, datetime.now(UTC), apply_checked)

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

    # Tools and rules

    @property
    def catalogue_digest(self) -> str:
        """The digest of the tools that there are now."""
        return self._registry.digest

    @property
    def rules_digest(self) -> str:
        """The digest of the rules."""
        return self._rulebook.policy.digest

    @property
    def digest(self) -> str:
        """Changes whenever a tool, a rule or a hook does, and with what every call is asked about."""
        confirm = self._rulebook.confirm
        always = [confirm.value] if confirm is Confirming.ALWAYS else []
        return digest_canonical([self.catalogue_digest, self.rules_digest, self.hooks.hook_descriptions, *always])

    @property
    def digest_texts(self) -> dict[str, Any]:
        """The texts that its digests are over: the rules, the hooks, and the present tools."""
        return {
            "policy": self._rulebook.policy.rule_texts,
            "hooks": self.hooks.hook_descriptions,
            "catalogue": self._registry.definition_digests,
        }

    def list_definitions(self, names: Collection[str]) -> list[dict[str, JsonValue]]:
        """The definitions of these tools, as far as they are here."""
        found = (self._registry.get(name) for name in names)
        return [entry.declaration.definition for entry in found if entry]

    def find_slow_part(self, names: Iterable[str]) -> Literal["hooks", "tools"] | None:
        """Find what makes judging calls of these tools slow: hooks, or tools that do not promise a quick check."""
        if not self.hooks.is_empty:
            return "hooks"
        entries = [self._registry.get(name) for name in names if not self._registry.is_unknown(name)]
        quick = all(entry and (entry.source == BUILT_IN or entry.tool.checks_quickly) for entry in entries)
        return None if quick else "tools"

    async def find_unknown_tools(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """The names and patterns that match no tool, each with what may have been meant."""
        return await find_unknown_tools(self._registry, patterns)


class _OpenCall(NamedTuple):
    """A call with the verdict of the rules, which grants may still change."""

    entry: RegisteredTool
    ruled: RuledCall
    limit: _TimeLimit


class _TimeLimit:
    """The time that all steps of one judgement may take together that run other people's code.

    A step that takes longer is left behind; one that raises or asks to exit rejects the call.
    """

    def __init__(self, entry: RegisteredTool) -> None:
        self._name = entry.declaration.name
        self._left = JUDGE_SECONDS

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result; CallRefused when there is none."""
        began, task = time.monotonic(), asyncio.create_task(contain_exits(work))
        try:
            await asyncio.wait({task}, timeout=max(0.0, self._left))
        finally:
            task.cancel()
        self._left -= time.monotonic() - began
        if not task.done():
            raise reject_call("validation_failed", f"{self._name!r} took over {JUDGE_SECONDS:g} seconds to be prepared")
        if task.cancelled():
            raise reject_call("validation_failed", f"{self._name!r} cancelled its own preparation")
        if error := task.exception():
            raise self._explain(error) from None
        return task.result()

    def _explain(self, error: BaseException) -> CallRefused:
        match error:
            case CallRefused():
                return error
            case ValueError():
                limit = 4_000 if isinstance(error, InvalidArguments) else 1_000  # ours are as long as need be
                words = f"Invalid arguments for {self._name!r}: {exception_text(error, limit)}"
                return reject_call("invalid_tool_params", words)
            case BadInput():
                return reject_call("validation_failed", f"{self._name!r} cannot be called: {exception_text(error)}")
        return reject_call(type(error).__name__, f"{self._name!r} could not be prepared: {exception_text(error)}")


async def _check_writable(verdict: Verdict) -> Verdict:
    """Return the verdict. One that JSON cannot express must fail here, at the cost of one call and not of the whole
    batch.
    """
    verdict.model_dump_json()
    return verdict


def _take_grant_use(verdict: Verdict, room: dict[str, int]) -> bool:
    """Is there room for it in its grant? Then it takes it."""
    grant = verdict.grant if isinstance(verdict, Allow) else None
    if grant is None or grant not in room:
        return True
    room[grant] -= 1
    return room[grant] >= 0


def _is_known_question(verdict: Verdict, digest: str | None) -> bool:
    return digest is not None and isinstance(verdict, Ask) and verdict.bound.digest == digest
