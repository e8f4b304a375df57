"""What is said of a call that brings its siblings down."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.calls.call import Call, CallRequest
from holdfast.domain.calls.scheduling import describe_abort
from tests.support.turn_states import bound


@pytest.mark.parametrize(
    ("arguments", "described"),
    [
        ({"command": "x" * 40}, "x" * 40),
        ({"command": "x" * 41}, "x" * 40 + "…"),
        ({"count": 3, "command": "make"}, "make"),
        ({"description": "Build it", "command": "make"}, "make"),
        ({"path": "a.txt", "count": 3}, "a.txt"),
        ({"count": 3}, '{"count": 3}'),
        ([1], "[1]"),
    ],
)
def test_S15_what_failed_is_described(arguments: Any, described: str) -> None:
    asked = CallRequest(tool="shell", arguments=arguments)
    assert describe_abort(Call(id="b1c1", request=asked)) == f"Cancelled: parallel tool call shell({described}) errored"


def test_S15_a_command_is_quoted_as_it_was_written_and_not_as_it_ran() -> None:
    ran = bound("shell").model_copy(update={"arguments": {"command": "git -c core.pager=cat status"}})
    asked = CallRequest(tool="shell", arguments={"command": "git status"})
    call = Call(id="b1c1", request=asked, bound=ran)
    assert describe_abort(call) == "Cancelled: parallel tool call shell(git status) errored"


def test_S15_a_call_without_arguments_is_named_alone() -> None:
    call = Call(id="b1c1", request=CallRequest(tool="look", arguments={}), bound=bound("look"))
    assert describe_abort(call) == "Cancelled: parallel tool call look errored"
