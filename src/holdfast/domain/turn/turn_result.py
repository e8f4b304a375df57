"""The result of a turn, its memory for later turns, and the state for its next run. Built from a `TurnState`."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.domain.approvals.grants import Grant
from holdfast.domain.turn.batch_queue import parse_batch_number
from holdfast.domain.turn.carryover import FILES_KEPT, SOURCES_KEPT, STREAMS_KEPT, EarlierRun, RunCarryover, TurnMemory
from holdfast.domain.turn.turn_io import TurnInput, TurnLimits, TurnRemainder, TurnResult
from holdfast.domain.turn.turn_state import TurnState


def build_result(state: TurnState) -> TurnResult:
    """Build the result of a turn, with the responses of this run."""
    status, reason = state.queue.stop or ("completed", None)
    return TurnResult(
        status=status,
        reason=reason,
        text=state.conversation.text,
        batches=state.queue.list_batches(),
        usage=state.conversation.usage,
        steps=state.conversation.steps,
        calls=state.queue.call_count,
        runs=state.log.runs,
        left=_build_remainder(state) if state.input.session or state.input.depth else None,
    )


def build_memory(state: TurnState, holds: Callable[[Grant], bool] = lambda grant: True) -> TurnMemory:
    """Build the memory for later turns, with the grants for which `holds` is true."""
    executions, conversation, grants = state.executions, state.conversation, state.decisions.grants
    return TurnMemory(
        mode=state.decisions.mode,
        grants=tuple(grant for grant in grants.all_grants if holds(grant)),
        grants_given=grants.given_count,
        seen=dict(list(executions.seen.items())[-FILES_KEPT:]),
        wrote=dict(list(executions.wrote.items())[-FILES_KEPT:]),
        context=executions.context,
        commands=executions.commands,
        tainted=tuple(dict.fromkeys(executions.tainted))[:SOURCES_KEPT],
        outside=dict(executions.outside),
        replies=conversation.replies,
        window=conversation.window,
        filled=conversation.filled,
        keyed=state.decisions.has_keys,
    )


def build_carryover(state: TurnState, run_id: str) -> RunCarryover:
    """Build the state for the next run of a turn. `run_id` is the run that ends. No batch is active."""
    queue, conversation = state.queue, state.conversation
    assert not queue.active, "a turn continues between batches"
    ended = min((parse_batch_number(batch) for batch in queue.queued), default=queue.batch_count + 1) - 1
    run = EarlierRun(run_id=run_id, events=state.log.last_number, batches=ended)
    return RunCarryover(
        memory=build_memory(state),
        began_at=state.began_at,
        messages=tuple(conversation.messages),
        steps=conversation.steps,
        batches=queue.batch_count,
        calls=queue.call_count - sum(map(len, queue.queued)),
        events=state.log.last_number,
        usage=conversation.usage,
        model=conversation.model,
        compaction=conversation.compaction,
        approvers=state.decisions.approvers,
        heard=tuple(conversation.heard),
        counts=dict(queue.status_counts),
        runs=(*state.log.runs, run),
        queue=tuple(queue.queued),
        streams=dict(list(state.streams.newest.items())[-STREAMS_KEPT:]),
        submitted=queue.submitted,
        finishing=state.is_finishing,
        said=tuple(conversation.pending),
    )


def build_delegated_memory(state: TurnState) -> TurnMemory:
    """Build the memory for a delegated turn, with every remembered refusal.

    Grants for a number of calls are not passed on: two running turns cannot share a count.
    """

    def binds(grant: Grant) -> bool:
        return not grant.is_allowance or (_is_lasting(state, grant) and grant.decision.uses is None)

    return build_memory(state, binds)


def split_limits(state: TurnState) -> TurnLimits:
    """Return the limits of each turn that the active batch delegates: its share of what is left of the turn's."""
    limits = state.input.limits
    delegating = (call for call in state.queue.active_batch.calls if call.bound and call.bound.tool.traits.delegates)
    shares = sum(not call.is_terminal for call in delegating) or 1
    calls = limits.calls - state.queue.call_count
    tokens = None if limits.tokens is None else limits.tokens - state.conversation.usage.total_tokens
    return limits.model_copy(
        update={
            "calls": max(1, calls // shares),
            "tokens": None if tokens is None else max(1, tokens // shares),
        }
    )


def adopt_result(state: TurnState, result: TurnResult, given: TurnInput) -> None:
    """Adopt the usage, taint, background commands and new grants of a delegated turn.

    `given` is the input of that turn: its grants are not adopted, as they may have been revoked here meanwhile.
    """
    state.conversation.usage += result.usage
    state.queue.earlier_calls += result.calls
    if result.left:
        state.executions.adopt_memory(result.left.memory)
        state.decisions.adopt_grants(result.left.memory.grants, given.memory.grants if given.memory else ())


def _build_remainder(state: TurnState) -> TurnRemainder:
    conversation = state.conversation
    messages = tuple(conversation.messages) if state.input.session else ()
    memory = build_memory(state, lambda grant: _is_lasting(state, grant))
    if conversation.model:  # the next turn asks the first model again, whose window is another
        memory = memory.model_copy(update={"window": None, "filled": 0})
    return TurnRemainder(
        memory=memory, messages=messages, compaction=conversation.compaction, heard=tuple(conversation.heard)
    )


def _is_lasting(state: TurnState, grant: Grant) -> bool:
    """Does a grant apply after this turn?"""
    return grant.decision.lasting != "turn" and grant.is_active(state.log.now())
