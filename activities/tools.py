"""The two activities of a tool call: validate a batch, execute one call.

The executing activity is the gate: it runs nothing that its own worker's judgement or a decision bound to that very
digest does not cover, whatever its input claims (S22).
"""

from __future__ import annotations

import asyncio

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.allotting import judge_all
from holdfast.activities.covering import as_shown
from holdfast.activities.gate import Gate
from holdfast.activities.hooking import hear_after
from holdfast.activities.live import LiveRuns
from holdfast.activities.outputs import OutputStore
from holdfast.activities.ruling import Circumstances
from holdfast.activities.running import beating, run_tool
from holdfast.calls import CallRequest
from holdfast.tools import Effect
from holdfast.turns import WORKFLOW, ExecuteInput, ValidateInput, ValidateResult
from holdfast.verdicts import Allow, Ask, CallOutcome, Lost, Reconsider, Stopped


class ToolActivities:
    """Validate and execute, with one worker's gate."""

    def __init__(self, gate: Gate, outputs: OutputStore, live: LiveRuns) -> None:
        self._gate = gate
        self._outputs = outputs
        self._live = live

    @activity.defn(name="holdfast.validate")
    async def validate(self, input: ValidateInput) -> ValidateResult:
        """One verdict per call. A second attempt judges anew and changes nothing."""
        of = Circumstances(
            seen=input.seen,
            mode=input.mode,
            interactive=input.interactive,
            grants=input.grants,
            tainted=input.tainted,
            requester=input.requester,
            approval_seconds=input.approval_seconds,
            turn_id=activity.info().workflow_id or "",
        )
        return ValidateResult(
            verdicts=await beating(judge_all(self._gate, input.calls, of)),
            catalogue=self._gate.catalogue,
            policy=self._gate.rules,
            hooks=self._gate.hooks.digest,
            mode=self._gate.permitted(input.mode),
            approvers=self._gate.approvers,
        )

    @activity.defn(name="holdfast.execute")
    async def execute(self, input: ExecuteInput) -> CallOutcome:
        """Run one call. A second attempt repeats it if it may be repeated, and otherwise says that nobody knows."""
        info = activity.info()
        if info.workflow_type != WORKFLOW or info.workflow_id is None:
            raise ApplicationError("only a turn may execute calls", type="not_a_turn", non_retryable=True)
        bound = input.bound
        request = CallRequest(tool=bound.tool.name, arguments=dict(bound.arguments))
        of = Circumstances(
            seen=input.seen,
            mode=input.mode,
            interactive=input.interactive,
            grants=self._gate.admitted(input.grants, info.workflow_id),
            tainted=input.tainted,
            requester=input.requester,
            turn_id=info.workflow_id,
            call_id=input.call_id,
            phase="execute",
        )
        try:
            verdict, invocation = await beating(self._gate.judge(request, of))
        except asyncio.CancelledError:
            return Stopped(reason="It had not begun")
        allowed = isinstance(verdict, Allow) or (
            isinstance(verdict, Ask)
            and self._gate.approved(input, verdict, info.workflow_id)
            and as_shown(bound, verdict.bound, input.wrote)
        )
        if not allowed or invocation is None or not isinstance(verdict, Allow | Ask):
            return Reconsider(verdict=verdict)
        repeatable = verdict.bound.tool.effect is not Effect.ONCE
        if info.attempt > 1 and not repeatable:
            return Lost(message="an earlier attempt was lost; the call was not run again")
        with self._live.running(info.workflow_id, input.call_id, workspace=self._gate.workspace) as run:
            outcome = await run_tool(
                invocation,
                run,
                seconds=verdict.bound.timeout_seconds,
                repeatable=repeatable,
                outputs=self._outputs,
            )
            return await hear_after(self._gate.hooks, outcome, run, verdict.bound, of.mode, self._outputs)
