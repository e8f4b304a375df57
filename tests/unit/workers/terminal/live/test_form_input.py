"""Forms at a terminal: each field is checked as it is entered, and nothing that was said is lost (S39)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.forms.validation import parse_answer
from holdfast.workers.terminal.live.form_input import CHOICES_SHOWN, FormDraft

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "title": "Your \x1b[31mname"},
        "seats": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2, "description": "How many"},
        "class": {"type": "string", "enum": ["e", "b"], "enumNames": ["Economy", "Business"]},
        "meals": {"type": "array", "items": {"enum": ["egg", "ham", "jam"]}, "maxItems": 2},
        "sure": {"type": "boolean", "default": True},
    },
    "required": ["name", "sure"],
}


def filled(*lines: str) -> FormDraft:
    filling = FormDraft(FORM)
    for text in lines:
        filling = filling.take_text(text)
    return filling


def test_S39_fields_are_asked_in_order_and_make_an_answer_that_fits() -> None:
    filling = filled("Ana", "3", "2", "ham, 1", "no")
    assert filling.name is None
    said = {"name": "Ana", "seats": 3, "class": "b", "meals": ["ham", "egg"], "sure": False}
    assert json.loads(filling.content) == parse_answer(FORM, filling.content) == said


def test_S39_an_empty_line_takes_the_default_and_leaves_out_what_may_be() -> None:
    assert json.loads(filled("Ana", "", "", "", "").content) == {"name": "Ana", "seats": 2, "sure": True}


def test_S39_a_default_that_is_not_wanted_is_left_out_for_good() -> None:
    filling = filled("Ana", "/none", "", "", "")
    assert parse_answer(FORM, filling.content) == {"name": "Ana", "sure": True}


@pytest.mark.parametrize(
    ("before", "text", "reason"),
    [
        ((), "", "is required"),
        ((), "  ", "is required"),
        ((), "/none", "is required"),
        ((), "A", "must have at least 2 characters"),
        (("Ana",), "many", "must be a whole number"),
        (("Ana",), "10", "must be at most 9"),
        (("Ana", ""), "first", "must be one of these, by number or in words"),
        (("Ana", ""), "3", "must be one of these"),
        (("Ana", "", ""), "1, 2, 3", "must hold at most 2"),
        (("Ana", "", ""), "1, spam", "and not .spam."),
        (("Ana", "", "", ""), "perhaps", "must be yes or no"),
    ],
)
def test_S39_what_does_not_fit_is_refused_with_its_reason_and_asked_again(
    before: tuple[str, ...], text: str, reason: str
) -> None:
    filling = filled(*before)
    with pytest.raises(ValueError, match=reason):
        filling.take_text(text)
    assert filling.name == list(FORM["properties"])[len(before)]


def test_S39_a_field_is_asked_with_all_that_helps_to_answer_it() -> None:
    assert list(filled().format_question()) == [
        "(1 of 5) name, required",
        "  Your ␛[31mname",
        "  text of at least 2 characters",
    ]
    assert list(filled("Ana").format_question()) == [
        "(2 of 5) seats",
        "  How many",
        "  a whole number from 1 to 9; an empty line takes 2; /none leaves it out",
    ]
    assert list(filled("Ana", "").format_question()) == [
        "(3 of 5) class",
        "  1. e (Economy)",
        "  2. b (Business)",
        "  one of these, by number or in words; an empty line leaves it out",
    ]
    assert list(filled("Ana", "", "").format_question())[-1] == (
        "  at most 2 of these, by numbers or words with commas between them; an empty line leaves it out"
    )
    assert list(filled("Ana", "", "", "").format_question()) == [
        "(5 of 5) sure, required",
        "  yes or no; an empty line takes yes",
    ]


def test_S39_all_that_was_said_is_shown_before_it_is_sent() -> None:
    assert list(filled("Ana", "", "b", "", "no").format_review()) == [
        "  1. name: Ana",
        "  2. seats: 2",
        "  3. class: b (Business)",
        "  4. meals: left out",
        "  5. sure: no",
    ]


def test_S39_every_field_can_be_changed_and_the_others_stay_as_they_were() -> None:
    filling = filled("Ana", "3", "").step_back()
    assert filling.name == "class"
    filling = filling.step_back()
    assert list(filling.format_question())[-1].endswith("an empty line keeps 3; /none leaves it out")
    filling = filling.take_text("4")
    assert filling.name == "meals"
    filling = filling.take_text("1").take_text("")
    for which in ("1", "name"):
        assert filling.change_field(which).name == "name"
    filling = filling.change_field("name").take_text("Bo")
    assert filling.name is None
    assert json.loads(filling.content) == {"name": "Bo", "seats": 4, "meals": ["egg"], "sure": True}
    assert filling.step_back().name == "sure"
    assert filled().step_back().name == "name"
    for which in ("0", "6", "x", "", "9" * 50):
        with pytest.raises(ValueError, match="no field is called"):
            filling.change_field(which)


def test_a_form_without_fields_has_nothing_to_ask() -> None:
    filling = FormDraft({"type": "object"})
    assert (filling.name, filling.content, filling.step_back()) == (None, "{}", filling)


def test_of_very_many_choices_the_first_are_listed_and_all_can_be_typed() -> None:
    many: Any = {"type": "string", "enum": [f"c{number}" for number in range(1_000)]}
    filling = FormDraft({"properties": {"x": many}})
    lines = list(filling.format_question())
    assert (len(lines), lines[-2]) == (CHOICES_SHOWN + 3, "  … and 900 more")
    assert filling.take_text("c999").given == {"x": "c999"}


ENTRIES = st.sampled_from(["", "Ana", "A", "1", "2", "99", "yes", "no", "/none", "/back", "ham", "1,2"]) | st.text()


@given(lines=st.lists(ENTRIES, max_size=30))
def test_S39_whatever_is_typed_what_is_sent_in_the_end_fits(lines: list[str]) -> None:
    filling = FormDraft(FORM)
    for text in lines:
        try:
            filling = filling.step_back() if text == "/back" else filling.take_text(text) if filling.name else filling
        except ValueError:
            continue
    if filling.name is None:
        parse_answer(FORM, filling.content)
