"""A call of `edit` as the whole file, and back: what somebody makes of it in an editor is what is replaced (S25)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.util.text_replacement import apply_replacement, find_replacement

TEXT = st.lists(st.sampled_from(["a", "b", "", " x"]), max_size=8).map("\n".join)


@pytest.mark.parametrize(
    ("current", "wanted", "old", "new"),
    [
        ("one\ntwo\nthree\n", "one\n2\nthree\n", "two\n", "2\n"),
        ("a\nx\na\nx\n", "a\nx\na\ny\n", "x\na\nx\n", "x\na\ny\n"),
        ("one\ntwo\n", "one\nand\ntwo\n", "one\ntwo\n", "one\nand\ntwo\n"),
        ("one\ntwo\nthree\n", "one\nthree\n", "two\n", ""),
        ("one", "", "one", ""),
        ("a\r\nb\r\n", "a\r\nc\r\n", "b\r\n", "c\r\n"),
    ],
)
def test_S25_as_few_lines_are_replaced_as_occur_once(current: str, wanted: str, old: str, new: str) -> None:
    assert find_replacement(current, wanted) == {"old_text": old, "new_text": new, "expected_count": 1}


@given(current=TEXT.filter(bool), wanted=TEXT, ending=st.sampled_from(["\n", "\r\n"]))
def test_S25_the_replacement_makes_exactly_what_somebody_typed(current: str, wanted: str, ending: str) -> None:
    current, wanted = current.replace("\n", ending), wanted.replace("\n", ending)
    found = find_replacement(current, wanted)
    assert current.count(str(found["old_text"])) == 1
    assert apply_replacement(current, found) == wanted


def test_a_replacement_in_several_places_is_applied_to_all_of_them() -> None:
    assert apply_replacement("a\r\nb\r\na\r\n", {"old_text": "a\n", "new_text": "c\n"}) == "c\r\nb\r\nc\r\n"
