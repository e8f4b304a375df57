"""Tokens: known again by their hash alone, gone at once when revoked, and no way in when their file is not right."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import BadInput, HoldfastError
from holdfast.workers.gateway.tokens import PREFIX, Role, TokenFile, TokensUnreadable, find_token

KEPT = {"name": "ada", "sha256": "0" * 64, "created": "2026-01-01T00:00:00Z"}


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "data" / "tokens.json")


def test_S45_a_token_is_known_again_and_kept_only_as_its_hash(file: TokenFile) -> None:
    made, kept = file.create("ada")
    assert made.startswith(PREFIX)
    assert len(made) == len(PREFIX) + 43, "32 bytes in base64"
    assert find_token(file.read_all(), made) == kept
    assert (kept.name, kept.role, kept.expires) == ("ada", Role.APPROVER, None)
    text = file.file.read_text()
    assert made not in text
    assert made.removeprefix(PREFIX) not in text
    assert stat.S_IMODE(file.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.file.parent.iterdir() if path.name.startswith(".")] == []


def test_S45_nothing_but_the_very_token_is_recognised(file: TokenFile) -> None:
    made, kept = file.create("ada")
    for given in ("", PREFIX, made[:-1], made + "a", made.lower(), made.upper(), f" {made}", kept.sha256, "é\udcff"):
        assert find_token(file.read_all(), given) is None
    assert find_token((), made) is None


def test_two_tokens_are_never_the_same_and_have_names_of_their_own(file: TokenFile) -> None:
    made = [file.create(f"user-{number}")[0] for number in range(20)]
    assert len(set(made)) == 20
    assert [token.name for one in made if (token := find_token(file.read_all(), one))] == [
        f"user-{n}" for n in range(20)
    ]
    with pytest.raises(BadInput, match="the token 'user-3' exists: revoke it first"):
        file.create("user-3")


def test_S45_a_revoked_token_is_gone_for_whoever_reads_the_file_already(file: TokenFile) -> None:
    made, _ = file.create("ada")
    other, _ = file.create("ben")
    reader = TokenFile(file.file)
    assert find_token(reader.read_all(), made)
    assert file.revoke("ada").name == "ada"
    assert find_token(reader.read_all(), made) is None
    assert find_token(reader.read_all(), other)
    with pytest.raises(HoldfastError, match=r"no token is called 'bem'\. Did you mean"):
        file.revoke("bem")


def test_a_token_expires_at_its_moment(file: TokenFile) -> None:
    _, kept = file.create("ada", lasts=timedelta(hours=1))
    assert kept.expires is not None
    assert not kept.is_expired(kept.expires - timedelta(microseconds=1))
    assert kept.is_expired(kept.expires)
    assert timedelta(minutes=59) < kept.expires - datetime.now(UTC) <= timedelta(hours=1)


@pytest.mark.parametrize("name", ["", " ", " ada", "ada\n", "a\x1b[31m", "a\u202eb", "x" * 201, "\udcff"])
def test_a_name_that_would_not_show_for_what_it_is_is_refused(name: str, file: TokenFile) -> None:
    with pytest.raises(BadInput, match="is not a valid token name"):
        file.create(name)
    assert not file.file.exists()


async def test_changes_at_the_same_time_lose_nothing(file: TokenFile) -> None:
    """Ten make a token while ten others are revoked: what was revoked stays so, what was made is there."""
    for number in range(10):
        file.create(f"old-{number}")
    await asyncio.gather(
        *(asyncio.to_thread(TokenFile(file.file).create, f"new-{number}") for number in range(10)),
        *(asyncio.to_thread(TokenFile(file.file).revoke, f"old-{number}") for number in range(10)),
    )
    assert {token.name for token in file.read_all()} == {f"new-{number}" for number in range(10)}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"tokens": {}}',
        b'{"tokens": [{}]}',
        b"[" * 100_000,
        json.dumps({"tokens": [KEPT, KEPT]}).encode(),
        json.dumps({"tokens": [{**KEPT, "sha256": ""}]}).encode(),
        json.dumps({"tokens": [{**KEPT, "role": "admin"}]}).encode(),
        json.dumps({"tokens": [{**KEPT, "expires": "tomorrow"}]}).encode(),
        json.dumps({"tokens": [{**KEPT, "expires": "2026-01-01T00:00:00"}]}).encode(),
        json.dumps({"tokens": [{**KEPT, "surprise": 1}]}).encode(),
        b'{"tokens": []}' + b" " * 1_000_000,
    ],
)
def test_S45_a_damaged_file_lets_nobody_in_and_is_never_written_over(content: bytes, file: TokenFile) -> None:
    made, _ = file.create("ada")
    assert find_token(file.read_all(), made), "it was good before"
    file.file.write_bytes(content)
    for attempt in (file.read_all, lambda: file.create("ben"), lambda: file.revoke("ada")):
        with pytest.raises(TokensUnreadable, match="no token is accepted"):
            attempt()
    assert file.file.read_bytes() == content


def test_S45_a_file_that_somebody_else_could_have_written_lets_nobody_in(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.create("ada")
    for mode in (0o620, 0o602):
        file.file.chmod(mode)
        with pytest.raises(TokensUnreadable, match="may be written by other users"):
            file.read_all()
    file.file.chmod(0o600)
    assert file.read_all()
    uid = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(TokensUnreadable, match="belongs to another user"):
        file.read_all()


def test_what_is_no_file_is_not_waited_for(file: TokenFile) -> None:
    file.file.parent.mkdir()
    os.mkfifo(file.file)
    with pytest.raises(TokensUnreadable, match="is not a regular file"):
        file.read_all()
    file.file.unlink()
    file.file.mkdir()
    with pytest.raises(TokensUnreadable):
        file.read_all()


def test_without_a_file_there_are_no_tokens(file: TokenFile) -> None:
    assert file.read_all() == ()
    assert not file.file.parent.exists(), "looking makes nothing"
