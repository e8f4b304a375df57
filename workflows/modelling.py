"""One model step: its activity, the attempts at it, the models that are asked in turn, and room for what they read.

Temporal's own retries are invisible to a workflow. Where calls begin while the model still writes it must know of every
attempt, to discard what the one before has begun (S12): so there the activity has one, and the turn tries again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.model import ModelActivities
    from holdfast.compaction import near
    from holdfast.conversations import ModelReply
    from holdfast.state import TurnState
    from holdfast.withheld import Words
    from holdfast.work import CONTEXT_WINDOW, Compacted, CompactInput, ModelStepInput
    from holdfast.workflows.failures import reason_of

ATTEMPTS = 8
ATTEMPTS_BEFORE_ANOTHER = 3
"""At a model that is not the last to be asked."""
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
COMPACTIONS = 3
"""How often a conversation is made shorter for one step."""
GROWN = 1.1
"""How much longer a conversation must have become before that is tried again which did not help."""
WORTH_IT = 0.95
"""What is left of it must be less than this, or there is no use in it."""


async def take_step(state: TurnState) -> None:
    """Ask the model for its next reply, until it has one, has failed for good, or is not to go on with this one."""
    step, tries, compactions = state.think(), 1, 0
    if near(state.window, state.filled) and state.filled > GROWN * state.no_shorter_at:
        compactions += await _compact(state, step, 1)
    while not _beside_the_point(state):
        handle = _begin(state, step)
        await _until_done(handle, state)
        if _beside_the_point(state):
            handle.cancel()
            return None
        try:
            return state.take_reply(handle.result())
        except ActivityError as error:
            failed = error
        shorter = _too_long(failed) and compactions < COMPACTIONS and await _compact(state, step, compactions + 1)
        if _beside_the_point(state):
            return None
        if shorter:
            compactions += 1
            state.think_again(reason_of(failed))
        elif _worth_another(state, failed, tries):
            tries += 1
            state.think_again(reason_of(failed))
            await _pause(state, failed, tries)
        elif _others(state):
            tries = 1
            state.fall_back(reason_of(failed))
        else:
            return state.give_up(reason_of(failed))
    return None


def _worth_another(state: TurnState, failed: ActivityError, tries: int) -> bool:
    """Is the turn itself to try again? Where the reply is not streamed, Temporal has done so."""
    for_good = failed.retry_state is RetryState.NON_RETRYABLE_FAILURE
    return state.writing is not None and not for_good and tries < _attempts(state)


async def _compact(state: TurnState, step: int, times: int) -> bool:
    """Make what the model is told shorter; False when that cannot be done, or does not help."""
    handle = workflow.start_activity_method(
        ModelActivities.compact,
        CompactInput(step=step, model=state.model, times=times, window=state.window),
        activity_id=f"compact-{step}-{times}",
        summary=f"Make the conversation of step {step} shorter",
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_PAUSE, maximum_attempts=ATTEMPTS_BEFORE_ANOTHER),
    )
    await _until_done(handle, state)
    if _beside_the_point(state):
        handle.cancel()
        return False
    try:
        done: Compacted = handle.result()
    except ActivityError as error:
        workflow.logger.warning("The conversation was not made shorter: %s", Words(reason_of(error)))
        return False
    if done.tokens_after >= WORTH_IT * done.tokens:
        state.keep_as_it_is(done)
        return False
    state.compact(done)
    return True


async def _until_done(handle: workflow.ActivityHandle[Any], state: TurnState) -> None:
    await workflow.wait_condition(lambda: handle.done() or _beside_the_point(state))


def _beside_the_point(state: TurnState) -> bool:
    return state.stop is not None or state.spoken_to


def _too_long(error: ActivityError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.type == CONTEXT_WINDOW


def _others(state: TurnState) -> bool:
    """Is there another model to be asked?"""
    return state.input.model is not None and state.model + 1 < len(state.input.model.names)


def _attempts(state: TurnState) -> int:
    return ATTEMPTS_BEFORE_ANOTHER if _others(state) else ATTEMPTS


def _begin(state: TurnState, step: int) -> workflow.ActivityHandle[ModelReply]:
    attempt, streams = state.attempt, state.writing is not None
    return workflow.start_activity_method(
        ModelActivities.step,
        ModelStepInput(step=step, attempt=attempt, stream=state.writing, model=state.model),
        activity_id=f"model-{step}" if attempt == 1 else f"model-{step}-{attempt}",
        summary=f"Model step {step}",
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_PAUSE, maximum_attempts=1 if streams else _attempts(state)),
    )


async def _pause(state: TurnState, error: ActivityError, tries: int) -> None:
    """Wait before the next attempt: as long as the provider says, or twice as long each time."""
    asked = error.cause.next_retry_delay if isinstance(error.cause, ApplicationError) else None
    pause = asked or min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 2))
    try:
        await workflow.wait_condition(lambda: _beside_the_point(state), timeout=pause)
    except TimeoutError:
        return
