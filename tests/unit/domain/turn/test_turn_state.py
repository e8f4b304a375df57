"""The state of a turn: its conversation, its queue, how it ends, and what it refuses to begin with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.domain.approvals.approval import Confirmation, Decision
from holdfast.domain.base import Message, describe_problems
from holdfast.domain.calls.batch import apply_outcome, apply_verdicts, start_calls
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Finished
from holdfast.domain.content import Result
from holdfast.domain.conversation.messages import AssistantMessage, ModelChoice, ModelReply, ToolMessage, UserMessage
from holdfast.domain.turn.event_log import EVENTS_PER_PAGE
from holdfast.domain.turn.turn_io import MAX_CALLS, MAX_QUEUED, TurnInput, check_batch, check_input
from holdfast.domain.turn.turn_result import build_result
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls, SubmitBatch
from holdfast.errors import RequestRefused

NOW = datetime(2026, 1, 1, tzinfo=UTC)
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


def decision(**changes: Any) -> Decision:
    return Decision.model_validate({"approval_id": "turn/b1c1/1", "digest": "d", "outcome": "yes", **changes})


# The conversation


def test_S3_conversation_holds_every_call_with_its_one_response() -> None:
    state = turn(prompt="Hello", model=MODEL)
    assert state.conversation.begin_step() == 1
    state.apply_reply(ModelReply(text="Let me see", calls=(*ONE, *ONE)))
    run_batch(state)
    assert state.conversation.begin_step() == 2
    state.apply_reply(ModelReply(text="Done"))
    conversation = state.conversation.build_conversation(None)
    assert conversation is not None
    user, asking, tools, answer = conversation.messages
    assert user == UserMessage(text="Hello")
    assert asking == AssistantMessage(text="Let me see", calls=(*ONE, *ONE), call_ids=("b1c1", "b1c2"))
    assert isinstance(tools, ToolMessage)
    assert [(found.call_id, found.model_id, found.text) for found in tools.responses] == [
        ("b1c1", "m1", "of b1c1"),
        ("b1c2", "m1", "of b1c2"),
    ]
    assert answer == AssistantMessage(text="Done")
    state.close_turn()
    assert (build_result(state).status, build_result(state).text) == ("completed", "Done")


def test_S3_conversation_is_not_left_dangling_by_a_stop_before_the_batch_starts() -> None:
    state = turn(prompt="Hello", model=MODEL)
    state.apply_reply(ModelReply(calls=ONE))
    state.stop_turn("cancelled", "Enough")
    state.close_turn()
    assert [answer.text for answer in build_result(state).responses] == ["Enough"]
    assert isinstance(state.conversation.messages[-1], ToolMessage)


def test_model_that_asks_for_too_much_ends_the_turn_with_the_reason() -> None:
    state = turn(prompt="Hello", model=MODEL)
    state.apply_reply(ModelReply(calls=ONE * (MAX_CALLS + 1)))
    assert state.queue.stop is not None
    assert state.queue.stop[0] == "failed"
    assert "1000" in state.queue.stop[1]
    assert state.queue.queued == []


def test_turn_without_a_model_has_no_conversation() -> None:
    assert turn(keep_open=True).conversation.build_conversation(None) is None


# The queue


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


def test_turn_that_ends_takes_nothing_more() -> None:
    finishing, stopping, modelled = turn(keep_open=True), turn(keep_open=True), turn(prompt="p", model=MODEL)
    finishing.finish_turn()
    stopping.stop_turn("cancelled", "Enough")
    for state, code in ((finishing, "not_open"), (stopping, "not_open"), (modelled, "has_model")):
        with pytest.raises(RequestRefused) as refusal:
            state.check_open()
        assert refusal.value.code == code
    turn(keep_open=True).check_open()


# Stopping


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


@pytest.mark.parametrize("outcome", ["yes", "respond"])
def test_only_a_refusal_can_stop_the_turn(outcome: str) -> None:
    with pytest.raises(ValueError, match="goes with the outcome `cancel` only"):
        decision(outcome=outcome, content="x", by="ada", stop_turn=True)


def test_S23_same_decision_counts_once_with_and_without_an_id() -> None:
    for said in (decision(id="one"), decision()):
        state = waiting()
        assert state.apply_decision(said).status == "scheduled"
        seen = len(state.log.events)
        with pytest.raises(Exception, match="already counted"):
            state.apply_decision(said)
        assert len(state.log.events) == seen


# Events


def test_S8_events_are_read_in_pages_without_gap_or_overlap() -> None:
    state = turn(batches=(ONE * 600,))
    first = state.log.build_page(0)
    assert (len(first.events), first.more, first.finished) == (EVENTS_PER_PAGE, True, False)
    second = state.log.build_page(first.events[-1].seq)
    assert [event.seq for event in (*first.events, *second.events)] == list(range(1, 602))
    assert (second.more, second.finished) == (False, False)
    state.close_turn()
    last = state.log.build_page(10_000)
    assert (last.events, last.more, last.finished) == ((), False, True)
    assert state.log.build_page(-5).events == state.log.build_page(0).events


def test_S8_event_says_which_call_where_and_what_changed() -> None:
    state = waiting()
    event = state.log.events[-1]
    assert (event.kind, event.batch, event.call, event.place, event.of) == ("call", "b1", "b1c1", 1, 1)
    assert (event.before, event.after, event.rule) == ("validating", "awaiting_approval", "r")
    assert (event.approval_id, event.digest, event.at) == ("turn/b1c1/1", "d", NOW)
    state.apply_decision(decision(by="ada"))
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


# What a turn begins with


@pytest.mark.parametrize(
    ("input", "code"),
    [
        ({}, "empty_turn"),
        ({"batches": ((),)}, "empty_batch"),
        ({"batches": (ONE, ())}, "empty_batch"),
        ({"batches": (ONE * (MAX_CALLS + 1),)}, "batch_too_large"),
        ({"batches": (ONE,) * (MAX_QUEUED + 1)}, "queue_full"),
        ({"model": MODEL}, "no_prompt"),
        ({"prompt": "p"}, "empty_turn"),
        ({"prompt": "p", "keep_open": True}, "no_model"),
        ({"prompt": "p", "model": MODEL, "batches": (ONE,)}, "model_and_batches"),
        ({"prompt": "p", "model": MODEL, "keep_open": True}, "model_and_batches"),
    ],
)
def test_turn_that_could_do_nothing_is_refused(input: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        check_input(TurnInput(**input))
    assert refusal.value.code == code


@pytest.mark.parametrize(
    "input",
    [
        {"keep_open": True},
        {"batches": (ONE,)},
        {"batches": (ONE * MAX_CALLS,)},
        {"batches": (ONE,) * MAX_QUEUED},
        {"prompt": "", "model": MODEL},
    ],
)
def test_turn_that_can_do_something_is_taken(input: dict[str, Any]) -> None:
    check_input(TurnInput(**input))


def test_queue_is_bounded() -> None:
    check_batch(ONE, queued=MAX_QUEUED - 1)
    with pytest.raises(RequestRefused) as refusal:
        check_batch(ONE, queued=MAX_QUEUED)
    assert refusal.value.code == "queue_full"


@pytest.mark.parametrize(
    "body", [None, [], "x", {"batches": 1}, {"batches": [{}]}, {"batches": [[{"tol": 1}]]}, {"calls": []}]
)
def test_garbage_is_no_input(body: object) -> None:
    with pytest.raises(ValidationError):
        TurnInput.model_validate(body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TurnInput, {"batches": [[{}] * 100_000]}),
        (TurnInput, {"batches": [[]] * 100_000}),
        (TurnInput, {"prompt": "Go", "model": {"script": [{}] * 100_000}}),
        (AddCalls, {"stream": "s", "calls": [{"tool": 1}] * 100_000}),
        (SubmitBatch, {"calls": [{}] * 100_000}),
    ],
)
def test_a_giant_is_refused_before_its_parts_are_looked_at(kind: type[Message], body: dict[str, Any]) -> None:
    """Saying what is wrong with each of them takes longer than a workflow task has, and would be retried for ever."""
    with pytest.raises(ValidationError) as refusal:
        kind.model_validate(body)
    assert refusal.value.error_count() == 1
    assert "100,0" in describe_problems(refusal.value)
    assert len(describe_problems(refusal.value)) < 300
