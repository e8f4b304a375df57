"""The batches of a turn: their order, their events, which answers are delivered."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.approvals.approval import Confirmation, Decision, DecisionAction
from holdfast.domain.calls.batch import apply_outcome, apply_verdicts, start_calls
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import (
    Allow,
    Ask,
    BoundCall,
    Finished,
)
from holdfast.domain.content import Result
from holdfast.domain.conversation.messages import ModelChoice, ModelReply, ToolMessage
from holdfast.domain.turn.batch_queue import SUBMITTED_KEPT, BatchQueue
from holdfast.domain.turn.carryover import RunCarryover, TurnMemory
from holdfast.domain.turn.event_log import EventLog
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState
from holdfast.errors import RequestRefused
from tests.support.turn_states import DONE, NOW, Turn, request, talking, written

MODEL = ModelChoice()
TOOL = ToolRef(name="t", effect=Effect.ONCE, definition="d")
BOUND = BoundCall(tool=TOOL, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1)
ONE = (CallRequest(tool="t", id="m1"),)


def turn(**input: Any) -> TurnState:
    return TurnState("turn", lambda: NOW, TurnInput(**input))


def run_batch(state: TurnState) -> None:
    batch = state.activate_batch()
    verdicts = {call.id: Allow(rule="r", bound=BOUND) for call in batch.calls}
    state.queue.update_batch(apply_verdicts(batch, verdicts, NOW))
    for call in batch.calls:
        state.queue.update_batch(start_calls(state.queue.active_batch, {call.id}, NOW))
        state.queue.update_batch(
            apply_outcome(state.queue.active_batch, call.id, Finished(result=Result.from_text(f"of {call.id}")), NOW)
        )
    state.retire_batch()


def waiting(**input: Any) -> TurnState:
    state = turn(batches=(ONE,), **input)
    asked = Ask(rule="r", bound=BOUND, confirmation=Confirmation(kind="exec", title="t"))
    state.queue.update_batch(apply_verdicts(state.activate_batch(), {"b1c1": asked}, NOW))
    return state


def test_S14_batches_run_in_order_and_each_has_its_own_results() -> None:
    state = turn(batches=(ONE, (*ONE, *ONE)), keep_open=True)
    state.queue.enqueue_batch(ONE)
    assert [batch.status for batch in state.queue.list_batches()] == ["queued"] * 3
    state.queue.withdraw_batch("b3")
    run_batch(state)
    run_batch(state)
    assert [(batch.id, batch.status) for batch in state.queue.list_batches()] == [
        ("b1", "done"),
        ("b2", "done"),
        ("b3", "withdrawn"),
    ]
    assert [[found.call_id for found in batch.responses] for batch in state.queue.list_batches()] == [
        ["b1c1"],
        ["b2c1", "b2c2"],
        ["b3c1"],
    ]
    assert {event.after for event in state.log.events if event.batch == "b3"} == {
        "queued",
        "validating",
        "cancelled",
        "withdrawn",
    }


def test_S14_only_what_is_queued_can_be_withdrawn() -> None:
    state = turn(batches=(ONE,), keep_open=True)
    state.activate_batch()
    for batch in ("b1", "b2", ""):
        with pytest.raises(RequestRefused) as refusal:
            state.queue.withdraw_batch(batch)
        assert refusal.value.code == "not_queued"


def test_S8_event_says_which_call_where_and_what_changed() -> None:
    state = waiting()
    event = state.log.events[-1]
    assert (event.kind, event.batch, event.call, event.place, event.of) == ("call", "b1", "b1c1", 1, 1)
    assert (event.before, event.after, event.rule) == ("validating", "awaiting_approval", "r")
    assert (event.approval_id, event.digest, event.at) == ("turn/b1c1/1", "d", NOW)
    state.apply_decision(Decision(approval_id="turn/b1c1/1", digest="d", outcome=DecisionAction.PROCEED_ONCE, by="ada"))
    assert (state.log.events[-1].by, state.log.events[-1].approval_id) == ("ada", None)


def test_S8_running_call_that_is_told_to_stop_is_an_event_once() -> None:
    state = turn(batches=(ONE,))
    state.queue.update_batch(apply_verdicts(state.activate_batch(), {"b1c1": Allow(rule="r", bound=BOUND)}, NOW))
    state.queue.update_batch(start_calls(state.queue.active_batch, {"b1c1"}, NOW))
    seen = len(state.log.events)
    state.queue.stop_call("b1c1", "Enough")
    state.stop_batch("Again")
    [event] = state.log.events[seen:]
    assert (event.before, event.after, event.note) == ("executing", "executing", "stopping: Enough")


# Delivery


def test_S13_answers_are_delivered_in_order_and_once() -> None:
    turn = Turn()
    turn.add("r1", "r2", "r3", complete=True)
    turn.go()
    turn.apply_outcome("b1c2", DONE)
    assert turn.told() == []
    turn.apply_outcome("b1c1", DONE)
    assert turn.told() == ["b1c1", "b1c2"]
    turn.apply_outcome("b1c3", DONE)
    turn.retire_batch()
    assert turn.told() == ["b1c1", "b1c2", "b1c3"]


def test_S13_a_caller_is_told_nothing_that_may_yet_be_discarded() -> None:
    turn = Turn()
    turn.add("r1", "r2")
    turn.go()
    turn.apply_outcome("b1c1", DONE)
    assert turn.told() == []
    turn.add(complete=True)
    assert turn.told() == ["b1c1"]


def test_S13_viewers_see_results_of_a_model_that_still_writes_as_they_become_final() -> None:
    turn = talking()
    written(turn, "r1", "r2", "r3")
    turn.go()
    turn.apply_outcome("b1c2", DONE)
    assert turn.told() == []
    turn.apply_outcome("b1c1", DONE)
    assert turn.told() == ["b1c1", "b1c2"]
    assert [answer.call_id for answer in turn.queue.list_answers("b1c1")] == ["b1c1", "b1c2"]
    turn.apply_reply(ModelReply(calls=(request("r1"), request("r2"), request("r3"))))
    turn.apply_outcome("b1c3", DONE)
    assert turn.told() == ["b1c1", "b1c2", "b1c3"]


def test_S12_what_viewers_saw_of_an_attempt_that_broke_off_reaches_no_conversation() -> None:
    turn = talking()
    written(turn, "r1", "r2")
    turn.go()
    turn.apply_outcome("b1c1", DONE)
    turn.conversation.retry_step("it broke off")
    turn.apply_outcome("b1c2", DONE)
    turn.retire_batch()
    assert turn.told() == ["b1c1"]
    assert [answer.call_id for answer in turn.queue.list_answers("b1c1")][:1] == ["b1c1"], "whoever saw it can read it"
    assert not [message for message in turn.conversation.messages if isinstance(message, ToolMessage)]


def test_S13_what_was_discarded_is_never_delivered() -> None:
    turn = Turn()
    turn.add("r1", "r2")
    turn.go()
    turn.apply_outcome("b1c1", DONE)
    turn.streams.discard_attempt("s", "gone")
    turn.apply_outcome("b1c2", DONE)
    turn.retire_batch()
    assert turn.told() == []


# The queue alone


def queue(**more: Any) -> BatchQueue:
    return BatchQueue("turn", EventLog(lambda: NOW), **more)


def test_a_batch_is_queued_once_for_each_key_of_its_caller() -> None:
    batches = queue()
    assert [batches.submit_batch(ONE, key) for key in ("one", "two", "one")] == ["b1", "b2", "b1"]
    assert (len(batches.queued), batches.call_count) == (2, 2)


def test_the_keys_of_the_newest_batches_are_kept() -> None:
    batches = queue()
    for number in range(SUBMITTED_KEPT + 1):
        batches.submit_batch(ONE, str(number))
    assert "0" not in batches.submitted
    assert len(batches.submitted) == SUBMITTED_KEPT


def test_S16_the_first_reason_to_stop_stands_and_what_never_started_is_answered_with_it() -> None:
    batches = queue()
    batches.enqueue_batch(ONE)
    batches.enqueue_batch(ONE)
    batches.activate_batch()
    batches.stop_all("cancelled", "Enough")
    batches.stop_all("failed", "Too late")
    assert batches.stop == ("cancelled", "Enough")
    assert batches.active_batch.is_done
    batches.retire_batch()
    [closed] = batches.close_queued("Enough")
    assert (closed.id, [answer.text for answer in closed.responses], batches.queued) == ("b2", ["Enough"], [])
    assert [(batch.id, batch.status) for batch in batches.list_done_batches()] == [("b1", "done"), ("b2", "done")]


@pytest.mark.parametrize(("writing", "complete"), [("s", False), (None, True), ("other", True)])
def test_a_stopped_batch_takes_further_calls_only_of_the_stream_that_is_still_written(
    writing: str | None, complete: bool
) -> None:
    batches = queue()
    batches.extend_batch(batches.open_batch("s", 1), ONE, complete=False)
    batches.activate_batch()
    batches.stop_batch(None, writing=writing)
    assert batches.active_batch.complete is complete


def test_answers_are_listed_from_a_call_on_over_batches_and_in_pages() -> None:
    state = turn(batches=(ONE * 2, ONE))
    run_batch(state)
    run_batch(state)
    assert [answer.call_id for answer in state.queue.list_answers("b1c2")] == ["b1c2", "b2c1"]
    assert state.queue.list_answers("b3c1") == ()


def test_S42_ids_and_counts_go_on_from_the_earlier_runs() -> None:
    carried = RunCarryover(memory=TurnMemory(), began_at=NOW, batches=2, calls=5, counts={"success": 5})
    batches = queue(carried=carried)
    assert batches.enqueue_batch(ONE).id == "b3"
    batches.activate_batch()
    assert (batches.call_count, batches.status_counts) == (6, {"success": 5, "validating": 1})
