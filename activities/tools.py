"""The two activities of a tool call: validate a batch, execute one call.

The executing activity is the gate: it runs nothing that its own worker's judgement or a decision bound to that very
digest does not cover, whatever its input claims (S22).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.allotting import judge_all
from holdfast.activities.context_changes import with_usable_change
from holdfast.activities.covering import as_shown
from holdfast.activities.gate import Gate
from holdfast.activities.hooking import hear_after
from holdfast.activities.leaving import Left, how_left
from holdfast.activities.ledger.entries import EffectKey
from holdfast.activities.live import LiveRuns, told_to_stop
from holdfast.activities.once import Once, outcome_of, unfinished, unknown
from holdfast.activities.outputs import OutputStore
from holdfast.activities.questions import Questions
from holdfast.activities.records import Records
from holdfast.activities.ruling import Circumstances
from holdfast.activities.running import beating, begin_tool, run_tool
from holdfast.activities.sharing import share_outputs
from holdfast.calls import CallRequest
from holdfast.content import CallError, Result, TextPart
from holdfast.tools import Effect
from holdfast.turns import WORKFLOW
from holdfast.verdicts import Allow, Ask, Asks, CallOutcome, Failed, Finished, Lost, Reconsider, Stopped
from holdfast.work import ExecuteInput, LiveOutput, ValidateInput, ValidateResult


class ToolActivities:
    """Validate and execute, with one worker's gate."""

    def __init__(
        self,
        gate: Gate,
        outputs: OutputStore,
        live: LiveRuns,
        once: Once,
        questions: Questions | None = None,
        records: Records | None = None,
    ) -> None:
        """`questions` asks people what tools ask in the middle of their run; without it nobody is asked.

        `records` keeps what verdicts are given by.
        """
        self._questions = questions
        self._records = records
        self._gate = gate
        self._once = once
        self._outputs = outputs
        self._live = live

    @activity.defn(name="holdfast.validate")
    async def validate(self, input: ValidateInput) -> ValidateResult:
        """One verdict per call. A second attempt judges anew and changes nothing.

        As a local activity it judges nothing that may take long, and says so: nobody is heard while one runs, and one
        that is given up asks every hook a second time.
        """
        if activity.info().is_local:
            slow = self._gate.needs_time(call.request.tool for call in input.calls)
            if slow:
                return ValidateResult(verdicts={}, approvers=None, needs_time=slow)
        of = Circumstances(
            seen=input.seen,
            mode=input.mode,
            interactive=input.interactive,
            grants=input.grants,
            tainted=input.tainted,
            requester=input.requester,
            approval_seconds=input.approval_seconds,
            turn_id=activity.info().workflow_id or "",
            context=input.context,
        )
        verdicts = await beating(judge_all(self._gate, input.calls, of))
        if self._records:
            await self._records.keep(self._gate, list(verdicts.values()))
        return ValidateResult(
            verdicts=verdicts,
            catalogue=self._gate.catalogue,
            policy=self._gate.rules,
            hooks=self._gate.hooks.digest,
            mode=self._gate.permitted(input.mode),
            approvers=self._gate.approvers,
        )

    @activity.defn(name="holdfast.execute")
    async def execute(self, input: ExecuteInput) -> CallOutcome:
        """Run one call. A second attempt gives what the first did, goes on with it, or says that nobody knows."""
        info = activity.info()
        if info.workflow_type != WORKFLOW or info.workflow_id is None:
            raise ApplicationError("only a turn may execute calls", type="not_a_turn", non_retryable=True)
        key = EffectKey(turn=info.workflow_id, call=input.call_id, digest=input.bound.digest, run=input.run)
        outcome = await (self._stop(key, input) if input.stop else self._execute(key, input, info))
        await share_outputs(self._outputs, key.turn, outcome)
        if self._records and isinstance(outcome, Reconsider):
            await self._records.keep(self._gate, [outcome.verdict])
        return with_usable_change(outcome, input.bound, input.context, self._gate.workspace)

    async def _execute(self, key: EffectKey, input: ExecuteInput, info: activity.Info) -> CallOutcome:
        bound, untouched = input.bound, False
        first = info.attempt == 1 and not input.begun
        if not first:
            known = await self._known(key, input)
            if known is not None and not isinstance(known, str):
                return known
            untouched = known == "untouched"
        request = CallRequest(tool=bound.tool.name, arguments=dict(bound.arguments))
        of = Circumstances(
            seen=input.seen,
            mode=input.mode,
            interactive=input.interactive,
            grants=self._gate.admitted(input.grants, key.turn),
            tainted=input.tainted,
            requester=input.requester,
            turn_id=key.turn,
            call_id=input.call_id,
            context=input.context,
            phase="execute",
        )
        try:
            verdict, invocation = await beating(self._gate.judge(request, of))
        except asyncio.CancelledError:
            if told_to_stop():
                return Stopped(reason="It had not begun")
            raise unfinished("the attempt ended before anything had begun") from None
        allowed = isinstance(verdict, Allow) or (
            isinstance(verdict, Ask)
            and self._gate.approved(input, verdict, key.turn)
            and as_shown(bound, verdict.bound, input.wrote)
        )
        if not allowed or invocation is None or not isinstance(verdict, Allow | Ask):
            return Reconsider(verdict=verdict)
        with self._live.running(
            key.turn,
            input.call_id,
            workspace=self._gate.workspace,
            effect_key=key.id,
            pause=input.pause,
            asker=self._questions.of(key.turn, input) if self._questions else None,
            unasked=isinstance(verdict, Allow),
        ) as run:
            once, seconds = verdict.bound.tool.effect is Effect.ONCE, verdict.bound.timeout_seconds

            async def work() -> CallOutcome:
                outcome = await run_tool(invocation, run, seconds=seconds, outputs=self._outputs)
                if isinstance(outcome, Asks) and not input.interactive:
                    outcome = _nobody_to_ask(outcome)
                return await hear_after(self._gate.hooks, outcome, run, verdict.bound, of.mode, self._outputs)

            if not once:
                return await work()
            outcome = await self._once.run(
                key,
                invocation,
                run,
                lambda: begin_tool(invocation, run, seconds),
                work,
                tool=bound.tool.name,
                known_here=first or self._once.shared or bound.host == self._gate.host,
                first=first,
                untouched=untouched,
            )
            return _with_last_output(outcome, info.heartbeat_details)

    async def _stop(self, key: EffectKey, input: ExecuteInput) -> CallOutcome:
        """Begin nothing; end what an earlier attempt left at work on this host."""
        entry = await self._once.find(key)
        if found := outcome_of(entry):
            return found
        if entry is None:
            return Stopped(reason="It had not begun")
        request = CallRequest(tool=input.bound.tool.name, arguments=dict(input.bound.arguments))
        of = Circumstances(turn_id=key.turn, context=input.context)
        _, invocation = await beating(self._gate.judge(request, of))
        with self._live.running(key.turn, key.call, workspace=self._gate.workspace, effect_key=key.id) as run:
            if run.tool:
                run.tool.cancel()
            elif invocation is None or not await beating(invocation.stop(run)):
                return unknown(entry)
            assert invocation, "there is a tool at work"
            seconds = input.bound.timeout_seconds
            outcome = await run_tool(invocation, run, seconds=seconds, outputs=self._outputs)
            await self._once.keep(key, outcome, invocation, run)
            return outcome

    async def _known(self, key: EffectKey, input: ExecuteInput) -> CallOutcome | Left | None:
        """Of a second attempt: what became of the first, by the ledger or by the files as it would have left them."""
        bound = input.bound
        entry = await self._once.find(key)
        if found := outcome_of(entry):
            return found
        if not bound.leaves:
            return None
        left = await asyncio.to_thread(how_left, self._gate.workspace, bound, input.wrote)
        if left == "done":
            words = Result.of(f"{bound.title}: it was done before its worker was lost.")
            return Finished(result=words.model_copy(update={"seen": bound.leaves}))
        if left == "otherwise" and entry:
            return unknown(entry, " The files are neither as they were nor as it would have left them.")
        return left


def _nobody_to_ask(outcome: Asks) -> CallOutcome:
    message = f"The tool asks, and nobody is there to answer: {outcome.question.question or outcome.question.title}"
    return Failed(error=CallError(type="needs_a_person", message=message))


def _with_last_output(outcome: CallOutcome, heartbeats: Sequence[Any]) -> CallOutcome:
    """Of a call that nobody knows the end of: what the last heartbeat of an earlier attempt carried."""
    if not isinstance(outcome, Lost) or outcome.parts or not heartbeats:
        return outcome
    try:
        tail = LiveOutput.model_validate(heartbeats[0]).tail
    except ValidationError:
        return outcome
    return outcome.model_copy(update={"parts": (TextPart(text=tail),)}) if tail else outcome
