"""Executing one call: its activity, and what is done when no worker takes that up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.tools import ToolActivities
    from holdfast.calls import Call
    from holdfast.content import shorten
    from holdfast.deciding import as_bound
    from holdfast.state import TurnState
    from holdfast.verdicts import Allow, Ask, CallOutcome, Lost, Reconsider, Stopped
    from holdfast.work import CallToJudge, ExecuteInput
    from holdfast.workflows.delegating import delegate
    from holdfast.workflows.failures import begun_before, last_output, not_taken, outcome_of, untaken
    from holdfast.workflows.validation import validate

GRACE = timedelta(seconds=60)
"""How much longer than the tool's own limit its activity may take: the worker enforces the limit, this is the net."""
ASKING_LIMIT = timedelta(days=30)
"""The same of a tool that may ask somebody in the middle of its run: its clock stands still meanwhile."""
FIRST_LIMIT = timedelta(minutes=5)
"""How long a call waits for a worker of the task queue it must run on."""
SECOND_LIMIT = timedelta(minutes=1)
"""And once more: while the server was away its workers were too, and time went by; now one of them is back."""
STOP_LIMIT = timedelta(seconds=10)
"""How long a host may take to take up a stop."""
REPEATS = 100
"""Attempts of a call; each one more means a worker that died under it. What must not run twice is looked up first."""

Running = dict[str, Any]
"""Handles of activities and child workflows, by call."""


async def execute(state: TurnState, running: Running, call: Call) -> CallOutcome:
    """What became of a call, which is in `running` meanwhile.

    Where nobody takes it up it is offered twice. When then it may have begun nobody knows what became of it; one that
    lives on a host and has not begun goes to another.
    """
    if call.bound and call.bound.tool.traits.delegates:
        return await delegate(state, running, call)
    if host := state.find_host(call):  # a background command is read and stopped where it runs
        call = state.move(call.id, host)
    begun, tail, limit = False, "", FIRST_LIMIT
    while True:
        running[call.id] = handle = _begin(state, call, limit, begun=begun)
        try:
            return await handle
        except ActivityError as error:
            if not untaken(error):
                return await _stopped_there(state, call, outcome_of(error, call))
            begun, tail = begun or begun_before(error), tail or last_output(error)
        finally:
            running.pop(call.id, None)
        again = workflow.patched("offer-again")
        if again and state.is_stopping(call):
            if not begun:
                return Stopped(reason="No worker had taken it up")
            lost = not_taken(call, begun=True, tail=tail)
            return await _stopped_there(state, call, lost) if workflow.patched("stop-untaken") else lost
        if again and limit == FIRST_LIMIT:
            limit = SECOND_LIMIT
        elif again and not begun and call.bound and call.bound.host:
            moved = await _elsewhere(state, call)
            if not isinstance(moved, Call):
                return moved
            call, limit = moved, FIRST_LIMIT
        else:
            before = bool(call.bound and call.bound.host)  # what turns of that time knew
            return not_taken(call, begun=begun if again else before, tail=tail)


async def _stopped_there(state: TurnState, call: Call, outcome: CallOutcome) -> CallOutcome:
    """Of a call that is to stop and whose worker did not answer: what its host says, where it may still be at work."""
    unanswered = isinstance(outcome, Stopped | Lost) and state.is_stopping(call)
    if not unanswered or not (call.bound and call.bound.host) or not workflow.patched("stop-on-host"):
        return outcome
    try:
        return await _begin(state, call, STOP_LIMIT, stop=True)
    except ActivityError:
        return outcome


async def _elsewhere(state: TurnState, call: Call) -> Call | CallOutcome:
    """The call as a worker that lives would run it; its verdict, when that is not what was approved."""
    asked = CallToJudge(id=call.id, request=as_bound(call))
    verdict = (await validate(state.to_validate((asked,)))).verdicts[call.id]
    if state.is_stopping(call):
        return Stopped(reason="No worker had taken it up")
    same = isinstance(verdict, Ask) and call.bound and verdict.bound.digest == call.bound.digest
    if isinstance(verdict, Allow) or (isinstance(verdict, Ask) and same):
        return state.move(call.id, verdict.bound.host)
    return Reconsider(verdict=verdict)


def _name(call: Call) -> str:
    return call.id if call.run == 1 else f"{call.id}-{call.run}"


def _begin(
    state: TurnState, call: Call, limit: timedelta, *, begun: bool = False, stop: bool = False
) -> workflow.ActivityHandle[CallOutcome]:
    assert call.bound, "only validated calls are scheduled"
    traits = call.bound.tool.traits
    queue, asks = call.bound.host or traits.task_queue, traits.asks and state.input.interactive
    return workflow.start_activity_method(
        ToolActivities.execute,
        ExecuteInput(
            call_id=call.id,
            bound=call.bound,
            run=call.run,
            pause=call.pause,
            begun=begun,
            stop=stop,
            seen=state.seen_of(call),
            mode=state.mode,
            interactive=state.input.interactive,
            approvals=call.approvals,
            shown=call.shown,
            grants=state.grants.for_execution(call.grant),
            wrote=state.wrote_of(call),
            expired=call.expired,
            tainted=bool(state.tainted),
            requester=state.input.requester,
            context=state.context,
            tools=state.input.tools,
            confirm=state.input.confirm,
        ),
        activity_id=f"{_name(call)}-stop" if stop else _name(call),
        task_queue=queue,
        schedule_to_start_timeout=limit if queue else None,
        summary=shorten(call.bound.title, 120),
        start_to_close_timeout=ASKING_LIMIT if asks else timedelta(seconds=call.bound.timeout_seconds) + GRACE,
        heartbeat_timeout=timedelta(seconds=call.bound.heartbeat_seconds),
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=200),
            maximum_interval=timedelta(seconds=10),
            maximum_attempts=REPEATS,
        ),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
