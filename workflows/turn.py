"""TurnWorkflow: one assistant turn, as a thin shell around `TurnState` and the functions of `holdfast.batches`.

It decides when things happen and does nothing itself: validation, execution and the model are activities; what
people say arrives as signals and updates; what a turn knows is in its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.model import ModelActivities
    from holdfast.batches import begun, startable
    from holdfast.calls import Call
    from holdfast.content import shorten
    from holdfast.deciding import as_bound
    from holdfast.errors import RequestRefused
    from holdfast.model import problems
    from holdfast.state import TurnState
    from holdfast.turns import (
        WORKFLOW,
        CallToJudge,
        ModelStepInput,
        TurnInput,
        TurnResult,
        check_input,
    )
    from holdfast.verdicts import Lost
    from holdfast.workflows.deadlines import Deadlines
    from holdfast.workflows.execution import execute
    from holdfast.workflows.failures import reason_of
    from holdfast.workflows.inbox import Inbox
    from holdfast.workflows.messages import TurnMessages
    from holdfast.workflows.validation import validate


@workflow.defn(name=WORKFLOW)
class TurnWorkflow(TurnMessages):
    """One assistant turn."""

    # Messages may be delivered before `run` has begun, so the input is taken here. It is read by hand: an input that
    # cannot be read must end the turn with a reason, where a failed decoding would be retried for ever.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._state = TurnState(workflow.info().workflow_id, workflow.now)
        self._inbox = Inbox(self._state)
        self._deadlines = Deadlines(self._state)
        self._running: dict[str, workflow.ActivityHandle[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._defect: BaseException | None = None
        self._bad_input: str | None = None
        try:
            self._state.begin(_read_input(inputs))
        except RequestRefused as refusal:
            self._bad_input = f"The turn cannot start: {refusal}"
        except ValidationError as error:
            self._bad_input = f"The turn cannot start: {shorten(problems(error, 'input'), 2_000)}"

    @workflow.run
    async def run(self, *inputs: Any) -> TurnResult:
        """Take the turn to its end, however it ends, and answer with every response."""
        if self._bad_input:
            raise ApplicationError(self._bad_input, type="bad_input", non_retryable=True)
        steps = asyncio.create_task(self._take_steps())
        while not steps.done():
            try:
                await workflow.wait_condition(steps.done)
            except asyncio.CancelledError:
                self._state.stop_turn("cancelled", "The turn was cancelled")
        steps.result()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._state.result()

    async def _take_steps(self) -> None:
        """Work off the queue; with a model, ask it for the next batch; end when there is nothing more to do."""
        state = self._state
        while not state.stop:
            if state.queue:
                await self._run_batch()
            elif state.input.model and state.text is None:
                await self._ask_model()
            elif state.input.keep_open and not state.finishing:
                await self._next_change()
            else:
                break
        state.conclude()

    async def _run_batch(self) -> None:
        """One batch from validation to its last response."""
        self._state.activate()
        judging = self._spawn(self._validate())
        # Not before validation has answered, even when a stop has answered everything: a turn that ends with a local
        # activity under way is refused by the server when it is replayed from the start.
        while not (self._state.work.done and judging.done()):
            if judging.done():
                judging = self._judge_again() or judging
            self._deadlines.keep()
            self._start_what_may()
            self._stop_what_should()
            self._inbox.publish()
            await self._next_change()
        self._deadlines.drop()
        self._inbox.publish()
        self._state.retire()

    async def _validate(self) -> None:
        batch, self._state.stale = self._state.work, False
        calls = tuple(CallToJudge(id=call.id, request=call.request) for call in batch.calls)
        self._state.take_verdicts(batch.id, await validate(self._state.to_validate(calls)))

    def _judge_again(self) -> asyncio.Task[None] | None:
        """Validate what a person has changed; else, when a grant or the mode has, everything that it may decide."""
        if changing := next((call for call in self._state.work.waiting if call.changing), None):
            return self._spawn(self._validate_change(changing))
        if self._state.stale:
            self._state.stale = False
            return self._spawn(self._reconsider())
        return None

    async def _validate_change(self, call: Call) -> None:
        change = CallToJudge(id=call.id, request=as_bound(call), change=call.changing)
        self._state.take_change(call.id, await validate(self._state.to_validate((change,))))

    async def _reconsider(self) -> None:
        before, calls = self._state.work, self._state.unsettled()
        if calls:
            self._state.reconsider(before, await validate(self._state.to_validate(calls)))

    def _start_what_may(self) -> None:
        calls = startable(self._state.work)
        if calls:
            self._state.change(begun(self._state.work, {call.id for call in calls}, workflow.now()))
        for call in calls:
            if not (call.pause and call.pause.held):  # its tool waits where it runs, and hears the answer there
                self._spawn(self._execute(call))

    def _stop_what_should(self) -> None:
        for call in self._state.work.calls:
            if call.stopping and (handle := self._running.pop(call.id, None)):
                handle.cancel()

    async def _execute(self, call: Call) -> None:
        outcome = await execute(self._state, self._running, call)
        unknown = isinstance(outcome, Lost) and not outcome.repeatable
        self._state.end_call(call.id, outcome, ask=unknown and workflow.patched("ask-unknown"))

    async def _ask_model(self) -> None:
        step = self._state.think()
        handle = workflow.start_activity_method(
            ModelActivities.step,
            ModelStepInput(step=step),
            activity_id=f"model-{step}",
            summary=f"Model step {step}",
            start_to_close_timeout=timedelta(minutes=30),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30), maximum_attempts=8),
        )
        await workflow.wait_condition(lambda: handle.done() or self._state.stop is not None)
        if not handle.done():
            handle.cancel()
            return
        try:
            self._state.take_reply(handle.result())
        except ActivityError as error:
            self._state.stop_turn("failed", f"The model did not answer: {reason_of(error)}")

    async def _next_change(self) -> None:
        self._state.changed = False
        await workflow.wait_condition(lambda: self._state.changed)
        if self._defect:
            raise self._defect

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._join)
        return task

    def _join(self, task: asyncio.Task[None]) -> None:
        """A defect in a task must fail the workflow task, where it is seen and retried, not vanish with the task."""
        self._tasks.discard(task)
        self._state.changed = True
        if not task.cancelled():
            self._defect = self._defect or task.exception()


def _read_input(inputs: tuple[Any, ...]) -> TurnInput:
    input = TurnInput.model_validate(inputs[0] if len(inputs) == 1 else None)
    check_input(input)
    return input
