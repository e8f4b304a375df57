"""TurnWorkflow: one assistant turn, as a thin shell around `TurnState`.

It decides when things happen and does nothing itself: validation, execution and model steps are activities; decisions
and messages arrive as updates and signals; `TurnState` holds the state.

Why: docs/decisions/0001-turn-is-a-workflow.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.turn.ids import ID_MARK
    from holdfast.domain.turn.turn_io import TurnInput, TurnResult, check_input, check_outside
    from holdfast.domain.turn.turn_result import build_carryover, build_result
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.errors import RequestRefused
    from holdfast.names import TURN_WORKFLOW
    from holdfast.workflows.batch_runner import BatchRunner, TurnTasks
    from holdfast.workflows.handlers import DroppedSignals
    from holdfast.workflows.model_step import take_step
    from holdfast.workflows.pending_approvals import PendingApprovals
    from holdfast.workflows.turn_handlers import TurnHandlers
    from holdfast.workflows.workflow_run import is_history_long, read_input


# Without the sandbox (docs/decisions/0021-workflows-without-sandbox.md): it takes a third of a turn's processor time.
# Tests load and replay every workflow inside it.
@workflow.defn(name=TURN_WORKFLOW, sandboxed=False)
class TurnWorkflow(TurnHandlers):
    """One assistant turn."""

    # Messages may be delivered before `run` has begun, so the input is read here.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        input, self._input_error = read_input(inputs, _parse_input, "turn")
        self._state = TurnState(workflow.info().workflow_id, workflow.now, input)
        self._dropped = DroppedSignals()
        self._tasks = TurnTasks(self._state)
        self._approvals = PendingApprovals(self._state)
        self._runner = BatchRunner(self._state, self._tasks, self._approvals)

    @workflow.run
    async def run(self, *inputs: Any) -> TurnResult:
        """Run the turn to its end, and return its result with every response."""
        if self._input_error:
            raise self._input_error
        if self._state.time_left is not None:
            self._tasks.spawn(self._stop_in_time())
        goes_on = await self._take_steps_unless_cancelled()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if goes_on and not self._state.queue.stop:
            workflow.continue_as_new(self._build_next_input())
        if goes_on:
            self._state.close_turn()
        return build_result(self._state)

    async def _take_steps_unless_cancelled(self) -> bool:
        """Take the steps of the turn. A cancellation stops the turn, which then answers its calls and ends by itself.

        Returns True to continue as new.
        """
        steps = asyncio.create_task(self._take_steps())
        while not steps.done():
            try:
                await workflow.wait_condition(steps.done)
            except asyncio.CancelledError:
                self._state.stop_turn("cancelled", "The turn was cancelled")
        return steps.result()

    async def _take_steps(self) -> bool:
        """Run the queued batches; with a model, ask it for the next one; end when there is nothing more to do.

        Returns True to continue as new.
        """
        state, step = self._state, None
        await self._check_tools()
        while not state.queue.stop:
            is_thinking = step is not None and not step.done()
            if not is_thinking and state.has_more_to_do and is_history_long():
                return True
            if state.queue.queued:
                await self._runner.run_batch()
            elif is_thinking:
                await self._tasks.wait_for_change()
            elif state.conversation.needs_step:
                state.apply_limits(before_step=True)
                step = None if state.queue.stop else self._tasks.spawn(take_step(state))
            elif state.has_more_to_do:
                await self._tasks.wait_for_change()
            else:
                break
        if step:
            await step
        state.close_turn()
        return False

    async def _check_tools(self) -> None:
        """Fail a turn at its start when its list of tools names one that its worker does not have."""
        input = self._state.input
        if not input.tools or input.carried or input.depth:
            return
        unknown = (await self._runner.fetch_verdicts(())).unknown_tools
        if unknown:
            more = f" And {len(unknown) - 5} more." if len(unknown) > 5 else ""
            names = f"{' '.join(unknown[:5])}{more}"
            self._state.stop_turn("failed", f"The turn cannot start: its list of tools has unknown names: {names}")

    async def _stop_in_time(self) -> None:
        """Stop the turn at its time limit (S44)."""
        left = self._state.time_left
        assert left is not None, "only a turn with a time limit gets here"
        if left.total_seconds() > 0:
            await workflow.sleep(left)
        self._state.stop_at_time_limit()

    def _build_next_input(self) -> TurnInput:
        carried = build_carryover(self._state, workflow.info().run_id)
        return self._state.input.model_copy(update={"batches": (), "memory": None, "carried": carried})


def _parse_input(given: Any) -> TurnInput:
    input, info = TurnInput.model_validate(given), workflow.info()
    if info.continued_run_id is None:
        check_input(input)
        if info.parent is None or input.carried:
            check_outside(input)
        if info.parent is None and ID_MARK in info.workflow_id:
            raise RequestRefused("not_yours", f"a turn's id has no {ID_MARK}: that is for the turns of sessions")
    return input
