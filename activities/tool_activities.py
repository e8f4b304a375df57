"""The two activities of a tool call: validate a batch, execute one call."""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.call_executor import CallExecutor
from holdfast.activities.execution.ask_person import QuestionSender
from holdfast.activities.execution.effect_runner import EffectRunner
from holdfast.activities.execution.finish_call import resolve_context_change, share_outputs
from holdfast.activities.execution.live_run import LiveRuns
from holdfast.activities.execution.run_tool import run_with_heartbeats
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.gate.records import RecordFolder
from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.quick_reads import QuickReads
from holdfast.activities.turn_starts import TurnStarts
from holdfast.domain.approvals.signing import digest_decision
from holdfast.domain.calls.verdicts import ExecutionOutcome, NeedsApprovalAgain
from holdfast.domain.turn.activity_io import ExecuteInput, ValidateInput, ValidateResult
from holdfast.names import EXECUTE_ACTIVITY, TURN_WORKFLOW, VALIDATE_ACTIVITY
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import exception_text

JUDGING_ATTEMPTS = 5
"""Attempts after which an error in validation fails the activity for good. The loss of a worker never does."""


class ToolActivities:
    """Validate and execute, with one worker's gate."""

    def __init__(
        self,
        gate: Gate,
        outputs: OutputStore,
        live: LiveRuns,
        effect_runner: EffectRunner,
        questions: QuestionSender | None = None,
        records: RecordFolder | None = None,
        turn_starts: TurnStarts | None = None,
    ) -> None:
        """`records` stores the texts that verdicts are based on; see `CallExecutor` for the rest."""
        self._gate = gate
        self._outputs = outputs
        self._records = records
        self._executor = CallExecutor(gate, outputs, live, effect_runner, questions, turn_starts)
        self._quick_reads = QuickReads(outputs, live, gate.workspace)

    @activity.defn(name=VALIDATE_ACTIVITY)
    async def validate(self, input: ValidateInput) -> ValidateResult:
        """Judge the calls of a batch: one verdict per call. A second attempt judges anew and changes nothing.

        As a local activity it judges no batch that may take long, and names the reason in `needs_time`: the workflow
        task is open meanwhile, so that the turn hears nobody, and a timeout would ask every hook a second time.
        It runs what merely reads at once, where the input says so.
        """
        if activity.info().is_local:
            slow = self._gate.find_slow_part(call.request.tool for call in input.calls)
            if slow:
                return ValidateResult(verdicts={}, approvers=None, needs_time=slow)
        context = CallContext(**dict(input), turn_id=activity.info().workflow_id or "")
        try:
            judgements = await run_with_heartbeats(self._gate.judge_batch(input.calls, context))
        except Exception as error:
            if activity.info().attempt < JUDGING_ATTEMPTS:
                raise
            raise ApplicationError(exception_text(error), type=type(error).__name__, non_retryable=True) from error
        verdicts = {id: judgement.verdict for id, judgement in judgements.items()}
        if self._records:
            await self._records.record_verdicts(self._gate, list(verdicts.values()))
        run_now = input.run_reads and activity.info().is_local and len(judgements) == len(input.calls)
        return ValidateResult(
            verdicts=verdicts,
            outcomes=await self._quick_reads.run(context.turn_id, judgements, input.context) if run_now else {},
            catalogue=self._gate.catalogue_digest,
            policy=self._gate.rules_digest,
            hooks=self._gate.hooks.digest,
            mode=self._gate.limit_mode(input.mode),
            approvers=self._gate.approvers,
            unknown_tools=() if input.calls else await self._gate.find_unknown_tools(input.tools or ()),
        )

    @activity.defn(name=EXECUTE_ACTIVITY)
    async def execute(self, input: ExecuteInput) -> ExecutionOutcome:
        """Run one call, or stop it. A second attempt returns the outcome of the first, goes on with it, or says that
        its outcome is unknown; see `CallExecutor`.
        """
        info = activity.info()
        if info.workflow_type != TURN_WORKFLOW or info.workflow_id is None:
            raise ApplicationError("only a turn may execute calls", type="not_a_turn", non_retryable=True)
        if "/" in input.call_id:  # behind the id of its turn it would be the name of a call of another turn
            raise ApplicationError("a call's id has no slash", type="not_a_call", non_retryable=True)
        key = EffectKey(
            turn=info.workflow_id,
            call=input.call_id,
            digest=input.bound.digest,
            run=input.run,
            approval=digest_canonical(sorted(map(digest_decision, input.approvals))) if input.approvals else "",
        )
        outcome = await (self._executor.stop(input, key) if input.stop else self._executor.execute(input, key, info))
        await share_outputs(self._outputs, key.turn, outcome)
        if self._records and isinstance(outcome, NeedsApprovalAgain):
            await self._records.record_verdicts(self._gate, [outcome.verdict])
        return resolve_context_change(outcome, input.bound, input.context, self._gate.workspace)
