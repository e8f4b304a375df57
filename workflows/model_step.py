"""One model step: its activity, its attempts, its fallback models, and the compaction of its conversation.

Temporal's own retries are invisible to a workflow. Where calls start while the model still writes, the turn must know
of every attempt, to discard the calls of the one before (S12). So there the activity has one attempt, and the turn
retries it.

Why: docs/decisions/0023-an-attempt-is-a-batch.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

with workflow.unsafe.imports_passed_through():
    from holdfast.activities.model_activities import ModelActivities
    from holdfast.domain.conversation.compaction import is_nearly_full
    from holdfast.domain.conversation.messages import ModelReply
    from holdfast.domain.turn.activity_io import CONTEXT_WINDOW, CompactInput, CompactResult, ModelStepInput
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.util.redaction import Redacted
    from holdfast.workflows.activity_failures import describe_failure

ATTEMPTS = 8
ATTEMPTS_BEFORE_ANOTHER = 3
"""Attempts at a model that has a fallback."""
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
COMPACTIONS = 3
"""Compactions of the conversation for one step."""
GROWTH_FACTOR = 1.1
"""The factor by which a conversation must grow after a compaction that did not help, before another is tried."""
WORTHWHILE_SHARE = 0.95
"""A compaction that leaves more than this share of the tokens does not help."""


async def take_step(state: TurnState) -> None:
    """Get the model's next reply. Returns also when the model has failed permanently, or the step is abandoned."""
    conversation = state.conversation
    step, tries, compactions = conversation.begin_step(), 1, 0
    has_grown = conversation.filled > GROWTH_FACTOR * conversation.shortest
    if has_grown and is_nearly_full(conversation.window, conversation.filled):
        compactions += await _compact_conversation(state, step, 1)
    while not _is_abandoned(state):
        handle = _start_step(state, step)
        await _wait_until_done(handle, state)
        if _is_abandoned(state):
            handle.cancel()
            return None
        try:
            return state.apply_reply(handle.result())
        except ActivityError as error:
            failed = error
        shorter = (
            _is_too_long(failed)
            and compactions < COMPACTIONS
            and await _compact_conversation(state, step, compactions + 1)
        )
        if _is_abandoned(state):
            return None
        if shorter:
            compactions += 1
            conversation.retry_step(describe_failure(failed))
        elif _may_retry(state, failed, tries):
            tries += 1
            conversation.retry_step(describe_failure(failed))
            await _wait_before_retry(state, failed, tries)
        elif _has_other_model(state):
            tries = 1
            conversation.use_next_model(describe_failure(failed))
        else:
            return state.fail_step(describe_failure(failed))
    return None


def _may_retry(state: TurnState, failed: ActivityError, tries: int) -> bool:
    """Must the turn itself retry? Only where the reply is streamed; else Temporal has retried."""
    for_good = failed.retry_state is RetryState.NON_RETRYABLE_FAILURE
    return state.conversation.writing is not None and not for_good and tries < _find_max_attempts(state)


async def _compact_conversation(state: TurnState, step: int, times: int) -> bool:
    """Compact the conversation. Returns False when that fails, or does not help."""
    handle = workflow.start_activity_method(
        ModelActivities.compact_conversation,
        CompactInput(step=step, model=state.conversation.model, times=times, window=state.conversation.window),
        activity_id=f"compact-{step}-{times}",
        summary=f"Compact the conversation of step {step}",
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_PAUSE, maximum_attempts=ATTEMPTS_BEFORE_ANOTHER),
    )
    await _wait_until_done(handle, state)
    if _is_abandoned(state):
        handle.cancel()
        return False
    try:
        done: CompactResult = handle.result()
    except ActivityError as error:
        workflow.logger.warning("The compaction of the conversation failed: %s", Redacted(describe_failure(error)))
        return False
    if done.tokens_after >= WORTHWHILE_SHARE * done.tokens:
        state.conversation.skip_compaction(done)
        return False
    state.conversation.apply_compaction(done)
    return True


async def _wait_until_done(handle: workflow.ActivityHandle[Any], state: TurnState) -> None:
    await workflow.wait_condition(lambda: handle.done() or _is_abandoned(state))


def _is_abandoned(state: TurnState) -> bool:
    return state.queue.stop is not None or state.conversation.has_new_message


def _is_too_long(error: ActivityError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.type == CONTEXT_WINDOW


def _has_other_model(state: TurnState) -> bool:
    """Has the current model a fallback?"""
    return state.input.model is not None and state.conversation.model + 1 < len(state.input.model.model_names)


def _find_max_attempts(state: TurnState) -> int:
    return ATTEMPTS_BEFORE_ANOTHER if _has_other_model(state) else ATTEMPTS


def _start_step(state: TurnState, step: int) -> workflow.ActivityHandle[ModelReply]:
    attempt, stream = state.conversation.attempt, state.conversation.writing
    return workflow.start_activity_method(
        ModelActivities.request_reply,
        ModelStepInput(step=step, attempt=attempt, stream=stream, model=state.conversation.model),
        activity_id=f"model-{step}" if attempt == 1 else f"model-{step}-{attempt}",
        summary=f"Model step {step}",
        start_to_close_timeout=timedelta(minutes=30),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(
            maximum_interval=LONGEST_PAUSE, maximum_attempts=1 if stream else _find_max_attempts(state)
        ),
    )


async def _wait_before_retry(state: TurnState, error: ActivityError, tries: int) -> None:
    """Wait before the next attempt: as long as the provider asks, or twice as long as before."""
    asked = error.cause.next_retry_delay if isinstance(error.cause, ApplicationError) else None
    pause = asked or min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tries - 2))
    try:
        await workflow.wait_condition(lambda: _is_abandoned(state), timeout=pause)
    except TimeoutError:
        return
