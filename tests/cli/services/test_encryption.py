"""`holdfast encryption` and `holdfast storage`, and what commands say where a key or a settings file is missing."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import KeyMissing, StoreUnavailable
from holdfast.payloads.file_store import list_stored_files
from holdfast.payloads.keyring import generate_key
from holdfast.workers.gateway.responses import build_problem
from tests.cli.support import Home, call
from tests.support.secrets.encrypting import files_of, found_in

SECRET, OLDER = generate_key(), generate_key()
KEYS = """
[[encryption.keys]]
id = "new"
env = "HOLDFAST_NEW_KEY"

[[encryption.keys]]
id = "old"
file = "old.key"
"""
OLD = 100 * 86_400


@pytest.fixture
def place(tmp_path: Path) -> Home:
    """A folder, with nothing running."""
    home = Home(tmp_path)
    (tmp_path / "old.key").touch(mode=0o600)
    (tmp_path / "old.key").write_text(OLDER)
    (tmp_path / "mine.toml").write_text(KEYS)
    home.env["HOLDFAST_NEW_KEY"] = SECRET
    return home


def test_a_new_key_is_printed_and_is_one(place: Home) -> None:
    done = place.run("encryption", "new-key")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(base64.b64decode(done.stdout.strip(), validate=True)) == 32
    assert place.json("encryption", "new-key")["key"] != done.stdout.strip()


def test_what_keys_there_are_is_told_without_them(place: Home) -> None:
    done = place.run("--config", "mine.toml", "encryption", "check")
    assert done.returncode == 0, done.stderr
    assert "new  encrypts and decrypts  the variable HOLDFAST_NEW_KEY" in done.stdout
    assert "old  decrypts               the file" in done.stdout
    assert "Unencrypted payloads are accepted." in done.stdout
    found = json.loads(place.run("--config", "mine.toml", "encryption", "check", "--json").stdout)
    assert (found["encrypts"], found["writes"], found["plain"]) == (True, "new", "accept")
    assert [key["ok"] for key in found["keys"]] == [True, True]
    assert SECRET not in done.stdout + json.dumps(found)
    assert OLDER not in done.stdout + json.dumps(found)
    assert "Payloads are not encrypted" in place.run("encryption", "check").stdout


def test_a_key_that_cannot_be_had_stops_everything_with_its_line(place: Home) -> None:
    del place.env["HOLDFAST_NEW_KEY"]
    (place.folder / "old.key").chmod(0o644)
    done = place.run("--config", "mine.toml", "encryption", "check")
    assert done.returncode == 1
    assert f"{place.folder / 'mine.toml'}, line 2: the encryption key 'new' cannot be read from the" in done.stderr
    assert "line 6: the encryption key 'old'" in done.stderr
    for words in (("worker", "--address", "127.0.0.1:1"), ("inbox", "--address", "127.0.0.1:1"), ("up",)):
        refused = place.run("--config", "mine.toml", *words)
        assert refused.returncode == 2, words
        assert "line 2: the encryption key 'new'" in refused.stderr, words
        assert "Traceback" not in refused.stderr


def test_what_a_file_runs_for_a_key_is_shown_before_it_is_trusted(place: Home) -> None:
    (place.folder / "holdfast.toml").write_text(
        '[[encryption.keys]]\nid = "v"\ncommand = ["vault", "read", "x"]\n'
        '[storage]\nkind = "s3"\n[storage.s3]\nbucket = "abc"\nendpoint = "http://x"\n'
    )
    done = place.run("config", "trust")
    assert "  runs at start       vault read x  (encryption key v)" in done.stdout
    assert "  stores payloads in  s3, bucket abc at http://x" in done.stdout


def test_settings_in_effect_tell_of_keys_and_stores(place: Home) -> None:
    shown = json.loads(place.run("--config", "mine.toml", "config", "show", "--json").stdout)["settings"]
    assert [key["id"] for key in shown["encryption.keys"]["value"]] == ["new", "old"]
    assert shown["encryption.plain"] == {"value": "accept", "from": "default"}
    assert shown["storage.kind"] == {"value": "files", "from": "default"}
    assert SECRET not in json.dumps(shown)


@pytest.fixture
def encrypted(place: Home) -> Iterator[Home]:
    """`holdfast up` with encryption, by a settings file in the folder that is trusted."""
    (place.folder / "holdfast.toml").write_text(KEYS)
    assert place.run("config", "trust", "--yes").returncode == 0
    with place.up("--no-gateway"):
        yield place


def test_S45_the_command_line_speaks_with_encrypted_turns(encrypted: Home) -> None:
    home = encrypted
    canary = "canary-of-the-command-line"
    home.start("flow", call("shell", command=f"echo {canary}"), call("write_file", path="a", content=canary * 2_000))
    waiting = _waiting(home, 2)
    assert [item["approval_id"] for item in waiting] == ["flow/b1c1/1", "flow/b1c2/1"]
    assert home.run("approve", *(item["approval_id"] for item in waiting), "--note", canary).returncode == 0
    assert home.run("turn", "watch", "flow").returncode == 0
    assert canary in home.json("turn", "show", "flow", "--call", "b1c1")["response"]["parts"][0]["text"]
    kept = b"".join(data for _, data in files_of(home.data / "payloads", *home.data.glob("temporal.db*")))
    assert found_in(kept, [canary]) == []

    used = home.json("encryption", "usage")
    assert set(used["keys"]) == {"new"}
    assert used["problems"] == []

    home.start("more", call("shell", command="echo"))
    _waiting(home, 1)
    assert home.run("config", "distrust").returncode == 0
    looks = [
        ("show", "flow"),
        ("watch", "flow"),
        ("show", "flow", "--call", "b1c1"),
        ("watch", "more"),
        ("show", "more"),
    ]
    for words in (*(("turn", *look) for look in looks), ("inbox",), ("approve", "more/b1c1/1")):
        refused = home.run(*words)
        assert refused.returncode == 2, words
        assert "is not trusted" in refused.stderr
        assert "It has [encryption]: without its keys nothing encrypted can be read" in refused.stderr
        blind = home.run("--no-config", *words)
        assert blind.returncode == 1, words
        assert "encrypted with the key 'new', which this process does not have" in blind.stderr, blind.stderr
        assert "Traceback" not in blind.stderr + refused.stderr


def _waiting(home: Home, count: int) -> list[dict[str, Any]]:
    """What waits, once so much does."""
    found = home.json_once(lambda found: found["total"] == count, "inbox")
    return list(found["approvals"])


def test_S42_what_nothing_needs_is_swept_by_the_command(encrypted: Home) -> None:
    home = encrypted
    home.start("flow", call("write_file", path="a", content="x" * 60_000))
    _waiting(home, 1)
    payloads = home.data / "payloads"
    stray = payloads / "00" / ("0" * 64)
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"of a turn long past")
    then = time.time() - OLD
    for path in list_stored_files(payloads):
        os.utime(path, (then, then))

    told = home.run("storage", "sweep")
    assert told.returncode == 0, told.stderr
    assert "could be removed" in told.stdout
    assert "Nothing was removed: add --delete." in told.stderr
    assert stray.exists()

    found = home.json("storage", "sweep", "--delete")
    assert found["deleted"] is True
    assert found["places"][0]["removed"] >= 1
    assert found["places"][0]["needed"] >= 1
    assert not stray.exists()
    assert home.run("turn", "show", "flow").returncode == 0

    stray.write_bytes(b"again")
    os.utime(stray, (then, then))
    (payloads / ".namespaces" / "another").touch()
    refused = home.run("storage", "sweep", "--delete")
    assert refused.returncode == 1
    assert "other namespaces store payloads here too: add --also another" in refused.stderr
    assert "not removed: fix the problems above" in refused.stderr
    (payloads / ".namespaces" / "another").unlink()

    (home.folder / "holdfast.toml").unlink()
    blind = home.run("storage", "sweep", "--delete")
    assert blind.returncode == 1
    assert "the key 'new'" in blind.stderr
    assert stray.exists()


def test_a_folder_of_another_server_is_not_swept(home: Home, tmp_path: Path) -> None:
    """The address is another's: everything here would look as if nobody needed it."""
    other = tmp_path / "other"
    stray = other / "payloads" / "00" / ("0" * 64)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"x")
    os.utime(stray, (time.time() - OLD,) * 2)
    address = json.loads((home.data / "server.json").read_text())["address"]
    options = ("storage", "sweep", "--delete", "--data", str(other), "--address", address)
    refused = home.run(*options)
    assert refused.returncode == 1
    assert "does it belong to another server?" in refused.stderr
    assert stray.exists()
    assert home.run(*options, "--all", "--ignore-unreadable").returncode == 0
    assert not stray.exists()


def test_a_store_that_does_not_answer_is_told_by_the_command_and_the_gateway(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "s3.toml"
    table = 'bucket = "abc"\nendpoint = "http://127.0.0.1:1"\nregion = "x"\n'
    file.write_text(f'[storage]\nkind = "s3"\n[storage.s3]\n{table}')
    calls = json.dumps([call("write_file", path="a", content="x" * 50_000)])
    words = ("--config", str(file), "turn", "start", "--calls", "-", "--id", "unstored")
    done = home.run(*words, stdin=calls, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    assert done.returncode == 3
    assert "a payload could not be written: the bucket 'abc' (s3): Could not connect" in done.stderr
    assert home.run("turn", "show", "unstored").returncode == 1, "it did not start"
    assert build_problem(StoreUnavailable("x")).status == 503
    assert build_problem(KeyMissing("x")).code == "payload_unreadable"


def test_bad_options_of_a_sweep_are_told(place: Home) -> None:
    for words in (("--grace", "10m"), ("--grace", "soon"), ("--address", "127.0.0.1:1")):
        done = place.run("storage", "sweep", *words)
        assert done.returncode in (2, 3), words
        assert "Traceback" not in done.stderr


def test_stores_are_tried(place: Home) -> None:
    assert place.json("storage", "check") == {
        "kind": "files",
        "stores": [{"store": "holdfast.files", "writes": True, "problem": None}],
    }
    file = place.folder / "s3.toml"
    file.write_text(
        '[storage]\nkind = "s3"\n[storage.s3]\nbucket = "abc"\nendpoint = "http://127.0.0.1:1"\nregion = "x"\n'
    )
    place.env |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    done = place.run("--config", str(file), "storage", "check")
    assert done.returncode == 1
    assert "aws.s3driver" in done.stdout
    assert "Could not connect" in done.stdout
    assert "holdfast.files  read only" in done.stdout
