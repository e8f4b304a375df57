"""The two activities of a tool call: validate a batch, execute one call.

The executing activity is the gate: it runs nothing that its own worker's judgement or a decision bound to that very
digest does not cover, whatever its input claims (S22).

Why: docs/decisions/0005-approvals-are-bound-to-a-digest.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast.activities.execution.after_hooks import apply_after_hooks
from holdfast.activities.execution.ask_person import CheckAnswer, QuestionSender
from holdfast.activities.execution.context_changes import FileState, find_file_state, resolve_context_change
from holdfast.activities.execution.live_run import LiveRuns, is_stop_requested
from holdfast.activities.execution.once import EffectRunner, build_lost, build_unfinished, read_outcome
from holdfast.activities.execution.run_tool import run_tool, run_with_heartbeats, start_tool
from holdfast.activities.execution.share_outputs import share_outputs
from holdfast.activities.gate.approval_checks import is_as_shown
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.gate.records import RecordFolder
from holdfast.activities.ledger.entry import EffectKey, Spending
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.turn_beginnings import TurnStart, TurnStarts
from holdfast.domain.approvals.approval import Confirmation, Decision, QuestionAnswer
from holdfast.domain.approvals.signing import digest_decision
from holdfast.domain.calls.call import CallRequest, PendingQuestion
from holdfast.domain.calls.tool import DecisionNotice, Effect
from holdfast.domain.calls.verdicts import (
    Allow,
    Ask,
    ExecutionOutcome,
    Failed,
    Finished,
    Lost,
    NeedsApprovalAgain,
    QuestionRaised,
    Stopped,
)
from holdfast.domain.content import CallError, Result, TextPart
from holdfast.domain.turn.activity_io import ExecuteInput, LiveOutput, ValidateInput, ValidateResult
from holdfast.domain.turn.turn_io import TURN_WORKFLOW
from holdfast.errors import HoldfastError
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import exception_text

JUDGING_ATTEMPTS = 5
"""After so many, what breaks in validation counts as broken for good; a worker that is lost never does."""


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
        """`questions` asks people what tools ask in the middle of their run; without it nobody is asked.

        `records` keeps what verdicts are given by. `turn_starts` has what turns were started with; without it the
        input of a call is believed in that.
        """
        self._turn_starts = turn_starts
        self._questions = questions
        self._records = records
        self._gate = gate
        self._effect_runner = effect_runner
        self._outputs = outputs
        self._live = live

    @activity.defn(name="holdfast.validate")
    async def validate(self, input: ValidateInput) -> ValidateResult:
        """One verdict per call. A second attempt judges anew and changes nothing.

        As a local activity it judges nothing that may take long, and says so: nobody is heard while one runs, and one
        that is given up asks every hook a second time.
        """
        if activity.info().is_local:
            slow = self._gate.find_slow_part(call.request.tool for call in input.calls)
            if slow:
                return ValidateResult(verdicts={}, approvers=None, needs_time=slow)
        call_context = CallContext(**dict(input), turn_id=activity.info().workflow_id or "")
        try:
            verdicts = await run_with_heartbeats(self._gate.judge_batch(input.calls, call_context))
        except Exception as error:
            if activity.info().attempt < JUDGING_ATTEMPTS:
                raise
            raise ApplicationError(exception_text(error), type=type(error).__name__, non_retryable=True) from error
        if self._records:
            await self._records.record_verdicts(self._gate, list(verdicts.values()))
        return ValidateResult(
            verdicts=verdicts,
            catalogue=self._gate.catalogue_digest,
            policy=self._gate.rules_digest,
            hooks=self._gate.hooks.digest,
            mode=self._gate.limit_mode(input.mode),
            approvers=self._gate.approvers,
            unknown_tools=() if input.calls else await self._gate.find_unknown_tools(input.tools or ()),
        )

    @activity.defn(name="holdfast.execute")
    async def execute(self, input: ExecuteInput) -> ExecutionOutcome:
        """Run one call. A second attempt gives what the first did, goes on with it, or says that nobody knows."""
        info = activity.info()
        if info.workflow_type != TURN_WORKFLOW or info.workflow_id is None:
            raise ApplicationError("only a turn may execute calls", type="not_a_turn", non_retryable=True)
        if "/" in input.call_id:  # with its turn's it would be the name of a call of another turn
            raise ApplicationError("a call's id has no slash", type="not_a_call", non_retryable=True)
        key = EffectKey(
            turn=info.workflow_id,
            call=input.call_id,
            digest=input.bound.digest,
            run=input.run,
            approval=digest_canonical(sorted(map(digest_decision, input.approvals))) if input.approvals else "",
        )
        outcome = await (self._stop_call(key, input) if input.stop else self._execute_call(key, input, info))
        await share_outputs(self._outputs, key.turn, outcome)
        if self._records and isinstance(outcome, NeedsApprovalAgain):
            await self._records.record_verdicts(self._gate, [outcome.verdict])
        return resolve_context_change(outcome, input.bound, input.context, self._gate.workspace)

    async def _execute_call(self, key: EffectKey, input: ExecuteInput, info: activity.Info) -> ExecutionOutcome:
        bound, untouched = input.bound, False
        first = info.attempt == 1 and not input.begun
        if not first:
            known = await self._find_known_outcome(key, input)
            if known is not None and not isinstance(known, str):
                return known
            untouched = known == "untouched"
        request = CallRequest(tool=bound.tool.name, arguments=dict(bound.arguments))
        try:
            started = await self._find_turn_start(input, info)
            facts = {**dict(input), "grants": self._gate.select_valid_grants(input.grants, key.turn), **dict(started)}
            call_context = CallContext(**facts, turn_id=key.turn, phase="execute")
            verdict, invocation, retries = await run_with_heartbeats(self._gate.judge(request, call_context))
        except asyncio.CancelledError:
            if is_stop_requested():
                return Stopped(reason="It had not begun")
            raise build_unfinished("the attempt ended before anything had begun") from None
        allowed = isinstance(verdict, Allow) or (
            isinstance(verdict, Ask)
            and self._gate.is_approved(input, verdict, key.turn)
            and is_as_shown(bound, verdict.bound, input.wrote)
        )
        if not allowed or invocation is None or not isinstance(verdict, Allow | Ask):
            return NeedsApprovalAgain(verdict=verdict)
        executed = _Execution(input, info.workflow_run_id or "", verdict)
        if refused := await self._find_refusal(executed, key, first=first):
            return refused
        with self._live.track_run(
            key.turn,
            input.call_id,
            workspace=self._gate.workspace,
            effect_key=key.id,
            pause=executed.pause,
            asker=self._questions.build_asker(key.turn, input, self._build_answer_check(executed, key))
            if self._questions
            else None,
            is_unasked=isinstance(verdict, Allow),
        ) as run:
            once, seconds = verdict.bound.tool.effect is Effect.ONCE, verdict.bound.timeout_seconds

            async def run_invocation() -> ExecutionOutcome:
                start_tool(invocation, run, seconds, retries, executed.notice)
                outcome = await run_tool(invocation, run, seconds=seconds, outputs=self._outputs)
                if isinstance(outcome, QuestionRaised) and not input.interactive:
                    outcome = _build_nobody_to_ask(outcome)
                return await apply_after_hooks(
                    self._gate.hooks, outcome, run, verdict.bound, call_context.mode, self._outputs
                )

            if not once:
                return await run_invocation()
            outcome = await self._effect_runner.run(
                key,
                invocation,
                run,
                lambda: start_tool(invocation, run, seconds, notice=executed.notice),
                run_invocation,
                tool=bound.tool.name,
                known_here=first or self._effect_runner.is_shared or bound.host == self._gate.host_queue,
                first=first,
                untouched=untouched,
            )
            return _add_last_output(outcome, info.heartbeat_details)

    async def _find_refusal(self, executed: _Execution, key: EffectKey, *, first: bool) -> ExecutionOutcome | None:
        """Why what people said does not let this execution run, though it covers the call; None when it does.

        An answer must be a person's, and every decision is for one execution: that is recorded before it runs.
        """
        pause, verdict = executed.pause, executed.verdict
        if pause and not self._is_answered(executed, key):
            return executed.ask_again("The answer that the turn gives is not what a person said to this question.")
        spent = await self._effect_runner.record_spendings(executed.list_spendings(), first=first)
        if not isinstance(spent, Spending):
            return spent
        when = f"{spent.spent_at:%Y-%m-%d %H:%M:%S} UTC" if spent.spent_at else "an earlier time"
        if (
            pause
            and pause.answer
            and pause.answer.decision
            and spent.decision == digest_decision(pause.answer.decision)
        ):
            return executed.ask_again(f"The answer let another execution go on, at {when}: it counts once.")
        words = f"Its approval let another execution run, at {when}, and counts once: decide again."
        assert isinstance(verdict, Ask), "only what was asked about is let run by decisions"
        shown = verdict.confirmation
        reason = f"{words} {shown.reason}" if shown.reason else words
        return NeedsApprovalAgain(
            verdict=verdict.model_copy(update={"confirmation": shown.model_copy(update={"reason": reason})})
        )

    async def _find_turn_start(self, input: ExecuteInput, info: activity.Info) -> TurnStart:
        """What the turn was started with: by the server, which the input cannot contradict."""
        found = None
        if self._turn_starts and info.workflow_id and info.workflow_run_id:
            try:
                found = await run_with_heartbeats(self._turn_starts.find(info.workflow_id, info.workflow_run_id))
            except RPCError as error:
                raise build_unfinished(f"the server did not say how the turn was started: {error.message}") from error
            except HoldfastError as error:
                raise build_unfinished(f"nobody can tell now how the turn was started: {error}") from error
        return found or TurnStart(tools=input.tools, confirm=input.confirm)

    def _is_answered(self, executed: _Execution, key: EffectKey) -> bool:
        """Did a person give the answer that a call goes on with?"""
        pause = executed.pause
        if pause is None or pause.answer is None:
            return False
        question = pause.question or Confirmation(kind="question", title="")
        return self._gate.is_valid_answer(
            pause.answer, question, pause.state, executed.verdict.bound, key.turn, key.call
        )

    def _build_answer_check(self, executed: _Execution, key: EffectKey) -> CheckAnswer:
        """Checks an answer to a tool that waits where it runs, which asks each question once."""

        async def check_answer(answer: QuestionAnswer, question: Confirmation) -> bool:
            if not self._gate.is_valid_answer(answer, question, None, executed.verdict.bound, key.turn, key.call):
                return False
            said = [answer.decision] if answer.decision else []
            spendings = [executed.build_spending(decision, f"{key.run}/{uuid4().hex}") for decision in said]
            return await self._effect_runner.record_spendings(spendings, with_heartbeats=False) is None

        return check_answer

    async def _stop_call(self, key: EffectKey, input: ExecuteInput) -> ExecutionOutcome:
        """Begin nothing; end what an earlier attempt left at work on this host."""
        entry = await self._effect_runner.find(key)
        if found := read_outcome(entry):
            return found
        if entry is None:
            return Stopped(reason="It had not begun")
        request = CallRequest(tool=input.bound.tool.name, arguments=dict(input.bound.arguments))
        call_context = CallContext(turn_id=key.turn, context=input.context)
        invocation = (await run_with_heartbeats(self._gate.judge(request, call_context))).invocation
        with self._live.track_run(key.turn, key.call, workspace=self._gate.workspace, effect_key=key.id) as run:
            if run.tool:
                run.tool.cancel()
            elif invocation is None or not await run_with_heartbeats(invocation.stop(run)):
                return build_lost(entry)
            assert invocation, "there is a tool at work"
            seconds = input.bound.timeout_seconds
            outcome = await run_tool(invocation, run, seconds=seconds, outputs=self._outputs)
            await self._effect_runner.record_outcome(key, outcome, invocation, run)
            return outcome

    async def _find_known_outcome(self, key: EffectKey, input: ExecuteInput) -> ExecutionOutcome | FileState | None:
        """Of a second attempt: what became of the first, by the ledger or by the files as it would have left them."""
        bound = input.bound
        entry = await self._effect_runner.find(key)
        if found := read_outcome(entry):
            return found
        if not bound.leaves:
            return None
        left = await asyncio.to_thread(find_file_state, self._gate.workspace, bound, input.wrote)
        if left == "done":
            words = Result.from_text(f"{bound.title}: it was done before its worker was lost.")
            return Finished(result=words.model_copy(update={"seen": bound.leaves}))
        if left == "otherwise" and entry:
            return build_lost(entry, " The files are neither as they were nor as it would have left them.")
        return left


class _Execution(NamedTuple):
    """One execution of a call, and what people said that lets it run."""

    input: ExecuteInput
    workflow_run: str
    """The id that the server gave to this run of the turn: nobody chooses it."""
    verdict: Allow | Ask

    @property
    def pause(self) -> PendingQuestion | None:
        """Where the call goes on from; None when it begins. A tool that waits where it runs goes on by itself."""
        return self.input.pause if self.input.pause and not self.input.pause.held else None

    @property
    def notice(self) -> DecisionNotice | None:
        """What the tool is told of the last decision that lets it run; None when nobody was asked."""
        decision = self.input.approvals[-1] if isinstance(self.verdict, Ask) and self.input.approvals else None
        if decision is None:
            return None
        changed = decision.has_changes or self.input.shown is not None
        return DecisionNotice(action=decision.outcome.value, by=decision.by, note=decision.note, changed=changed)

    def build_spending(self, decision: Decision, run: int | str) -> Spending:
        """A decision, spent for this execution."""
        execution = f"{self.workflow_run}/{self.input.call_id}/{run}"
        return Spending(decision=digest_decision(decision), execution=execution, expires=decision.expires)

    def list_spendings(self) -> list[Spending]:
        """What it needs: the approvals, for the run that they are of, and the answer that it goes on with."""
        pause, run = self.pause, self.input.run
        needed = self.input.approvals if isinstance(self.verdict, Ask) else ()
        found = [self.build_spending(decision, pause.run if pause else run) for decision in needed]
        answer = pause.answer.decision if pause and pause.answer else None
        return list(dict.fromkeys([*found, self.build_spending(answer, run)] if answer else found))

    def ask_again(self, why: str) -> ExecutionOutcome:
        """Put its question to a person again; an error where the turn does not say what that was."""
        pause = self.pause
        if pause and pause.question and self.input.bound.digest == self.verdict.bound.digest:
            return QuestionRaised(question=pause.question, state=pause.state)
        return Failed(error=CallError(type="not_answered", message=f"The call was not run. {why}"))


def _build_nobody_to_ask(outcome: QuestionRaised) -> ExecutionOutcome:
    message = f"The tool asks, and nobody is there to answer: {outcome.question.question or outcome.question.title}"
    return Failed(error=CallError(type="needs_a_person", message=message))


def _add_last_output(outcome: ExecutionOutcome, heartbeats: Sequence[Any]) -> ExecutionOutcome:
    """Of a call that nobody knows the end of: what the last heartbeat of an earlier attempt carried."""
    if not isinstance(outcome, Lost) or outcome.parts or not heartbeats:
        return outcome
    try:
        tail = LiveOutput.model_validate(heartbeats[0]).tail
    except ValidationError:
        return outcome
    return outcome.model_copy(update={"parts": (TextPart(text=tail),)}) if tail else outcome
