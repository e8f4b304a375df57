"""Forms: answers fit or are refused with every reason, and nothing that stands in a schema breaks the check."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.forms import answer_of, described, problems, typed

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 5},
        "age": {"type": "integer", "minimum": 1, "maximum": 150},
        "share": {"type": "number", "description": "Of the whole"},
        "sure": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "toppings": {"type": "array", "items": {"enum": ["ham", "egg"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "answer",
    [
        {"name": "Ana"},
        {"name": "Ana", "age": 1, "share": 0.5, "sure": False, "colour": "red", "size": "l", "toppings": ["egg"]},
    ],
)
def test_S39_an_answer_that_fits(answer: dict[str, Any]) -> None:
    assert answer_of(FORM, json.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "'name' is missing"),
        ({"name": 7}, "'name' must be text"),
        ({"name": "A"}, "at least 2 characters"),
        ({"name": "Anastasia"}, "at most 5 characters"),
        ({"name": "Ana", "age": True}, "'age' must be a number"),
        ({"name": "Ana", "age": 1.5}, "whole number"),
        ({"name": "Ana", "age": 0}, "at least 1"),
        ({"name": "Ana", "age": 151}, "at most 150"),
        ({"name": "Ana", "share": 10**400}, "at most 1e.300"),
        ({"name": "Ana", "sure": "yes"}, "true or false"),
        ({"name": "Ana", "colour": "green"}, "one of 'red', 'blue'"),
        ({"name": "Ana", "size": "Large"}, "one of 's', 'l'"),
        ({"name": "Ana", "toppings": "ham"}, "a list of texts"),
        ({"name": "Ana", "toppings": ["jam"]}, "and not 'jam'"),
        ({"name": "Ana", "toppings": []}, "at least 1"),
        ({"name": "Ana", "toppings": ["ham", "egg", "ham"]}, "at most 2"),
        ({"name": "Ana", "other": 1}, "'other' is not asked for"),
    ],
)
def test_S39_an_answer_that_does_not_fit_says_why(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("'", ".")):
        answer_of(FORM, json.dumps(answer))


def test_a_form_with_one_field_takes_its_value_alone() -> None:
    assert answer_of({"properties": {"name": {"type": "string"}}}, "7") == {"name": "7"}
    assert answer_of({"properties": {"age": {"type": "integer"}}}, "7") == {"age": 7}
    assert answer_of({"properties": {}}, "{}") == {}


@pytest.mark.parametrize("text", ["Ana", "[1]", "", "{", "null", '{"name": NaN}', "[" * 100_000])
def test_what_is_no_object_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="JSON object"):
        answer_of(FORM, text)


def test_fields_are_described_in_a_line_each() -> None:
    lines = list(described(FORM))
    assert lines[0] == "name (Your name): text"
    assert lines[2] == "share: a number, may be left out. Of the whole"
    assert lines[4] == "colour: one of red, blue, may be left out"


@pytest.mark.parametrize(
    ("kind", "text", "meant"),
    [
        ("string", "7", "7"),
        ("integer", "7", 7),
        ("boolean", "Yes", True),
        ("boolean", "no", False),
        ("array", "ham, egg", ["ham", "egg"]),
        ("number", "many", "many"),
    ],
)
def test_what_is_typed_for_a_field(kind: str, text: str, meant: object) -> None:
    assert typed({"type": kind}, text) == meant


@given(form=st.dictionaries(st.sampled_from(["properties", "required", "type"]), JSON), answer=JSON)
def test_no_schema_and_no_answer_breaks_the_check(form: dict[str, Any], answer: object) -> None:
    list(described(form))
    if isinstance(answer, dict):
        list(problems(form, answer))
    else:
        with pytest.raises(ValueError, match="JSON object"):
            answer_of({"properties": {"a": {}, "b": {}}}, json.dumps(answer))
