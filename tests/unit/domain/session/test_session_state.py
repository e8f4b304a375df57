"""The state of a session: no message is lost or has two turns, whatever the turns hear and however often it goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast import ModelChoice, RequestRefused, TurnInput
from holdfast.domain.calls.verdicts import Failed, Finished, Stopped
from holdfast.domain.conversation.messages import Compaction, ModelSettings, Usage, UserMessage
from holdfast.domain.modes import Mode
from holdfast.domain.session.session_io import (
    MAX_WAITING,
    CloseSession,
    SendMessage,
    SessionChange,
    SessionInput,
    check_session,
)
from holdfast.domain.session.session_state import SessionState
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.delegation import Delegation, build_delegated_input, build_delegated_outcome
from holdfast.domain.turn.ids import find_family, format_call_turn_id, format_session_turn_id
from holdfast.domain.turn.turn_io import TurnLimits, TurnRemainder, TurnResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = SessionInput(turn=TurnInput(model=ModelChoice(), limits=TurnLimits(steps=7)))


def session() -> SessionState:
    return SessionState("s", START)


def said(number: int, how: Any = "queue") -> SendMessage:
    return SendMessage(message=f"m{number}", how=how, id=str(number), by="ana")


def ended(state: SessionState, prompt: str, *heard: str, **more: Any) -> TurnResult:
    """What a turn leaves that heard these."""
    messages = tuple(UserMessage(text=text) for text in (prompt, *(f"m{one}" for one in heard)))
    left = TurnRemainder(memory=state.memory, messages=messages, heard=heard, **more)
    return TurnResult(status="completed", text="ok", usage=Usage(input_tokens=1), left=left)


def continued(state: SessionState) -> SessionState:
    """The session's next run."""
    input = SessionInput.model_validate_json(state.build_carryover().model_dump_json())
    return SessionState("s", input)


class Conversation(RuleBasedStateMachine):
    """A session to which messages come in every way, whose turns hear some of them, and which continues as new."""

    @initialize()
    def begin(self) -> None:
        self.state = session()
        self.sent = 0
        self.prompt = ""
        self.told: list[str] = []
        self.withdrawn: set[str] = set()

    @rule(how=st.sampled_from(["queue", "append", "interrupt"]))
    def say(self, how: Any) -> None:
        self.sent += 1
        _, word = self.state.add_message(said(self.sent, how))
        assert (word is None) == (self.state.turn is None or how == "queue")
        if word:
            self.told.append(str(self.sent))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def say_again(self, data: st.DataObject) -> None:
        _, word = self.state.add_message(said(data.draw(st.integers(1, self.sent))))
        assert word is None

    @precondition(lambda self: self.state.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        waiting = [one for one in self.state.waiting if one.id not in self.withdrawn]
        if waiting:
            chosen = data.draw(st.sampled_from(waiting)).id
            self.state.withdraw_message(chosen)
            self.withdrawn.add(chosen)

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
        self.state = continued(self.state)

    @invariant()
    def every_message_is_somewhere_once(self) -> None:
        known = [message.text for message in self.state.messages if isinstance(message, UserMessage)]
        known += [one.message for one in self.state.waiting if one.id not in self.withdrawn]
        known += [f"m{one}" for one in self.withdrawn]
        known += [self.prompt] if self.state.turn else []
        known += [f"m{one}" for one in self.told]
        assert sorted(known) == sorted(f"m{number}" for number in range(1, self.sent + 1))


TestConversation = Conversation.TestCase


def test_a_full_session_and_a_closed_one_refuse() -> None:
    state = session()
    for number in range(MAX_WAITING):
        state.add_message(said(number))
    with pytest.raises(RequestRefused, match="100 messages are queued"):
        state.add_message(said(MAX_WAITING))
    state.close(CloseSession(now=True))
    assert state.waiting == []
    with pytest.raises(RequestRefused, match="closed"):
        state.add_message(said(MAX_WAITING))
    assert state.build_view().status == "closed"


def test_a_compacted_conversation_is_told_as_the_turn_left_it() -> None:
    state = session()
    for number in (1, 2):
        state.add_message(said(number))
        state.begin_turn()
        state.end_turn(ended(state, f"m{number}"))
    state.add_message(said(3))
    state.begin_turn()
    state.end_turn(ended(state, "m3", compaction=Compaction(before=2, summary="It was so.")))
    assert [getattr(message, "text", "")[-10:] for message in state.messages] == ["It was so.", "m3"]
    assert state.build_page(0, None).epoch == 1


def test_another_model_and_mode_are_for_the_next_turns() -> None:
    state = session()
    state.configure(SessionChange(model=ModelChoice(name="openai:x"), mode=Mode.PLAN))
    state.add_message(said(1))
    input = state.begin_turn()
    assert input.model
    assert input.memory
    assert (input.model.name, input.memory.mode) == ("openai:x", Mode.PLAN)


@pytest.mark.parametrize("turn", [TurnInput(), TurnInput(model=ModelChoice(), prompt="p"), TurnInput(keep_open=True)])
def test_what_is_no_start_of_a_session_is_refused(turn: TurnInput) -> None:
    with pytest.raises(RequestRefused):
        check_session(SessionInput(turn=turn))


def test_families() -> None:
    one, other = format_session_turn_id("s", 1), format_session_turn_id("s", 2)
    assert find_family(one) == find_family(other) == find_family(format_call_turn_id(one, "b1c1", 2)) == "s"
    assert find_family("turn-1") != find_family("turn-12")
    assert format_call_turn_id(one, "b1c1") != format_call_turn_id(one, "b1c1", 2)


def test_a_delegated_turn_gets_what_is_left() -> None:
    limits = TurnLimits(steps=5, tokens=100)
    model = ModelChoice(name="a:b", settings=ModelSettings(max_tokens=3))
    parent = TurnInput(prompt="p", model=model, limits=limits, session="s", depth=1, interactive=False)
    memory = TurnMemory(mode=Mode.AUTO_EDIT)
    given = Delegation(prompt="Do", tools=["read_file"], mode="plan", max_steps=50)
    made = build_delegated_input(parent, memory, limits.model_copy(update={"tokens": 70}), given)
    assert made.memory
    assert (made.prompt, made.session, made.depth, made.interactive) == ("Do", None, 2, False)
    assert (made.limits.steps, made.limits.tokens) == (5, 70)
    assert (made.memory.mode, made.memory.context.tools) == (Mode.PLAN, ("read_file",))


def test_what_a_delegated_turn_ends_with() -> None:
    assert isinstance(build_delegated_outcome(TurnResult(status="completed", text="x"), stopping=False), Finished)
    assert isinstance(build_delegated_outcome(TurnResult(status="cancelled"), stopping=True), Stopped)
    failed = build_delegated_outcome(TurnResult(status="failed", reason="why"), stopping=False)
    assert isinstance(failed, Failed)
    assert (failed.error.type, failed.error.message) == ("turn_failed", "why")


def test_a_message_that_is_withdrawn_has_no_turn_and_the_others_keep_their_numbers() -> None:
    state = session()
    promised = [state.add_message(said(number))[0].turn for number in range(1, 5)]
    assert promised == ["s~1", "s~2", "s~3", "s~4"]
    for number in ("1", "3"):
        state.withdraw_message(number)
        with pytest.raises(RequestRefused, match="is queued"):
            state.withdraw_message(number)
    state = continued(state)
    assert state.build_view().waiting == ("m2", "m4")
    begun = []
    while state.waiting:
        begun.append((state.begin_turn().prompt, state.turn))
        state.end_turn(ended(state, ""))
    assert begun == [("m2", "s~2"), ("m4", "s~4")]


def test_a_session_can_be_seen_however_much_was_said_to_a_turn_that_heard_nothing() -> None:
    state = session()
    state.add_message(said(0))
    state.begin_turn()
    for number in range(1, 301):
        state.add_message(said(number, "append"))
    state.end_turn(ended(state, "m0"))
    assert len(state.waiting) == 300
    assert len(state.build_view().waiting) == MAX_WAITING


def test_what_waits_is_bounded_in_size() -> None:
    state = session()
    for number in range(20):
        state.add_message(SendMessage(message="x" * 1_000_000, id=str(number)))
    with pytest.raises(RequestRefused, match="characters"):
        state.add_message(SendMessage(message="x", id="more"))
