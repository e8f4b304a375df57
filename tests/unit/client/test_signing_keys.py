"""Private keys on disk: for their owner alone, never overwritten, and whatever else lies there is told, not used."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from holdfast.client.signing_keys import (
    SIGNATURE_LIFETIME,
    Signer,
    create_key,
    find_key,
    find_keys_folder,
    list_keys,
    load_signer,
    read_key,
)
from holdfast.domain.approvals.approval import Approver, Decision
from holdfast.domain.approvals.signing import check_signature, format_public_key
from holdfast.errors import BadInput, DecisionRefused

KEY = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def put(name: str, data: bytes = PEM, mode: int = 0o600) -> Path:
    file = find_keys_folder() / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(mode)
    return file


def said(**fields: object) -> Decision:
    return Decision.model_validate({"approval_id": "t/b1c1/1", "digest": "d", "outcome": "yes", **fields})


# Files


@pytest.mark.usefixtures("loose_umask")
def test_a_key_is_kept_for_its_owner_alone(home: Path) -> None:
    made = create_key("ada@example.com")
    assert made.file == home / ".config" / "holdfast" / "keys" / "ada@example.com"
    assert stat.S_IMODE(made.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.file.parent.stat().st_mode) == 0o700
    assert format_public_key(read_key(made.file).public_key()) == made.public
    assert create_key("Zoë").public != made.public
    assert find_key("ada@example.com") == made


def test_a_key_is_never_overwritten(home: Path) -> None:
    made = create_key("ada")
    before = made.file.read_bytes()
    with pytest.raises(BadInput, match="the key 'ada' exists already"):
        create_key("ada")
    assert made.file.read_bytes() == before
    (find_keys_folder() / "link").symlink_to(home / "elsewhere")
    with pytest.raises(BadInput, match="already"):
        create_key("link")
    assert not (home / "elsewhere").exists()


def test_a_key_that_cannot_be_written_leaves_nothing(home: Path) -> None:
    (home / ".config").write_text("in the way")
    with pytest.raises(BadInput, match="cannot be written"):
        create_key("ada")
    with pytest.raises(BadInput, match="folder of keys cannot be read"):
        list_keys()


def test_the_folder_is_where_the_standard_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "x"))
    assert find_keys_folder() == home / "x" / "holdfast" / "keys"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert find_keys_folder() == home / ".config" / "holdfast" / "keys"


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", ".ada", "-ada", "~ada", "a/b", "../a", "a\nb", "a\0b", "\u202ea", " a", "é" * 101]
)
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is not a valid key name"):
        create_key(name)
    assert not find_keys_folder().exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o601])
def test_a_key_that_others_may_read_or_write_is_refused(mode: int) -> None:
    put("ada", mode=mode)
    with pytest.raises(BadInput, match="may be read or written by other users"):
        find_key("ada")


def pem(format: PrivateFormat = PrivateFormat.PKCS8, password: bytes | None = None) -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return KEY.private_bytes(Encoding.PEM, format, encryption)


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a private key in PEM"),
    "garbage": (os.urandom(500), "is not a private key in PEM"),
    "half": (PEM[:60], "is not a private key in PEM"),
    "a giant": (b"x" * 5_000_000, "is over 10,000 bytes"),
    "public": (KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "is not a private key"),
    "with a passphrase": (pem(password=b"secret"), "has a passphrase"),
    "of another kind": (
        generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "is not for Ed25519",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_key_is_told_and_not_used(name: str) -> None:
    data, words = WRONG[name]
    put("ada", data)
    with pytest.raises(BadInput, match=words) as refused:
        load_signer("ada")
    assert len(str(refused.value)) < 500
    [listed] = list_keys()
    assert (listed.name, listed.public, listed.id) == ("ada", None, None)
    assert listed.problem == str(refused.value)


def test_what_is_no_file_is_refused_without_waiting(home: Path) -> None:
    put("ada")
    os.mkfifo(find_keys_folder() / "pipe", 0o600)
    (find_keys_folder() / "folder").mkdir()
    (find_keys_folder() / "loop").symlink_to("loop")
    (find_keys_folder() / ".hidden").write_text("")
    assert [(key.name, bool(key.problem)) for key in list_keys()] == [
        ("ada", False),
        ("folder", True),
        ("loop", True),
        ("pipe", True),
    ]
    for named in ("nobody", str(home / "nowhere"), "~nobody-at-all/x", "./x\0y"):
        with pytest.raises(BadInput):
            find_key(named)


def test_without_a_folder_there_are_no_keys() -> None:
    assert list_keys() == []


@pytest.mark.needs("openssl")
def test_a_key_that_openssl_made_is_a_key_and_ours_is_one_for_openssl(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", theirs], check=True, timeout=30)
    theirs.chmod(0o600)
    assert load_signer(str(theirs)).name == "theirs"
    ours = create_key("ada").file
    done = subprocess.run(
        ["openssl", "pkey", "-in", ours, "-noout", "-text"], check=True, timeout=30, capture_output=True, text=True
    )
    assert done.stdout.startswith("ED25519 Private-Key")


# Signing


def test_S22_a_signer_signs_in_its_own_name_and_for_a_day() -> None:
    signer = Signer("ada", KEY)
    approvers = (Approver(name="ada", key=format_public_key(KEY.public_key())),)
    for by in (None, "bob", "ada"):
        signed = signer.sign(said(by=by))
        assert signed.by == "ada"
        assert signed.expires
        assert abs(signed.expires - datetime.now(UTC) - SIGNATURE_LIFETIME) < timedelta(minutes=5)
        check_signature(signed, approvers, datetime.now(UTC))
        with pytest.raises(DecisionRefused, match="counted until"):
            check_signature(signed, approvers, datetime.now(UTC) + timedelta(days=2))


def test_a_signer_keeps_an_expiry_that_was_given_and_gives_standing_answers_none() -> None:
    signer, later = Signer("ada", KEY), datetime(2040, 1, 1, tzinfo=UTC)
    assert signer.sign(said(expires=later)).expires == later
    for outcome in ("cancel", "proceed_always", "proceed_always_tool"):
        assert signer.sign(said(outcome=outcome)).expires is None


def test_one_that_vouches_signs_for_whom_it_is_told_and_else_for_itself() -> None:
    signer = Signer("gateway", KEY, vouches=True)
    assert signer.sign(said(by="bob")).by == "bob"
    assert signer.sign(said()).by == "gateway"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_decision_that_cannot_be_written_down_is_none(number: float) -> None:
    with pytest.raises(ValueError, match="holds a value that JSON cannot express"):
        said(arguments={"a": number})


def test_a_signer_is_called_as_the_approvers_call_its_key_else_as_its_file(tmp_path: Path) -> None:
    file = put("mine.pem")
    ada = Approver(name="Ada of ops", key=format_public_key(KEY.public_key()), vouches=True)
    other = Approver(name="mine", key=format_public_key(Ed25519PrivateKey.generate().public_key()))
    assert (load_signer("mine.pem").name, load_signer("mine.pem").vouches) == ("mine", False)
    for named in ("mine.pem", str(file), "~/.config/holdfast/keys/mine.pem"):
        signer = load_signer(named, (other, ada))
        assert (signer.name, signer.vouches) == ("Ada of ops", True)


def test_a_private_key_is_not_shown_by_accident() -> None:
    assert "key" not in repr(Signer("ada", KEY))
