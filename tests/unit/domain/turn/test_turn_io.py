"""What starts a turn, and its limits (S44)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast import TurnLimits
from holdfast.domain.base import StrictData, describe_problems
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import BoundCall
from holdfast.domain.conversation.messages import (
    ModelChoice,
)
from holdfast.domain.turn.turn_io import (
    LONGEST_SECONDS,
    MAX_CALLS,
    MAX_QUEUED,
    TurnInput,
    check_batch,
    check_input,
    explain_no_step,
    find_reached_limit,
)
from holdfast.domain.turn.update_bodies import AddCalls, SubmitBatch
from holdfast.errors import RequestRefused

MODEL = ModelChoice()
TOOL = ToolRef(name="t", effect=Effect.ONCE, definition="d")
BOUND = BoundCall(tool=TOOL, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1)
ONE = (CallRequest(tool="t", id="m1"),)


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
def test_a_giant_is_refused_before_its_parts_are_looked_at(kind: type[StrictData], body: dict[str, Any]) -> None:
    """Saying what is wrong with each of them takes longer than a workflow task has, and would be retried for ever."""
    with pytest.raises(ValidationError) as refusal:
        kind.model_validate(body)
    assert refusal.value.error_count() == 1
    assert "100,0" in describe_problems(refusal.value)
    assert len(describe_problems(refusal.value)) < 300


# Limits


@pytest.mark.parametrize(
    ("used", "words"),
    [
        ({"calls": 5, "tokens": 0, "seconds": 0}, None),
        ({"calls": 6, "tokens": 0, "seconds": 0}, "limit of 5 tool calls: this batch would make 6"),
        ({"calls": 0, "tokens": 99, "seconds": 0}, None),
        ({"calls": 0, "tokens": 100, "seconds": 0}, "limit of 100 tokens: it has used 100"),
        ({"calls": 0, "tokens": 0, "seconds": 59.9}, None),
        ({"calls": 0, "tokens": 0, "seconds": 60}, "limit of 60 seconds"),
    ],
)
def test_S44_each_limit_is_reached_at_its_number(used: dict[str, Any], words: str | None) -> None:
    said = find_reached_limit(TurnLimits(calls=5, tokens=100, seconds=60), **used)
    assert (said is None) if words is None else (said is not None and words in said)


def test_S44_a_turn_without_a_limit_of_time_has_a_year() -> None:
    assert find_reached_limit(TurnLimits(), calls=0, tokens=10**12, seconds=LONGEST_SECONDS - 1) is None
    assert find_reached_limit(TurnLimits(), calls=0, tokens=0, seconds=LONGEST_SECONDS)
    assert explain_no_step(TurnLimits(), 999) is None
    assert explain_no_step(TurnLimits(), 1_000)


@pytest.mark.parametrize(
    "given", [{"steps": 0}, {"calls": -1}, {"seconds": 0}, {"seconds": float("inf")}, {"tokens": 0}, {"step": 5}]
)
def test_what_is_no_limit_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TurnLimits(**given)
