"""Diffs that a person decides on: they say all that changes, and nothing else, however large the file around it."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.activities.files.diff import DIFF_LIMIT, build_diff

NO_NEWLINE = "\\ No newline at end of file"


def applied(old: str, diff: str) -> str:
    """`old` with a unified diff applied; fails when a line that the diff relies on is not there."""
    before = re.findall(r"[^\n]*\n|[^\n]+$", old)
    after: list[str] = []
    done = 0
    lines = re.findall(r"[^\n]*\n", diff)
    assert all(line[:4] in ("--- ", "+++ ") for line in lines[:2])
    for number, line in enumerate(lines[2:], start=2):
        ends = number + 1 < len(lines) and lines[number + 1].startswith(NO_NEWLINE)
        text = line[1:-1] if ends else line[1:]
        if line.startswith("@@"):
            start, count = re.fullmatch(r"@@ -(\d+)(,\d+)? \+\d+(?:,\d+)? @@\n", line).groups()  # type: ignore[union-attr]
            begin = int(start) if count == ",0" else int(start) - 1
            after += before[done:begin]
            done = begin
        elif line.startswith("+"):
            after.append(text)
        elif not line.startswith("\\"):
            assert before[done] == text, "the diff is about another line"
            done += 1
            after += [text] if line.startswith(" ") else []
    return "".join(after + before[done:])


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "@@ -1 +1 @@", "--- x", "+++ y", "-", "+", " ", "é"]), max_size=30)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@given(old=TEXTS, new=TEXTS)
def test_S20_diff_applied_to_the_old_gives_the_new(old: str, new: str) -> None:
    diff = build_diff("a.txt", old.encode(), new.encode())
    assert (applied(old, diff) if old != new else diff) == (new if old != new else "(no change)")


@given(old=TEXTS, new=TEXTS, around=st.integers(0, 200))
def test_S20_diff_in_a_long_file_has_the_numbers_of_its_lines(old: str, new: str, around: int) -> None:
    head = "".join(f"{number}\n" for number in range(around))
    if old != new:
        assert applied(head + old, build_diff("a", (head + old).encode(), (head + new).encode())) == head + new


def test_S20_small_change_in_a_large_file_shows_only_that_change() -> None:
    lines = [f"{number:09}\n" for number in range(1_000_000)]
    old = "".join(lines).encode()
    lines[700_000] = "changed\n"
    began = time.monotonic()
    diff = build_diff("big.txt", old, "".join(lines).encode())
    assert diff == (
        "--- a/big.txt\n+++ b/big.txt\n@@ -699998,7 +699998,7 @@\n"
        " 000699997\n 000699998\n 000699999\n-000700000\n+changed\n 000700001\n 000700002\n 000700003\n"
    )
    assert time.monotonic() - began < 10


def test_S20_two_changes_in_a_file_have_their_own_numbers() -> None:
    lines = [f"{number}\n" for number in range(1, 101)]
    old = "".join(lines).encode()
    lines[19], lines[79] = "twenty\n", "eighty\nand more\n"
    hunks = re.findall(r"^@@.*@@$", build_diff("a", old, "".join(lines).encode()), re.MULTILINE)
    assert hunks == ["@@ -17,7 +17,7 @@", "@@ -77,7 +77,8 @@"]


@pytest.mark.parametrize("size", [DIFF_LIMIT + 1, 10_000_000])
def test_S20_change_too_large_for_a_diff_says_how_large_and_where(size: int) -> None:
    told = build_diff("a", b"same\n" * 10, b"same\n" * 10 + b"x" * size)
    assert told == f"(too long for a diff: 15 characters become {size + 15:,}, from line 8 on)"


HARD = """
from holdfast.activities.files.diff import build_diff
old = "".join(f"{number % 101}\\n" for number in range(15_000))
new = "".join(f"{number * 2 % 101}\\n" for number in range(15_000))
assert build_diff("a", old.encode(), new.encode())
"""


def test_S20_content_made_to_be_hard_to_compare_costs_no_minute() -> None:
    """In a process of its own, since a thread that compares cannot be stopped, and holds up the whole worker."""
    done = subprocess.run([sys.executable, "-c", HARD], timeout=10, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (b"a\n", b"a\n", "(no change)"),
        (None, b"", "(a new, empty file)"),
        (b"", b"a\n", "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+a\n"),
        (None, b"a", f"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n{NO_NEWLINE}\n"),
        (b"a", b"a\n", f"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n{NO_NEWLINE}\n+a\n"),
        (b"a\n", b"", "--- a/f\n+++ b/f\n@@ -1 +0,0 @@\n-a\n"),
        (b"a\r\nb\r\n", b"a\r\nc\r\n", "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a␍\n-b␍\n+c␍\n"),
        (b"caf\xe9\n", b"caf\xe8\n", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-caf\\xe9\n+caf\\xe8\n"),
        (b"\0\0", b"text", "(a binary file of 2 bytes becomes one of 4)"),
    ],
)
def test_S20_examples(before: bytes | None, after: bytes, told: str) -> None:
    assert build_diff("f", before, after) == told


@pytest.mark.parametrize("mark", ["\x0c", "\x0b", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_S20_only_a_newline_ends_a_line(mark: str) -> None:
    """A form feed stands in many sources; editors, compilers and `grep` do not count it as a line."""
    diff = build_diff("f", f"a{mark}b\nc\n".encode(), f"a{mark}b\nd\n".encode())
    assert NO_NEWLINE not in diff
    assert "@@ -1,2 +1,2 @@" in diff


BYTES = st.lists(
    st.sampled_from([b"a", b"\n", b"\r\n", b"\r", "␍".encode(), b"\xff", b"\\xff", b"\x0c", "\u2028".encode()]),
    max_size=8,
).map(b"".join)


@given(before=BYTES, after=BYTES)
@example(before=b"caf\xff\n", after=b"caf\\xff\n")
@example(before=b"a\r\n", after="a␍\n".encode())
@example(before=b"1\na\r\n", after="2\na␍\n".encode())
def test_S20_whatever_changes_something_is_said(before: bytes, after: bytes) -> None:
    told = build_diff("f", before, after)
    assert (told == "(no change)") == (before == after)
    if before != after:
        changed = [line for line in told.splitlines()[2:] if line.startswith(("+", "-", "("))]
        assert changed or told.startswith("("), "a change that no line shows"


def test_S20_a_few_new_lines_against_many_old_ones_that_are_alike_cost_no_minute() -> None:
    before = b"".join(b"line %d\n" % (number % 150) for number in range(20_000))
    began = time.monotonic()
    shown = build_diff("a.txt", before, b"".join(b"line %d\n" % number for number in range(199)))
    assert shown.startswith("--- a/a.txt")
    assert time.monotonic() - began < 20, "it took 24 seconds, with every thread of the worker"
