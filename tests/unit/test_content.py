"""Cutting what is too long, and making text harmless for a terminal."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.content import OUTPUT_LIMIT, CallError, Response, TextPart, plain, shorten, truncate

# Cutting


def test_S33_long_text_keeps_a_fifth_from_its_start_and_the_rest_from_its_end() -> None:
    text = "".join(chr(0x4E00 + number % 5_000) for number in range(100_000))
    cut = truncate(text, 1_000, whole="/outputs/x.txt")
    head, note, tail = cut.split("\n")
    assert (head, tail) == (text[:200], text[-800:])
    assert note == "… [99,000 characters left out; the whole output is in /outputs/x.txt] …"


@given(text=st.text(alphabet="ab\n", max_size=300), limit=st.integers(1, 200))
def test_S33_what_is_kept_and_what_is_said_to_be_left_out_add_up(text: str, limit: int) -> None:
    cut = truncate(text, limit)
    if len(text) <= limit:
        assert cut == text
        return
    found = re.search(r"\n… \[(\d+) characters left out\] …\n", cut)
    assert found
    head, tail = cut[: found.start()], cut[found.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) == int(limit * 0.2)
    assert len(head) + len(tail) == limit
    assert int(found[1]) == len(text) - limit


def test_S33_limit_is_forty_thousand_characters() -> None:
    assert OUTPUT_LIMIT == 40_000
    assert truncate("x" * 40_000) == "x" * 40_000
    assert "1 characters left out" in truncate("x" * 40_001)


@given(text=st.text(max_size=200), limit=st.integers(40, 100))
def test_shortened_text_fits_and_says_how_long_it_was(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= limit
    if len(text) > limit:
        assert short.endswith(f"… ({len(text)} characters)")
    else:
        assert short == text


def test_response_reads_as_its_reason_and_then_its_output() -> None:
    parts = (TextPart(text="one"), TextPart(text="two"))
    error = CallError(type="boom", message="It broke")
    assert Response(call_id="c", tool="t", status="error", parts=parts, error=error).text == "It broke\none\ntwo"
    assert Response(call_id="c", tool="t", status="success", parts=parts).text == "one\ntwo"
    assert Response(call_id="c", tool="t", status="success").text == ""


# Harmless text

BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
INVISIBLE = set("\u180e\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff\u2028\u2029\U000e0001\U000e0041")
PIECES = [
    "\x1b",
    "\x1b[",
    "\x1b]",
    "\x1bP",
    "\x1b\\",
    "\x9b",
    "\x9d",
    "\x07",
    "\r",
    "\n",
    "\t",
    "\x00",
    "\x7f",
    "0;",
    "31m",
    "a",
]
NASTY = st.lists(st.sampled_from(PIECES) | st.sampled_from(sorted(BIDI | INVISIBLE)) | st.text(), max_size=20).map(
    "".join
)
"""Pieces, since Hypothesis would draw single characters from all of Unicode and hardly ever hit these."""


@given(text=NASTY)
def test_S32_nothing_that_moves_a_terminal_is_left(text: str) -> None:
    for character in plain(text):
        assert character in "\n\t" or unicodedata.category(character) != "Cc", f"{character!r} is left"
        assert character not in BIDI | INVISIBLE, f"{character!r} is left"


@given(text=NASTY)
def test_S32_making_text_harmless_twice_is_making_it_so_once(text: str) -> None:
    assert plain(plain(text)) == plain(text)


@given(text=st.text(alphabet=st.characters(exclude_categories=["C", "Zl", "Zp"]) | st.sampled_from("\n\t")))
def test_S32_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("raw", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;5;200mx\x1b[m", "x"),
        ("a\x1b[2Kb\x1b[1Ac\x1b[?25l", "abc"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGVsbG8=\x07x", "x"),
        ("\x1bP+q544e\x1b\\x", "x"),
        ("\x1b(Bx\x1b=\x1b7\x1bc", "x"),
        ("\x9b31mx", "x"),
        ("one\r\ntwo", "one\ntwo"),
        ("10 %\r20 %\r30 %", "10 %\n20 %\n30 %"),
        ("a\bb\x00c\x07", "abc"),
        ("safe\u202egpj.exe", "safegpj.exe"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("\x1b[31", ""),
        ("Zażółć — 日本語 😀 עברית", "Zażółć — 日本語 😀 עברית"),
    ],
)
def test_S32_examples(raw: str, harmless: str) -> None:
    assert plain(raw) == harmless


def test_harmless_text_is_made_in_linear_time() -> None:
    for piece in ("\x1b]", "\x1bP", "\x1b[", "\x1b[1;", "\x1b]a\x1b", "\x1b ", "\x9b1"):
        plain(piece * 200_000)
