"""Cutting what is too long, and making text harmless for a terminal."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.domain.content import (
    OUTPUT_LIMIT,
    BlobPart,
    CallError,
    DataPart,
    Part,
    Response,
    Result,
    TextPart,
    truncate_output,
)
from holdfast.util.text import elide_middle, exception_text, shorten_text, strip_all_but_styles, strip_controls

# Parts

SURROGATES = st.text(alphabet=st.characters() | st.sampled_from(["\ud800", "\udfff", "\udcff"]), max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | SURROGATES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SURROGATES, inner, max_size=3),
    max_leaves=8,
)
PARTS: st.SearchStrategy[Part] = (
    st.builds(TextPart, text=SURROGATES, whole=st.none() | st.just("") | st.just("/outputs/a"))
    | st.builds(DataPart, value=VALUES)
    | st.builds(BlobPart.from_bytes, st.binary(max_size=30), SURROGATES, name=st.none() | SURROGATES)
)


@given(parts=st.lists(PARTS, max_size=4), display=st.none() | SURROGATES)
def test_S34_any_result_survives_the_history(parts: list[Part], display: str | None) -> None:
    result = Result(parts=tuple(parts), display=display, seen={"a": "d"})
    again = Result.model_validate_json(result.model_dump_json())
    bare = [part.model_copy(update={"data": None}) if isinstance(part, BlobPart) else part for part in parts]
    assert again == result.model_copy(update={"parts": tuple(bare)})
    assert [part.text for part in again.parts] == [part.text for part in result.parts]


@given(data=st.binary(max_size=60))
def test_S34_bytes_are_described_and_never_written_down(data: bytes) -> None:
    part = BlobPart.from_bytes(data, "image/png", name="a.png")
    assert (part.size, part.digest, part.data) == (len(data), hashlib.sha256(data).hexdigest(), data)
    assert "data" not in part.model_dump()
    assert "data" not in json.loads(part.model_dump_json())
    assert "data" not in repr(part)
    assert "data" not in Response(call_id="c", tool="t", status="success", parts=(part,)).model_dump_json()


NESTED: Any = 1
for _ in range(150):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), [1, {"a": float("-inf")}], {"a": object()}, b"x", {1: 2}, NESTED]
)
def test_S34_what_json_cannot_say_is_no_structured_result(value: Any) -> None:
    with pytest.raises(ValidationError):
        DataPart(value=value)


def test_S34_half_characters_are_replaced_wherever_they_are() -> None:
    assert TextPart(text="a\ud800b").text == "a?b"
    assert DataPart(value={"k\udcff": ["\ud800"]}).value == {"k?": ["?"]}
    blob = BlobPart.from_bytes(b"", "image/\ud800", name="\udcff")
    assert (blob.media_type, blob.name) == ("image/?", "?")
    assert CallError(type="\ud800", message="\ud800") == CallError(type="?", message="?")


@pytest.mark.parametrize(
    ("whole", "text"), [(None, "[image/png, 1,000 bytes]"), ("", "[image/png, 1,000 bytes, not kept]"),
                        ("/o/x.png", "[image/png, 1,000 bytes, kept in /o/x.png]")],
)  # fmt: skip
def test_S34_bytes_say_where_they_are_kept(whole: str | None, text: str) -> None:
    assert BlobPart(media_type="image/png", size=1_000, digest="d", whole=whole).text == text


def test_part_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError):
        Result.model_validate({"parts": [{"kind": "sound", "text": "x"}]})


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_words_of_any_exception_are_had() -> None:
    assert (exception_text(ValueError("x")), exception_text(ValueError()), exception_text(Silent())) == (
        "x",
        "ValueError",
        "Silent",
    )
    assert len(exception_text(ValueError("x" * 10_000))) <= 1_000


@given(text=st.text(max_size=400), limit=st.integers(0, 200))
def test_both_ends_of_a_long_text_are_shown(text: str, limit: int) -> None:
    shown = elide_middle(text, limit)
    assert len(shown) <= max(limit, 70)
    if len(text) <= limit:
        assert shown == text
    else:
        head, _, tail = re.split(r"( … \[[\d,]+ of [\d,]+ characters left out\] … )", shown, maxsplit=1)
        assert text.startswith(head)
        assert text.endswith(tail)


# Cutting


def test_S33_long_text_keeps_a_fifth_from_its_start_and_the_rest_from_its_end() -> None:
    text = "".join(chr(0x4E00 + number % 5_000) for number in range(100_000))
    cut = truncate_output(text, 1_000, whole=f"/outputs/{'0123456789abcdef' * 4}.txt")
    head, note, tail = cut.split("\n")
    assert (head, tail) == (text[:200], text[-800:])
    name = "0123456789abcdef" * 2
    assert note == f"… [99,000 characters left out; read_output reads the whole, by the name {name}] …"


@given(text=st.text(alphabet="ab\n", max_size=300), limit=st.integers(1, 200))
def test_S33_what_is_kept_and_what_is_said_to_be_left_out_add_up(text: str, limit: int) -> None:
    cut = truncate_output(text, limit)
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
    assert truncate_output("x" * 40_000) == "x" * 40_000
    assert "1 characters left out" in truncate_output("x" * 40_001)


@given(text=st.text(max_size=200), limit=st.integers(40, 100))
def test_shortened_text_fits_and_says_how_long_it_was(text: str, limit: int) -> None:
    short = shorten_text(text, limit)
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
    for character in strip_controls(text):
        assert character in "\n\t" or unicodedata.category(character) != "Cc", f"{character!r} is left"
        assert character not in BIDI | INVISIBLE, f"{character!r} is left"


@given(text=NASTY)
def test_S32_making_text_harmless_twice_is_making_it_so_once(text: str) -> None:
    assert strip_controls(strip_controls(text)) == strip_controls(text)


@given(text=st.text(alphabet=st.characters(exclude_categories=["C", "Zl", "Zp"]) | st.sampled_from("\n\t")))
def test_S32_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert strip_controls(text) == text


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
    assert strip_controls(raw) == harmless


def test_harmless_text_is_made_in_linear_time() -> None:
    for piece in ("\x1b]", "\x1bP", "\x1b[", "\x1b[1;", "\x1b]a\x1b", "\x1b ", "\x9b1"):
        strip_controls(piece * 200_000)


STYLED = {
    "\x1b[31mred\x1b[0m": "\x1b[31mred\x1b[0m",
    "\x1b[1;4;92mall\x1b[m": "\x1b[1;4;92mall\x1b[0m",
    "\x1b[38;5;208morange": "\x1b[38;5;208morange\x1b[0m",
    "\x1b[48;2;1;2;3mrgb\x1b[49m": "\x1b[48;2;1;2;3mrgb\x1b[49m\x1b[0m",
    "\x1b[8mhidden\x1b[5mblinks\x1b[28m": "hiddenblinks",
    "\x1b[5;31mboth\x1b[0m": "\x1b[31mboth\x1b[0m",
    "\x1b[38;5;999mtoo much": "too much",
    "\x1b[38;2;1;2mtoo few": "too few",
    "\x1b]0;title\x07\x1b[2J\x1b[3;4H\x1b[?25l\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\": "link",
    "\x9b31mc1\x1b[31": "c1",
    "plain\tand\r\nlines\rmore\u202e": "plain\tand\nlines\nmore",
    "\x1b[" + "1" * 10_000 + "m": "",
}


@pytest.mark.parametrize("raw", STYLED)
def test_S32_styled_output_keeps_colours_and_no_other_escape_code(raw: str) -> None:
    assert strip_all_but_styles(raw) == STYLED[raw]


@given(st.text(alphabet="\x1b[]m;0123458 9\x07\\?lHJ\r\nab\x9b\u202e\x00", max_size=60))
def test_S32_styled_output_is_the_plain_one_with_styles_and_nothing_else(text: str) -> None:
    found = strip_all_but_styles(text)
    assert strip_controls(found) == strip_controls(text)
    assert "\x1b" not in re.sub(r"\x1b\[[0-9]+(;[0-9]+)*m", "", found)
    assert strip_all_but_styles(found) == found
