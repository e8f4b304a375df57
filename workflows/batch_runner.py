"""Running the batches of a turn: each from validation to its last response."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.calls.batch import start_calls
    from holdfast.domain.calls.call import Call
    from holdfast.domain.calls.scheduling import list_startable, may_run_at_once
    from holdfast.domain.calls.verdicts import ExecutionOutcome
    from holdfast.domain.turn.activity_io import CallToValidate, ValidateResult
    from holdfast.domain.turn.decision_log import build_bound_request
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.workflows.call_activities import RunningCalls, execute_call, validate_calls
    from holdfast.workflows.child_turns import ChildTurn
    from holdfast.workflows.pending_approvals import PendingApprovals


class TurnTasks:
    """The asyncio tasks of a turn. Every change of the turn, and the end of every task, wakes `wait_for_change`."""

    def __init__(self, state: TurnState) -> None:
        self._log = state.log
        self._tasks: set[asyncio.Task[None]] = set()
        self._defect: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._join)
        return task

    async def wait_for_change(self) -> None:
        """Wait until the turn has changed. Raises the error of a task, which fails the workflow task and is retried."""
        self._log.has_changed = False
        await workflow.wait_condition(lambda: self._log.has_changed)
        if self._defect:
            raise self._defect

    def _join(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._log.has_changed = True
        if not task.cancelled():
            self._defect = self._defect or task.exception()


class BatchRunner:
    """Validates the calls of a batch, starts those that may start, and stops those that are to stop."""

    def __init__(self, state: TurnState, tasks: TurnTasks, approvals: PendingApprovals) -> None:
        self._state = state
        self._tasks = tasks
        self._approvals = approvals
        self._running: RunningCalls = {}
        self._has_hooks = False
        self._outcomes: Mapping[str, ExecutionOutcome] = {}
        """The outcomes of reads that ran with their validation, until these calls are started."""

    async def run_batch(self) -> None:
        """Run the next queued batch from validation to its last response."""
        queue = self._state.queue
        self._state.activate_batch()
        validation = self._start_validation()
        self._state.apply_limits()
        # Not before validation has answered, even when a stop has answered everything: the server refuses a turn that
        # ends while a local activity runs, when it is replayed from the start.
        while not (queue.active_batch.is_done and (validation is None or validation.done())):
            if validation is None or validation.done():
                validation = self._start_validation()
            self._approvals.schedule_wake()
            ended = self._start_calls()
            self._stop_calls()
            self._approvals.publish()
            if not ended:
                await self._tasks.wait_for_change()
            self._state.apply_limits()
        self._approvals.cancel_wake()
        self._approvals.publish()
        self._state.retire_batch()

    async def fetch_verdicts(self, calls: tuple[CallToValidate, ...], *, run_reads: bool = False) -> ValidateResult:
        """Validate calls with the present facts of the turn; with `run_reads`, reads run at once."""
        input = self._state.decisions.build_validate_input(calls, run_reads=run_reads)
        result = await validate_calls(input, has_hooks=self._has_hooks)
        self._has_hooks = self._has_hooks or result.needs_time == "hooks"
        return result

    def signal_children(self, name: str, body: Any) -> None:
        """Send a signal to the turns that running calls have delegated."""
        for child in list(self._running.values()):
            if isinstance(child, ChildTurn):
                child.signal(name, body)

    def _start_validation(self) -> asyncio.Task[None] | None:
        """Start validating new calls; else a person's change; else, if `is_stale`, the calls that this may affect.

        None when there is nothing to validate.
        """
        batch, decisions = self._state.queue.active_batch, self._state.decisions
        if batch.unvalidated_calls:
            return self._tasks.spawn(self._validate_batch())
        if changing := next((call for call in batch.waiting_calls if call.changing), None):
            return self._tasks.spawn(self._validate_change(changing))
        if decisions.is_stale:
            decisions.is_stale = False
            return self._tasks.spawn(self._revalidate_batch())
        return None

    async def _validate_batch(self) -> None:
        batch, decisions = self._state.queue.active_batch, self._state.decisions
        decisions.is_stale = decisions.is_stale and len(batch.unvalidated_calls) < len(batch)
        calls = tuple(CallToValidate(id=call.id, request=call.request) for call in batch.unvalidated_calls)
        whole = may_run_at_once(batch, self._state.input.plan) and not self._state.queue.stop
        result = await self.fetch_verdicts(calls, run_reads=whole)
        self._outcomes = result.outcomes
        self._state.apply_verdicts(batch.id, result)

    async def _validate_change(self, call: Call) -> None:
        change = CallToValidate(id=call.id, request=build_bound_request(call), change=call.changing)
        self._state.decisions.apply_change(call.id, await self.fetch_verdicts((change,)))

    async def _revalidate_batch(self) -> None:
        before, calls = self._state.queue.active_batch, self._state.decisions.list_unsettled_calls()
        if calls:
            self._state.reapply_verdicts(before, await self.fetch_verdicts(calls))
        self._state.executions.has_moved = False

    def _start_calls(self) -> bool:
        """Start the calls that may start now. Returns True if there were outcomes of reads that ran with validation."""
        queue, moved = self._state.queue, self._state.executions.has_moved
        calls = () if moved else list_startable(queue.active_batch, self._state.input.plan)
        if calls:
            queue.update_batch(start_calls(queue.active_batch, {call.id for call in calls}, workflow.now()))
        outcomes, self._outcomes = self._outcomes, {}  # an unused outcome is outdated: its read runs again
        for call in calls:
            if outcome := outcomes.get(call.id):
                self._state.apply_outcome(call.id, outcome)
            elif not (call.pause and call.pause.held):  # a held call runs already, and its tool gets the answer
                self._tasks.spawn(self._execute_call(call))
        return bool(outcomes)

    async def _execute_call(self, call: Call) -> None:
        self._state.apply_outcome(call.id, await execute_call(self._state, self._running, call))

    def _stop_calls(self) -> None:
        for call in self._state.queue.active_batch.calls:
            if call.stopping and (handle := self._running.pop(call.id, None)):
                handle.cancel()
