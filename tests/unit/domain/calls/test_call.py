"""The life of one call: the table of S2, written out here a second time, and nothing beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from holdfast.domain.calls.call import TERMINAL, TRANSITIONS, Call, CallRequest, Status
from holdfast.errors import InvalidTransition

TABLE = {
    "validating": {"awaiting_approval", "scheduled", "error", "cancelled"},
    "awaiting_approval": {"awaiting_approval", "scheduled", "success", "error", "cancelled"},
    "scheduled": {"executing", "awaiting_approval", "error", "cancelled"},
    "executing": {"success", "error", "cancelled", "awaiting_approval"},
    "success": set(),
    "error": set(),
    "cancelled": set(),
}
EVERY_PAIR = [(before, after) for before in TABLE for after in TABLE]


def a_call(status: str = "validating") -> Call:
    return Call(id="b1c1", request=CallRequest(tool="shell"), status=Status(status))


def test_S1_there_are_exactly_seven_states() -> None:
    assert {status.value for status in Status} == set(TABLE)
    assert {status.value for status in TERMINAL} == {"success", "error", "cancelled"}


def test_S2_table_is_the_one_of_the_contract() -> None:
    assert {before.value: {after.value for after in afters} for before, afters in TRANSITIONS.items()} == TABLE


@pytest.mark.parametrize(("before", "after"), EVERY_PAIR)
def test_S2_only_moves_of_the_table_are_made(before: str, after: str) -> None:
    call = a_call(before)
    if after in TABLE[before]:
        assert call.move_to(Status(after)).status == after
    else:
        with pytest.raises(InvalidTransition, match=r"b1c1.*cannot go from"):
            call.move_to(Status(after))
    assert call.status == before


@pytest.mark.parametrize("terminal", ["success", "error", "cancelled"])
def test_S1_terminal_states_have_no_way_out(terminal: str) -> None:
    assert a_call(terminal).is_terminal
    assert TRANSITIONS[Status(terminal)] == frozenset()


def test_S2_table_and_record_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[Status.SUCCESS] = frozenset({Status.ERROR})  # type: ignore[index]
    with pytest.raises(ValidationError, match="frozen"):
        a_call().status = Status.SUCCESS


def test_S2_a_call_has_a_duration_from_its_validation_and_one_of_its_execution_if_it_ran() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert (a_call().duration, a_call().execution_time) == (None, None)
    ended = a_call().model_copy(update={"created_at": now, "ended_at": now + timedelta(seconds=5)})
    assert (ended.duration, ended.execution_time) == (timedelta(seconds=5), None)
    ran = ended.model_copy(update={"started_at": now + timedelta(seconds=2)})
    assert (ran.duration, ran.execution_time) == (timedelta(seconds=5), timedelta(seconds=3))


def test_request_takes_name_and_args_too_and_refuses_other_fields() -> None:
    assert CallRequest.model_validate({"name": "shell", "args": {"a": 1}}) == CallRequest(
        tool="shell", arguments={"a": 1}
    )
    with pytest.raises(ValidationError, match="tol"):
        CallRequest.model_validate({"tool": "shell", "tol": 1})
