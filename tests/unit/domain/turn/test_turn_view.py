"""What a viewer reads is bounded and harmless, whatever a model, a tool or a person wrote."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.domain.approvals.approval import Actor, Confirmation, Decision, DecisionAction
from holdfast.domain.calls.batch import Batch, apply_verdicts, build_batch
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import Allow, Ask, BoundCall, Deny, Reject, Verdict
from holdfast.domain.content import CallError, Response, TextPart
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.turn.approval_view import INBOX_ITEMS, build_approval_view, build_inbox_summary
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState
from holdfast.domain.turn.turn_view import build_batch_view, build_call_view, build_turn_view

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "\x1b[31m" + "é" * 5_000_000
EVIL = "a\x1b]0;b\x07\x1b[2J\r\x00\u202ec\x9b1m"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def a_bound(text: str, arguments: dict[str, JsonValue]) -> BoundCall:
    tool = ToolRef(name="t", effect=Effect.READ, definition="d")
    return BoundCall(
        tool=tool, title=text, arguments=arguments, digest="d" * 64, timeout_seconds=1, heartbeat_seconds=1
    )


def a_question(text: str) -> Confirmation:
    return Confirmation.model_construct(
        kind="exec",
        title=text,
        command=text,
        programs=(text,) * 1_000,
        diff=text,
        path=text,
        server=text,
        urls=(text,) * 1_000,
    )


def a_call(text: str, arguments: JsonValue = None, *, status: Status = Status.AWAITING_APPROVAL) -> Call:
    arguments = {"content": text} if arguments is None else arguments
    ended = status in {Status.SUCCESS, Status.ERROR, Status.CANCELLED}
    decision = Decision(approval_id="t/b1c1/1", digest="d", outcome="cancel", by=text[:500], note=text[:500])  # type: ignore[arg-type]
    return Call(
        id="b1c1",
        request=CallRequest(tool=text, arguments=arguments, id=text),
        status=status,
        bound=a_bound(text[:500], arguments) if isinstance(arguments, dict) else None,
        rule="default",
        confirmation=a_question(text),
        revision=1,
        stopping=text if status is Status.EXECUTING else None,
        decision=decision if ended else None,
        response=Response.model_validate(
            {
                "call_id": "b1c1",
                "tool": text,
                "status": status.value,
                "parts": [TextPart(text=text)] * 3,
                "display": text,
                "error": CallError(type=text, message=text),
            }
        )
        if ended
        else None,
    )


def test_S40_view_of_one_huge_call_is_small() -> None:
    for status in Status:
        view = build_call_view(a_call(LONG, status=status), 1, 1)
        assert len(view.model_dump_json()) < 12_000, status


def test_S40_view_of_one_huge_approval_is_small() -> None:
    view = build_approval_view("turn", a_call(LONG), since=NOW)
    assert len(view.model_dump_json()) < 20_000


@pytest.mark.parametrize(
    "arguments",
    [
        "x" * 5_000_000,
        ["x" * 1_000] * 5_000,
        {f"{number}" * 1_000: "x" for number in range(5_000)},
        {"a": {"b": {"c": ["x" * 100_000] * 50}}},
        [[["x"] * 100] * 100] * 100,
        10**4_000,
    ],
    ids=["text", "list", "keys", "deep", "wide", "number"],
)
def test_S40_arguments_of_any_shape_are_cut(arguments: Any) -> None:
    view = build_call_view(a_call("t", arguments, status=Status.VALIDATING), 1, 1)
    assert len(view.arguments) <= 1_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(max_examples=60)
@given(text=st.text(), arguments=JSON, status=st.sampled_from(Status))
def test_S40_any_call_can_be_viewed(text: str, arguments: Any, status: Status) -> None:
    call = a_call(text, arguments, status=status)
    assert not RAW.search(build_call_view(call, 1, 1).arguments)
    assert len(build_call_view(call, 1, 1).model_dump_json()) < 12_000
    build_approval_view("turn", call)


@pytest.mark.parametrize("status", Status)
def test_S32_escape_codes_never_reach_a_viewer(status: Status) -> None:
    call = a_call(EVIL, status=status)
    for view in (build_call_view(call, 1, 1), build_approval_view("turn", call)):
        for name, value in view.model_dump().items():
            values = value if isinstance(value, tuple) else (value,)
            assert not any(isinstance(item, str) and RAW.search(item) for item in values), name


def a_turn(batch: Batch) -> TurnState:
    state = TurnState("turn", lambda: NOW, TurnInput(keep_open=True))
    state.queue.active = batch
    return state


def test_S32_escape_codes_never_reach_a_viewer_of_events() -> None:
    state = TurnState("turn", lambda: NOW, TurnInput(batches=((CallRequest(tool=EVIL),),)))
    batch = state.activate_batch()
    asked = Ask(rule="r", bound=a_bound(EVIL, {}), confirmation=a_question(EVIL))
    state.queue.update_batch(apply_verdicts(batch, {"b1c1": asked}, NOW))
    said = {
        "approval_id": "turn/b1c1/1",
        "digest": "d" * 64,
        "outcome": "no",
        "by": EVIL,
        "note": EVIL,
        "stop_turn": True,
    }
    state.apply_decision(Decision.model_validate(said))
    state.retire_batch()
    state.close_turn()
    for event in state.log.events:
        for name, value in event.model_dump().items():
            assert not (isinstance(value, str) and RAW.search(value)), name


def test_S8_events_are_small_whatever_they_tell() -> None:
    state = TurnState("turn", lambda: NOW, TurnInput(batches=((CallRequest(tool=LONG, arguments=LONG, id=LONG),),)))
    batch = state.activate_batch()
    asked = Ask(rule="r", bound=a_bound(LONG, {}), confirmation=a_question(LONG))
    state.queue.update_batch(apply_verdicts(batch, {"b1c1": asked}, NOW))
    state.stop_turn("cancelled", LONG)
    state.retire_batch()
    state.close_turn()
    for event in state.log.events:
        assert len(event.model_dump_json()) < 3_000


def test_S40_view_of_a_thousand_calls_grows_by_a_few_kilobytes_each() -> None:
    requests = [CallRequest(tool="t", arguments={"content": "x" * 90_000}, id=f"{number}") for number in range(1_000)]
    batch = build_batch("b1", requests, NOW)
    verdict = Ask(rule="r", bound=a_bound("t" * 400, {"content": "x" * 90_000}), confirmation=a_question("c" * 400))
    view = build_turn_view(a_turn(apply_verdicts(batch, {call.id: verdict for call in batch.calls}, NOW)), {})
    assert view.state == "awaiting_approval"
    assert view.counts == {"awaiting_approval": 1_000}
    assert view.batch is not None
    assert [call.place for call in view.batch.calls] == list(range(1, 1_001))
    assert max(len(call.model_dump_json()) for call in view.batch.calls) < 12_000
    assert max(len(approval.model_dump_json()) for approval in view.approvals) < 12_000


def test_S40_inbox_summary_holds_the_first_few_and_says_how_many_there_are() -> None:
    waiting = tuple(a_call("c" * 5_000).model_copy(update={"id": f"b1c{place}"}) for place in range(1, 101))
    summary = build_inbox_summary("turn", waiting, {"b1c1": NOW})
    assert INBOX_ITEMS == 20
    assert [item.approval_id for item in summary.approvals] == [f"turn/b1c{place}/1" for place in range(1, 21)]
    assert summary.total == 100
    assert [item.since for item in summary.approvals[:2]] == [NOW, None]
    assert max(len(item.model_dump_json()) for item in summary.approvals) < 10_000


def test_place_and_number_of_calls_are_told() -> None:
    view = build_batch_view(build_batch("b1", [CallRequest(tool="a"), CallRequest(tool="b")], NOW))
    assert [(call.place, call.of, call.tool) for call in view.calls] == [(1, 2, "a"), (2, 2, "b")]


def test_state_of_a_turn_is_told() -> None:
    def told(input: TurnInput | None = None, *, over: bool = False, **changes: Any) -> str:
        state = TurnState("turn", lambda: NOW, input)
        state.log.is_closed = over
        for name, value in changes.items():
            setattr(state.queue, name, value)
        return build_turn_view(state, {}).state

    batch = build_batch("b1", [CallRequest(tool="a")], NOW)
    assert told() == "idle"
    assert told(TurnInput(prompt="p", model=ModelChoice())) == "thinking"
    assert told(active=batch) == "running"
    assert told(queued=[batch]) == "running"
    assert told(active=batch, stop=("cancelled", "x")) == "stopping"
    assert told(over=True, stop=("cancelled", "x")) == "ended"


@pytest.mark.parametrize("command", ["ls \x1b]0; ; rm -rf ~ \x07", "ls \x1bP ; rm -rf ~ \x1b\\", "ls \x1b] ; rm -rf ~"])
def test_S20_nothing_that_would_run_is_hidden_from_the_person_who_approves(command: str) -> None:
    call = a_call("t").model_copy(update={"confirmation": Confirmation(kind="exec", title="t", command=command)})
    view = build_approval_view("turn", call)
    assert view.command is not None
    assert "rm -rf ~" in view.command


def test_S20_every_argument_that_the_command_does_not_tell_is_shown() -> None:
    arguments: dict[str, JsonValue] = {"command": "ls", "environment": {"BASH_ENV": "evil.sh"}, "directory": "sub"}
    shown = Confirmation(kind="exec", title="Run ls", command="ls", told=("command",))
    asked = Ask(rule="r", bound=a_bound("Run ls", arguments), confirmation=shown)
    batch = apply_verdicts(build_batch("b1", [CallRequest(tool="shell")], NOW), {"b1c1": asked}, NOW)
    view = build_approval_view("turn", batch.calls[0])
    assert view.others == '{"environment": {"BASH_ENV": "evil.sh"}, "directory": "sub"}'
    assert "ls" not in view.others


def test_S20_what_policy_let_through_carries_its_outcome_and_rule_as_what_people_decided() -> None:
    asked = build_batch("b1", [CallRequest(tool="t")] * 5, NOW)
    bound = a_bound("Look", {})
    verdicts: dict[str, Verdict] = {
        "b1c1": Allow(rule="default: reads-proceed", bound=bound),
        "b1c2": Allow(rule="grant g1: all of it", bound=bound, actor=Actor(kind="person", name="ada"), grant="g1"),
        "b1c3": Deny(rule="user: never", message="no"),
        "b1c4": Reject(error=CallError(type="invalid_tool_params", message="what?")),
        "b1c5": Ask(rule="default: changes-ask", bound=bound, confirmation=Confirmation(kind="info", title="Look")),
    }
    view = build_batch_view(apply_verdicts(asked, verdicts, NOW), {"g1": DecisionAction.PROCEED_ALWAYS_TOOL})
    assert [(call.outcome, call.actor, call.rule) for call in view.calls] == [
        ("proceed_once", "policy", "default: reads-proceed"),
        ("proceed_always_tool", "person", "grant g1: all of it"),
        ("cancel", "policy", "user: never"),
        (None, None, None),
        (None, None, "default: changes-ask"),
    ]


def test_a_tool_is_shown_by_what_its_author_calls_it_beside_its_name() -> None:
    call = a_call("t")
    assert call.bound
    ref = call.bound.tool.model_copy(update={"display_name": "Look around\x1b[2J"})
    shown = call.model_copy(update={"bound": call.bound.model_copy(update={"tool": ref})})
    for view in (build_call_view(shown, 1, 1), build_approval_view("turn", shown)):
        assert (view.tool, view.display_name) == ("t", "Look around␛[2J")
    assert build_call_view(call, 1, 1).display_name == "t"
    assert build_call_view(a_call("t", [1]), 1, 1).display_name == "t"


def test_S2_a_view_has_both_durations_of_a_call() -> None:
    times = {"created_at": NOW, "started_at": NOW + timedelta(seconds=60), "ended_at": NOW + timedelta(seconds=62)}
    view = build_call_view(a_call("t", status=Status.SUCCESS).model_copy(update=times), 1, 1)
    assert (view.duration_seconds, view.execution_seconds) == (62, 2)
