"""The two activities of a tool call: validate a batch, execute one call.

The executing activity is the gate: it runs nothing that its own worker's judgement or a decision bound to that very
digest does not cover, whatever its input claims (S22).
"""

from __future__ import annotations

import asyncio

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.gate import Circumstances, Gate, as_shown, covers
from holdfast.activities.live import LiveRuns
from holdfast.activities.outputs import OutputStore
from holdfast.activities.running import BEAT_SECONDS, run_tool
from holdfast.calls import CallRequest
from holdfast.tools import Effect
from holdfast.turns import WORKFLOW, ExecuteInput, ValidateInput, ValidateResult
from holdfast.verdicts import Allow, Ask, CallOutcome, Lost, Reconsider


class ToolActivities:
    """Validate and execute, with one worker's gate."""

    def __init__(self, gate: Gate, outputs: OutputStore, live: LiveRuns) -> None:
        self._gate = gate
        self._outputs = outputs
        self._live = live

    @activity.defn(name="holdfast.validate")
    async def validate(self, input: ValidateInput) -> ValidateResult:
        """One verdict per call. A second attempt judges anew and changes nothing."""
        of = Circumstances(seen=input.seen, mode=input.mode, interactive=input.interactive)
        judging = asyncio.gather(*(self._gate.judge(call.request, of) for call in input.calls))
        while not judging.done():
            await asyncio.wait({judging}, timeout=BEAT_SECONDS)
            if not activity.info().is_local:
                activity.heartbeat()
        judgements = judging.result()
        return ValidateResult(
            verdicts={call.id: judged.verdict for call, judged in zip(input.calls, judgements, strict=True)},
            catalogue=self._gate.catalogue,
            policy=self._gate.rules,
        )

    @activity.defn(name="holdfast.execute")
    async def execute(self, input: ExecuteInput) -> CallOutcome:
        """Run one call. A second attempt repeats it if it may be repeated, and otherwise says that nobody knows."""
        info = activity.info()
        if info.workflow_type != WORKFLOW or info.workflow_id is None:
            raise ApplicationError("only a turn may execute calls", type="not_a_turn", non_retryable=True)
        bound = input.bound
        request = CallRequest(tool=bound.tool.name, arguments=dict(bound.arguments))
        of = Circumstances(seen=input.seen, mode=input.mode, interactive=input.interactive)
        verdict, invocation = await self._gate.judge(request, of)
        allowed = isinstance(verdict, Allow) or (
            isinstance(verdict, Ask)
            and covers(input.decision, verdict, turn_id=info.workflow_id, call_id=input.call_id)
            and as_shown(bound, verdict.bound, input.seen)
        )
        if not allowed or invocation is None or not isinstance(verdict, Allow | Ask):
            return Reconsider(verdict=verdict)
        repeatable = verdict.bound.tool.effect is not Effect.ONCE
        if info.attempt > 1 and not repeatable:
            return Lost(message="an earlier attempt was lost; the call was not run again")
        with self._live.running(info.workflow_id, input.call_id, workspace=self._gate.workspace) as run:
            return await run_tool(
                invocation,
                run,
                seconds=verdict.bound.timeout_seconds,
                repeatable=repeatable,
                outputs=self._outputs,
            )
