"""TurnWorkflow: one assistant turn, as a thin shell around `TurnState` and the functions of `holdfast.batches`.

It decides when things happen and does nothing itself: validation, execution and the model are activities; what
people say arrives as signals and updates; what a turn knows is in its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast.batches import begun
    from holdfast.calls import Call
    from holdfast.content import shorten
    from holdfast.deciding import as_bound
    from holdfast.errors import PayloadUnreadable, RequestRefused
    from holdfast.families import MARK
    from holdfast.model import problems
    from holdfast.starting import startable
    from holdfast.state import TurnState
    from holdfast.turns import WORKFLOW, TurnInput, TurnResult, check_input, check_outside
    from holdfast.verdicts import Lost
    from holdfast.work import CallToJudge, ValidateResult
    from holdfast.workflows.children import Child
    from holdfast.workflows.deadlines import Deadlines
    from holdfast.workflows.execution import execute
    from holdfast.workflows.histories import long_history
    from holdfast.workflows.inbox import Inbox
    from holdfast.workflows.messages import TurnMessages
    from holdfast.workflows.modelling import take_step
    from holdfast.workflows.unread import Dropped, absent
    from holdfast.workflows.validation import validate


# Without the sandbox: it takes a third of a turn's processor time. Tests load and replay every workflow inside it.
@workflow.defn(name=WORKFLOW, sandboxed=False)
class TurnWorkflow(TurnMessages):
    """One assistant turn."""

    # Messages may be delivered before `run` has begun, so the input is taken here. It is read by hand: an input that
    # cannot be read must end the turn with a reason, where a failed decoding would be retried for ever.
    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._state = TurnState(workflow.info().workflow_id, workflow.now)
        self._inbox = Inbox(self._state)
        self._dropped = Dropped()
        self._deadlines = Deadlines(self._state)
        self._running: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._defect: BaseException | None = None
        self._bad_input: str | None = None
        self._has_hooks = False
        self._absent = absent(inputs)
        if self._absent:
            return
        try:
            self._state.begin(_read_input(inputs))
        except RequestRefused as refusal:
            self._bad_input = f"The turn cannot start: {refusal}"
        except ValidationError as error:
            self._bad_input = f"The turn cannot start: {shorten(problems(error, 'input'), 2_000)}"

    @workflow.run
    async def run(self, *inputs: Any) -> TurnResult:
        """Take the turn to its end, however it ends, and answer with every response."""
        if self._absent:
            raise PayloadUnreadable(self._absent)  # the task fails, and is tried again
        if self._bad_input:
            raise ApplicationError(self._bad_input, type="bad_input", non_retryable=True)
        if self._state.time_left is not None:
            self._spawn(self._keep_time())
        steps = asyncio.create_task(self._take_steps())
        while not steps.done():
            try:
                await workflow.wait_condition(steps.done)
            except asyncio.CancelledError:
                self._state.stop_turn("cancelled", "The turn was cancelled")
        going_on = steps.result()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if going_on and not self._state.stop:
            workflow.continue_as_new(self._next_input())
        if going_on:
            self._state.conclude()
        return self._state.result()

    async def _take_steps(self) -> bool:
        """Work off the queue; with a model, ask it for the next batch; end when there is nothing more to do.

        True when there is, and it is for another run of the turn.
        """
        state, thinking = self._state, None
        await self._check_tools()
        while not state.stop:
            resting = thinking is None or thinking.done()
            if resting and state.more_to_do and _long():
                return True
            if state.queue:
                await self._run_batch()
            elif thinking and not thinking.done():
                await self._next_change()
            elif state.asks:
                state.heed_limits(step=True)
                thinking = None if state.stop else self._spawn(take_step(state))
            elif state.input.keep_open and not state.finishing:
                await self._next_change()
            else:
                break
        if thinking:
            await thinking
        state.conclude()
        return False

    async def _check_tools(self) -> None:
        """End a turn at its start whose list of tools names one that its worker does not have."""
        input = self._state.input
        if not input.tools or input.carried or input.depth:
            return
        unknown = (await self._verdicts_on(())).unknown_tools
        if unknown:
            more = f" And {len(unknown) - 5} more." if len(unknown) > 5 else ""
            names = f"{' '.join(unknown[:5])}{more}"
            self._state.stop_turn("failed", f"The turn cannot start: its list names tools that there are not: {names}")

    def _next_input(self) -> TurnInput:
        carried = self._state.carry(workflow.info().run_id)
        return self._state.input.model_copy(update={"batches": (), "memory": None, "carried": carried})

    async def _keep_time(self) -> None:
        """End the turn when its time is up (S44)."""
        left = self._state.time_left
        assert left is not None, "only a turn with a limit has its time kept"
        if left.total_seconds() > 0:
            await workflow.sleep(left)
        self._state.run_out()

    async def _run_batch(self) -> None:
        """One batch from validation to its last response."""
        self._state.activate()
        judging = self._judge()
        self._state.heed_limits()
        # Not before validation has answered, even when a stop has answered everything: a turn that ends with a local
        # activity under way is refused by the server when it is replayed from the start.
        while not (self._state.work.done and (judging is None or judging.done())):
            if judging is None or judging.done():
                judging = self._judge()
            self._deadlines.keep()
            self._start_what_may()
            self._stop_what_should()
            self._inbox.publish()
            await self._next_change()
            self._state.heed_limits()
        self._deadlines.drop()
        self._inbox.publish()
        self._state.retire()

    def _judge(self) -> asyncio.Task[None] | None:
        """Validate what has come; else what a person has changed; else, when a grant, the mode or the context has
        changed, everything that this may decide."""
        if self._state.work.unjudged:
            return self._spawn(self._validate())
        if changing := next((call for call in self._state.work.waiting if call.changing), None):
            return self._spawn(self._validate_change(changing))
        if self._state.stale:
            self._state.stale = False
            return self._spawn(self._reconsider())
        return None

    async def _validate(self) -> None:
        batch, unjudged = self._state.work, self._state.work.unjudged
        self._state.stale = self._state.stale and len(unjudged) < len(batch)
        calls = tuple(CallToJudge(id=call.id, request=call.request) for call in unjudged)
        self._state.take_verdicts(batch.id, await self._verdicts_on(calls))

    async def _validate_change(self, call: Call) -> None:
        change = CallToJudge(id=call.id, request=as_bound(call), change=call.changing)
        self._state.take_change(call.id, await self._verdicts_on((change,)))

    async def _reconsider(self) -> None:
        before, calls = self._state.work, self._state.unsettled()
        if calls:
            self._state.reconsider(before, await self._verdicts_on(calls))
        self._state.moved = False

    async def _verdicts_on(self, calls: tuple[CallToJudge, ...]) -> ValidateResult:
        result = await validate(self._state.to_validate(calls), has_hooks=self._has_hooks)
        self._has_hooks = self._has_hooks or result.needs_time == "hooks"
        return result

    def _start_what_may(self) -> None:
        calls = () if self._state.moved else startable(self._state.work, self._state.input.plan)
        if calls:
            self._state.change(begun(self._state.work, {call.id for call in calls}, workflow.now()))
        for call in calls:
            if not (call.pause and call.pause.held):  # its tool waits where it runs, and hears the answer there
                self._spawn(self._execute(call))

    def _pass_on(self, signal: str, body: Any) -> None:
        for child in list(self._running.values()):
            if isinstance(child, Child):
                child.signal(signal, body)

    def _stop_what_should(self) -> None:
        for call in self._state.work.calls:
            if call.stopping and (handle := self._running.pop(call.id, None)):
                handle.cancel()

    async def _execute(self, call: Call) -> None:
        outcome = await execute(self._state, self._running, call)
        unknown = isinstance(outcome, Lost) and not outcome.repeatable
        self._state.end_call(call.id, outcome, ask=unknown and workflow.patched("ask-unknown"))

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


def _long() -> bool:
    """Has the history become so long that the turn is to go on in another run (S42)?"""
    return long_history() and workflow.patched("continue-as-new")


def _read_input(inputs: tuple[Any, ...]) -> TurnInput:
    input, info = TurnInput.model_validate(inputs[0] if len(inputs) == 1 else None), workflow.info()
    if info.continued_run_id is None:
        check_input(input)
        if info.parent is None or input.carried:
            check_outside(input)
        if info.parent is None and MARK in info.workflow_id:
            raise RequestRefused("not_yours", f"a turn's id has no {MARK}: that is for the turns of sessions")
    return input
