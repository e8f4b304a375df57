"""Secrets of MCP servers: what is one, in which disguises it is known again, and what is left alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.mcp.secrets.detect import GivenSettings, find_secrets
from holdfast.activities.mcp.secrets.redactor import Secret, Secrets
from tests.support.writings import WAYS, pem, tells, text64

PEM = pem(bytes(range(256)) * 6)
KEY = PEM.replace("\n", "")[27:-25]
VALUES = {
    "token": "sk-Zq7+XyW/9a_Bc-8=",
    "words": "correct horse battery staple",
    "quotes": 'it\'s "so" <good> & \\so\\\\on',
    "letters": "pässwört-§-😀-ﬁ",
    "digits": "9021090210902109",
    "address": "postgres://bob:hunter2%2Fx@db/x?sslmode=require",
    "key": PEM,
    "lines": "first line of it\r\nsecond line of it\r\n",
    "symbols": "!$%&/()=?+*#'~",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", VALUES)
def test_S45_a_secret_is_known_again_however_it_is_written(kind: str, way: str) -> None:
    value = VALUES[kind].strip()
    text = f"It is {WAYS[way](value)} and so on"
    assert tells(text, value) or not value.isalnum()
    shown = Secrets([Secret("NAME", VALUES[kind])]).hide(text)
    assert shown.startswith("It is ")
    assert shown.endswith(" and so on")
    assert "[NAME]" in shown
    assert not tells(shown, value), shown


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=8, max_size=60),
    st.sampled_from([way for way in WAYS if way not in ("with other ends of lines", "on one line")]),
)
def test_S45_any_value_is_known_again_however_it_is_written(value: str, way: str) -> None:
    value = value.strip()
    if len(value) < 8 or (way == "in a form" and "+" in value):  # where a + is a blank, one beside a line's end is not
        return
    shown = Secrets([Secret("NAME", value)]).hide(f" {WAYS[way](value)} ")
    assert "[NAME]" in shown
    assert not tells(shown, value)


@pytest.mark.parametrize("between", ["\u200b", "\x1b[31m", "\x07", "\u2060\ufeff"])
def test_S45_what_nobody_sees_keeps_no_secret_from_being_found(between: str) -> None:
    secrets = Secrets([Secret("NAME", VALUES["token"])])
    split = between.join(VALUES["token"][at : at + 5] for at in range(0, 20, 5))
    assert secrets.hide(f"is {split} here") == "is [NAME] here"
    assert secrets.hide_value({"a": f"is {split} here"}) == {"a": "is [NAME] here"}
    harmless = f"in {between} colour"
    assert secrets.hide(harmless) == harmless


def test_S45_secrets_are_hidden_in_everything_a_value_holds() -> None:
    secrets = Secrets([Secret("TOKEN", "s3cret-s3cret"), Secret("PIN", "1234567890")])
    value: Any = {
        "a": ["x s3cret-s3cret y", {"s3cret-s3cret": 1}],
        "b": None,
        "c": [2.5, True, 1234567890, 12345678901],
    }
    shown = {"a": ["x [TOKEN] y", {"[TOKEN]": 1}], "b": None, "c": [2.5, True, "[PIN]", 12345678901]}
    assert secrets.hide_value(value) == shown
    harmless: Any = {"a": ["x", 10**5000], "b": float("nan")}
    assert secrets.hide_value(harmless)["a"] == ["x", 10**5000]  # type: ignore[call-overload,index]
    assert Secrets().hide_value(value) is value
    assert Secrets().hide("anything") == "anything"


def test_S45_secrets_are_hidden_in_bytes() -> None:
    secrets = Secrets([Secret("TOKEN", "s3cret-ß-s3cret")])
    assert secrets.hide_bytes("is s3cret-ß-s3cret ö".encode()) == "is [TOKEN] ö".encode()
    secrets = Secrets([Secret("TOKEN", "s3cret-s3cret")])
    assert secrets.hide_bytes(b"\x89PNG s3cret-s3cret \xff") == b"\x89PNG [TOKEN] \xff"
    image = bytes(range(256)) * 40
    assert secrets.hide_bytes(image) is image


def test_S45_where_secrets_overlap_all_of_it_is_hidden() -> None:
    secrets = Secrets([Secret("A", "abcdef-123456"), Secret("B", "123456-uvwxyz"), Secret("C", "f-1234567")])
    assert secrets.hide("<abcdef-123456-uvwxyz> <123456-uvwxyz>") == "<[A]> <[B]>"


@pytest.mark.parametrize("at", range(1, len(VALUES["token"])))
def test_S45_of_a_secret_that_comes_in_two_pieces_less_than_half_is_told(at: int) -> None:
    secrets, value = Secrets([Secret("NAME", VALUES["token"])]), VALUES["token"]
    begin, end = secrets.hide(f"is {value[:at]}", cut=True), secrets.hide(f"{value[at:]} here", cut=True)
    told = begin.removeprefix("is ").removesuffix("[NAME]") + end.removesuffix(" here").removeprefix("[NAME]")
    assert len(told) < 8
    assert "[NAME]" in begin + end
    assert secrets.hide(f"is {value[:at]}") == f"is {value[:at]}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("production-db-1", "it is in production"),
        ("postgres://bob:Hunter22@db/x", "connecting to postgres://"),
        ("https://hooks.example.com/services/abcdefghijklmnopqrstuvwx", "https://hooks.example.com"),
    ],
)
def test_S45_words_at_an_end_are_not_taken_for_a_piece_of_a_secret(value: str, text: str) -> None:
    assert Secrets([Secret("NAME", value)]).hide(text, cut=True) == text


ALMOST = (
    r"\"",
    r"\\" + "\n",
    "\n\t ",
    r"\n\t ",
    "%25",
    "%0A",
    "&amp;",
    "&#10;&",
    "a\n  b\\ ",
    "++ ",
    "\n+\n+",
    r"\\\\",
    " ",
)


@pytest.mark.parametrize("piece", ALMOST)
def test_S45_a_text_that_is_almost_a_secret_is_looked_through_in_no_time(piece: str) -> None:
    secrets = Secrets([Secret("NAME", f"x{piece * 60}x")])
    began = time.process_time()
    for written in (str, json.dumps, quote, lambda value: json.dumps(json.dumps(value))):
        almost = written(f"x{piece * 60}x")
        assert secrets.hide(f" {almost} ") != f" {almost} "
        for text in (almost.replace("x", "x" * 2)[:-1], almost[:-3] * 20, "x" + almost[1:9] * 5_000):
            secrets.hide(text.rstrip('x"') + "y")
    assert time.process_time() - began < 2


# What is secret

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
GOOGLE = json.dumps(
    {"type": "service_account", "project_id": "my-project", "private_key": PEM, "client_email": "a@b.c"}
)
SECRET: dict[str, tuple[dict[str, Any], dict[str, str], str, str]] = {
    "a token in an argument": ({"words": ["x", "${GITHUB_PAT}"]}, {"GITHUB_PAT": TOKEN}, TOKEN, "GITHUB_PAT"),
    "whatever its name": ({"words": ["x", "--a=${THING}"]}, {"THING": TOKEN}, TOKEN, "THING"),
    "in the command": ({"words": ["/bin/${THING}"]}, {"THING": TOKEN}, TOKEN, "THING"),
    "in the address": ({"words": ["https://x/${THING}"]}, {"THING": TOKEN}, TOKEN, "THING"),
    "in a header": ({"assigned": [("Authorization", "Bearer ${THING}")]}, {"THING": TOKEN}, TOKEN, "THING"),
    "as another program writes it": ({"assigned": [("A", "${env:THING}")]}, {"THING": TOKEN}, TOKEN, "THING"),
    "what looks like a path": ({"assigned": [("A", "${DB_PWD}")]}, {"DB_PWD": "/Zq7+XyW9a"}, "/Zq7+XyW9a", "DB_PWD"),
    "or like one here": ({"assigned": [("A", "${DB_PWD}")]}, {"DB_PWD": "./Zq7+XyW9a"}, "./Zq7+XyW9a", "DB_PWD"),
    "or like one at home": ({"assigned": [("A", "${DB_PWD}")]}, {"DB_PWD": "~Zq7+XyW9a"}, "~Zq7+XyW9a", "DB_PWD"),
    "an address with a password": (
        {"words": ["x", "${DATABASE_URL}"]},
        {"DATABASE_URL": "postgres://bob:hunter2@db/x"},
        "postgres://bob:hunter2@db/x",
        "DATABASE_URL",
    ),
    "its password": (
        {"words": ["x", "${DATABASE_URL}"]},
        {"DATABASE_URL": "postgres://bob:hunter2@db/x"},
        "hunter2",
        "DATABASE_URL",
    ),
    "its password, unescaped": (
        {"words": ["x", "${DATABASE_URL}"]},
        {"DATABASE_URL": "postgres://bob:p%40ss%2Fw0rd@db/x"},
        "p@ss/w0rd",
        "DATABASE_URL",
    ),
    "its only name": ({"words": ["x", "${REPO}"]}, {"REPO": f"https://{TOKEN}@github.com/a/b"}, TOKEN, "REPO"),
    "a part of its path": (
        {"words": ["x", "${HOOK}"]},
        {"HOOK": "https://hooks.example.com/services/T1/abcdefghijklmnopqrstuvwx"},
        "abcdefghijklmnopqrstuvwx",
        "HOOK",
    ),
    "a part of its query": (
        {"words": ["x", "${PLACE}"]},
        {"PLACE": "https://x/?api_key=abc%2B123456"},
        "abc+123456",
        "PLACE",
    ),
    "a part of a connection's description": (
        {"assigned": [("A", "${SQL}")]},
        {"SQL": "Server=db;User Id=sa;Password=Hunter22;"},
        "Hunter22",
        "SQL",
    ),
    "a key in a document": ({"assigned": [("A", "${GOOGLE}")]}, {"GOOGLE": GOOGLE}, PEM, "GOOGLE"),
    "a line of a key in a document": ({"assigned": [("A", "${GOOGLE}")]}, {"GOOGLE": GOOGLE}, KEY[64:128], "GOOGLE"),
    "a line of a key": ({"assigned": [("A", "${IT}")]}, {"IT": PEM}, KEY[:64], "IT"),
    "without the blanks around it": ({"assigned": [("A", "${IT}")]}, {"IT": f" {TOKEN}\n"}, TOKEN, "IT"),
    "a password of letters": ({"assigned": [("A", "${MY_PASSWORD}")]}, {"MY_PASSWORD": "correcthorse"}, "correcthorse",
                              "MY_PASSWORD"),
    "what is written down by its name": ({"assigned": [("API_KEY", TOKEN)]}, {}, TOKEN, "API_KEY"),
    "after a scheme": ({"assigned": [("Authorization", f"Bearer {TOKEN}")]}, {}, TOKEN, "Authorization"),
    "instead of what is not there": ({"assigned": [("API_KEY", f"${{NONE:-{TOKEN}}}")]}, {}, TOKEN, "API_KEY"),
    "an argument by its name": ({"words": ["x", "--api-key", TOKEN]}, {}, TOKEN, "api-key"),
    "an argument with its name": ({"words": ["x", f"--api-key={TOKEN}"]}, {}, TOKEN, "api-key"),
    "an address in the arguments": ({"words": ["x", "postgres://bob:hunter2@db/x"]}, {}, "hunter2", "password"),
    "basic authorization": (
        {"assigned": [("Authorization", "Basic ${CREDENTIALS}")]},
        {"CREDENTIALS": text64(b"bob:hunter2hunter2")},
        "hunter2hunter2",
        "Authorization",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SECRET)
def test_S45_it_is_hidden(case: str, tmp_path: Path) -> None:
    given, environment, value, name = SECRET[case]
    secrets = Secrets(find_secrets(GivenSettings(**given, folder=tmp_path), environment))
    assert secrets.hide(f"it is {value}, you see") == f"it is [{name}], you see"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "/nowhere/at-all"), ("USER", "ada-lovelace-1815"), ("LC_ALL", "en_GB.UTF-8"), ("LANG", "en_GB.UTF-8"),
        ("REGION", "eu-1"), ("STAGE", "production"), ("PORT", "80808080"), ("DAY", "2026-01-01"),
        ("HOST", "192.168.100.100"), ("API", "https://api.example.com/v2/projects"), ("API_TOKEN", "none"),
        ("DB_PASSWORD", "postgres"), ("DB_PASSWORD", "secret"), ("DB_PASSWORD", "123456"), ("FLAG", "true"),
        ("DATABASE_URL", "postgres://postgres:postgres@localhost"),
    ],
)  # fmt: skip
def test_S45_ordinary_words_are_left_alone(name: str, value: str, tmp_path: Path) -> None:
    secrets = Secrets(find_secrets(GivenSettings(assigned=[("A", f"${{{name}}}")], folder=tmp_path), {name: value}))
    text = "en_GB.UTF-8 eu-1 production 80808080 2026-01-01 192.168.100.100 https://api.example.com/v2/projects/9 none"
    text += " postgres secret 123456 true /nowhere/at-all ada-lovelace-1815"
    assert secrets.hide(text) == text


def test_S45_paths_of_this_machine_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a-file.json").touch()
    environment = {
        "CREDENTIALS": str(tmp_path / "a-file.json"),
        "HERE": "./a-file.json",
        "GONE": str(tmp_path / "gone-1"),
    }
    given = GivenSettings(assigned=[("A", "${CREDENTIALS}${HERE}${GONE}")], folder=tmp_path)
    text = f"{tmp_path}/a-file.json ./a-file.json"
    assert Secrets(find_secrets(given, environment)).hide(f"{text} {tmp_path}/gone-1") == f"{text} [GONE]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("letmeinn", "letmeinnovate, reletmeinn"),
        ("12345678", "0123456789 912345678"),
        ("hunt3r", "hunt3rs and ahunt3r"),
    ],
)
def test_S45_what_looks_like_a_word_is_not_hidden_within_others(value: str, text: str) -> None:
    secrets = Secrets([Secret("PASSWORD", value)])
    assert secrets.hide(text) == text
    words = f"{value} '{value}' a={value}&b {json.dumps(f'line{chr(10)}{value}{chr(10)}')} x%20{value}"
    assert value not in secrets.hide(words)


def test_S45_what_is_known_again_does_not_depend_on_the_order() -> None:
    environment = {"A": TOKEN, "B": TOKEN}
    given = GivenSettings(assigned=[("X", "${A}"), ("Y", "${B}")])
    assert Secrets(find_secrets(given, environment)).hide(TOKEN) == "[A]"


@pytest.mark.alone
def test_S45_a_megabyte_is_looked_through_in_no_time() -> None:
    environment = {"KEY": PEM, **{f"TOKEN_{number}": f"{TOKEN}{number}" for number in range(10)}}
    given = GivenSettings(assigned=[(name, f"${{{name}}}") for name in environment])
    secrets = Secrets(find_secrets(given, environment))
    for text in ("an ordinary word or two, " * 40_000, KEY * 500, '{"id": 1, "name": "x"},' * 43_000):
        began = time.perf_counter()
        assert secrets.hide(text[:1_000_000]).startswith(text[:20]) or text.startswith(KEY[:20])
        assert time.perf_counter() - began < 1
