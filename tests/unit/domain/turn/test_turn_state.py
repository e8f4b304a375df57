"""Transitions of a turn that change several of its parts: stops, limits, the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import TurnLimits
from holdfast.domain.approvals.approval import Confirmation, Decision
from holdfast.domain.calls.batch import apply_verdicts
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import Ask, BoundCall
from holdfast.domain.conversation.messages import (
    ModelChoice,
    ModelReply,
    Usage,
)
from holdfast.domain.turn.turn_io import (
    TurnInput,
)
from holdfast.domain.turn.turn_result import build_carryover, build_result
from holdfast.domain.turn.turn_state import TurnState
from holdfast.errors import RequestRefused

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = ModelChoice()
TOOL = ToolRef(name="t", effect=Effect.ONCE, definition="d")
BOUND = BoundCall(tool=TOOL, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1)
ONE = (CallRequest(tool="t", id="m1"),)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def turn(**input: Any) -> TurnState:
    return TurnState("turn", lambda: NOW, TurnInput(**input))


def waiting(**input: Any) -> TurnState:
    state = turn(batches=(ONE,), **input)
    asked = Ask(rule="r", bound=BOUND, confirmation=Confirmation(kind="exec", title="t"))
    state.queue.update_batch(apply_verdicts(state.activate_batch(), {"b1c1": asked}, NOW))
    return state


def decision(**changes: Any) -> Decision:
    return Decision.model_validate({"approval_id": "turn/b1c1/1", "digest": "d", "outcome": "yes", **changes})


def test_turn_that_ends_takes_nothing_more() -> None:
    finishing, stopping, modelled = turn(keep_open=True), turn(keep_open=True), turn(prompt="p", model=MODEL)
    finishing.finish_turn()
    stopping.stop_turn("cancelled", "Enough")
    for state, code in ((finishing, "not_open"), (stopping, "not_open"), (modelled, "has_model")):
        with pytest.raises(RequestRefused) as refusal:
            state.check_open()
        assert refusal.value.code == code
    turn(keep_open=True).check_open()


def test_S16_stop_of_a_turn_answers_what_never_started_too() -> None:
    state = waiting()
    state.queue.enqueue_batch(ONE)
    state.queue.enqueue_batch(ONE)
    state.stop_turn("cancelled", "Enough")
    state.stop_turn("failed", "Too late")
    state.retire_batch()
    state.close_turn()
    result = build_result(state)
    assert (result.status, result.reason) == ("cancelled", "Enough")
    assert [(found.call_id, found.status, found.text) for found in result.responses] == [
        ("b1c1", "cancelled", "Enough"),
        ("b2c1", "cancelled", "Enough"),
        ("b3c1", "cancelled", "Enough"),
    ]


def test_refusal_that_stops_the_turn_says_who_and_what() -> None:
    state = waiting()
    state.apply_decision(decision(outcome="no", by="ada", stop_turn=True))
    assert state.queue.stop == ("stopped", "ada refused 't' and stopped the turn")


# Limits


def limited(clock: Clock | None = None, **limits: Any) -> TurnState:
    return TurnState("t", clock or Clock(), TurnInput(prompt="Go", model=ModelChoice(), limits=TurnLimits(**limits)))


def reply(state: TurnState, *calls: CallRequest, text: str = "", tokens: int = 0) -> None:
    state.conversation.begin_step()
    state.apply_reply(ModelReply(text=text, calls=calls, usage=Usage(input_tokens=tokens)))


def test_S44_the_last_step_is_the_one_that_the_limit_names() -> None:
    state = limited(steps=1)
    state.apply_limits(before_step=True)
    assert state.queue.stop is None
    reply(state, *ONE)
    state.activate_batch()
    state.stop_batch("enough")
    state.retire_batch()
    state.apply_limits(before_step=True)
    assert state.queue.stop == ("stopped", "The turn reached its limit of 1 model steps")


def test_S44_calls_beyond_the_limit_never_start_and_are_answered() -> None:
    state = limited(calls=2)
    reply(state, *ONE * 3)
    state.apply_limits()
    state.close_turn()
    result = build_result(state)
    assert result.status == "stopped"
    assert [response.status for response in result.responses] == ["cancelled"] * 3
    assert [message.kind for message in state.conversation.messages] == ["user", "assistant", "tool"]


def test_S44_an_answer_is_an_answer_even_if_it_used_up_the_tokens() -> None:
    state = limited(tokens=10)
    reply(state, text="Done.", tokens=50)
    state.close_turn()
    assert (build_result(state).status, build_result(state).text) == ("completed", "Done.")


def test_S44_time_counts_from_the_start_over_all_runs() -> None:
    clock = Clock()
    state = limited(clock, seconds=60)
    clock.now += timedelta(seconds=40)
    assert state.time_left == timedelta(seconds=20)
    again = TurnState("t", clock, state.input.model_copy(update={"carried": build_carryover(state, "run-1")}))
    assert again.time_left == timedelta(seconds=20)
    clock.now += timedelta(seconds=20)
    again.apply_limits()
    assert again.queue.stop
    assert "60 seconds" in again.queue.stop[1]
