"""What a turn may use up (S44), on the pure state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast import CallRequest, ModelChoice, ModelReply, Schedule, TurnInput, TurnLimits
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.turn.turn_io import LONGEST_SECONDS, explain_no_step, find_reached_limit
from holdfast.domain.turn.turn_result import build_carryover, build_result
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls, Interruption

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CALL = CallRequest(tool="echo")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def turn(clock: Clock | None = None, **limits: Any) -> TurnState:
    return TurnState("t", clock or Clock(), TurnInput(prompt="Go", model=ModelChoice(), limits=TurnLimits(**limits)))


def reply(state: TurnState, *calls: CallRequest, text: str = "", tokens: int = 0) -> None:
    state.conversation.begin_step()
    state.apply_reply(ModelReply(text=text, calls=calls, usage=Usage(input_tokens=tokens)))


@pytest.mark.parametrize(
    ("used", "words"),
    [
        ({"calls": 5, "tokens": 0, "seconds": 0}, None),
        ({"calls": 6, "tokens": 0, "seconds": 0}, "limit of 5 tool calls: this batch would make 6"),
        ({"calls": 0, "tokens": 99, "seconds": 0}, None),
        ({"calls": 0, "tokens": 100, "seconds": 0}, "limit of 100 tokens: it has used 100"),
        ({"calls": 0, "tokens": 0, "seconds": 59.9}, None),
        ({"calls": 0, "tokens": 0, "seconds": 60}, "limit of 60 seconds"),
    ],
)
def test_S44_each_limit_is_reached_at_its_number(used: dict[str, Any], words: str | None) -> None:
    said = find_reached_limit(TurnLimits(calls=5, tokens=100, seconds=60), **used)
    assert (said is None) if words is None else (said is not None and words in said)


def test_S44_a_turn_without_a_limit_of_time_has_a_year() -> None:
    assert find_reached_limit(TurnLimits(), calls=0, tokens=10**12, seconds=LONGEST_SECONDS - 1) is None
    assert find_reached_limit(TurnLimits(), calls=0, tokens=0, seconds=LONGEST_SECONDS)
    assert explain_no_step(TurnLimits(), 999) is None
    assert explain_no_step(TurnLimits(), 1_000)


def test_S44_the_last_step_is_the_one_that_the_limit_names() -> None:
    state = turn(steps=1)
    state.apply_limits(before_step=True)
    assert state.queue.stop is None
    reply(state, CALL)
    state.activate_batch()
    state.stop_batch("enough")
    state.retire_batch()
    state.apply_limits(before_step=True)
    assert state.queue.stop == ("stopped", "The turn reached its limit of 1 model steps")


def test_S44_calls_beyond_the_limit_never_start_and_are_answered() -> None:
    state = turn(calls=2)
    reply(state, CALL, CALL, CALL)
    state.apply_limits()
    state.close_turn()
    result = build_result(state)
    assert result.status == "stopped"
    assert [response.status for response in result.responses] == ["cancelled"] * 3
    assert [message.kind for message in state.conversation.messages] == ["user", "assistant", "tool"]


def test_S44_an_answer_is_an_answer_even_if_it_used_up_the_tokens() -> None:
    state = turn(tokens=10)
    reply(state, text="Done.", tokens=50)
    state.close_turn()
    assert (build_result(state).status, build_result(state).text) == ("completed", "Done.")


def test_S44_time_counts_from_the_start_over_all_runs() -> None:
    clock = Clock()
    state = turn(clock, seconds=60)
    clock.now += timedelta(seconds=40)
    assert state.time_left == timedelta(seconds=20)
    again = TurnState("t", clock, state.input.model_copy(update={"carried": build_carryover(state, "run-1")}))
    assert again.time_left == timedelta(seconds=20)
    clock.now += timedelta(seconds=20)
    again.apply_limits()
    assert again.queue.stop
    assert "60 seconds" in again.queue.stop[1]


@pytest.mark.parametrize(
    "given", [{"steps": 0}, {"calls": -1}, {"seconds": 0}, {"seconds": float("inf")}, {"tokens": 0}, {"step": 5}]
)
def test_what_is_no_limit_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TurnLimits(**given)


def test_S3_a_streamed_reply_that_cannot_be_a_batch_leaves_calls_and_responses_together() -> None:
    state = TurnState("t", Clock(), TurnInput(prompt="Go", model=ModelChoice(), schedule=Schedule.STREAMING))
    state.conversation.begin_step()
    state.add_calls(AddCalls(stream="step-1", calls=(CALL, CALL)))
    state.apply_reply(ModelReply(calls=(CALL,) * 1_001))
    state.close_turn()
    assert [message.kind for message in state.conversation.messages] == ["user", "assistant", "tool"]
    assert build_result(state).status == "failed"


def test_what_a_sessions_turn_did_not_read_is_not_heard() -> None:
    state = TurnState("s~1", Clock(), TurnInput(prompt="Go", model=ModelChoice(), session="s"))
    state.conversation.begin_step()
    state.conversation.append_message(Interruption(message="Also this", id="1"))
    state.fail_step("broken")
    state.close_turn()
    assert (state.conversation.heard, [message.kind for message in state.conversation.messages]) == ([], ["user"])
