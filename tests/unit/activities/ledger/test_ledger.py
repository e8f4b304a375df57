"""The ledger of effects, as data and as a setting: keys, entries, limits, addresses, and which ledger there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.ledger.ledger import (
    RESULT_LIMIT,
    EffectKey,
    LedgerRefused,
    check_age,
    check_result,
    encode_intent,
    read_entry,
)
from holdfast.activities.ledger.open import open_ledger
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.config.ledger_address import check_ledger_address, format_address, hide_passwords, resolve_address
from holdfast.config.schema import Configuration, parse_configuration
from holdfast.config.settings import Settings, load_settings
from holdfast.config.toml_document import FileContent
from holdfast.errors import BadInput
from tests.support.pages import read_blocks, read_page

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
KEY = EffectKey(turn="turn", call="b1c1", digest="d" * 64)
PASSWORD = "hunter2"
TEXT = st.text(st.characters(), min_size=1, max_size=20)
"""With NUL and half characters: names come from models and servers."""
ID = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
KEYS = st.builds(EffectKey, turn=ID, call=ID, digest=ID, run=st.integers(1, 3))


# Entries


@given(KEYS, KEYS)
def test_S31_two_effects_share_a_name_in_the_database_only_when_they_are_the_same(
    one: EffectKey, two: EffectKey
) -> None:
    assert (one.id == two.id) == (one == two)
    assert re.fullmatch(r"[0-9a-f]{64}", one.id)


def test_S31_running_again_is_another_effect_and_so_is_the_same_call_with_other_arguments() -> None:
    others = [
        KEY.model_copy(update=change) for change in ({"run": 2}, {"digest": "e"}, {"call": "b1c2"}, {"turn": "t"})
    ]
    assert len({KEY.id, *(other.id for other in others)}) == 5


@given(KEYS, TEXT, TEXT)
def test_an_intent_is_read_back_as_it_was_whatever_its_names_hold(key: EffectKey, host: str, tool: str) -> None:
    text = encode_intent(key, host=host, tool=tool)
    assert text.isascii()
    assert "\0" not in text
    entry = read_entry(text, NOW, None, None)
    assert (entry.key, entry.host, entry.tool, entry.started_at) == (key, host, tool, NOW)
    assert entry.state == "intended"
    assert read_entry(text, NOW, NOW, "{}").state == "done"


def test_names_without_end_are_cut_and_keys_without_end_refused() -> None:
    entry = read_entry(encode_intent(KEY, host="h" * 10_000, tool="t" * 10_000), NOW, None, None)
    assert len(entry.host) == len(entry.tool) == 1_000
    for wrong in ({"turn": "t" * 2_001}, {"turn": ""}, {"call": "\ud800"}, {"run": 0}, {"run": 10**9}):
        with pytest.raises(ValidationError):
            EffectKey.model_validate({**KEY.model_dump(), **wrong})


@pytest.mark.parametrize("intent", ["", "[]", "{}", "null", json.dumps({"turn": "t", "call": 1}), '{"turn": "t"'])
def test_what_is_no_entry_is_not_read_as_one(intent: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its words are not for anybody
        read_entry(intent, NOW, None, None)


def test_an_end_without_a_result_is_no_entry() -> None:
    with pytest.raises(ValueError, match="not an entry"):
        read_entry(encode_intent(KEY, host="h", tool="t"), NOW, NOW, None)


# Limits


def test_results_that_no_ledger_keeps_are_refused_with_the_reason() -> None:
    check_result("é" * (RESULT_LIMIT // 2))
    with pytest.raises(LedgerRefused, match=r"takes 4,194,305 bytes, and the ledger keeps 4,194,304: cut it first"):
        check_result("x" * (RESULT_LIMIT + 1))
    with pytest.raises(LedgerRefused, match="half a character"):
        check_result('"\ud800"')
    with pytest.raises(LedgerRefused, match="NUL"):
        check_result('"\0"')


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=-1), timedelta.max, timedelta.min])
def test_an_age_that_forgets_too_much_is_refused(age: timedelta) -> None:
    with pytest.raises(ValueError, match="up to 3,650 days"):
        check_age(age)


# Addresses

GOOD = [
    "postgresql://db/ledger",
    "postgres://user@db.example.com:5432/ledger?sslmode=verify-full",
    "postgresql://user@one:5432,two:5433/ledger?target_session_attrs=primary",
    "postgresql://user@[::1]:5432/ledger",
    "postgresql:///ledger?host=/run/postgresql",
    "env:HOLDFAST_LEDGER",
]
BAD = {
    "": "must be an address as",
    "ledger.db": "must be an address as",
    "mysql://db/ledger": "must be an address as",
    "postgresql:db": "must be an address as",
    "postgresql://db/a b": "must be an address as",
    "postgresql://db/\n": "must be an address as",
    "postgresql://[::1/ledger": "must be an address as",
    "postgresql://db/" + "x" * 4_000: "must be an address as",
    "postgresql://db:port/ledger": "are written as %40",
    "postgresql://db:65536/ledger": "are written as %40",
    "postgresql://db/ledger?what": "are written as %40",
    "postgresql://db/ledger#x": "are written as %40",
    f"postgresql://user:{PASSWORD}@db/ledger": "holds a password",
    f"postgresql://db/ledger?password={PASSWORD}": "holds a password",
    f"postgresql://db/ledger?sslmode=require&pass%77ord={PASSWORD}": "holds a password",
    f"postgresql://user:{PASSWORD}/x@db/ledger": "are written as %40",
    f"postgresql://user:{PASSWORD}#x@db/ledger": "are written as %40",
    f"postgresql://user:{PASSWORD}@x@db/ledger": "are written as %40",
    f"postgresql://user:{PASSWORD}\u2100@db/ledger": "must be an address as",
    "env:": "must name a variable that begins with HOLDFAST_",
    "env:DATABASE_URL": "commands do not inherit such variables",
    "env:HOLDFAST_A B": "must name a variable",
}


@pytest.mark.parametrize("text", GOOD)
def test_addresses_are_taken_as_they_are(text: str) -> None:
    assert check_ledger_address(text) == text


@pytest.mark.parametrize("text", BAD)
def test_S45_a_wrong_address_is_told_without_being_repeated(text: str) -> None:
    found = parse_configuration(FileContent(Path("/f/holdfast.toml"), f"ledger = {json.dumps(text)}".encode()))
    [problem] = found.problems
    assert problem.line == 1
    assert problem.message.startswith("`ledger` ")
    assert BAD[text] in problem.message
    assert PASSWORD not in problem.message


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for address in (text, f"postgresql://{text}", f"postgresql://user:{text}", f"env:HOLDFAST_{text}"):
        with suppress(ValueError):
            assert check_ledger_address(address) == address
            assert address.startswith("env:") or format_address(address).startswith("postgresql://")


@given(st.text(st.characters(categories=("L", "N"), max_codepoint=0x2FF), min_size=6))
def test_S45_nothing_that_is_shown_holds_a_password(password: str) -> None:
    for address in (f"postgresql://u:{password}@db:1/ledger", f"postgresql://u@db:1/ledger?password={password}"):
        assert format_address(address) == "postgresql://db:1/ledger"
        assert password not in hide_passwords(f"what {password} says: {address}", address)
        with pytest.raises(ValueError, match="holds a password"):
            check_ledger_address(address)


def test_S45_an_escaped_password_is_hidden_in_both_its_forms() -> None:
    address = "postgresql://u:a%40b%2Fc@db/ledger"
    assert hide_passwords("a@b/c and a%40b%2Fc", address) == "… and …"


# The setting


def test_the_address_may_be_in_a_variable_with_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"postgresql://user:{PASSWORD}@db/ledger"
    assert resolve_address("env:HOLDFAST_LEDGER", {"HOLDFAST_LEDGER": address}) == address
    with pytest.raises(BadInput, match=r"the variable HOLDFAST_LEDGER, .* is not set"):
        resolve_address("env:HOLDFAST_LEDGER", {})
    with pytest.raises(BadInput, match=r"the variable HOLDFAST_LEDGER, .* must be an address") as told:
        resolve_address("env:HOLDFAST_LEDGER", {"HOLDFAST_LEDGER": f"mysql://u:{PASSWORD}@db"})
    assert PASSWORD not in str(told.value)
    file = tmp_path / "holdfast.toml"
    file.write_text('ledger = "env:HOLDFAST_LEDGER"\nledger_days = 7\n')
    file.chmod(0o600)
    monkeypatch.setenv("HOLDFAST_LEDGER", address)
    settings = load_settings(file)
    assert (settings.ledger, settings.ledger_days) == ("env:HOLDFAST_LEDGER", 7)
    assert open_ledger(settings).is_shared
    assert PASSWORD not in repr(open_ledger(settings)) + repr(settings)
    assert PASSWORD not in repr(Settings(ledger=address))


def test_the_example_of_the_docs_is_read() -> None:
    block = read_blocks("shared-ledger")["ledger"]
    found = parse_configuration(FileContent(Path("/f/holdfast.toml"), block.encode())).get_value()
    assert (found.ledger, found.ledger_days) == ("env:HOLDFAST_LEDGER", 30)
    [address] = re.findall(r"export HOLDFAST_LEDGER='(.*)'", read_page("shared-ledger"))
    assert format_address(resolve_address("env:HOLDFAST_LEDGER", {"HOLDFAST_LEDGER": address})) == (
        "postgresql://db.example.com/holdfast"
    )


async def test_without_the_setting_the_ledger_is_a_file_in_the_data_folder(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    assert (settings.ledger, settings.ledger_days, Configuration().ledger_days) == (None, 30, 30)
    ledger = open_ledger(settings)
    assert isinstance(ledger, SqliteLedger)
    assert not ledger.is_shared
    assert not settings.data.exists(), "nothing is made until it is asked or checked"
    await ledger.check()
    await ledger.close()
    assert settings.ledger_file == tmp_path / "data" / "ledger.db"
    assert settings.ledger_file.is_file()


@pytest.mark.parametrize("days", ["0", "3651", "1.5", "true", "'30'"])
def test_days_that_are_no_number_of_days_are_refused(days: str) -> None:
    [problem] = parse_configuration(FileContent(Path("/f/holdfast.toml"), f"ledger_days = {days}".encode())).problems
    assert problem.path == "ledger_days"


def test_without_the_driver_a_worker_is_told_at_its_start_what_to_install() -> None:
    code = """
import sys
sys.modules["asyncpg"] = None
from holdfast.activities.ledger.open import open_ledger
from holdfast.errors import BadInput
from holdfast.config.settings import Settings
open_ledger(Settings())
try:
    open_ledger(Settings(ledger="postgresql://db/ledger"))
except BadInput as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("the setting `ledger` names PostgreSQL, and its driver asyncpg is not installed"), (
        done
    )
    assert "pip install 'holdfast[postgres]'" in done.stdout
