"""Approvals: the digest binds a decision to what was shown, the id addresses it, the decision says it once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.domain.approvals.approval import ApprovalId, Decision, DecisionAction, digest_call
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
ARGUMENTS = st.dictionaries(st.text(), JSON, max_size=4)
CALLS = st.fixed_dictionaries(
    {"tool": st.text(), "server": st.none() | st.text(), "definition": st.text(), "arguments": ARGUMENTS}
)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(list(value))}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


# The digest


@settings(max_examples=40)
@given(first=CALLS, second=CALLS)
def test_S22_digests_are_equal_only_for_equal_calls(first: dict[str, Any], second: dict[str, Any]) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (digest_call(**first) == digest_call(**second)) is same


@given(call=CALLS, other=ARGUMENTS, key=st.sampled_from(["tool", "server", "definition"]))
def test_S22_digest_changes_with_each_of_its_parts(call: dict[str, Any], other: dict[str, Any], key: str) -> None:
    assert digest_call(**call) != digest_call(**{**call, key: (call[key] or "") + "x"})
    changed = json.dumps(call["arguments"], sort_keys=True) != json.dumps(other, sort_keys=True)
    assert (digest_call(**call) != digest_call(**{**call, "arguments": other})) is changed


@given(call=CALLS)
def test_S22_digest_does_not_depend_on_the_order_of_keys_and_survives_json(call: dict[str, Any]) -> None:
    assert digest_call(**reversed_keys(call)) == digest_call(**call)
    assert digest_call(**json.loads(json.dumps(call))) == digest_call(**call)


@pytest.mark.parametrize(
    ("one", "another"), [(1, "1"), (1, 1.0), (True, 1), (None, "null"), ([], {}), ("é", "e\u0301"), ("a", "a ")]
)
def test_S22_digest_tells_apart_what_looks_alike(one: object, another: object) -> None:
    assert digest_canonical(one) != digest_canonical(another)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_S22_number_that_json_cannot_say_has_no_digest(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        digest_call(tool="t", server=None, definition="d", arguments={"deep": [number]})


def test_S22_digest_takes_any_string_python_has() -> None:
    assert digest_canonical("\ud800") != digest_canonical("\ud801")


# The approval id

SEGMENT = st.text(min_size=1).filter(lambda text: "/" not in text)


@given(turn=st.text(min_size=1), call=SEGMENT, revision=st.integers(0, 10**6))
def test_approval_id_is_read_as_it_is_printed(turn: str, call: str, revision: int) -> None:
    """The turn's id may hold slashes, the call's never does."""
    assert ApprovalId.parse(str(ApprovalId(turn, call, revision))) == (turn, call, revision)


@pytest.mark.parametrize(
    ("text", "turn"),
    [("a/b/c/b1c1/1", "a/b/c"), ("/b1c1/1", None), ("//b1c1/1", "/"), ("https://x/b1c1/1", "https://x")],
)
def test_turn_ids_with_slashes(text: str, turn: str | None) -> None:
    if turn is None:
        with pytest.raises(BadInput):
            ApprovalId.parse(text)
    else:
        assert ApprovalId.parse(text) == (turn, "b1c1", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "//",
        "turn",
        "turn/b1c1",
        "turn/b1c1/",
        "turn//1",
        "turn/b1c1/x",
        "turn/b1c1/-1",
        "turn/b1c1/1.0",
        "turn/b1c1/1 ",
        "turn/b1c1/²",
        "turn/b1c1/١",
        "turn/b1c1/" + "9" * 5_000,
    ],
)
def test_what_is_no_approval_id_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput, match="approval id"):
        ApprovalId.parse(text)


@given(text=st.text())
def test_any_text_is_an_approval_id_or_bad_input(text: str) -> None:
    try:
        parsed = ApprovalId.parse(text)
    except BadInput:
        return
    assert str(parsed).startswith(f"{parsed.turn}/{parsed.call}/")
    assert parsed.revision >= 0


# The decision


def body(**changes: Any) -> dict[str, Any]:
    return {"approval_id": "turn/b1c1/1", "digest": "d", "outcome": "proceed_once", **changes}


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("proceed_once", DecisionAction.PROCEED_ONCE),
        ("yes", DecisionAction.PROCEED_ONCE),
        ("respond", DecisionAction.RESPOND),
        ("cancel", DecisionAction.CANCEL),
        ("no", DecisionAction.CANCEL),
    ],
)
def test_S21_outcomes_and_their_aliases(said: str, outcome: DecisionAction) -> None:
    assert Decision.model_validate(body(outcome=said)).outcome is outcome


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "YES"},
        {"outcome": "maybe"},
        {"outcome": True},
        {"outcome": None},
        {"outcome": ["yes"]},
        {"outcomes": "yes"},
        {"stop": True},
        {"approval_id": None},
        {"approval_id": "x" * 2_001},
        {"digest": "x" * 201},
        {"note": "x" * 20_001},
        {"by": 7},
        {"at": "yesterday"},
        {"id": {}},
    ],
)
def test_S23_decision_with_something_wrong_in_it_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Decision.model_validate(body(**changes))


@pytest.mark.parametrize("garbage", [None, 1, "yes", [], {}, {"approval_id": "turn/b1c1/1"}])
def test_S23_garbage_is_no_decision(garbage: object) -> None:
    with pytest.raises(ValidationError):
        Decision.model_validate(garbage)


def test_S23_decision_is_known_by_its_id() -> None:
    one, two = Decision.model_validate(body(id="a", note="x")), Decision.model_validate(body(id="a", note="y"))
    assert one.key == two.key
    assert one.key != one.model_copy(update={"approval_id": "turn/b1c2/1"}).key, "an id counts once per approval"


@pytest.mark.parametrize("no_id", [{}, {"id": None}, {"id": ""}])
def test_S23_decision_without_id_is_known_by_all_it_says(no_id: dict[str, Any]) -> None:
    key = Decision.model_validate(body(**no_id)).key
    assert key == Decision.model_validate(body(**no_id)).key
    for change in ({"note": "n"}, {"by": "b"}, {"outcome": "no"}, {"digest": "e"}, {"at": "2026-01-01T00:00:00Z"}):
        assert Decision.model_validate(body(**no_id, **change)).key != key
