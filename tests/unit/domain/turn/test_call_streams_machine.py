"""Any interleaving of a model that writes, breaks off and begins anew, of tools that run, fail and stop, and of a user
who interrupts keeps the promises of S3, S9–S13, S15, S16 and S18, under both schedules.

The rules are written out here again, in their own words; nothing is asked of the code under test but what became of the
calls and of the conversation.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.domain.calls.batch import Batch, apply_verdicts
from holdfast.domain.calls.call import Call
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.calls.verdicts import Deny, ExecutionOutcome, Failed, Finished, Lost, QuestionRaised, Stopped
from holdfast.domain.conversation.messages import AssistantMessage, ModelReply, ToolMessage
from holdfast.domain.turn.batch_queue import BatchQueue
from holdfast.domain.turn.turn_conversation import TurnConversation
from holdfast.domain.turn.turn_result import build_result
from holdfast.domain.turn.update_bodies import Interruption
from tests.support.turn_states import BROKEN, DONE, NOW, Turn, request, talking, written
from tests.unit.domain.calls.test_batch import ask

ENDS = {"success", "error", "cancelled"}
TOOLS = ("r", "r!", "r?", "i", "x", "x!", "x?", "x??")
NAMES = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)
OUTCOMES: list[ExecutionOutcome] = [
    DONE,
    DONE,
    BROKEN,
    Stopped(),
    Lost(message="Gone"),
    Lost(message="Gone", repeatable=True),
    QuestionRaised(question=ask().confirmation.model_copy(update={"kind": "question"})),
]
PLACES = st.integers(0, 7)
SELDOM = st.integers(0, 5).map(lambda number: number == 3)
RARELY = st.integers(0, 30).map(lambda number: number == 17)
"""What ends much happens seldom, so that something is left to end."""


def is_safe(call: Call) -> bool:
    return call.tool[0] in "ri"


def brings_down(call: Call, turn: Turn) -> bool:
    """S15, by its words."""
    if turn.input.on_error:
        return turn.input.on_error == "abort"
    return call.tool.endswith("??") or (call.tool.endswith("?") and turn.input.schedule is Schedule.STREAMING)


class StreamingMachine(RuleBasedStateMachine):
    """One turn with a model, as its workflow drives it."""

    turn: Turn

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, Call] = {}
        self.began: set[str] = set()
        self.gone: set[str] = set()
        """Batches whose attempt failed."""
        self.halted: set[str] = set()
        """Batches of which nothing begins any more."""

    @initialize(
        schedule=st.sampled_from(Schedule),
        early=st.booleans(),
        parallel=st.sampled_from([1, 2, 50]),
        on_error=st.sampled_from([None, None, "isolate", "abort"]),
        names=NAMES,
    )
    def begin(self, names: list[str], **input: Any) -> None:
        self.turn = talking(**input)
        if self.conversation.writing:
            self.write(names, at_once=True)
        else:
            self.ask(names)

    # The model

    @precondition(lambda self: self.conversation.writing)
    @rule(names=NAMES, at_once=st.booleans())
    def write(self, names: list[str], at_once: bool) -> None:
        """It has written further calls, which validation may have seen at once."""
        batch = written(self.turn, *names)
        self.go_on()
        if at_once and self.queue.active:
            self.start()
        if batch in self.halted:
            assert all(call.is_terminal for call in self.batch(batch).calls if call.id not in self.began)

    @precondition(lambda self: self.thinking())
    @rule(names=NAMES, at_once=st.booleans())
    def ask(self, names: list[str], at_once: bool = True) -> None:
        """Its reply is complete, with calls of which some came before."""
        batch = self.turn.streams.find_growing_batch(self.conversation.writing)
        came = tuple(call.request for call in batch.calls) if batch else ()
        self.turn.apply_reply(ModelReply(text="So", calls=(*came, *map(request, names))))
        self.go_on()
        if at_once and self.queue.active:
            self.start()

    @precondition(lambda self: self.thinking() and not self.turn.streams.find_growing_batch(self.conversation.writing))
    @rule(luck=RARELY)
    def answer(self, luck: bool) -> None:
        if luck:
            self.turn.apply_reply(ModelReply(text="Done"))
            self.go_on()

    @precondition(lambda self: self.conversation.writing)
    @rule(luck=SELDOM)
    def break_off(self, luck: bool) -> None:
        """S12: the attempt fails, and another begins."""
        if not luck:
            return
        if batch := self.turn.streams.find_growing_batch(self.conversation.writing):
            self.gone.add(batch.id)
            self.halted.add(batch.id)
        before, messages = self.conversation.attempt, list(self.conversation.messages)
        assert self.conversation.retry_step("the line broke") == before + 1
        assert self.conversation.messages == messages

    @precondition(lambda self: self.thinking())
    @rule(luck=RARELY)
    def give_up(self, luck: bool) -> None:
        if luck:
            if batch := self.turn.streams.find_growing_batch(self.conversation.writing):
                self.gone.add(batch.id)
            self.turn.fail_step("no credit")
            self.go_on()

    # The user

    @precondition(lambda self: not self.queue.stop)
    @rule(luck=RARELY)
    def interrupt(self, luck: bool) -> None:
        """S18."""
        if not luck:
            return
        before = {call.id: call for call in self.calls()}
        self.conversation.apply_interruption(Interruption(message="Wait"))
        self.halted |= {batch.id for batch in self.open_batches()}
        for call in self.calls():
            old = before.get(call.id, call)
            blocks = old.is_running and not old.is_asking and not call.tool.endswith("!")
            assert call.is_terminal or call.stopping or blocks
            assert not (blocks and call.stopping and not old.stopping), "it was to finish"
        self.go_on()

    @precondition(lambda self: self.queue.active and self.queue.active_batch.calls)
    @rule(place=PLACES, luck=SELDOM)
    def stop_call(self, place: int, luck: bool) -> None:
        if not luck:
            return
        call = self.queue.active_batch.calls[place % len(self.queue.active_batch.calls)]
        self.queue.stop_call(call.id, None)

    @precondition(lambda self: self.queue.active)
    @rule(luck=RARELY)
    def stop_batch(self, luck: bool) -> None:
        if luck:
            self.turn.stop_batch("Enough")
            self.halted.add(self.queue.active_batch.id)

    @rule(luck=RARELY)
    def stop_turn(self, luck: bool) -> None:
        """S16: everything is answered, and nothing new comes."""
        if luck:
            self.turn.stop_turn("cancelled", "Enough")
            assert not self.queue.active or self.queue.active_batch.complete
            self.go_on()

    # The engine

    @precondition(lambda self: self.queue.active)
    @rule(asked=RARELY, denied=RARELY)
    def judge(self, asked: bool, denied: bool) -> None:
        """Validation answers on what has come; sometimes somebody is to be asked."""
        if denied:
            verdicts = {
                call.id: Deny(rule="no", message="No") for call in self.queue.active_batch.unvalidated_calls[:1]
            }
            self.queue.update_batch(apply_verdicts(self.queue.active_batch, verdicts, NOW))
        if asked:
            verdicts_ = {call.id: ask() for call in self.queue.active_batch.unvalidated_calls[:1]}
            self.queue.update_batch(apply_verdicts(self.queue.active_batch, verdicts_, NOW))

    @precondition(lambda self: self.queue.active)
    @rule()
    def start(self) -> None:
        before = self.queue.active_batch
        begun = self.turn.go()
        self.check_start(before, begun)
        self.began |= set(begun)

    @precondition(lambda self: self.queue.active and any(call.is_running for call in self.queue.active_batch.calls))
    @rule(place=PLACES, outcome=st.sampled_from(OUTCOMES))
    def finish(self, place: int, outcome: ExecutionOutcome) -> None:
        running = [call for call in self.queue.active_batch.calls if call.is_running]
        call = running[place % len(running)]
        self.turn.apply_outcome(call.id, outcome)
        after = self.turn.of(call.id)
        if self.queue.active_batch.discarded:
            assert after.status != "success", "S12"
        elif isinstance(outcome, Finished):
            assert after.status == "success", "S7: what finished keeps its result, whatever it was told"
        if call.stopping:
            assert after.is_terminal
        unknown = isinstance(outcome, Lost) and not outcome.repeatable
        if unknown and not (call.stopping or self.queue.active_batch.discarded):
            assert after.status == "awaiting_approval", "S31: nobody knows what became of it, so a person is asked"
        elif isinstance(outcome, Failed | Lost) and not call.stopping and brings_down(call, self.turn):
            self.halted.add(self.queue.active_batch.id)
            beside = [other for other in self.queue.active_batch.calls if other.id != call.id]
            assert all(other.is_terminal or other.stopping for other in beside), "S15"

    @precondition(lambda self: self.queue.active and self.queue.active_batch.is_done)
    @rule()
    def retire(self) -> None:
        self.turn.retire_batch()
        self.go_on()

    # What always holds

    @invariant()
    def S1_what_has_ended_never_changes(self) -> None:
        for call in self.calls():
            if call.is_terminal:
                assert self.ended.setdefault(call.id, call) == call
            else:
                assert call.id not in self.ended

    @invariant()
    def S3_every_request_of_the_conversation_is_answered_once_and_in_order(self) -> None:
        if not hasattr(self, "turn"):
            return
        open_calls: tuple[str, ...] = ()
        for message in self.conversation.messages:
            if isinstance(message, ToolMessage):
                assert tuple(answer.call_id for answer in message.responses) == open_calls
                open_calls = ()
                continue
            assert not open_calls, "somebody speaks while a call has no response"
            if isinstance(message, AssistantMessage):
                assert len(message.calls) == len(message.call_ids)
                open_calls = message.call_ids
                assert not any(call.partition("c")[0] in self.gone for call in open_calls), "S12"
        if open_calls:
            assert any(batch.get(open_calls[0]) for batch in self.open_batches())

    @invariant()
    def S10_unsafe_calls_execute_alone_and_no_more_than_may(self) -> None:
        if hasattr(self, "turn") and self.queue.active:
            executing = [call for call in self.queue.active_batch.calls if call.status == "executing"]
            assert len(executing) <= self.turn.input.parallel
            assert len(executing) <= 1 or all(map(is_safe, executing))

    @invariant()
    def S13_answers_are_delivered_in_order_each_once_and_nothing_that_was_discarded(self) -> None:
        if not hasattr(self, "turn"):
            return
        told = [event for event in self.turn.log.events if event.kind == "result"]
        for batch in self.batches():
            places = [event.place for event in told if event.batch == batch.id]
            assert places == list(range(1, len(places) + 1))
            assert not places or batch.id not in self.gone or self.queue.delivers_early
            if batch.is_done and batch.id not in self.gone:
                assert len(places) == len(batch)

    def check_start(self, before: Batch, begun: list[str]) -> None:
        """S9, S10 and S11 on what has just begun, by their words."""
        turn, calls = self.turn, self.queue.active_batch.calls
        assert not begun or turn.queue.active_batch.id not in self.halted
        beside = [call for call in calls if call.status == "executing" or (call.pause and not call.is_terminal)]
        assert len(beside) <= 1 or all(map(is_safe, beside))
        open_already = any(call.started_at for call in before.calls)
        if begun and turn.input.schedule is Schedule.ALL_READY and not open_already:
            assert turn.queue.active_batch.complete
            assert all(call.status in {"scheduled", "executing", *ENDS} for call in calls), "S9"
        for place, call in enumerate(calls):
            if call.id not in begun:
                continue
            assert turn.queue.active_batch.complete or turn.input.early or call.tool[0] == "r", "S11"
            held = [one for one in calls[:place] if one.status not in {*ENDS, "executing"} and not one.pause]
            assert all(map(is_safe, held)), "S10: an unsafe call was overtaken"

    def teardown(self) -> None:
        """S3: driven to its end, every call is answered, and the conversation is whole."""
        if not hasattr(self, "turn"):
            return
        turn = self.turn
        for _ in range(1_000):
            if turn.queue.active is None and (turn.queue.stop or (not turn.queue.queued and not self.thinking())):
                break
            self.drive()
        turn.close_turn()
        self.S1_what_has_ended_never_changes()
        self.S3_every_request_of_the_conversation_is_answered_once_and_in_order()
        self.S13_answers_are_delivered_in_order_each_once_and_nothing_that_was_discarded()
        for batch in self.batches():
            assert batch.is_done
            assert all(call.response for call in batch.calls)
        last = turn.conversation.messages[-1]
        assert not (isinstance(last, AssistantMessage) and last.calls), "a call is left without its response"
        answered = {answer.call_id for answer in build_result(turn).responses}
        assert answered == {call.id for batch in self.batches() if batch.id not in self.gone for call in batch.calls}

    def drive(self) -> None:
        turn = self.turn
        if turn.queue.active is None and turn.queue.queued:
            turn.activate_batch()
        elif turn.queue.active is None or (
            not turn.queue.active_batch.complete and all(call.is_terminal for call in turn.queue.active_batch.calls)
        ):
            if self.thinking():
                self.ask(["r"]) if turn.streams.find_growing_batch(turn.conversation.writing) else turn.apply_reply(
                    ModelReply(text="Done")
                )
        elif turn.queue.active_batch.is_done:
            turn.retire_batch()
            self.go_on()
        elif not turn.queue.active_batch.complete:
            self.ask(["r"])
        else:
            for call in turn.queue.active_batch.waiting_calls:
                turn.queue.stop_call(call.id, "Nobody answered")
            turn.go()
            for call in turn.queue.active_batch.calls:
                if call.is_running:
                    turn.apply_outcome(call.id, Stopped() if call.stopping else DONE)

    # Help

    @property
    def queue(self) -> BatchQueue:
        return self.turn.queue

    @property
    def conversation(self) -> TurnConversation:
        return self.turn.conversation

    def thinking(self) -> bool:
        """Is a model step at work? As in the workflow: there is none while calls wait for one that is complete."""
        turn = self.turn
        if turn.queue.stop or turn.conversation.text is not None or turn.conversation.has_new_message:
            return False
        if turn.conversation.writing:
            return True
        return turn.queue.active is None and not turn.queue.queued

    def go_on(self) -> None:
        """As the workflow does: take the next batch, and ask the model again when nothing else is to be done."""
        turn = self.turn
        if turn.queue.stop is None and turn.queue.active is None and turn.queue.queued:
            turn.activate_batch()
        if (
            turn.queue.stop is None
            and turn.queue.active is None
            and not turn.queue.queued
            and turn.conversation.text is None
            and not turn.conversation.writing
        ):
            turn.conversation.begin_step()

    def calls(self) -> list[Call]:
        return [call for batch in self.batches() for call in batch.calls]

    def batch(self, batch_id: str) -> Batch:
        return next(batch for batch in self.batches() if batch.id == batch_id)

    def batches(self) -> list[Batch]:
        return [*self.queue.done, *self.open_batches()] if hasattr(self, "turn") else []

    def open_batches(self) -> list[Batch]:
        return [*([self.queue.active] if self.queue.active else []), *self.queue.queued]


TestStreaming = StreamingMachine.TestCase
TestStreaming.settings = settings(max_examples=250, stateful_step_count=50)
