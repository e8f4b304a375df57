"""What executed calls leave for the calls after them, what they ask, and which failures bring their siblings down."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.approvals.approval import QuestionAnswer
from holdfast.domain.background_commands import CommandState
from holdfast.domain.calls.batch import apply_verdicts, start_calls
from holdfast.domain.calls.call import Call
from holdfast.domain.calls.scheduling import Plan, Schedule, needs_abort
from holdfast.domain.calls.verdicts import (
    Allow,
    Finished,
    NeedsApprovalAgain,
    Reject,
    Stopped,
)
from holdfast.domain.content import CallError, Result
from holdfast.domain.context import Context, ContextChange
from holdfast.domain.conversation.messages import ModelReply
from holdfast.domain.turn.activity_io import Question
from holdfast.errors import RequestRefused
from tests.support.turn_states import BROKEN, DONE, NOW, STREAMING, Turn, bound, request, talking, written
from tests.unit.domain.calls.test_batch import ask


def plan(**changes: Any) -> Plan:
    return Plan(**{"schedule": STREAMING, **changes})


@pytest.mark.parametrize(
    ("tool", "how", "expected"),
    [
        ("r", plan(), False),
        ("r?", plan(), True),
        ("r?", plan(schedule=Schedule.ALL_READY), False),
        ("r??", plan(schedule=Schedule.ALL_READY), True),
        ("r?", plan(on_error="isolate"), False),
        ("r??", plan(on_error="isolate"), False),
        ("r", plan(on_error="abort"), True),
        ("r", plan(on_error="abort", schedule=Schedule.ALL_READY), True),
    ],
)
def test_S15_a_failure_is_its_own_or_cascades(tool: str, how: Plan, expected: bool) -> None:
    turn = Turn(schedule=how.schedule, on_error=how.on_error)
    turn.add(tool, "r2", "x3", complete=True)
    turn.go()
    turn.apply_outcome("b1c1", BROKEN)
    assert needs_abort(turn.of("b1c1"), how) is expected
    assert turn.of("b1c2").stopping == (f"Cancelled: parallel tool call {tool}({tool}) errored" if expected else None)
    assert turn.of("b1c3").is_terminal is expected
    turn.apply_outcome("b1c2", Stopped())
    if expected:
        message = f"Cancelled: parallel tool call {tool}({tool}) errored"
        assert [turn.of(call).error for call in ("b1c2", "b1c3")] == [CallError(type="cancelled", message=message)] * 2
        assert turn.queue.stop is None, "the turn goes on"


def test_S15_what_the_model_still_writes_is_cancelled_too() -> None:
    turn = talking()
    written(turn, "r1?")
    turn.go()
    turn.apply_outcome("b1c1", BROKEN)
    written(turn, "r2")
    turn.apply_reply(ModelReply(calls=(request("r1?"), request("r2"), request("r3"))))
    assert turn.states() == ["error", "cancelled", "cancelled"]
    assert turn.queue.active_batch.is_done


@pytest.mark.parametrize("outcome", [DONE, Stopped(), NeedsApprovalAgain(verdict=Reject(error=BROKEN.error))])
def test_S15_only_a_failure_cascades(outcome: Any) -> None:
    turn = Turn()
    turn.add("r1?", "r2", complete=True)
    turn.go()
    turn.apply_outcome("b1c1", outcome)
    assert (turn.of("b1c2").stopping is not None) == (turn.of("b1c1").status == "error")


def test_S15_what_was_never_run_brings_nobody_down() -> None:
    turn = Turn(on_error="abort")
    turn.add("r1", "r2", complete=True)
    turn.activate_batch()
    turn.queue.update_batch(apply_verdicts(turn.queue.active_batch, {"b1c1": Reject(error=BROKEN.error)}, NOW))
    assert turn.go() == ["b1c2"]


def test_S47_only_a_call_that_ran_alone_changes_the_context() -> None:
    turn = Turn(early=True)
    turn.add("r1", "x2", "x3", complete=True)
    turn.go()
    moved = Finished(result=Result(context=ContextChange(folder="sub")))
    turn.apply_outcome("b1c1", moved)
    assert turn.executions.context == Context()
    turn.go()
    turn.apply_outcome("b1c2", moved)
    assert turn.executions.context.folder == "sub"
    assert [event.note for event in turn.log.events if event.after == "context"] == ["folder sub"]


# What calls leave


def test_a_file_that_was_read_is_seen_and_one_that_was_changed_is_written_too() -> None:
    turn = Turn()
    turn.add("r1", "x2", complete=True)
    turn.go()
    turn.apply_outcome("b1c1", Finished(result=Result(seen={"a": "1"})))
    turn.go()
    turn.apply_outcome("b1c2", Finished(result=Result(seen={"b": "2"})))
    assert (turn.executions.seen, turn.executions.wrote) == ({"a": "1", "b": "2"}, {"b": "2"})
    call = Call(id="b2c1", request=request("x"), bound=bound("x", basis={"b": "before", "c": "before"}))
    assert turn.executions.list_seen_digests(call) == {"b": "2"}
    assert turn.executions.list_written_digests(call) == {"b": "2"}


def test_a_background_command_is_remembered_with_its_host_also_of_a_discarded_attempt() -> None:
    turn = Turn(early=True)
    turn.add("x1")
    turn.go()
    turn.executions.move_call("b1c1", "host-1")
    turn.streams.discard_attempt("s", "gone")
    turn.apply_outcome("b1c1", Finished(result=Result(command=CommandState(handle="h1", running=True))))
    [command] = turn.executions.commands
    assert (command.handle, command.turn, command.call, command.host) == ("h1", "turn", "b1c1", "host-1")
    reading = bound("r").model_copy(update={"arguments": {"handle": "h1"}})
    tool = reading.tool.model_copy(update={"name": "shell_output"})
    call = Call(id="b2c1", request=request("r"), bound=reading.model_copy(update={"tool": tool}))
    assert turn.executions.find_host(call) == "host-1"
    assert turn.executions.find_host(call.model_copy(update={"bound": bound("r")})) is None


def test_a_call_that_took_in_content_from_outside_is_told_however_it_ended() -> None:
    turn = Turn(batches=((request("r1"), request("r2")),))
    turn.activate_batch()
    verdicts = {f"b1c{n}": Allow(rule="r", bound=bound(f"r{n}", takes_in=True)) for n in (1, 2)}
    turn.queue.update_batch(apply_verdicts(turn.queue.active_batch, verdicts, NOW))
    turn.queue.update_batch(start_calls(turn.queue.active_batch, set(verdicts), NOW))
    turn.apply_outcome("b1c1", BROKEN)
    turn.apply_outcome("b1c2", NeedsApprovalAgain(verdict=Reject(error=BROKEN.error)))
    assert (turn.executions.tainted, turn.executions.outside) == (["r1"], {"r1": 1})


def test_S39_a_question_is_asked_only_for_a_call_that_runs_and_only_where_somebody_answers() -> None:
    question = Question(call="b1c1", question=ask().confirmation.model_copy(update={"kind": "question"}))
    for interactive, code in ((True, "not_executing"), (False, "not_interactive")):
        turn = Turn(interactive=interactive)
        turn.add("r1")
        if not interactive:
            turn.go()
        with pytest.raises(RequestRefused) as refusal:
            turn.executions.hold_call(question)
        assert refusal.value.code == code


def test_S39_nobody_answers_a_question_of_a_call_that_has_ended() -> None:
    turn = Turn()
    turn.add("r1")
    turn.go()
    question = Question(call="b1c1", question=ask().confirmation.model_copy(update={"kind": "question"}))
    revision = turn.executions.hold_call(question)
    assert turn.executions.find_answer("b1c1", revision) is None
    turn.apply_outcome("b1c1", DONE)
    assert turn.executions.find_answer("b1c1", revision) == QuestionAnswer(action="cancel")
