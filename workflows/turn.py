"""TurnWorkflow: one assistant turn, as a thin shell around `TurnState` and the functions of `holdfast.batches`.

It decides when things happen and does nothing itself: validation, execution and the model are activities; what
people say arrives as signals and updates; what a turn knows is in its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.model import ModelActivities
    from holdfast.activities.tools import ToolActivities
    from holdfast.approvals import Decision
    from holdfast.batches import begun, judged, may_repeat, startable
    from holdfast.calls import Call
    from holdfast.content import shorten
    from holdfast.errors import DecisionRefused, Refused, RequestRefused
    from holdfast.events import EventPage
    from holdfast.model import problems
    from holdfast.state import TurnState
    from holdfast.turns import (
        WORKFLOW,
        Acknowledged,
        BatchAddress,
        BatchResult,
        CallAddress,
        Conversation,
        ExecuteInput,
        ModelStepInput,
        SubmitBatch,
        Submitted,
        TurnInput,
        TurnResult,
        check_batch,
        check_input,
        check_waiting,
    )
    from holdfast.views import TurnView, view_of
    from holdfast.workflows.failures import outcome_of, reason_of
    from holdfast.workflows.inbox import Inbox
    from holdfast.workflows.validation import validate

EXECUTE_GRACE = timedelta(seconds=60)
"""How much longer than the tool's own limit its activity may take: the worker enforces the limit, this is the net."""
QUEUE_LIMIT = timedelta(minutes=5)
"""How long a call waits for a worker of the task queue it must run on."""
REPEATS = 10
"""Attempts of a call that may be repeated; each one more means a worker that died under it."""


@workflow.defn(name=WORKFLOW)
class TurnWorkflow:
    """One assistant turn."""

    # Messages may be delivered before `run` has begun, so the input is taken here. It is read by hand: an input that
    # cannot be read must end the turn with a reason, where a failed decoding would be retried for ever.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._state = TurnState(workflow.info().workflow_id, workflow.now)
        self._inbox = Inbox(self._state)
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

    # Decisions come as an update from clients that want to know that they counted, and as a signal from everything
    # else, the stock command included: a signal needs no live worker. Both count once.
    @workflow.update(name="decide")
    def decide(self, decision: Decision) -> Acknowledged:
        """Take a decision; answers with the state its call went to."""
        with _refusals_as_failures():
            return self._state.decide(decision)

    @decide.validator
    def validate_decide(self, decision: Decision) -> None:
        """Refuse what does not count, without a trace in the history."""
        with _refusals_as_failures():
            self._state.check_decision(decision)

    @workflow.signal(name="decide")
    def decide_by_signal(self, *bodies: Any) -> None:
        """Take a decision that nobody waits for; what does not count is only logged."""
        try:
            self._state.decide(Decision.model_validate(bodies[0] if len(bodies) == 1 else None))
        except DecisionRefused as refusal:
            workflow.logger.warning("A decision was not counted: %s", shorten(str(refusal), 500))
        except ValidationError as error:
            workflow.logger.warning("A decision was not counted: %s", shorten(problems(error, "decision"), 500))

    # The rest are updates: their senders need the answer, and can repeat a lost one.
    @workflow.update(name="submit")
    def submit(self, body: SubmitBatch) -> Submitted:
        """Queue a further batch."""
        return Submitted(batch=self._state.enqueue(body.calls).id)

    @submit.validator
    def validate_submit(self, body: SubmitBatch) -> None:
        """Refuse an empty or oversized batch, and any batch to a turn that takes none."""
        with _refusals_as_failures():
            self._state.check_open()
            check_batch(body.calls, queued=len(self._state.queue))
            check_waiting(len(body.calls) + sum(map(len, self._state.queue)))

    @workflow.update(name="withdraw")
    def withdraw(self, body: BatchAddress) -> BatchResult:
        """Take a queued batch back; it never starts."""
        return self._state.withdraw(body.batch)

    @withdraw.validator
    def validate_withdraw(self, body: BatchAddress) -> None:
        """Only what has not started can be withdrawn."""
        with _refusals_as_failures():
            self._state.queued(body.batch)

    @workflow.update(name="cancel_call")
    def cancel_call(self, body: CallAddress) -> None:
        """Stop one call; its siblings go on."""
        self._state.stop_call(body.call, body.reason)

    @cancel_call.validator
    def validate_cancel_call(self, body: CallAddress) -> None:
        """Only a call that has not ended can be stopped."""
        call = self._state.active.get(body.call) if self._state.active else None
        with _refusals_as_failures():
            if call is None or call.terminal:
                raise RequestRefused("not_active", f"call {body.call!r} is not at work in this turn")

    @workflow.update(name="cancel_batch")
    def cancel_batch(self, body: BatchAddress) -> None:
        """Stop every call of the batch at work; the turn goes on."""
        self._state.stop_batch(body.reason)

    @cancel_batch.validator
    def validate_cancel_batch(self, body: BatchAddress) -> None:
        """Only the batch at work can be cancelled; a queued one is withdrawn."""
        with _refusals_as_failures():
            if self._state.active is None or self._state.active.id != body.batch:
                raise RequestRefused("not_active", f"batch {body.batch!r} is not at work; withdraw a queued one")

    @workflow.update(name="finish")
    def finish(self) -> None:
        """End a turn that was kept open, once its queue is empty."""
        self._state.finish()

    @finish.validator
    def validate_finish(self) -> None:
        """Only a turn that was kept open has to be finished."""
        with _refusals_as_failures():
            self._state.check_open()

    @workflow.query(name="view")
    def view(self) -> TurnView:
        """Everything a viewer needs, with long values cut."""
        return view_of(self._state, self._inbox.since)

    @workflow.query(name="events")
    def events(self, after: int = 0) -> EventPage:
        """The events after a sequence number, oldest first."""
        return self._state.page(after)

    @workflow.query(name="call")
    def call(self, call_id: str) -> Call | None:
        """The whole record of one call."""
        return self._state.find_call(call_id)

    @workflow.query(name="batch")
    def batch(self, batch_id: str) -> BatchResult | None:
        """One batch and the responses it has."""
        return next((result for result in self._state.results() if result.id == batch_id), None)

    @workflow.query(name="conversation")
    def conversation(self) -> Conversation | None:
        """What a model step reads; None for a turn without a model."""
        return self._state.conversation()

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
        validating = self._spawn(self._validate())
        # Not before validation has answered, even when a stop has answered everything: a turn that ends with a local
        # activity under way is refused by the server when it is replayed from the start.
        while not (self._state.work.done and validating.done()):
            self._start_what_may()
            self._stop_what_should()
            self._inbox.publish()
            await self._next_change()
        self._inbox.publish()
        self._state.retire()

    async def _validate(self) -> None:
        batch = self._state.work
        verdicts = await validate(batch, self._state.input, dict(self._state.seen))
        if self._state.active and self._state.active.id == batch.id:
            self._state.change(judged(self._state.active, verdicts, workflow.now()))

    def _start_what_may(self) -> None:
        calls = startable(self._state.work)
        if calls:
            self._state.change(begun(self._state.work, {call.id for call in calls}, workflow.now()))
        for call in calls:
            self._spawn(self._execute(call))

    def _stop_what_should(self) -> None:
        for call in self._state.work.calls:
            if call.stopping and (handle := self._running.pop(call.id, None)):
                handle.cancel()

    async def _execute(self, call: Call) -> None:
        assert call.bound, "only validated calls are scheduled"
        queue = call.bound.tool.traits.task_queue
        self._running[call.id] = handle = workflow.start_activity_method(
            ToolActivities.execute,
            ExecuteInput(
                call_id=call.id,
                bound=call.bound,
                decision=call.decision,
                seen=self._state.seen_of(call),
                mode=self._state.input.mode,
                interactive=self._state.input.interactive,
            ),
            activity_id=call.id,
            task_queue=queue,
            schedule_to_start_timeout=QUEUE_LIMIT if queue else None,
            summary=shorten(call.bound.title, 120),
            start_to_close_timeout=timedelta(seconds=call.bound.timeout_seconds) + EXECUTE_GRACE,
            heartbeat_timeout=timedelta(seconds=call.bound.heartbeat_seconds),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=200),
                maximum_interval=timedelta(seconds=10),
                maximum_attempts=REPEATS if may_repeat(call) else 1,
            ),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        try:
            outcome = await handle
        except ActivityError as error:
            outcome = outcome_of(error, call)
        self._running.pop(call.id, None)
        self._state.end_call(call.id, outcome)

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


@contextmanager
def _refusals_as_failures() -> Iterator[None]:
    """Handlers may raise nothing but ApplicationError: anything else retries the workflow task for ever."""
    try:
        yield
    except Refused as refusal:
        raise ApplicationError(str(refusal), type=refusal.code, non_retryable=True) from None
