"""Signed decisions: nothing counts that was forged, changed, played again elsewhere, or is too old (S22)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import JsonValue

from holdfast.activities.policy.load_policy import read_policy_file
from holdfast.activities.policy.rules import Tier
from holdfast.config.schema import parse_configuration
from holdfast.config.toml_document import FileContent
from holdfast.domain.approvals.approval import Approver, Decision, DecisionAction, Scope
from holdfast.domain.approvals.signing import (
    check_signature,
    derive_key_id,
    encode_signed_text,
    find_roles,
    format_public_key,
    sign_decision,
)
from holdfast.errors import DecisionRefused
from tests.support.pages import find_page, read_blocks

ADA, BOB, GATE, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in range(1, 5))
NOW = datetime(2031, 1, 30, 12, tzinfo=UTC)
LONG_AGO = datetime(999, 1, 1, tzinfo=UTC)
"""When nothing below has expired."""
DOCS = find_page("approvers")
BLOCKS = read_blocks("approvers")


def public(key: Ed25519PrivateKey) -> str:
    return format_public_key(key.public_key())


APPROVERS = (
    Approver(name="ada", key=public(ADA), roles=("release", "security")),
    Approver(name="bob", key=public(BOB)),
    Approver(name="carol", roles=("release",)),
    Approver(name="gateway", key=public(GATE), vouches=True),
)


def said(outcome: object = "proceed_once", **fields: object) -> Decision:
    whole = {"approval_id": "deploy-7/b1c2/1", "digest": "d" * 64, "outcome": outcome, "by": "ada", **fields}
    return Decision.model_validate(whole)


def refusal(decision: Decision, approvers: tuple[Approver, ...] = APPROVERS, now: datetime = NOW) -> str | None:
    """The code it is refused with; None when it counts."""
    try:
        check_signature(decision, approvers, now)
    except DecisionRefused as error:
        return error.code
    return None


# What may be decided

texts = st.text(max_size=20)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tables = st.dictionaries(texts, values, max_size=3)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1), timezones=zones)
scopes = st.builds(
    Scope,
    tool=st.none() | texts,
    server=st.none() | texts,
    command=st.lists(texts, max_size=2).map(tuple),
    path=st.lists(texts, max_size=2).map(tuple),
    host=st.lists(texts, max_size=2).map(tuple),
    arguments=tables,
    digest=st.none() | texts,
)
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "approval_id": texts,
    "digest": texts,
    "outcome": st.sampled_from(DecisionAction),
    "id": st.none() | texts,
    "by": st.none() | texts,
    "at": st.none() | times | st.datetimes(),
    "note": st.none() | texts,
    "content": st.none() | texts,
    "arguments": st.none() | tables,
    "scope": st.none() | scopes,
    "remember": st.booleans(),
    "uses": st.none() | st.integers(1, 1_000_000),
    "lasting": st.sampled_from(["turn", "session"]),
    "expires": st.none() | times,
    "stop_turn": st.booleans(),
    "signer": st.none() | texts,
}
whole = st.fixed_dictionaries(FIELDS).map(lambda fields: said().model_copy(update=fields))
"""Any values in any fields, whether or not they go together."""


def test_every_field_of_a_decision_is_tampered_with_below() -> None:
    assert set(Decision.model_fields) == {*FIELDS, "signature"}


@given(st.data(), whole, st.sampled_from(sorted(FIELDS)))
def test_S22_a_decision_that_was_changed_in_any_field_does_not_count(
    data: st.DataObject, decision: Decision, name: str
) -> None:
    signed = sign_decision(decision.model_copy(update={"by": "ada", "scope": decision.scope or Scope()}), ADA)
    assert refusal(signed, now=LONG_AGO) is None
    changed = signed.model_copy(update={name: data.draw(FIELDS[name])})
    assume(changed != signed)
    assert refusal(changed, now=LONG_AGO) == ("unknown_key" if name == "signer" else "bad_signature")


@given(whole, whole)
def test_S22_a_signature_is_of_no_use_to_another_decision(one: Decision, other: Decision) -> None:
    assume(one != other)
    signed = sign_decision(one, ADA)
    forged = other.model_copy(update={"by": "ada", "signer": signed.signer, "signature": signed.signature})
    assume(forged != signed)
    assert refusal(forged, now=LONG_AGO) == "bad_signature"


@given(st.data())
def test_a_decision_is_worth_the_same_after_its_way_over_a_wire(data: st.DataObject) -> None:
    """A time in another zone, a number with a fraction, a character beyond the usual: the text stays as it was."""
    details = {name: data.draw(FIELDS[name]) for name in ("id", "at", "note", "arguments", "expires")}
    signed = sign_decision(said(**details), ADA)
    received = Decision.model_validate_json(signed.model_dump_json())
    assert encode_signed_text(received) == encode_signed_text(signed)
    assert refusal(received, now=LONG_AGO) is None


def test_S22_a_decision_does_not_count_for_another_approval_or_another_digest() -> None:
    signed = sign_decision(said(), ADA)
    assert refusal(signed) is None
    for changes in ({"approval_id": "deploy-8/b1c2/1"}, {"approval_id": "deploy-7/b1c2/2"}, {"digest": "e" * 64}):
        assert refusal(signed.model_copy(update=changes)) == "bad_signature"


def test_a_field_that_decisions_learn_later_leaves_old_signatures_as_they_are() -> None:
    class LaterScope(Scope):
        branch: str | None = None
        tags: tuple[str, ...] = ()

    class LaterDecision(Decision):
        urgent: bool = False
        place: dict[str, str] | None = None
        scope: LaterScope | None = None

    signed = sign_decision(said("proceed_always", scope={"command": ["git status"]}, expires=NOW), ADA)
    later = LaterDecision.model_validate_json(signed.model_dump_json())
    assert encode_signed_text(later) == encode_signed_text(signed)
    assert refusal(later, now=LONG_AGO) is None
    assert refusal(later.model_copy(update={"urgent": True}), now=LONG_AGO) == "bad_signature"


# Who signed it


def test_S22_where_nobody_has_a_key_nothing_needs_a_signature() -> None:
    for approvers in ((), (Approver(name="ada"), Approver(name="bob", roles=("release",)))):
        assert refusal(said(), approvers) is None
        assert refusal(said(by="anybody", signature="nonsense", signer="x"), approvers) is None
        assert refusal(said("proceed_always"), approvers) is None


def test_S22_where_anybody_has_a_key_nothing_unsigned_counts() -> None:
    assert refusal(said()) == "unsigned"
    assert refusal(said("cancel")) == "unsigned"
    assert refusal(said(by="carol")) == "unsigned"
    signed = sign_decision(said(), ADA)
    assert refusal(signed.model_copy(update={"signature": None})) == "unsigned"
    assert refusal(signed.model_copy(update={"signature": ""})) == "bad_signature"


def test_S22_a_stranger_does_not_count_by_whatever_key_id_they_give() -> None:
    forged = sign_decision(said(), STRANGER)
    assert refusal(forged) == "unknown_key"
    assert refusal(forged.model_copy(update={"signer": derive_key_id(public(ADA))})) == "bad_signature"
    assert refusal(forged.model_copy(update={"signer": None})) == "unknown_key"


def test_S22_nobody_signs_in_anothers_name() -> None:
    assert refusal(sign_decision(said(by="bob"), BOB)) is None
    for name in ("ada", "carol", "gateway", "Bob", "bob ", "b\u043eb", "", None):
        assert refusal(sign_decision(said(by=name), BOB)) == "other_name"


def test_who_vouches_speaks_for_approvers_and_for_nobody_else() -> None:
    for name in ("ada", "carol", "gateway"):
        assert refusal(sign_decision(said(by=name), GATE)) is None
    for nobody in ("mallory", "", None):
        assert refusal(sign_decision(said(by=nobody), GATE)) == "other_name"


def test_S22_a_signed_standing_answer_names_what_it_covers() -> None:
    for decision in (said("proceed_always"), said("proceed_always_tool"), said("cancel", remember=True)):
        assert refusal(sign_decision(decision, ADA)) == "scope_not_signed"
        scoped = decision.model_copy(update={"scope": Scope(tool="shell")})
        assert refusal(sign_decision(scoped, ADA)) is None
    assert refusal(sign_decision(said("cancel"), ADA)) is None


@pytest.mark.parametrize("approvers", [APPROVERS, ()], ids=["keys", "no keys"])
def test_S22_a_decision_counts_until_it_expires(approvers: tuple[Approver, ...]) -> None:
    signed = sign_decision(said(expires=NOW), ADA)
    assert refusal(signed, approvers, NOW - timedelta(microseconds=1)) is None
    assert refusal(signed, approvers, NOW) == "expired_decision"
    assert refusal(signed, approvers, datetime.max.replace(tzinfo=UTC)) == "expired_decision"


def test_a_name_has_the_roles_that_the_settings_give_it() -> None:
    assert find_roles("ada", APPROVERS) == {"release", "security"}
    assert find_roles("carol", APPROVERS) == {"release"}
    assert (
        find_roles("bob", APPROVERS) == find_roles("mallory", APPROVERS) == find_roles(None, APPROVERS) == frozenset()
    )


# Garbage and giants


@given(st.text(max_size=500) | st.binary(max_size=300).map(lambda data: base64.b64encode(data).decode()), texts)
def test_whatever_stands_for_a_signature_is_refused(signature: str, signer: str) -> None:
    for name in (signer, derive_key_id(public(ADA))):
        decision = said(signature=signature, signer=name)
        assert refusal(decision) in ("bad_signature", "unknown_key")


def test_a_signature_can_be_written_in_one_way_only() -> None:
    signed = sign_decision(said(), ADA)
    text = signed.signature or ""
    twin = f"{text[:85]}{chr(ord(text[85]) + 1)}=="  # other bits that decoding drops
    assert base64.b64decode(twin) == base64.b64decode(text)
    for other in (twin, text.rstrip("="), text + "\n", f" {text}", text + "AAAA", text[4:]):
        assert refusal(signed.model_copy(update={"signature": other})) == "bad_signature"


@pytest.mark.parametrize(
    "arguments",
    [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud800"}, {"\ud800": 1}, {"a": 10**5_000}],
    ids=["nan", "inf", "half a character", "half a key", "a number without end"],
)
def test_what_json_cannot_say_cannot_be_signed_and_does_not_count(arguments: dict[str, JsonValue]) -> None:
    decision = said().model_copy(update={"arguments": arguments, "signer": derive_key_id(public(ADA))})
    with pytest.raises(ValueError, match=r"JSON compliant|surrogates|Exceeds"):
        sign_decision(decision, ADA)
    assert refusal(decision.model_copy(update={"signature": sign_decision(said(), ADA).signature})) == "bad_signature"


@pytest.mark.parametrize("expires", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_utc_clock_shows_is_refused(expires: str) -> None:
    decision = said(expires=expires, signer=derive_key_id(public(ADA)), signature=sign_decision(said(), ADA).signature)
    assert refusal(decision) == "bad_signature"


def test_nesting_as_deep_as_a_decision_can_hold_is_signed_and_checked() -> None:
    deep: JsonValue = []
    for _ in range(200):
        deep = [deep]
    assert refusal(sign_decision(said(arguments={"a": deep}), ADA)) is None


KEYS = {
    "nothing": "",
    "no kind": public(ADA).removeprefix("ed25519:"),
    "another kind": public(ADA).replace("ed25519", "rsa"),
    "short": "ed25519:AAAA",
    "long": "ed25519:" + base64.b64encode(b"x" * 33).decode(),
    "spaced": public(ADA) + " ",
    "not base64": "ed25519:" + "é" * 44,
    "a private key": "-----BEGIN PRIVATE KEY-----",
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_key_that_is_none_has_no_id_and_lets_nothing_unsigned_through(key: str) -> None:
    with pytest.raises(ValueError, match="32 bytes in base64"):
        derive_key_id(key)
    approvers = (Approver(name="ada", key=key),)
    assert refusal(said(), approvers) == "unsigned"
    assert refusal(sign_decision(said(), ADA), approvers) == "unknown_key"


SMALL = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
"""Points of small order, in all their encodings but for the sign."""


@pytest.mark.parametrize("point", SMALL)
def test_a_key_for_which_anybody_can_sign_is_none(point: str) -> None:
    low = bytes.fromhex(point)
    forged = base64.b64encode(bytes([1, *bytes(63)])).decode()  # holds for about every eighth text
    for raw in (low, low[:31] + bytes([low[31] | 0x80])):
        key = "ed25519:" + base64.b64encode(raw).decode()
        with pytest.raises(ValueError, match="anybody can sign"):
            derive_key_id(key)
        signer = hashlib.sha256(raw).hexdigest()[:16]
        for number in range(100):
            decision = said(id=str(number), signer=signer, signature=forged)
            assert refusal(decision, (Approver(name="ada", key=key),)) == "unknown_key"


FIRST = """
import builtins, sys
from datetime import UTC, datetime
from holdfast.domain.approvals.approval import Decision
from holdfast.domain.approvals.approval import Approver
from holdfast.errors import DecisionRefused
from holdfast.domain.approvals.signing import check_signature

usual = builtins.__import__

def nothing_of_it(name, *others):
    if name.startswith("cryptography"):
        raise ImportError(name)
    return usual(name, *others)

def main(decision, key):
    approvers, now = [Approver(name="ada", key=key)], datetime.now(UTC)
    builtins.__import__ = nothing_of_it
    try:
        check_signature(decision, approvers, now)
    except DecisionRefused as refusal:
        print(refusal.code)

main(Decision.model_validate_json(sys.argv[1]), sys.argv[2])
"""
"""The first check of a process, which may import nothing more of the library of signatures."""


def test_the_first_refusal_of_a_process_imports_nothing() -> None:
    """A workflow's sandbox imports anew what is imported in it, and the library of signatures then ends the process."""
    forged = sign_decision(said(), ADA).model_copy(update={"digest": "e" * 64})
    done = subprocess.run(
        [sys.executable, "-c", FIRST, forged.model_dump_json(), public(ADA)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "bad_signature\n"), done.stderr


def test_a_check_takes_well_under_a_millisecond_among_a_hundred_approvers() -> None:
    keys = (Ed25519PrivateKey.from_private_bytes(bytes([1, seed]) + bytes(30)) for seed in range(100))
    many = (*(Approver(name=f"p{number}", key=public(key)) for number, key in enumerate(keys)), *APPROVERS)
    signed = sign_decision(said(note="n" * 1_000, at=NOW, expires=NOW), ADA)
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        assert refusal(signed, many, LONG_AGO) is None
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.001


# The document, followed by somebody who has only the document


def test_the_signature_of_the_document_is_that_of_its_text() -> None:
    [secret] = re.findall(r"`([0-9a-f]{64})`", DOCS.read_text())
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    raw = key.public_key().public_bytes_raw()
    text, signature = BLOCKS["text"].removesuffix("\n").encode(), BLOCKS["signature"].strip()
    assert base64.b64encode(key.sign(text)).decode() == signature

    decision = Decision.model_validate({**json.loads(text.split(b"\n", 1)[1]), "signature": signature})
    assert decision.signer == hashlib.sha256(raw).hexdigest()[:16]
    assert encode_signed_text(decision) == text
    approvers = (Approver(name="ada", key="ed25519:" + base64.b64encode(raw).decode()),)
    assert refusal(decision, approvers, NOW) is None
    assert sign_decision(decision, key) == decision


@given(st.data())
def test_the_format_of_the_document_is_enough_to_make_the_text(data: st.DataObject) -> None:
    names = ("id", "by", "at", "note", "arguments", "lasting", "expires", "signer")
    decision = said(**{name: data.draw(FIELDS[name]) for name in names})
    fields = {name: value for name, value in json.loads(decision.model_dump_json()).items() if value is not None}
    defaults = {name for name, value in fields.items() if value is False or (name, value) == ("lasting", "session")}
    for name in ("at", "expires"):
        if (moment := getattr(decision, name)) is not None:
            zone = "Z" if moment.tzinfo else ""
            in_utc = moment.astimezone(UTC) if moment.tzinfo else moment
            fields[name] = f"{in_utc.year:04}-{in_utc:%m-%dT%H:%M:%S.%f}{zone}"
    kept = {name: value for name, value in fields.items() if name not in defaults}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encode_signed_text(decision) == f"holdfast-decision-v1\n{text}".encode()


@pytest.mark.needs("openssl")
def test_openssl_signs_as_the_document_says(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", BLOCKS["openssl"]],
        env={"PATH": os.environ["PATH"], "DIGEST": "d" * 64},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = f'[[approvers]]\nname = "ada"\n{done.stdout}'
    approvers = parse_configuration(FileContent(tmp_path / "holdfast.toml", lines.encode())).get_value().approvers
    decision = Decision.model_validate_json((tmp_path / "decision.json").read_text())
    assert refusal(decision, approvers) is None
    assert refusal(decision.model_copy(update={"outcome": DecisionAction.CANCEL}), approvers) == "bad_signature"


def test_the_settings_and_the_rules_of_the_document_are_right() -> None:
    found = parse_configuration(FileContent(DOCS, BLOCKS["approvers"].encode())).get_value().approvers
    assert [(one.name, one.key is not None, one.vouches) for one in found] == [
        ("ada", True, False),
        ("bob", False, False),
        ("gateway", True, True),
    ]
    loaded = read_policy_file(FileContent(DOCS, BLOCKS["rules"].encode()), Tier.USER)
    assert not loaded.problems
    [rule] = [entry.rule for entry in loaded.entries]
    assert (rule.role, rule.approvals, rule.not_requester) == ("release", 2, True)


def test_every_code_of_a_refusal_is_in_the_document() -> None:
    code = (Path(__file__).parents[4] / "src" / "holdfast" / "domain" / "approvals" / "signing.py").read_text()
    raised = set(re.findall(r'DecisionRefused\(\s*"(\w+)"', code))
    assert raised == set(re.findall(r"^\| `(\w+)` \|", DOCS.read_text(), re.MULTILINE))
