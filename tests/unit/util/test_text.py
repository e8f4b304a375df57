"""What is cut keeps both ends, and says how much it left out."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.util.text import LINE_LIMIT, count_changes, cut_diff, cut_lines
from holdfast.workers.runtime.log_format import LineFormatter

HEAD = ["--- a/file", "+++ b/file", "@@ -1,450 +1,3 @@"]


def test_a_diff_that_removes_much_still_shows_what_it_adds() -> None:
    diff = [*HEAD, *(f"-old {number}" for number in range(450)), "+one", "+two", "+three"]
    shown = cut_diff(diff, 20)
    assert count_changes(diff) == "+3 −450"
    assert shown[:4] == [*HEAD, "-old 0"]
    assert shown[-4:] == ["-old 449", "+one", "+two", "+three"]
    assert "… 436 lines left out" in shown


def test_a_removed_line_that_looks_like_the_head_of_a_file_is_counted() -> None:
    assert count_changes([*HEAD, "--- a comment", "+++ another"]) == "+1 −1"


@given(lines=st.lists(st.text("+-@ x", max_size=5), max_size=200), limit=st.integers(4, 60))
def test_what_is_cut_has_both_ends_and_a_bounded_length(lines: list[str], limit: int) -> None:
    for cut in (cut_lines, cut_diff):
        shown = cut(lines, limit)
        assert len(shown) <= 2 * limit
        assert shown[:1] == lines[:1]
        assert shown[-1:] == lines[-1:]
        if len(lines) <= limit:
            assert shown == lines


def test_a_long_line_is_cut_in_its_middle() -> None:
    [shown] = cut_lines(["a" * LINE_LIMIT + "b" * LINE_LIMIT], 5)
    assert shown.startswith("aaa")
    assert shown.endswith("bbb")
    assert "1,000 characters left out" in shown


def test_a_warning_is_one_line_without_fields_and_links() -> None:
    message = (
        "A decision was not counted: 1 validation error\n  Field required\n"
        "    For further information visit https://errors.pydantic.dev"
    )
    for text in (message, "A decision was not counted: 1 validation error ({'attempt': 1, 'namespace': 'default'})"):
        record = logging.makeLogRecord({"msg": text, "levelname": "WARNING", "pathname": holdfast.__file__})
        line = LineFormatter().format(record)
        assert line.endswith("WARNING A decision was not counted: 1 validation error")
