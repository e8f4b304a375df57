"""Streams of calls: batches that grow, and attempts that are discarded."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.calls.verdicts import (
    Finished,
    Stopped,
)
from holdfast.domain.content import CallError, Result
from holdfast.domain.context import Context, ContextChange
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.call_streams import CallStreams
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.execution_log import ExecutionLog
from holdfast.domain.turn.turn_io import MAX_CALLS, TurnInput
from holdfast.domain.turn.turn_result import build_carryover
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls
from holdfast.errors import RequestRefused
from tests.support.turn_states import DONE, NOW, Turn, request


def test_S11_calls_begin_while_more_are_to_come() -> None:
    turn = Turn()
    turn.add("r1", "r2")
    assert turn.go() == ["b1c1", "b1c2"]
    turn.add("r3")
    assert turn.go() == ["b1c3"]
    for call in ("b1c1", "b1c2", "b1c3"):
        turn.apply_outcome(call, DONE)
    assert not turn.queue.active_batch.is_done, "more may come"
    turn.add(complete=True)
    assert turn.queue.active_batch.is_done


def test_S11_before_the_reply_is_complete_only_reads_begin() -> None:
    turn = Turn()
    turn.add("r1", "i2", "r3", "x4", "r5")
    assert turn.go() == ["b1c1", "b1c3"], "i2 is safe and holds nobody back; x4 is not"
    turn.apply_outcome("b1c1", DONE)
    turn.apply_outcome("b1c3", DONE)
    assert turn.go() == []
    turn.add(complete=True)
    assert turn.go() == ["b1c2"]
    turn.apply_outcome("b1c2", DONE)
    assert turn.go() == ["b1c4"]
    turn.apply_outcome("b1c4", DONE)
    assert turn.go() == ["b1c5"]


def test_S11_unless_the_turn_says_otherwise() -> None:
    turn = Turn(early=True)
    turn.add("x1", "r2")
    assert turn.go() == ["b1c1"]


def test_S9_under_all_ready_nothing_begins_before_the_last_has_come() -> None:
    turn = Turn(schedule=Schedule.ALL_READY)
    turn.add("r1")
    assert turn.go() == []
    turn.add("r2", complete=True)
    assert turn.go() == ["b1c1", "b1c2"]


def test_S10_a_limit_holds_back_what_could_run() -> None:
    turn = Turn(parallel=2)
    turn.add("r1", "r2", "r3", complete=True)
    assert turn.go() == ["b1c1", "b1c2"]
    turn.apply_outcome("b1c2", DONE)
    assert turn.go() == ["b1c3"]


def test_calls_that_come_twice_count_once() -> None:
    turn = Turn()
    turn.add("r1", "r2")
    turn.add("r1", "r2", "r3", at=0)
    turn.add("r2", at=1)
    turn.add("r3", at=2)
    turn.activate_batch()
    assert [call.tool for call in turn.queue.active_batch.calls] == ["r1", "r2", "r3"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"at": 3, "calls": ("r9",)}, "calls_missing"),
        ({"at": 1, "calls": ("other",)}, "other_calls"),
        ({"at": 0, "calls": ("r1", "other")}, "other_calls"),
        ({"attempt": 1}, "old_attempt"),
        ({"attempt": 3, "at": 1, "calls": ("r1",)}, "calls_missing"),
        ({"attempt": 3}, "empty_batch"),
        ({"stream": "new"}, "empty_batch"),
        ({"stream": "new", "at": 1, "calls": ("r1",)}, "calls_missing"),
        ({"stream": "new", "calls": ("r",) * (MAX_CALLS + 1)}, "batch_too_large"),
        ({"at": 2, "calls": ("r",) * (MAX_CALLS - 1)}, "batch_too_large"),
        ({"stream": "over", "at": 1, "calls": ("r2",)}, "stream_ended"),
        ({"stream": "over", "attempt": 2, "calls": ("r2",)}, "stream_ended"),
    ],
)
def test_calls_that_belong_nowhere_are_refused_and_change_nothing(body: dict[str, Any], code: str) -> None:
    turn = Turn()
    turn.add("r1", stream="over", complete=True)
    turn.add("r0")
    turn.add("r1", "r2", at=0, attempt=2)
    before = (list(turn.queue.queued), list(turn.queue.done), list(turn.log.events))
    given = {"stream": "s", "attempt": 2, **body, "calls": tuple(map(request, body.get("calls", ())))}
    if body.get("stream"):
        given["attempt"] = body.get("attempt", 1)
    with pytest.raises(RequestRefused) as refusal:
        turn.add_calls(AddCalls(**given))
    assert refusal.value.code == code
    assert (turn.queue.queued, turn.queue.done, turn.log.events) == before


def test_S14_a_stream_waits_in_the_queue_and_grows_there() -> None:
    turn = Turn(batches=((request("x1"),),))
    turn.go()
    turn.add("r1")
    turn.add("r2", complete=True)
    assert [len(batch) for batch in turn.queue.queued] == [2]
    turn.apply_outcome("b1c1", DONE)
    turn.retire_batch()
    assert turn.go() == ["b2c1", "b2c2"]


def test_S14_a_stream_that_was_withdrawn_takes_nothing_more() -> None:
    turn = Turn(batches=((request("x1"),),))
    turn.go()
    turn.add("r1")
    assert [answer.status for answer in turn.queue.withdraw_batch("b2").responses] == ["cancelled"]
    with pytest.raises(RequestRefused, match="complete"):
        turn.add("r2", at=1)
    with pytest.raises(RequestRefused, match="complete"):
        turn.add("r2", at=0, attempt=2)


def test_a_turn_that_finishes_waits_for_no_further_calls() -> None:
    turn = Turn()
    turn.add("r1")
    turn.go()
    turn.finish_turn()
    turn.apply_outcome("b1c1", DONE)
    assert turn.queue.active_batch.is_done


# Attempts


def test_S42_a_stream_that_ended_in_an_earlier_run_takes_nothing_more() -> None:
    turn = Turn()
    turn.add("r1", complete=True)
    turn.go()
    turn.apply_outcome("b1c1", DONE)
    turn.retire_batch()
    later = TurnState("turn", lambda: NOW, turn.input.model_copy(update={"carried": build_carryover(turn, "run-1")}))
    for attempt in (1, 2):
        with pytest.raises(RequestRefused, match="is complete"):
            later.add_calls(AddCalls(stream="s", attempt=attempt, calls=(request("r1"),)))


def test_S12_a_new_attempt_discards_the_one_before() -> None:
    turn = Turn(early=True)
    turn.add("r1", "r2", "x3", "x4")
    turn.go()
    turn.apply_outcome("b1c1", DONE)
    assert turn.add("r5", at=0, attempt=2, reason="the line broke") == "b2"
    assert turn.states() == ["success", "executing", "cancelled", "cancelled"]
    assert turn.of("b1c2").stopping == "the line broke"
    assert turn.of("b1c3").error == CallError(type="discarded", message="the line broke")
    assert (turn.of("b1c3").attempt, turn.of("b2c1").attempt) == (1, 2)
    assert not turn.queue.active_batch.is_done
    turn.apply_outcome("b1c2", Stopped())
    turn.retire_batch()
    assert [(batch.id, batch.status) for batch in turn.queue.list_batches()] == [("b1", "discarded"), ("b2", "queued")]
    told = [event for event in turn.log.events if event.batch == "b1" and event.kind == "batch"]
    assert [(event.after, event.note) for event in told][2:] == [("discarding", "the line broke"), ("discarded", None)]


def test_S12_what_finishes_after_its_attempt_was_discarded_is_cancelled_all_the_same() -> None:
    turn = Turn()
    turn.add("r1")
    turn.go()
    turn.streams.discard_attempt("s", "gone")
    turn.apply_outcome("b1c1", DONE)
    ended = turn.of("b1c1")
    assert (ended.status, ended.error) == ("cancelled", CallError(type="discarded", message="gone; it had finished"))
    assert ended.response is not None
    assert ended.response.parts == DONE.result.parts


def test_S12_nothing_that_a_discarded_attempt_saw_or_changed_counts_any_more() -> None:
    turn = Turn(early=True)
    kept = turn.executions
    kept.seen, kept.context = {"a": "1"}, Context(folder="sub")
    turn.add("x1", "r2", "x3")
    turn.go()
    turn.apply_outcome("b1c1", Finished(result=Result(seen={"a": "2"}, context=ContextChange(folder="else"))))
    assert (kept.seen, kept.wrote, kept.context.folder) == ({"a": "2"}, {"a": "2"}, "else")
    turn.go()
    turn.streams.discard_attempt("s", "gone")
    turn.apply_outcome("b1c2", Finished(result=Result(seen={"b": "1"})))
    assert (kept.seen, kept.wrote, kept.context.folder) == ({"a": "1"}, {}, "sub")


# The streams alone


def test_a_stream_that_was_discarded_or_has_ended_does_not_grow() -> None:
    log = EventLog(lambda: NOW)
    queue = BatchQueue("turn", log)
    streams = CallStreams(queue, ExecutionLog(TurnInput(), queue, log, TurnMemory()))
    streams.add_calls(AddCalls(stream="s", calls=(request("r1"),)))
    growing = streams.find_growing_batch("s")
    assert growing is not None
    assert (growing.id, streams.newest) == ("b1", {"s": ("b1", 1)})
    streams.discard_attempt("s", "gone")
    streams.discard_attempt("s", "again")
    assert [event.note for event in log.events if event.after == "discarding"] == ["gone"]
    assert [(batch.id, batch.status) for batch in queue.list_batches()] == [("b1", "discarded")]
    streams.add_calls(AddCalls(stream="s", attempt=2, calls=(request("r1"),), complete=True))
    assert (streams.find_growing_batch("s"), streams.find_growing_batch("t")) == (None, None)
    streams.discard_attempt("other", "there is no such stream")
