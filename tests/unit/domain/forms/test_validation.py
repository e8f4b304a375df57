"""Forms: answers fit or are refused with every reason, and nothing that stands in a schema breaks the check."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.domain.forms.description import describe_fields
from holdfast.domain.forms.fields import explain_misfit, find_default, parse_typed
from holdfast.domain.forms.validation import find_option, find_problems, parse_answer

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
        "born": {"type": "string", "format": "date"},
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
    assert parse_answer(FORM, json.dumps(answer)) == answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "'name' is missing"),
        ({"name": 7}, "'name' must be text"),
        ({"name": "A"}, "at least 2 characters"),
        ({"name": "Anastasia"}, "at most 5 characters"),
        ({"name": "Ana", "age": True}, "'age' must be a whole number"),
        ({"name": "Ana", "age": "many"}, "'age' must be a whole number"),
        ({"name": "Ana", "age": 1.5}, "whole number"),
        ({"name": "Ana", "share": "half"}, "'share' must be a number$"),
        ({"name": "Ana", "age": 0}, "at least 1"),
        ({"name": "Ana", "age": 151}, "at most 150"),
        ({"name": "Ana", "share": 10**400}, "'share' is too large a number"),
        ({"name": None}, "'name' is missing"),
        ({"name": "Ana", "sure": "yes"}, "true or false"),
        ({"name": "Ana", "colour": "green"}, "one of 'red', 'blue'"),
        ({"name": "Ana", "size": "Large"}, r"one of 's' \(Small\), 'l' \(Large\)"),
        ({"name": "Ana", "born": "31.5.1990"}, "'born' must be a date, as 2026-05-31"),
        ({"name": "Ana", "toppings": "ham"}, "a list of texts"),
        ({"name": "Ana", "toppings": ["jam"]}, "and not 'jam'"),
        ({"name": "Ana", "toppings": []}, "at least 1"),
        ({"name": "Ana", "toppings": ["ham", "egg", "ham"]}, "at most 2"),
        ({"name": "Ana", "other": 1}, "'other' is not a field of the form"),
    ],
)
def test_S39_an_answer_that_does_not_fit_says_why(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("'", ".")):
        parse_answer(FORM, json.dumps(answer))


def test_a_form_with_one_field_takes_its_value_alone() -> None:
    assert parse_answer({"properties": {"name": {"type": "string"}}}, "7") == {"name": "7"}
    assert parse_answer({"properties": {"age": {"type": "integer"}}}, "7") == {"age": 7}
    assert parse_answer({"properties": {}}, "{}") == {}


@pytest.mark.parametrize("text", ["Ana", "[1]", "", "{", "null", '{"name": NaN}', "[" * 100_000])
def test_what_is_no_object_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="JSON object"):
        parse_answer(FORM, text)


def test_fields_are_described_in_a_line_each() -> None:
    lines = list(describe_fields(FORM))
    assert lines == [
        "name (Your name): text of 2 to 5 characters; required",
        "age: a whole number from 1 to 150; may be left out",
        "share: a number; may be left out. Of the whole",
        "sure: true or false; may be left out",
        "colour: one of red, blue; may be left out",
        "size: one of s (Small), l (Large); may be left out",
        "toppings: 1 to 2 of ham, egg; may be left out",
        "born: a date, as 2026-05-31; may be left out",
    ]


TITLED = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"type": "string", "oneOf": TITLED, "default": "l"}, "one of s (Small), l (Large); default l (Large)"),
        ({"type": "string", "anyOf": TITLED}, "one of s (Small), l (Large); may be left out"),
        ({"enum": ["s", "l"], "enumNames": ["Small", "Large"]}, "one of s (Small), l (Large); may be left out"),
        ({"type": "string", "enum": ["s", "l"], "enumNames": ["Small"]}, "one of s (Small), l; may be left out"),
        ({"type": "array", "items": {"anyOf": TITLED}, "default": ["s", "l"]},
         "any of s (Small), l (Large); default s (Small), l (Large)"),
        ({"type": "array", "items": {"enum": ["a", "b"], "enumNames": ["A", "B"]}, "minItems": 1},
         "at least 1 of a (A), b (B); may be left out"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, "at most 3 texts; may be left out"),
        ({"type": "string", "default": "It rains."}, 'text; default "It rains."'),
        ({"type": "string", "maxLength": 10_000}, "text of at most 10,000 characters; may be left out"),
        ({"type": "string", "minLength": 4, "maxLength": 4}, "text of 4 characters; may be left out"),
        ({"type": "number", "minimum": 0.5}, "a number, at least 0.5; may be left out"),
        ({"type": "boolean", "default": False}, "true or false; default false"),
        ({"type": "integer", "minimum": 1, "default": 0}, "a whole number, at least 1; may be left out"),
        ({"type": "string", "format": "email"}, "a mail address, as ana@example.org; may be left out"),
        ({"type": "string", "format": "ipv4"}, "text; may be left out"),
        ({}, "anything; may be left out"),
    ],
)  # fmt: skip
def test_S39_a_field_is_described_with_its_choices_range_and_default(field: dict[str, Any], words: str) -> None:
    assert list(describe_fields({"properties": {"x": field}})) == [f"x: {words}"]


# What an answer does not name

DEFAULTS: dict[str, Any] = {
    "properties": {
        "name": {"type": "string", "default": "Ana"},
        "seats": {"type": "integer", "default": 2.0, "maximum": 9},
        "meals": {"type": "array", "items": {"enum": ["egg", "ham"]}, "default": ["egg"]},
        "window": {"type": "boolean", "default": False},
        "bad": {"type": "integer", "default": "many"},
        "note": {"type": "string"},
        "any": {"default": {"a": 1}},
    },
    "required": ["name"],
}


def test_S39_what_an_answer_does_not_name_has_its_default() -> None:
    filled = {"name": "Ana", "seats": 2, "meals": ["egg"], "window": False, "any": {"a": 1}}
    assert parse_answer(DEFAULTS, "{}") == filled, "also what is required, and none that does not fit"
    assert parse_answer(DEFAULTS, '{"seats": 3, "note": ""}') == {**filled, "seats": 3, "note": ""}


def test_S39_what_an_answer_says_to_be_null_is_left_out_whatever_its_default() -> None:
    said = {"seats": None, "meals": None, "window": None, "note": None, "any": None}
    assert parse_answer(DEFAULTS, json.dumps(said)) == {"name": "Ana", "any": None}, "a field of no kind may be null"
    with pytest.raises(ValueError, match="'name' is missing"):
        parse_answer(DEFAULTS, '{"name": null}')


@pytest.mark.parametrize("text", ["done", "DONE", " done\n", "Done"])
def test_S39_an_option_is_meant_whatever_its_case_and_the_space_around_it(text: str) -> None:
    assert find_option(("yes", "done"), text) == "done"


@pytest.mark.parametrize("text", ["no", "", " ", "done.", "I have done it", "1", "d"])
def test_S39_what_is_no_option_is_none(text: str) -> None:
    assert find_option(("done",), text) is None


# What is typed

HERO: dict[str, Any] = {"type": "string", "oneOf": [{"const": "h1", "title": "Superman"}, {"const": "2", "title": "X"}]}
SEVERAL: dict[str, Any] = {"type": "array", "items": {"anyOf": [*HERO["oneOf"], {"const": "a, b"}]}}


@pytest.mark.parametrize(
    ("field", "text", "meant"),
    [
        ({"type": "string"}, "7", "7"),
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string", "format": "date"}, " 2026-05-31 ", "2026-05-31"),
        ({"type": "integer"}, "7", 7),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "array"}, "ham, egg,", ["ham", "egg"]),
        ({"type": "array"}, '["ham, egg"]', ["ham, egg"]),
        ({"type": "number"}, "many", "many"),
        ({}, "[1]", [1]),
        (HERO, "1", "h1"),
        (HERO, "2", "2"),
        (HERO, "superman", "h1"),
        (HERO, " H1 ", "h1"),
        (HERO, "3", "3"),
        (HERO, "0", "0"),
        (HERO, "٢", "٢"),
        (SEVERAL, "1, x, 2, 1", ["h1", "2"]),
        (SEVERAL, "a, b", ["a, b"]),
        (SEVERAL, "3, Batman", ["a, b", "Batman"]),
        (SEVERAL, "", []),
        ({"type": "string", "enum": ["A", "a"]}, "a", "a"),
        ({"type": "string", "enum": ["AB", "ab"]}, "Ab", "Ab"),
    ],
)
def test_S39_what_is_typed_for_a_field(field: dict[str, Any], text: str, meant: object) -> None:
    assert parse_typed(field, text) == meant


def test_S39_a_form_with_one_field_takes_what_would_be_typed_for_it() -> None:
    assert parse_answer({"properties": {"sure": {"type": "boolean"}}}, "yes") == {"sure": True}
    assert parse_answer({"properties": {"hero": HERO}}, "Superman") == {"hero": "h1"}
    assert parse_answer({"properties": {"some": SEVERAL}}, "1, 2") == {"some": ["h1", "2"]}


SCHEMAS = st.dictionaries(
    st.sampled_from(
        ["type", "enum", "enumNames", "oneOf", "anyOf", "items", "default", "format", "minimum", "maxLength",
         "minItems", "title", "description"]
    ),
    JSON | st.sampled_from(["string", "integer", "number", "boolean", "array", "date", "email", "uri", "date-time"]),
)  # fmt: skip


@example(field={"default": math.inf}, text="1e999")
@example(field={"type": "number", "default": math.nan}, text="-1e999")
@given(field=SCHEMAS, text=st.text(max_size=8))
def test_no_field_breaks_what_is_said_of_it_or_typed_for_it(field: dict[str, Any], text: str) -> None:
    form: dict[str, Any] = {"properties": {"x": field}}
    [line] = describe_fields(form)
    assert line.startswith("x")
    for value in (parse_typed(field, text), find_default(field)):
        if value is not None and explain_misfit(field, value) is None:
            assert parse_answer(form, json.dumps({"x": value}))["x"] == value
    assert find_default(field) is None or explain_misfit(field, find_default(field)) is None


@given(form=st.dictionaries(st.sampled_from(["properties", "required", "type"]), JSON), answer=JSON)
def test_no_schema_and_no_answer_breaks_the_check(form: dict[str, Any], answer: object) -> None:
    list(describe_fields(form))
    if isinstance(answer, dict):
        list(find_problems(form, answer))
    else:
        with pytest.raises(ValueError, match="JSON object"):
            parse_answer({"properties": {"a": {}, "b": {}}}, json.dumps(answer))
