"""Secrets of MCP servers are removed in every encoding that is promised, wherever they occur."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.util.secrets import Secret, Secrets
from tests.support.secrets.writings import WAYS, pem, tells

PEM = pem(bytes(range(256)) * 6)
VALUES = {
    "token": "sk-Zq7+XyW/9a_Bc-8=",
    "words": "correct horse battery staple",
    "quotes": 'it\'s "so" <good> & \\so\\\\on',
    "letters": "pässwört-§-😀-ﬁ",
    "digits": "9021090210902109",
    "address": "postgres://bob:hunter2%2Fx@db/x?sslmode=require",
    "key": PEM,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", VALUES)
def test_S45_a_secret_is_removed_however_it_is_encoded(kind: str, way: str) -> None:
    value = VALUES[kind]
    text = f"It is {WAYS[way](value)} and so on"
    shown = Secrets([Secret("NAME", value)]).hide(text)
    assert shown.startswith("It is ")
    assert shown.endswith(" and so on")
    assert "[NAME]" in shown
    assert not tells(shown, value), shown


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=60), st.sampled_from(sorted(WAYS)))
def test_S45_any_value_is_removed_however_it_is_encoded(value: str, way: str) -> None:
    value = value.strip()
    if len(value) < 8:
        return
    shown = Secrets([Secret("NAME", value)]).hide(f" {WAYS[way](value)} ")
    assert "[NAME]" in shown
    assert not tells(shown, value)


def test_S45_secrets_are_removed_in_everything_a_value_holds() -> None:
    secrets = Secrets([Secret("TOKEN", "s3cret-s3cret"), Secret("PIN", "1234567890"), Secret("QUOTED", 'a"b"c"d')])
    value: Any = {
        "a": ["x s3cret-s3cret y", {"s3cret-s3cret": 1}, 'is a"b"c"d'],
        "b": None,
        "c": [2.5, True, 1234567890, 12345678901],
    }
    shown = {
        "a": ["x [TOKEN] y", {"[TOKEN]": 1}, "is [QUOTED]"],
        "b": None,
        "c": [2.5, True, "[PIN]", 12345678901],
    }
    assert secrets.hide_value(value) == shown
    harmless: Any = {"a": ["x", 10**5000], "b": float("nan")}
    assert secrets.hide_value(harmless)["a"] == ["x", 10**5000]  # type: ignore[call-overload,index]
    assert Secrets().hide_value(value) is value
    assert Secrets().hide("anything") == "anything"


def test_S45_secrets_are_removed_from_bytes() -> None:
    secrets = Secrets([Secret("TOKEN", "s3cret-ß-s3cret")])
    assert secrets.hide_bytes("is s3cret-ß-s3cret ö".encode()) == "is [TOKEN] ö".encode()
    secrets = Secrets([Secret("TOKEN", "s3cret-s3cret")])
    assert secrets.hide_bytes(b"\x89PNG s3cret-s3cret \xff") == b"\x89PNG [TOKEN] \xff"


def test_S45_a_secret_within_a_longer_one_does_not_keep_that_from_being_removed() -> None:
    secrets = Secrets([Secret("PASSWORD", "hunter2-hunter2"), Secret("URL", "db://bob:hunter2-hunter2@x")])
    assert secrets.hide("<db://bob:hunter2-hunter2@x> <hunter2-hunter2>") == "<[URL]> <[PASSWORD]>"


@pytest.mark.alone
def test_S45_a_megabyte_is_looked_through_in_no_time() -> None:
    secrets = Secrets([Secret("KEY", PEM), *(Secret(f"T{number}", f"token-{number:030}") for number in range(10))])
    for text in ("an ordinary word or two, " * 40_000, PEM[30:-30] * 500, '{"id": 1, "name": "x"},' * 43_000):
        began = time.perf_counter()
        secrets.hide(text[:1_000_000])
        assert time.perf_counter() - began < 1
