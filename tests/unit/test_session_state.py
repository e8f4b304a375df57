"""The state of a session: no message is lost or has two turns, whatever the turns hear and however often it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast import CallRequest, ModelChoice, ModelReply, RequestRefused, TurnInput
from holdfast.conversations import Compaction, ModelSettings, Usage, UserMessage
from holdfast.delegating import Delegation, outcome_of, turn_for
from holdfast.families import family, turn_of_call, turn_of_session
from holdfast.limits import TurnLimits
from holdfast.memory import Memory
from holdfast.modes import Mode
from holdfast.session_state import SessionState
from holdfast.sessions import MAX_WAITING, Close, Say, SessionInput, Wish, check_session
from holdfast.turns import Left, TurnResult
from holdfast.verdicts import Failed, Finished, Stopped

START = SessionInput(turn=TurnInput(model=ModelChoice(), limits=TurnLimits(steps=7)))


def session() -> SessionState:
    state = SessionState("s")
    state.begin(START)
    return state


def said(number: int, how: Any = "queue") -> Say:
    return Say(message=f"m{number}", how=how, id=str(number), by="ana")


def ended(state: SessionState, prompt: str, *heard: str, **more: Any) -> TurnResult:
    """What a turn leaves that heard these."""
    messages = tuple(UserMessage(text=text) for text in (prompt, *(f"m{one}" for one in heard)))
    left = Left(memory=state.memory, messages=messages, heard=heard, **more)
    return TurnResult(status="completed", text="ok", usage=Usage(input_tokens=1), left=left)


class Conversation(RuleBasedStateMachine):
    """A session to which messages come in every way, whose turns hear some of them, and which continues as new."""

    @initialize()
    def begin(self) -> None:
        self.state = session()
        self.sent = 0
        self.prompt = ""
        self.told: list[str] = []

    @rule(how=st.sampled_from(["queue", "append", "interrupt"]))
    def say(self, how: Any) -> None:
        self.sent += 1
        _, word = self.state.say(said(self.sent, how))
        assert (word is None) == (self.state.turn is None or how == "queue")
        if word:
            self.told.append(str(self.sent))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def say_again(self, data: st.DataObject) -> None:
        _, word = self.state.say(said(data.draw(st.integers(1, self.sent))))
        assert word is None

    @precondition(lambda self: self.state.turn is None and self.state.waiting)
    @rule()
    def begin_turn(self) -> None:
        input = self.state.begin_turn()
        assert (input.session, input.limits.steps, input.requester) == ("s", 7, "ana")
        self.prompt = input.prompt or ""

    @precondition(lambda self: self.state.turn)
    @rule(data=st.data())
    def end_turn(self, data: st.DataObject) -> None:
        heard = [one for one in self.told if data.draw(st.booleans())]
        self.state.end_turn(ended(self.state, self.prompt, *heard))
        self.told = []

    @precondition(lambda self: self.state.turn)
    @rule()
    def fail_turn(self) -> None:
        self.state.fail_turn("terminated")
        self.told = []

    @precondition(lambda self: self.state.turn is None)
    @rule()
    def continue_as_new(self) -> None:
        input = SessionInput.model_validate_json(self.state.carry().model_dump_json())
        self.state = SessionState("s")
        self.state.begin(input)

    @invariant()
    def every_message_is_somewhere_once(self) -> None:
        known = [message.text for message in self.state.messages if isinstance(message, UserMessage)]
        known += [one.message for one in self.state.waiting]
        known += [self.prompt] if self.state.turn else []
        known += [f"m{one}" for one in self.told]
        assert sorted(known) == sorted(f"m{number}" for number in range(1, self.sent + 1))


TestConversation = Conversation.TestCase


def test_a_full_session_and_a_closed_one_refuse() -> None:
    state = session()
    for number in range(MAX_WAITING):
        state.say(said(number))
    with pytest.raises(RequestRefused, match="100 messages already wait"):
        state.say(said(MAX_WAITING))
    state.close(Close(now=True))
    assert state.waiting == []
    with pytest.raises(RequestRefused, match="closed"):
        state.say(said(MAX_WAITING))
    assert state.view().status == "closed"


def test_a_compacted_conversation_is_told_as_the_turn_left_it() -> None:
    state = session()
    for number in (1, 2):
        state.say(said(number))
        state.begin_turn()
        state.end_turn(ended(state, f"m{number}"))
    state.say(said(3))
    state.begin_turn()
    state.end_turn(ended(state, "m3", compaction=Compaction(before=2, summary="It was so.")))
    assert [getattr(message, "text", "")[-10:] for message in state.messages] == ["It was so.", "m3"]
    assert state.page(0, None).epoch == 1


def test_another_model_and_mode_are_for_the_next_turns() -> None:
    state = session()
    state.configure(Wish(model=ModelChoice(name="openai:x"), mode=Mode.PLAN))
    state.say(said(1))
    input = state.begin_turn()
    assert input.model
    assert input.memory
    assert (input.model.name, input.memory.mode) == ("openai:x", Mode.PLAN)


@pytest.mark.parametrize("turn", [TurnInput(), TurnInput(model=ModelChoice(), prompt="p"), TurnInput(keep_open=True)])
def test_what_is_no_start_of_a_session_is_refused(turn: TurnInput) -> None:
    with pytest.raises(RequestRefused):
        check_session(SessionInput(turn=turn))


def test_families() -> None:
    one, other = turn_of_session("s", 1), turn_of_session("s", 2)
    assert family(one) == family(other) == family(turn_of_call(one, "b1c1", 2)) == "s"
    assert family("turn-1") != family("turn-12")
    assert turn_of_call(one, "b1c1") != turn_of_call(one, "b1c1", 2)


def test_a_delegated_turn_gets_what_is_left() -> None:
    limits = TurnLimits(steps=5, tokens=100)
    model = ModelChoice(name="a:b", settings=ModelSettings(max_tokens=3))
    parent = TurnInput(prompt="p", model=model, limits=limits, session="s", depth=1, interactive=False)
    memory = Memory(mode=Mode.AUTO_EDIT)
    given = Delegation(prompt="Do", tools=["read_file"], mode="plan", max_steps=50)
    made = turn_for(parent, memory, limits.model_copy(update={"tokens": 70}), given)
    assert made.memory
    assert (made.prompt, made.session, made.depth, made.interactive) == ("Do", None, 2, False)
    assert (made.limits.steps, made.limits.tokens) == (5, 70)
    assert (made.memory.mode, made.memory.context.tools) == (Mode.PLAN, ("read_file",))


def test_what_a_delegated_turn_ends_with() -> None:
    assert isinstance(outcome_of(TurnResult(status="completed", text="x"), stopping=False), Finished)
    assert isinstance(outcome_of(TurnResult(status="cancelled"), stopping=True), Stopped)
    failed = outcome_of(TurnResult(status="failed", reason="why"), stopping=False)
    assert isinstance(failed, Failed)
    assert (failed.error.type, failed.error.message) == ("turn_failed", "why")


def test_a_reply_to_a_turn_that_was_spoken_to_meanwhile_is_not_its_end() -> None:
    from datetime import UTC, datetime

    from holdfast.requests import Interruption
    from holdfast.state import TurnState

    state = TurnState("t", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    state.begin(TurnInput(prompt="Go", model=ModelChoice()))
    state.think()
    state.append(Interruption(message="Also this", id="1"))
    state.append(Interruption(message="Also this", id="1"))
    assert [message.kind for message in state.messages] == ["user"]
    state.take_reply(ModelReply(text="Done."))
    assert state.text is None
    assert [getattr(message, "text", "") for message in state.messages] == ["Go", "Done.", "Also this"]
    state.think()
    state.take_reply(ModelReply(calls=(CallRequest(tool="echo"),)))
    state.append(Interruption(message="And that", id="2"))
    state.activate()
    state.stop_batch("enough")
    state.retire()
    assert [message.kind for message in state.messages[-3:]] == ["assistant", "tool", "user"]
    assert state.heard == ["1", "2"]
