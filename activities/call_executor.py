"""Executing one call: it is judged once more, its decisions are spent, and its tool runs as its effect allows.

Nothing runs that this worker's own judgement, or a decision for exactly this call, does not cover, whatever the input
of the activity claims (S22). What must not run twice does not (S31).

Why: docs/decisions/0005-approvals-are-bound-to-a-digest.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from pydantic import ValidationError
from temporalio import activity
from temporalio.service import RPCError

from holdfast.activities.execution.ask_person import CheckAnswer, QuestionSender
from holdfast.activities.execution.effect_runner import EarlierAttempt, EffectRunner, build_lost, read_outcome
from holdfast.activities.execution.finish_call import apply_after_hooks
from holdfast.activities.execution.live_run import LiveRuns, is_stop_requested
from holdfast.activities.execution.run_tool import build_unfinished, run_tool, run_with_heartbeats, start_tool
from holdfast.activities.gate.approval_checks import is_as_shown
from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.prepare_call import CallContext
from holdfast.activities.ledger.ledger import EffectKey, Spending
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.turn_starts import TurnStart, TurnStarts
from holdfast.domain.approvals.approval import Confirmation, Decision, QuestionAnswer
from holdfast.domain.approvals.signing import digest_decision
from holdfast.domain.calls.call import CallRequest, PendingQuestion
from holdfast.domain.calls.tool import DecisionNotice, Effect, Invocation, Retries
from holdfast.domain.calls.verdicts import (
    Allow,
    Ask,
    ExecutionOutcome,
    Failed,
    Lost,
    NeedsApprovalAgain,
    QuestionRaised,
    Stopped,
    Verdict,
)
from holdfast.domain.content import CallError, TextPart
from holdfast.domain.turn.activity_io import ExecuteInput, LiveOutput
from holdfast.errors import HoldfastError


class CallExecutor:
    """Executes and stops the calls of one worker."""

    def __init__(
        self,
        gate: Gate,
        outputs: OutputStore,
        live: LiveRuns,
        effect_runner: EffectRunner,
        questions: QuestionSender | None = None,
        turn_starts: TurnStarts | None = None,
    ) -> None:
        """Without `questions` no tool can ask a person; without `turn_starts` the input says how its turn began."""
        self._gate = gate
        self._outputs = outputs
        self._live = live
        self._effect_runner = effect_runner
        self._questions = questions
        self._turn_starts = turn_starts

    async def execute(self, input: ExecuteInput, key: EffectKey, info: activity.Info) -> ExecutionOutcome:
        """Run a call. A second attempt returns the outcome of the first, goes on with it, or says that it is lost.

        Raises ApplicationError of type `unfinished` where a later attempt may tell more than this one.
        """
        first, earlier = info.attempt == 1 and not input.begun, EarlierAttempt()
        if not first:
            earlier = await self._effect_runner.find_earlier_attempt(
                key, input.bound, self._gate.workspace, input.wrote
            )
        if earlier.outcome:
            return earlier.outcome
        try:
            context = await self._build_context(input, key, info)
            verdict, invocation, retries = await run_with_heartbeats(self._gate.judge(_build_request(input), context))
        except asyncio.CancelledError:
            if is_stop_requested():
                return Stopped(reason="It had not begun")
            raise build_unfinished("the attempt ended before anything had begun") from None
        if invocation is None or not isinstance(verdict, Allow | Ask) or not self._is_covered(input, verdict, key):
            return NeedsApprovalAgain(verdict=verdict)
        execution = _Execution(input, key, info.workflow_run_id or "", first, verdict, invocation, retries)
        if refusal := await self._find_refusal(execution):
            return refusal
        return await self._run(execution, earlier, info.heartbeat_details)

    async def stop(self, input: ExecuteInput, key: EffectKey) -> ExecutionOutcome:
        """Begin nothing; stop what an earlier attempt left running on this host, and say what became of it."""
        entry = await self._effect_runner.find(key)
        if found := read_outcome(entry):
            return found
        if entry is None:
            return Stopped(reason="It had not begun")
        context = CallContext(turn_id=key.turn, context=input.context)
        invocation = (await run_with_heartbeats(self._gate.judge(_build_request(input), context))).invocation
        with self._live.track_run(key.turn, key.call, workspace=self._gate.workspace, effect_key=key.id) as run:
            if run.tool:
                run.tool.cancel()
            elif invocation is None or not await run_with_heartbeats(invocation.stop(run)):
                return build_lost(entry)
            assert invocation, "its tool runs"
            outcome = await run_tool(invocation, run, seconds=input.bound.timeout_seconds, outputs=self._outputs)
            await self._effect_runner.record_outcome(key, outcome, invocation, run)
            return outcome

    async def _build_context(self, input: ExecuteInput, key: EffectKey, info: activity.Info) -> CallContext:
        """Build the facts that the call is judged by; the input is believed only where it may state them."""
        started = await self._find_turn_start(input, info)
        grants = self._gate.select_valid_grants(input.grants, key.turn)
        return CallContext(**{**dict(input), "grants": grants, **dict(started)}, turn_id=key.turn, phase="execute")

    async def _find_turn_start(self, input: ExecuteInput, info: activity.Info) -> TurnStart:
        """Find how the turn was started, as the server recorded it: the input cannot contradict that."""
        found = None
        if self._turn_starts and info.workflow_id and info.workflow_run_id:
            try:
                found = await run_with_heartbeats(self._turn_starts.find(info.workflow_id, info.workflow_run_id))
            except RPCError as error:
                raise build_unfinished(f"the server did not return the start of the turn: {error.message}") from error
            except HoldfastError as error:
                raise build_unfinished(f"the start of the turn cannot be read now: {error}") from error
        return found or TurnStart(tools=input.tools, confirm=input.confirm)

    def _is_covered(self, input: ExecuteInput, verdict: Verdict, key: EffectKey) -> bool:
        """May the call run: by this worker's judgement, or by decisions on exactly what it would run now?"""
        if isinstance(verdict, Ask):
            approved = self._gate.is_approved(input, verdict, key.turn)
            return approved and is_as_shown(input.bound, verdict.bound, input.wrote)
        return isinstance(verdict, Allow)

    async def _find_refusal(self, execution: _Execution) -> ExecutionOutcome | None:
        """Explain why decisions that cover the call do not let this execution run; None when they do.

        An answer must be a person's, and every decision is for one execution: that is recorded before it runs.
        """
        if execution.pause and not self._is_answered(execution, execution.pause):
            return execution.ask_again(
                "The answer in the turn's input is not the one that a person gave to this question."
            )
        spent = await self._effect_runner.record_spendings(execution.list_spendings(), first=execution.first)
        return execution.explain_spent(spent) if isinstance(spent, Spending) else spent

    def _is_answered(self, execution: _Execution, pause: PendingQuestion) -> bool:
        """Did a person give the answer that a call goes on with?"""
        question = pause.question or Confirmation(kind="question", title="")
        return pause.answer is not None and self._is_valid_answer(execution, pause.answer, question, pause.state)

    def _is_valid_answer(
        self, execution: _Execution, answer: QuestionAnswer, question: Confirmation, state: Any = None
    ) -> bool:
        key = execution.key
        return self._gate.is_valid_answer(answer, question, state, execution.verdict.bound, key.turn, key.call)

    def _build_answer_check(self, execution: _Execution) -> CheckAnswer:
        """The check of an answer to a tool that waits where it runs, which asks each question once."""

        async def check_answer(answer: QuestionAnswer, question: Confirmation) -> bool:
            if not self._is_valid_answer(execution, answer, question):
                return False
            given = [answer.decision] if answer.decision else []
            spendings = [execution.build_spending(decision, f"{execution.key.run}/{uuid4().hex}") for decision in given]
            return await self._effect_runner.record_spendings(spendings, with_heartbeats=False) is None

        return check_answer

    async def _run(self, execution: _Execution, earlier: EarlierAttempt, heartbeats: Sequence[Any]) -> ExecutionOutcome:
        """Run the tool; one that must not run twice through the ledger."""
        input, key, bound = execution.input, execution.key, execution.verdict.bound
        asker = None
        if self._questions and input.interactive and input.bound.tool.traits.asks:
            asker = self._questions.build_asker(key.turn, input, self._build_answer_check(execution))
        with self._live.track_run(
            key.turn,
            key.call,
            workspace=self._gate.workspace,
            effect_key=key.id,
            pause=execution.pause,
            asker=asker,
            is_unasked=isinstance(execution.verdict, Allow),
        ) as run:
            invocation, seconds = execution.invocation, bound.timeout_seconds

            async def run_invocation() -> ExecutionOutcome:
                start_tool(invocation, run, seconds, execution.retries, execution.notice)
                outcome = await run_tool(invocation, run, seconds=seconds, outputs=self._outputs)
                if isinstance(outcome, QuestionRaised) and not input.interactive:
                    outcome = _build_nobody_to_ask(outcome)
                return await apply_after_hooks(self._gate.hooks, outcome, run, bound, input.mode, self._outputs)

            if bound.tool.effect is not Effect.ONCE:
                return await run_invocation()
            here = self._effect_runner.is_shared or input.bound.host == self._gate.host_queue
            outcome = await self._effect_runner.run(
                key,
                invocation,
                run,
                lambda: start_tool(invocation, run, seconds, notice=execution.notice),
                run_invocation,
                tool=bound.tool.name,
                known_here=execution.first or here,
                first=execution.first,
                untouched=earlier.untouched,
            )
            return _add_last_output(outcome, heartbeats)


class _Execution(NamedTuple):
    """One execution of a call, with the decisions that let it run."""

    input: ExecuteInput
    key: EffectKey
    workflow_run: str
    """The run id of the turn, which the server chose."""
    first: bool
    """There was no attempt before this one."""
    verdict: Allow | Ask
    invocation: Invocation
    retries: Retries | None

    @property
    def pause(self) -> PendingQuestion | None:
        """The pause that the call continues from; None when it begins. A tool that waits where it runs goes on by
        itself.
        """
        return self.input.pause if self.input.pause and not self.input.pause.held else None

    @property
    def notice(self) -> DecisionNotice | None:
        """The notice to the tool about the last decision that lets it run; None when nobody was asked."""
        decision = self.input.approvals[-1] if isinstance(self.verdict, Ask) and self.input.approvals else None
        if decision is None:
            return None
        changed = decision.has_changes or self.input.shown is not None
        return DecisionNotice(
            action=decision.outcome.value,
            by=decision.by,
            note=decision.note,
            changed=changed,
            arguments=self.verdict.bound.arguments,
        )

    def build_spending(self, decision: Decision, run: int | str) -> Spending:
        """A decision, spent for this execution."""
        execution = f"{self.workflow_run}/{self.input.call_id}/{run}"
        return Spending(decision=digest_decision(decision), execution=execution, expires=decision.expires)

    def list_spendings(self) -> list[Spending]:
        """List the decisions that it uses: the approvals of their run, and the answer that it continues with."""
        pause, run = self.pause, self.input.run
        needed = self.input.approvals if isinstance(self.verdict, Ask) else ()
        found = [self.build_spending(decision, pause.run if pause else run) for decision in needed]
        answer = pause.answer.decision if pause and pause.answer else None
        return list(dict.fromkeys([*found, self.build_spending(answer, run)] if answer else found))

    def explain_spent(self, spent: Spending) -> ExecutionOutcome:
        """Build the outcome when another execution has used one of these decisions: the person is asked again."""
        when = f"{spent.spent_at:%Y-%m-%d %H:%M:%S} UTC" if spent.spent_at else "an earlier time"
        answer = self.pause.answer.decision if self.pause and self.pause.answer else None
        if answer and spent.decision == digest_decision(answer):
            return self.ask_again(f"The answer was used by another execution, at {when}, and counts once.")
        words = f"Its approval let another execution run, at {when}, and counts once: decide again."
        assert isinstance(self.verdict, Ask), "decisions are needed only for calls that were asked about"
        shown = self.verdict.confirmation
        reason = f"{words} {shown.reason}" if shown.reason else words
        asked = shown.model_copy(update={"reason": reason})
        return NeedsApprovalAgain(verdict=self.verdict.model_copy(update={"confirmation": asked}))

    def ask_again(self, why: str) -> ExecutionOutcome:
        """Ask its question again; an error where the input does not contain the question."""
        pause = self.pause
        if pause and pause.question and self.input.bound.digest == self.verdict.bound.digest:
            return QuestionRaised(question=pause.question, state=pause.state)
        return Failed(error=CallError(type="not_answered", message=f"The call was not run. {why}"))


def _build_request(input: ExecuteInput) -> CallRequest:
    return CallRequest(tool=input.bound.tool.name, arguments=dict(input.bound.arguments))


def _build_nobody_to_ask(outcome: QuestionRaised) -> ExecutionOutcome:
    question = outcome.question.question or outcome.question.title
    message = f"The tool asks a question that nobody can answer in this turn: {question}"
    return Failed(error=CallError(type="needs_a_person", message=message))


def _add_last_output(outcome: ExecutionOutcome, heartbeats: Sequence[Any]) -> ExecutionOutcome:
    """A lost call with the tail of its output, from the last heartbeat of an earlier attempt."""
    if not isinstance(outcome, Lost) or outcome.parts or not heartbeats:
        return outcome
    try:
        tail = LiveOutput.model_validate(heartbeats[0]).tail
    except ValidationError:
        return outcome
    return outcome.model_copy(update={"parts": (TextPart(text=tail),)}) if tail else outcome
