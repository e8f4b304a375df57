"""One model step: its activity, and under `streaming` the attempts at it.

Temporal's own retries are invisible to a workflow. Where calls begin while the model still writes it must know of every
attempt, to discard what the one before has begun (S12): so there the activity has one, and the turn tries again.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, RetryState

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.model import ModelActivities
    from holdfast.conversations import ModelReply
    from holdfast.state import TurnState
    from holdfast.work import ModelStepInput
    from holdfast.workflows.failures import reason_of

ATTEMPTS = 8
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)


async def take_step(state: TurnState) -> None:
    """Ask the model for its next reply, until it has one, has failed for good, or is not to go on with this one."""
    step = state.think()
    while True:
        handle = _begin(state, step)
        await _until_done(handle, state)
        if _beside_the_point(state):
            handle.cancel()
            return None
        try:
            return state.take_reply(handle.result())
        except ActivityError as error:
            for_good = error.retry_state is RetryState.NON_RETRYABLE_FAILURE
            if state.writing is None or for_good or state.attempt >= ATTEMPTS:
                return state.give_up(reason_of(error))
            state.think_again(reason_of(error))
        await _pause(state)
        if _beside_the_point(state):
            return None


async def _until_done(handle: workflow.ActivityHandle[ModelReply], state: TurnState) -> None:
    await workflow.wait_condition(lambda: handle.done() or _beside_the_point(state))


def _beside_the_point(state: TurnState) -> bool:
    return state.stop is not None or state.spoken_to


def _begin(state: TurnState, step: int) -> workflow.ActivityHandle[ModelReply]:
    attempt, streams = state.attempt, state.writing is not None
    return workflow.start_activity_method(
        ModelActivities.step,
        ModelStepInput(step=step, attempt=attempt, stream=state.writing),
        activity_id=f"model-{step}" if attempt == 1 else f"model-{step}-{attempt}",
        summary=f"Model step {step}",
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_PAUSE, maximum_attempts=1 if streams else ATTEMPTS),
    )


async def _pause(state: TurnState) -> None:
    """Wait before the next attempt, twice as long each time."""
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (state.attempt - 2))
    try:
        await workflow.wait_condition(lambda: _beside_the_point(state), timeout=pause)
    except TimeoutError:
        return
