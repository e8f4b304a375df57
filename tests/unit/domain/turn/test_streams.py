"""Batches that grow, attempts that are discarded, failures that cascade, users who interrupt: the pure part."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.domain.calls.batch import apply_verdicts, start_calls
from holdfast.domain.calls.call import Call, CallRequest
from holdfast.domain.calls.scheduling import Plan, Schedule, describe_abort, list_startable, needs_abort
from holdfast.domain.calls.tool import AbortsSiblings, Effect, Interrupt, ToolRef, Traits
from holdfast.domain.calls.verdicts import (
    Allow,
    BoundCall,
    Failed,
    Finished,
    Lost,
    NeedsApprovalAgain,
    QuestionRaised,
    Reject,
    Stopped,
)
from holdfast.domain.content import CallError, Result
from holdfast.domain.context import Context, ContextChange
from holdfast.domain.conversation.messages import AssistantMessage, ModelChoice, ModelReply, ToolMessage, UserMessage
from holdfast.domain.turn.turn_io import MAX_CALLS, TurnInput
from holdfast.domain.turn.turn_result import build_carryover, build_result
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls, Interruption
from holdfast.errors import RequestRefused
from tests.unit.domain.calls.test_batch import ask

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STREAMING = Schedule.STREAMING
DONE = Finished(result=Result.from_text("done"))
BROKEN = Failed(error=CallError(type="boom", message="It broke"))


def request(name: str) -> CallRequest:
    return CallRequest(tool=name, arguments={"path": name})


def bound(name: str, **changes: Any) -> BoundCall:
    """By its name: r… reads side by side, i… is safe and changes something, x… must be alone; …! may be interrupted,
    …? brings its siblings down where calls are streamed, …?? always."""
    effects = {"r": Effect.READ, "i": Effect.IDEMPOTENT}
    brings_down: AbortsSiblings = True if name.endswith("??") else "streaming" if name.endswith("?") else False
    traits = Traits(interrupt=Interrupt.CANCEL if name.endswith("!") else Interrupt.BLOCK, aborts_siblings=brings_down)
    return BoundCall(
        tool=ToolRef(name=name, effect=effects.get(name[0], Effect.ONCE), definition="d", traits=traits),
        title=name,
        arguments={"path": name},
        digest=name,
        concurrency_safe=name[0] in "ri",
        timeout_seconds=1,
        heartbeat_seconds=1,
        **changes,
    )


class Turn(TurnState):
    """A turn, and short words for what happens to it."""

    def __init__(self, **input: Any) -> None:
        given: dict[str, Any] = {"keep_open": True, "schedule": STREAMING, **input}
        super().__init__("turn", lambda: NOW, TurnInput(**given))

    def add(self, *names: str, at: int | None = None, stream: str = "s", **more: Any) -> str:
        """Calls of a stream; where they go is known, unless it is said."""
        batch = self.streams.find_growing_batch(stream)
        place = (len(batch.calls) if batch else 0) if at is None else at
        body = AddCalls(stream=stream, at=place, calls=tuple(map(request, names)), **more)
        return self.add_calls(body).id

    def go(self) -> list[str]:
        """Validate what has come and start what may start; which that was."""
        if self.queue.active is None:
            self.activate_batch()
        verdicts = {
            call.id: Allow(rule="r", bound=bound(call.tool)) for call in self.queue.active_batch.unvalidated_calls
        }
        self.queue.update_batch(apply_verdicts(self.queue.active_batch, verdicts, NOW))
        chosen = {call.id for call in list_startable(self.queue.active_batch, self.input.plan)}
        self.queue.update_batch(start_calls(self.queue.active_batch, chosen, NOW))
        return sorted(chosen)

    def of(self, call_id: str) -> Call:
        """A call."""
        found = self.queue.find_call(call_id)
        assert found is not None, call_id
        return found

    def states(self) -> list[str]:
        """How the calls at work stand."""
        return [call.status.value for call in self.queue.active_batch.calls]

    def told(self) -> list[str]:
        """Of which calls the answers were delivered, in order."""
        return [str(event.call) for event in self.log.events if event.kind == "result"]


def talking(**input: Any) -> Turn:
    """A turn whose model writes its first reply."""
    turn = Turn(prompt="Go", model=ModelChoice(), keep_open=False, **input)
    turn.conversation.begin_step()
    return turn


def written(turn: Turn, *names: str, **more: Any) -> str:
    """What the model has written further."""
    return turn.add(*names, stream=f"step-{turn.conversation.steps}", attempt=turn.conversation.attempt, **more)


# Growing


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


def test_S12_a_late_call_of_an_old_attempt_is_refused_also_before_the_new_one_has_called() -> None:
    turn = talking()
    turn.conversation.retry_step("broken")
    with pytest.raises(RequestRefused, match="not at work"):
        turn.add("r1", stream="step-1", attempt=1)
    written(turn, "r1")
    with pytest.raises(RequestRefused, match="not at work"):
        turn.add("r1", stream="step-1", attempt=1, at=0)
    turn.apply_reply(ModelReply(text="Never mind", calls=(request("r1"),)))
    with pytest.raises(RequestRefused, match="not at work"):
        turn.add("r2", stream="step-1", attempt=2, at=1)


def test_S3_a_discarded_attempt_is_in_no_conversation() -> None:
    turn = talking()
    written(turn, "r1", "r2")
    turn.go()
    turn.conversation.retry_step("the line broke")
    assert turn.conversation.attempt == 2
    written(turn, "r3")
    turn.apply_outcome("b1c1", Stopped())
    turn.apply_outcome("b1c2", DONE)
    turn.retire_batch()
    assert turn.conversation.messages == [UserMessage(text="Go")]
    turn.apply_reply(ModelReply(text="Now", calls=(request("r3"), request("r4"))))
    assert turn.go() == ["b2c1", "b2c2"]
    turn.apply_outcome("b2c2", DONE)
    turn.apply_outcome("b2c1", DONE)
    turn.retire_batch()
    _, asked, answered = turn.conversation.messages
    assert isinstance(asked, AssistantMessage)
    assert isinstance(answered, ToolMessage)
    assert asked.call_ids == tuple(response.call_id for response in answered.responses) == ("b2c1", "b2c2")
    turn.conversation.begin_step()
    turn.apply_reply(ModelReply(text="Done"))
    turn.close_turn()
    assert [response.call_id for response in build_result(turn).responses] == ["b2c1", "b2c2"]


def test_S3_what_came_early_counts_whatever_the_reply_says_in_the_end() -> None:
    turn = talking()
    written(turn, "r1", "r2")
    turn.apply_reply(ModelReply(text="Only one", calls=(request("other"),)))
    asked = turn.conversation.messages[-1]
    assert isinstance(asked, AssistantMessage)
    assert [call.tool for call in asked.calls] == ["r1", "r2"]


def test_a_reply_that_asks_for_too_much_in_the_end_fails_and_answers_what_came() -> None:
    turn = talking()
    written(turn, "r1")
    turn.go()
    turn.apply_reply(ModelReply(calls=tuple(request("r") for _ in range(MAX_CALLS + 1))))
    assert turn.queue.stop is not None
    assert turn.queue.stop[0] == "failed"
    turn.apply_outcome("b1c1", Stopped())
    assert turn.queue.active_batch.is_done


def test_S12_a_model_that_fails_for_good_leaves_nothing_of_its_last_attempt() -> None:
    turn = talking()
    written(turn, "r1")
    turn.go()
    turn.fail_step("no credit")
    assert turn.queue.stop == ("failed", "The model did not answer: no credit")
    turn.apply_outcome("b1c1", Stopped())
    turn.retire_batch()
    turn.close_turn()
    assert turn.conversation.messages == [UserMessage(text="Go")]


def test_S3_a_stop_while_the_model_writes_leaves_no_response_without_its_call() -> None:
    turn = talking()
    written(turn, "r1", "x2")
    turn.go()
    turn.stop_turn("cancelled", "Enough")
    turn.apply_outcome("b1c1", DONE)
    turn.retire_batch()
    turn.close_turn()
    _, asked, answered = turn.conversation.messages
    assert isinstance(asked, AssistantMessage)
    assert isinstance(answered, ToolMessage)
    assert asked.call_ids == tuple(response.call_id for response in answered.responses)
    assert [response.status for response in answered.responses] == ["success", "cancelled"], "S7: it had finished"


# Delivering


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


# Siblings


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


# Interrupting


def test_S18_a_message_stops_what_may_be_interrupted_and_waits_for_the_rest() -> None:
    turn = talking(early=True)
    written(turn, "r1!", "r2", "x3")
    turn.go()
    turn.apply_reply(ModelReply(text="I look", calls=(request("r1!"), request("r2"), request("x3"))))
    turn.conversation.apply_interruption(Interruption(message="Stop that", by="ada"))
    assert turn.states() == ["executing", "executing", "cancelled"]
    assert (turn.of("b1c1").stopping, turn.of("b1c2").stopping) == ("The user interrupted with a new message", None)
    assert turn.go() == []
    turn.apply_outcome("b1c1", Stopped())
    turn.apply_outcome("b1c2", DONE)
    turn.retire_batch()
    assert turn.conversation.has_new_message
    turn.conversation.begin_step()
    _, _, answered, said = turn.conversation.messages
    assert isinstance(answered, ToolMessage)
    assert [response.status for response in answered.responses] == ["cancelled", "success", "cancelled"]
    assert "interrupted" in answered.responses[0].text
    assert said == UserMessage(text="Stop that")
    told = [event for event in turn.log.events if event.after == "interrupted"]
    assert [(event.note, event.by) for event in told] == [("Stop that", "ada")]


def test_S18_a_reply_that_is_half_written_is_answered_as_far_as_it_came() -> None:
    turn = talking()
    written(turn, "r1", "x2")
    turn.go()
    turn.conversation.apply_interruption(Interruption(message="Wait"))
    assert turn.queue.active_batch.complete
    with pytest.raises(RequestRefused):
        written(turn, "r3", at=2)
    turn.apply_outcome("b1c1", DONE)
    turn.retire_batch()
    assert turn.conversation.needs_step
    turn.conversation.begin_step()
    kinds = [message.kind for message in turn.conversation.messages]
    assert kinds == ["user", "assistant", "tool", "user"]


def test_S18_while_the_model_thinks_the_message_is_for_another_step() -> None:
    turn = talking()
    turn.conversation.apply_interruption(Interruption(message="One more thing"))
    assert turn.conversation.has_new_message
    assert [message.kind for message in turn.conversation.messages] == ["user"]
    turn.conversation.begin_step()
    assert not turn.conversation.has_new_message
    assert [message.kind for message in turn.conversation.messages] == ["user", "user"]


def test_S18_an_answer_that_the_user_did_not_wait_for_does_not_end_the_turn() -> None:
    turn = talking()
    turn.apply_reply(ModelReply(text="Done"))
    assert not turn.conversation.needs_step
    turn.conversation.apply_interruption(Interruption(message="And now this"))
    assert turn.conversation.needs_step
    turn.conversation.begin_step()
    assert [message.kind for message in turn.conversation.messages] == ["user", "assistant", "user"]


def test_S18_what_waits_for_a_person_is_interrupted_also_in_the_middle_of_its_run() -> None:
    turn = Turn(early=True)
    turn.add("x1", "x2", complete=True)
    turn.go()
    turn.apply_outcome("b1c1", QuestionRaised(question=ask().confirmation.model_copy(update={"kind": "question"})))
    turn.conversation.apply_interruption(Interruption(message="Forget it"))
    assert turn.states() == ["cancelled", "cancelled"]
    assert "It had begun" in str(turn.of("b1c1").error)


@pytest.mark.parametrize("outcome", [NeedsApprovalAgain(verdict=ask()), QuestionRaised(question=ask().confirmation)])
def test_S18_nobody_is_asked_anything_for_what_was_interrupted(outcome: Any) -> None:
    turn = Turn(early=True)
    turn.add("x1", "x2", complete=True)
    turn.go()
    turn.conversation.apply_interruption(Interruption(message="Forget it"))
    turn.apply_outcome("b1c1", outcome)
    assert turn.states() == ["cancelled", "cancelled"]


def test_S31_what_nobody_knows_is_asked_about_also_after_an_interrupt() -> None:
    turn = Turn(early=True)
    turn.add("x1", complete=True)
    turn.go()
    turn.conversation.apply_interruption(Interruption(message="Forget it"))
    turn.apply_outcome("b1c1", Lost(message="Gone"))
    assert turn.states() == ["awaiting_approval"]


def test_S18_a_discarded_attempt_and_its_successor_are_both_interrupted() -> None:
    turn = talking()
    written(turn, "r1")
    turn.go()
    turn.conversation.retry_step("broken")
    written(turn, "r2", at=0)
    turn.conversation.apply_interruption(Interruption(message="Stop"))
    turn.apply_outcome("b1c1", Stopped())
    turn.retire_batch()
    assert turn.go() == []
    turn.retire_batch()
    turn.conversation.begin_step()
    assert [message.kind for message in turn.conversation.messages] == ["user", "assistant", "tool", "user"]


def test_S18_a_turn_that_ends_hears_nothing_more() -> None:
    turn = talking()
    turn.stop_turn("cancelled", "Enough")
    with pytest.raises(RequestRefused, match="ending"):
        turn.conversation.apply_interruption(Interruption(message="Wait"))


# The context


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
