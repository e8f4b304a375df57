"""TurnWorkflow: one assistant turn, as a thin shell around `TurnState` and the functions of
`holdfast.domain.calls.batch`.

It decides when things happen and does nothing itself: validation, execution and the model are activities; what
people say arrives as signals and updates; what a turn knows is in its state.

Why: docs/decisions/0001-turn-is-a-workflow.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.base import describe_problems
    from holdfast.domain.calls.batch import start_calls
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.scheduling import list_startable, may_run_at_once
    from holdfast.domain.calls.verdicts import ExecutionOutcome
    from holdfast.domain.turn.activity_io import CallToValidate, ValidateResult
    from holdfast.domain.turn.decision_log import build_bound_request
    from holdfast.domain.turn.ids import ID_MARK
    from holdfast.domain.turn.turn_io import TURN_WORKFLOW, TurnInput, TurnResult, check_input, check_outside
    from holdfast.domain.turn.turn_result import build_carryover, build_result
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.errors import PayloadUnreadable, RequestRefused
    from holdfast.util.text import shorten_text
    from holdfast.workflows.child_workflow import ChildTurn
    from holdfast.workflows.continue_as_new import is_history_long
    from holdfast.workflows.deadlines import Deadlines
    from holdfast.workflows.execute_call import execute_call
    from holdfast.workflows.inbox import Inbox
    from holdfast.workflows.model_step import take_step
    from holdfast.workflows.turn_handlers import TurnHandlers
    from holdfast.workflows.unreadable_signals import DroppedSignals, explain_absent_input
    from holdfast.workflows.validate_calls import validate_calls


# Without the sandbox (docs/decisions/0021-workflows-without-sandbox.md): it takes a third of a turn's processor time.
# Tests load and replay every workflow inside it.
@workflow.defn(name=TURN_WORKFLOW, sandboxed=False)
class TurnWorkflow(TurnHandlers):
    """One assistant turn."""

    # Messages may be delivered before `run` has begun, so the input is taken here. It is read by hand: an input that
    # cannot be read must end the turn with a reason, where a failed decoding would be retried for ever.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._dropped = DroppedSignals()
        self._running: dict[str, Any] = {}
        self._outcomes: dict[str, ExecutionOutcome] = {}
        """Of reads that ran with their validation and are not started yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._defect: BaseException | None = None
        self._bad_input: str | None = None
        self._has_hooks = False
        self._absent, input = explain_absent_input(inputs), None
        try:
            input = None if self._absent else _read_input(inputs)
        except RequestRefused as refusal:
            self._bad_input = f"The turn cannot start: {refusal}"
        except ValidationError as error:
            self._bad_input = f"The turn cannot start: {shorten_text(describe_problems(error, 'input'), 2_000)}"
        self._state = TurnState(workflow.info().workflow_id, workflow.now, input)
        self._inbox = Inbox(self._state)
        self._deadlines = Deadlines(self._state)

    @workflow.run
    async def run(self, *inputs: Any) -> TurnResult:
        """Take the turn to its end, however it ends, and answer with every response."""
        if self._absent:
            raise PayloadUnreadable(self._absent)  # the task fails, and is tried again
        if self._bad_input:
            raise ApplicationError(self._bad_input, type="bad_input", non_retryable=True)
        if self._state.time_left is not None:
            self._spawn_task(self._keep_time())
        steps = asyncio.create_task(self._take_steps())
        while not steps.done():
            try:
                await workflow.wait_condition(steps.done)
            except asyncio.CancelledError:
                self._state.stop_turn("cancelled", "The turn was cancelled")
        going_on = steps.result()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if going_on and not self._state.queue.stop:
            workflow.continue_as_new(self._build_next_input())
        if going_on:
            self._state.close_turn()
        return build_result(self._state)

    async def _take_steps(self) -> bool:
        """Work off the queue; with a model, ask it for the next batch; end when there is nothing more to do.

        True when there is, and it is for another run of the turn.
        """
        state, thinking = self._state, None
        await self._check_tools()
        while not state.queue.stop:
            resting = thinking is None or thinking.done()
            if resting and state.has_more_to_do and is_history_long():
                return True
            if state.queue.queued:
                await self._run_batch()
            elif thinking and not thinking.done():
                await self._wait_for_change()
            elif state.conversation.needs_step:
                state.apply_limits(before_step=True)
                thinking = None if state.queue.stop else self._spawn_task(take_step(state))
            elif state.input.keep_open and not state.is_finishing:
                await self._wait_for_change()
            else:
                break
        if thinking:
            await thinking
        state.close_turn()
        return False

    async def _check_tools(self) -> None:
        """End a turn at its start whose list of tools names one that its worker does not have."""
        input = self._state.input
        if not input.tools or input.carried or input.depth:
            return
        unknown = (await self._fetch_verdicts(())).unknown_tools
        if unknown:
            more = f" And {len(unknown) - 5} more." if len(unknown) > 5 else ""
            names = f"{' '.join(unknown[:5])}{more}"
            self._state.stop_turn("failed", f"The turn cannot start: its list names tools that there are not: {names}")

    def _build_next_input(self) -> TurnInput:
        carried = build_carryover(self._state, workflow.info().run_id)
        return self._state.input.model_copy(update={"batches": (), "memory": None, "carried": carried})

    async def _keep_time(self) -> None:
        """End the turn when its time is up (S44)."""
        left = self._state.time_left
        assert left is not None, "only a turn with a limit has its time kept"
        if left.total_seconds() > 0:
            await workflow.sleep(left)
        self._state.stop_at_time_limit()

    async def _run_batch(self) -> None:
        """One batch from validation to its last response."""
        self._state.activate_batch()
        judging = self._start_validation()
        self._state.apply_limits()
        # Not before validation has answered, even when a stop has answered everything: a turn that ends with a local
        # activity under way is refused by the server when it is replayed from the start.
        while not (self._state.queue.active_batch.is_done and (judging is None or judging.done())):
            if judging is None or judging.done():
                judging = self._start_validation()
            self._deadlines.schedule_wake()
            ended = self._start_ready_calls()
            self._stop_calls()
            self._inbox.publish()
            if not ended:
                await self._wait_for_change()
            self._state.apply_limits()
        self._deadlines.cancel_wake()
        self._inbox.publish()
        self._state.retire_batch()

    def _start_validation(self) -> asyncio.Task[None] | None:
        """Validate what has come; else what a person has changed; else, when a grant, the mode or the context has
        changed, everything that this may decide."""
        if self._state.queue.active_batch.unvalidated_calls:
            return self._spawn_task(self._validate_batch())
        if changing := next((call for call in self._state.queue.active_batch.waiting_calls if call.changing), None):
            return self._spawn_task(self._validate_change(changing))
        if self._state.decisions.is_stale:
            self._state.decisions.is_stale = False
            return self._spawn_task(self._revalidate_calls())
        return None

    async def _validate_batch(self) -> None:
        batch, unjudged = self._state.queue.active_batch, self._state.queue.active_batch.unvalidated_calls
        self._state.decisions.is_stale = self._state.decisions.is_stale and len(unjudged) < len(batch)
        calls = tuple(CallToValidate(id=call.id, request=call.request) for call in unjudged)
        whole = may_run_at_once(batch, self._state.input.plan) and not self._state.queue.stop
        result = await self._fetch_verdicts(calls, run_reads=whole)
        self._outcomes = dict(result.outcomes)
        self._state.apply_verdicts(batch.id, result)

    async def _validate_change(self, call: Call) -> None:
        change = CallToValidate(id=call.id, request=build_bound_request(call), change=call.changing)
        self._state.decisions.apply_change(call.id, await self._fetch_verdicts((change,)))

    async def _revalidate_calls(self) -> None:
        before, calls = self._state.queue.active_batch, self._state.decisions.list_unsettled_calls()
        if calls:
            self._state.reapply_verdicts(before, await self._fetch_verdicts(calls))
        self._state.executions.has_moved = False

    async def _fetch_verdicts(self, calls: tuple[CallToValidate, ...], *, run_reads: bool = False) -> ValidateResult:
        input = self._state.decisions.build_validate_input(calls, run_reads=run_reads)
        result = await validate_calls(input, has_hooks=self._has_hooks)
        self._has_hooks = self._has_hooks or result.needs_time == "hooks"
        return result

    def _start_ready_calls(self) -> bool:
        """Start what may begin now; True when reads that ran with their validation have ended with it."""
        queue, moved = self._state.queue, self._state.executions.has_moved
        calls = () if moved else list_startable(queue.active_batch, self._state.input.plan)
        if calls:
            queue.update_batch(start_calls(queue.active_batch, {call.id for call in calls}, workflow.now()))
        outcomes, self._outcomes = self._outcomes, {}  # what is not used now is out of date, and reads run again
        for call in calls:
            if outcome := outcomes.get(call.id):
                self._state.apply_outcome(call.id, outcome)
            elif not (call.pause and call.pause.held):  # its tool waits where it runs, and hears the answer there
                self._spawn_task(self._execute_call(call))
        return bool(outcomes)

    def _signal_children(self, signal: str, body: Any) -> None:
        for child in list(self._running.values()):
            if isinstance(child, ChildTurn):
                child.signal(signal, body)

    def _stop_calls(self) -> None:
        for call in self._state.queue.active_batch.calls:
            if call.stopping and (handle := self._running.pop(call.id, None)):
                handle.cancel()

    async def _execute_call(self, call: Call) -> None:
        outcome = await execute_call(self._state, self._running, call)
        self._state.apply_outcome(call.id, outcome)

    async def _wait_for_change(self) -> None:
        self._state.log.has_changed = False
        await workflow.wait_condition(lambda: self._state.log.has_changed)
        if self._defect:
            raise self._defect

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._join_task)
        return task

    def _join_task(self, task: asyncio.Task[None]) -> None:
        """A defect in a task must fail the workflow task, where it is seen and retried, not vanish with the task."""
        self._tasks.discard(task)
        self._state.log.has_changed = True
        if not task.cancelled():
            self._defect = self._defect or task.exception()


def _read_input(inputs: tuple[Any, ...]) -> TurnInput:
    input, info = TurnInput.model_validate(inputs[0] if len(inputs) == 1 else None), workflow.info()
    if info.continued_run_id is None:
        check_input(input)
        if info.parent is None or input.carried:
            check_outside(input)
        if info.parent is None and ID_MARK in info.workflow_id:
            raise RequestRefused("not_yours", f"a turn's id has no {ID_MARK}: that is for the turns of sessions")
    return input
