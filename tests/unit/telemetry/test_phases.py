"""What has begun and ended, from the events of a turn; what is counted of it, and drawn. No server."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from holdfast import TurnInput
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.calls.events import Event
from holdfast.domain.calls.transitions import end_call
from holdfast.domain.content import CallError
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.turn.turn_state import TurnState
from holdfast.plugin.telemetry import TOOLS_COUNTED, Instruments
from holdfast.telemetry.metrics import (
    CALLS,
    COUNTERS,
    HISTOGRAMS,
    CountedKeys,
    Measurement,
    measure_phase,
    measure_usage,
)
from holdfast.telemetry.phases import (
    OTHER,
    REASONS,
    UNKNOWN,
    Phase,
    PhaseTracker,
    find_reason,
    find_tool_label,
    parse_revision,
)
from holdfast.telemetry.spans import (
    SpanPlace,
    TurnFacts,
    build_session_span,
    build_turn_spans,
    derive_execution_place,
    derive_root_place,
    parse_place,
)
from holdfast.testing import build_request

START = datetime(2026, 1, 1, tzinfo=UTC)
CANARY = "kZ8qW3vTu6Rm9pLx7"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(seq: int, kind: Any, after: str, before: str | None = None, **more: Any) -> Event:
    about = {"batch": "b1", "call": "b1c1", "place": 1, "of": 1} if kind == "call" else {}
    return Event(seq=seq, at=at(seq), kind=kind, before=before, after=after, **{**about, **more})


def told(*events: Event, call: Call | None = None) -> list[Phase]:
    phases = PhaseTracker(START, lambda _: call)
    return [phase for one in events for phase in phases.apply_event(one)]


def short(phases: list[Phase]) -> list[tuple[str, str, float]]:
    return [(phase.kind, phase.outcome, phase.seconds) for phase in phases]


ASKED = {"approval_id": "t/b1c1/1", "asks": "exec"}


def test_a_call_that_is_asked_about_waits_and_runs() -> None:
    found = told(
        event(1, "batch", "queued", batch="b1"),
        event(2, "call", "validating"),
        event(4, "batch", "active", batch="b1"),
        event(5, "call", "awaiting_approval", "validating", **ASKED),
        event(8, "call", "awaiting_approval", "awaiting_approval", **ASKED, note="somebody is editing it"),
        event(9, "call", "scheduled", "awaiting_approval", by="ana", actor="person"),
        event(10, "call", "executing", "scheduled"),
        event(16, "call", "success", "executing"),
        event(17, "batch", "done", batch="b1", of=1),
        event(18, "turn", "completed"),
    )
    assert short(found) == [
        ("validate", "awaiting_approval", 1),  # not while its batch was queued
        ("approval", "proceed", 4),
        ("scheduled", "executing", 1),
        ("execute", "success", 6),
        ("call", "success", 14),
        ("batch", "done", 13),
        ("turn", "completed", 18),
    ]
    assert (found[1].asks, found[1].revision, found[1].actor, found[1].seq) == ("exec", 1, "person", 5)


@pytest.mark.parametrize(
    ("after", "actor", "outcome"),
    [
        ("scheduled", "person", "proceed"),
        ("scheduled", "policy", "allowed"),
        ("scheduled", "runtime", "expired"),
        ("scheduled", None, "answered"),
        ("success", "person", "respond"),
        ("error", "runtime", "expired"),
        ("error", "person", "failed"),
        ("error", "policy", "denied"),
        ("cancelled", "person", "refuse"),
        ("cancelled", None, "stopped"),
    ],
)
def test_a_wait_ends_as_it_was_answered(after: str, actor: Any, outcome: str) -> None:
    asked = event(1, "call", "awaiting_approval", "validating", **ASKED)
    found = told(asked, event(2, "call", after, "awaiting_approval", actor=actor))
    assert [phase.outcome for phase in found if phase.kind == "approval"] == [outcome]


def test_each_question_is_a_wait_of_its_own() -> None:
    again = {**ASKED, "approval_id": "t/b1c1/2"}
    found = told(
        event(1, "call", "awaiting_approval", "validating", **ASKED),
        event(3, "call", "awaiting_approval", "awaiting_approval", **again),
        event(7, "call", "scheduled", "awaiting_approval", actor="person"),
    )
    waits = [phase for phase in found if phase.kind == "approval"]
    assert [(wait.revision, wait.outcome, wait.seconds) for wait in waits] == [(1, "asked_again", 2), (2, "proceed", 4)]


def test_a_run_of_which_nobody_knows_is_counted_once() -> None:
    unknown = {"approval_id": "t/b1c1/1", "asks": "outcome_unknown"}
    call = end_call(
        Call(id="b1c1", request=CallRequest(tool="x")), Status.ERROR, START, error=_error("outcome_unknown")
    )
    found = told(
        event(1, "call", "executing", "scheduled"),
        event(2, "call", "awaiting_approval", "executing", **unknown),
        event(3, "call", "error", "awaiting_approval", actor="person"),
        call=call,
    )
    counted = [one.name for phase in found for one in measure_phase(phase)]
    assert counted.count("holdfast_outcome_unknown") == 1


def test_steps_of_a_model_have_attempts_and_may_be_interrupted() -> None:
    found = told(
        event(1, "model", "thinking", note="step 1"),
        event(2, "model", "thinking", note="step 1, attempt 2: it broke"),
        event(3, "model", "compacted"),
        event(4, "model", "asked"),
        event(5, "model", "thinking", note="step 2"),
        event(6, "model", "thinking", note="step 3"),
        event(9, "turn", "stopped"),
    )
    steps = [(phase.step, phase.outcome, phase.attempts) for phase in found if phase.kind == "step"]
    assert steps == [(1, "asked", 2), (2, "interrupted", 1), (3, "unfinished", 1)]


def test_a_call_of_an_earlier_run_of_the_turn_began_when_it_was_made() -> None:
    made = Call(id="b1c1", request=CallRequest(tool="x"), created_at=at(-60))
    found = told(event(1, "call", "error", "validating"), call=made)
    assert short(found) == [("validate", "error", 61), ("call", "error", 61)]


def _error(kind: str) -> CallError:
    return CallError(type=kind, message="m")


@pytest.mark.parametrize(
    ("error", "tool", "reason"),
    [
        (None, UNKNOWN, ""),
        ("tool_not_registered", UNKNOWN, "tool_not_registered"),
        ("invalid_tool_params", "x", "invalid_tool_params"),
        ("denied", "x", "denied"),
        ("validation_failed", UNKNOWN, "validation_failed"),
        (CANARY, UNKNOWN, OTHER),
    ],
)
def test_tools_and_reasons_are_told_by_names_that_are_known(error: str | None, tool: str, reason: str) -> None:
    call = Call(id="b1c1", request=CallRequest(tool="x"))
    ended = end_call(call, Status.ERROR, START, error=_error(error)) if error else call
    assert (find_tool_label(ended), find_reason(ended)) == (tool, reason)
    assert (find_tool_label(None), find_reason(None)) == (UNKNOWN, "")


@given(st.text(max_size=30))
def test_whatever_an_approval_is_called_its_revision_is_a_number(text: str) -> None:
    assert parse_revision(text) >= 0
    assert parse_revision(f"{text}/12") == 12


# What is counted


def test_labels_are_few_and_hold_no_id() -> None:
    phase = Phase("call", START, at(1), "error", batch="b1", call="b1c1", tool="x", reason="timeout", title=CANARY)
    kinds = ("validate", "approval", "scheduled", "execute", "call", "step", "batch", "turn")
    for kind in kinds:
        for one in measure_phase(Phase(**{**phase.__dict__, "kind": kind})):
            assert one.name in COUNTERS or one.name in HISTOGRAMS
            assert set(one.labels) <= {"tool", "outcome", "reason", "kind", "direction"}
            assert not {CANARY, "b1", "b1c1"} & set(one.labels.values())


def test_a_server_that_names_its_tools_anew_all_the_time_fills_no_metric() -> None:
    buffer = MetricBuffer(10_000)
    counting = Instruments(Runtime(telemetry=TelemetryConfig(metrics=buffer)).metric_meter)
    for number in range(TOOLS_COUNTED + 50):
        counting.count_measurements([Measurement(CALLS, 1, {"tool": f"t{number}", "outcome": "success", "reason": ""})])
    counting.count_measurements([Measurement(CALLS, 1, {"tool": "t7", "outcome": "success", "reason": ""})])
    tools = Counter(update.attributes["tool"] for update in buffer.retrieve_updates())
    assert (len(tools), tools[OTHER], tools["t7"]) == (TOOLS_COUNTED + 1, 50, 2)


def test_tokens_are_counted_by_what_is_new() -> None:
    before, after = Usage(input_tokens=3, output_tokens=1), Usage(input_tokens=10, output_tokens=1)
    assert [(one.value, one.labels) for one in measure_usage(before, after)] == [(7, {"direction": "input"})]
    assert list(measure_usage(after, before)) == []


# What is drawn


class Clock:
    def __init__(self) -> None:
        self._seconds = itertools.count()

    def __call__(self) -> datetime:
        return at(next(self._seconds))


def facts(state: TurnState, **more: Any) -> TurnFacts:
    root = derive_root_place(state.turn_id, "run")
    return TurnFacts(
        state.turn_id, root, tuple(state.log.events), state.queue.find_event_call, START, at(10_000), **more
    )


def played() -> TurnState:
    """A turn that was stopped while it still had to be judged."""
    batches = ((build_request("a"), build_request("b", secret=CANARY)), (build_request("c"),))
    state = TurnState("turn", Clock(), TurnInput(batches=batches))
    state.activate_batch()
    state.stop_turn("cancelled", CANARY)
    state.retire_batch()
    state.close_turn()
    return state


def test_the_same_turn_is_drawn_in_the_same_places_by_anybody() -> None:
    one, other = build_turn_spans(facts(played())), build_turn_spans(facts(played()))
    assert one == other
    assert len({span.place for span in one}) == len(one)
    roots = [span for span in one if span.name == "holdfast.turn"]
    assert [(span.attributes["holdfast.outcome"], span.failed) for span in roots] == [("cancelled", False)]
    places = {span.place for span in one}
    assert all(span.parent in places for span in one if span not in roots)


def test_a_span_holds_nothing_of_a_call_unless_that_is_allowed() -> None:
    assert CANARY not in str(build_turn_spans(facts(played())))


def test_a_run_that_goes_on_in_another_has_no_span_of_its_turn_yet() -> None:
    state = TurnState("turn", Clock(), TurnInput(batches=((build_request("a"),),)))
    assert build_turn_spans(facts(state)) == []


def test_turns_and_what_is_in_them_never_share_a_place() -> None:
    parent = derive_root_place("parent", "r1")
    child = derive_root_place("child", "r2", derive_execution_place(parent, "b1c1", 7))
    assert child.trace == parent.trace
    assert (
        len(
            {parent.span, child.span, parent.derive_place("call", "b1c1").span, child.derive_place("call", "b1c1").span}
        )
        == 4
    )
    assert derive_root_place("parent", "r2").trace != parent.trace


@pytest.mark.parametrize("text", ["", "x", None, 7, f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01"])
def test_a_header_that_says_nothing_is_none(text: object) -> None:
    assert parse_place(text) is None
    place = SpanPlace("a" * 32, "b" * 16)
    assert parse_place(str(place)) == place


def test_later_runs_of_a_session_are_within_the_first() -> None:
    root = derive_root_place("s", "r1")
    first, later = (build_session_span(root, "s", START, at(1), turns=1, later=run) for run in ("", "r2"))
    assert (first.place, first.parent) == (root, None)
    assert (later.parent, later.place != root) == (root, True)


def test_reasons_are_words_that_a_label_may_hold() -> None:
    assert all(reason.isascii() and reason.replace("_", "").isalpha() for reason in REASONS)


def test_what_was_counted_is_known_for_a_while() -> None:
    counted = CountedKeys(limit=2)
    assert [counted.add_if_new(key) for key in (("a", 1), ("a", 2), ("a", 1), ("b", 1))] == [True, True, False, True]
    assert counted.add_if_new(("a", 2)), "the oldest is forgotten, and nothing grows for ever"
    assert not counted.add_if_new(("b", 1))
