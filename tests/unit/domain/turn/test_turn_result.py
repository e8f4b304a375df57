"""What a turn leaves: to its session, to its next run, to a turn that it delegates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import ModelChoice, ModelReply, TurnInput
from holdfast.domain.approvals.approval import Decision, DecisionAction, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.calls.batch import apply_verdicts
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef, Traits
from holdfast.domain.calls.verdicts import Allow, BoundCall
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.modes import Mode
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.turn_io import (
    TurnLimits,
    TurnRemainder,
    TurnResult,
)
from holdfast.domain.turn.turn_result import (
    adopt_result,
    build_carryover,
    build_delegated_memory,
    build_result,
    split_limits,
)
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls, Interruption

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALL = CallRequest(tool="echo")


def turn(**input: Any) -> TurnState:
    return TurnState("t", lambda: NOW, TurnInput(prompt="Go", model=ModelChoice(), **input))


def grant(number: int, outcome: DecisionAction, **decision: Any) -> Grant:
    refuses = outcome is DecisionAction.CANCEL
    made = Decision(approval_id=f"t/b1c{number}/1", digest="d", outcome=outcome, remember=refuses, **decision)
    return Grant(id=f"g{number}", scope=Scope(tool=f"t{number}"), covers="it", decision=made, given_at=NOW)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def test_S24_every_refusal_binds_a_delegated_turn_and_not_every_allowance() -> None:
    grants = (
        grant(1, DecisionAction.CANCEL, lasting="turn"),
        grant(2, DecisionAction.CANCEL, uses=3),
        grant(3, DecisionAction.PROCEED_ALWAYS, lasting="turn"),
        grant(4, DecisionAction.PROCEED_ALWAYS, uses=3),
        grant(5, DecisionAction.PROCEED_ALWAYS),
    )
    state = turn(memory=TurnMemory(grants=grants, grants_given=5))
    assert [one.id for one in build_delegated_memory(state).grants] == ["g1", "g2", "g5"]


def test_the_window_of_a_fallback_is_not_that_of_the_next_turn() -> None:
    state = TurnState("t", lambda: NOW, TurnInput(prompt="Go", model=ModelChoice(fallbacks=("other",)), session="s"))
    state.conversation.begin_step()
    state.conversation.use_next_model("down")
    state.apply_reply(ModelReply(text="Done.", usage=Usage(input_tokens=900), window=1_000))
    state.close_turn()
    left = build_result(state).left
    assert left
    assert (left.memory.window, left.memory.filled) == (None, 0)


def test_S44_what_no_step_was_left_for_is_not_heard_and_the_answer_before_it_stays() -> None:
    state = turn(session="s", limits=TurnLimits(steps=1))
    state.conversation.begin_step()
    state.conversation.append_message(Interruption(message="Also this", id="1"))
    state.apply_reply(ModelReply(text="Done."))
    state.apply_limits(before_step=True)
    state.close_turn()
    result = build_result(state)
    assert result.left
    assert (result.status, result.text, result.left.heard) == ("stopped", "Done.", ())


def test_S42_a_run_goes_on_with_everything_that_the_one_before_it_knew() -> None:
    state = TurnState("t", lambda: NOW, TurnInput(keep_open=True, mode=Mode.PLAN))
    state.queue.submit_batch((CALL,), "key")
    state.queue.submit_batch((CALL,), "other")
    state.activate_batch()
    state.stop_batch("enough")
    state.retire_batch()
    state.add_calls(AddCalls(stream="s", calls=(CALL,), complete=True))
    state.finish_turn()
    state.executions.tainted += ["fetch", "fetch"]
    carried = build_carryover(state, "run-1")
    again = TurnState("t", lambda: NOW, state.input.model_copy(update={"carried": carried}))
    assert build_carryover(again, "run-2").model_dump(exclude={"runs"}) == carried.model_dump(exclude={"runs"})
    assert [(run.run_id, run.events, run.batches) for run in again.log.runs] == [("run-1", carried.events, 1)]
    assert [batch.id for batch in again.queue.queued] == ["b2", "b3"]
    assert (again.queue.call_count, again.decisions.mode, again.is_finishing) == (3, Mode.PLAN, True)


def test_S44_turns_that_are_delegated_side_by_side_share_what_is_left() -> None:
    traits = Traits(delegates=True)
    tool = ToolRef(name="delegate", effect=Effect.READ, definition="d", traits=traits)
    bound = BoundCall(tool=tool, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1)
    state = TurnState("t", lambda: NOW, TurnInput(batches=((CALL, CALL),), limits=TurnLimits(calls=12, tokens=100)))
    verdicts = {call.id: Allow(rule="r", bound=bound) for call in state.activate_batch().calls}
    state.queue.update_batch(apply_verdicts(state.queue.active_batch, verdicts, NOW))
    limits = split_limits(state)
    assert (limits.calls, limits.tokens) == (5, 50)
    memory = TurnMemory(tainted=("fetch",), outside={"fetch": 2}, grants=(grant(1, DecisionAction.PROCEED_ALWAYS),))
    result = TurnResult(status="completed", calls=4, usage=Usage(input_tokens=40), left=TurnRemainder(memory=memory))
    adopt_result(state, result, TurnInput(memory=TurnMemory()))
    assert (state.queue.call_count, state.conversation.usage.input_tokens) == (6, 40)
    assert (state.executions.tainted, dict(state.executions.outside)) == (["fetch"], {"fetch": 2})
    assert ([one.id for one in state.decisions.grants.all_grants], state.decisions.is_stale) == (["g1"], True)
    adopt_result(state, result, TurnInput(memory=memory))
    assert len(state.decisions.grants.all_grants) == 1, "what it began with may have been revoked here"
