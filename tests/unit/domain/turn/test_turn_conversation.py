"""The conversation of a turn: replies, attempts at them, and users who speak meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.domain.calls.batch import apply_outcome, apply_verdicts, start_calls
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import (
    Allow,
    BoundCall,
    Finished,
    Lost,
    NeedsApprovalAgain,
    QuestionRaised,
    Stopped,
)
from holdfast.domain.content import Result
from holdfast.domain.conversation.compaction import ConversationCut
from holdfast.domain.conversation.messages import (
    AssistantMessage,
    ModelChoice,
    ModelReply,
    ScriptedReply,
    ToolMessage,
    Usage,
    UserMessage,
)
from holdfast.domain.turn.activity_io import CompactResult
from holdfast.domain.turn.turn_io import MAX_CALLS, TurnInput
from holdfast.domain.turn.turn_result import build_result
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.update_bodies import AddCalls, Interruption
from holdfast.errors import RequestRefused
from tests.support.turn_states import DONE, NOW, Turn, request, talking, written
from tests.unit.domain.calls.test_batch import ask

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


def test_S12_a_late_call_of_an_old_attempt_is_refused_also_before_the_new_one_has_called() -> None:
    turn = talking()
    turn.conversation.retry_step("broken")
    with pytest.raises(RequestRefused, match="not the current one"):
        turn.add("r1", stream="step-1", attempt=1)
    written(turn, "r1")
    with pytest.raises(RequestRefused, match="not the current one"):
        turn.add("r1", stream="step-1", attempt=1, at=0)
    turn.apply_reply(ModelReply(text="Never mind", calls=(request("r1"),)))
    with pytest.raises(RequestRefused, match="not the current one"):
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


def test_S3_a_streamed_reply_that_cannot_be_a_batch_leaves_calls_and_responses_together() -> None:
    state = TurnState("t", lambda: NOW, TurnInput(prompt="Go", model=ModelChoice(), schedule=Schedule.STREAMING))
    state.conversation.begin_step()
    state.add_calls(AddCalls(stream="step-1", calls=ONE * 2))
    state.apply_reply(ModelReply(calls=ONE * 1_001))
    state.close_turn()
    assert [message.kind for message in state.conversation.messages] == ["user", "assistant", "tool"]
    assert build_result(state).status == "failed"


# The user's messages


def test_a_reply_to_a_turn_that_was_spoken_to_meanwhile_is_not_its_end() -> None:
    state = turn(prompt="Go", model=MODEL)
    state.conversation.begin_step()
    state.conversation.append_message(Interruption(message="Also this", id="1"))
    state.conversation.append_message(Interruption(message="Also this", id="1"))
    assert [message.kind for message in state.conversation.messages] == ["user"]
    state.apply_reply(ModelReply(text="Done."))
    assert state.conversation.needs_step
    state.conversation.begin_step()
    assert [getattr(message, "text", "") for message in state.conversation.messages] == ["Go", "Done.", "Also this"]
    state.apply_reply(ModelReply(calls=(CallRequest(tool="echo"),)))
    state.conversation.append_message(Interruption(message="And that", id="2"))
    state.activate_batch()
    state.stop_batch("enough")
    state.retire_batch()
    assert state.conversation.heard == ["1"]
    state.conversation.begin_step()
    assert [message.kind for message in state.conversation.messages[-3:]] == ["assistant", "tool", "user"]
    assert state.conversation.heard == ["1", "2"]


def test_what_a_sessions_turn_did_not_read_is_not_heard() -> None:
    state = TurnState("s~1", lambda: NOW, TurnInput(prompt="Go", model=ModelChoice(), session="s"))
    state.conversation.begin_step()
    state.conversation.append_message(Interruption(message="Also this", id="1"))
    state.fail_step("broken")
    state.close_turn()
    assert (state.conversation.heard, [message.kind for message in state.conversation.messages]) == ([], ["user"])


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


# Steps and pages


def test_another_model_and_another_attempt_are_told_and_discard_what_was_streamed() -> None:
    turn = Turn(prompt="Go", model=ModelChoice(fallbacks=("other",)), keep_open=False)
    turn.conversation.begin_step()
    written(turn, "r1")
    turn.conversation.use_next_model("no credit")
    assert (turn.conversation.model, turn.conversation.attempt, turn.conversation.window) == (1, 2, None)
    assert turn.log.events[-1].note == "step 1: other is asked now: no credit"
    assert [batch.status for batch in turn.queue.list_batches()] == ["discarded"]


def test_a_page_has_the_messages_that_the_reader_lacks_and_the_script_with_the_first_alone() -> None:
    conversation = turn(prompt="Hello", model=ModelChoice(script=(ScriptedReply(text="Hi"),))).conversation
    first = conversation.build_page(0, None, ("echo",))
    assert first.about
    assert (first.messages, first.about.tools, first.about.messages) == ((UserMessage(text="Hello"),), ("echo",), ())
    rest = conversation.build_page(1, first.epoch, None)
    assert rest.about
    assert (rest.messages, len(first.about.model.script), rest.about.model.script) == ((), 1, ())


def test_a_conversation_that_was_made_shorter_is_read_anew() -> None:
    conversation = turn(prompt="Hello", model=MODEL).conversation
    conversation.filled = 900
    conversation.skip_compaction(CompactResult(usage=Usage(input_tokens=5)))
    assert (conversation.shortest, conversation.filled) == (900, 900)
    done = CompactResult(cut=ConversationCut(before=1), summary="It began", usage=Usage(input_tokens=5))
    conversation.apply_compaction(done)
    assert (conversation.epoch, conversation.filled, conversation.usage.input_tokens) == (1, 0, 10)
    assert conversation.compaction.summary == "It began"
    assert conversation.build_page(1, 0, None).start == 0
