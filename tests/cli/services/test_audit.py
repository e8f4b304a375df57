"""`holdfast audit`: shown on a terminal, as JSON, as a page; exported, verified, replayed; and bad input (S43)."""

from __future__ import annotations

import os
import re

import pytest

from tests.cli.support import Home, call
from tests.cli.test_readme import _shell
from tests.cli.turns.test_chat import script
from tests.support.pages import read_blocks, read_page

PAGE = "audit"


@pytest.fixture(scope="module")
def told(home: Home) -> str:
    """A turn with an approval, a change and a refusal."""
    calls = [call("write_file", path="audited.txt", content="one\n"), call("shell", command="echo no")]
    home.start("audited", *calls, call("list_directory"))
    home.seen("audited", after="awaiting_approval", call="b1c2")
    changed = home.run("modify", "audited/b1c1/1", "--arguments", '{"path": "audited.txt", "content": "two\\n"}')
    assert changed.returncode == 0, changed.stderr
    assert home.run("approve", "audited/b1c1/2", "--by", "ada", "--note", "fine").returncode == 0
    assert home.run("deny", "audited/b1c2/1", "--by", "bob", "--note", "not today").returncode == 0
    home.seen("audited", kind="turn", after="completed")
    return "audited"


def test_S43_a_turn_is_told_with_who_decided_what_on_which_arguments_and_when(home: Home, told: str) -> None:
    shown = home.run("audit", "show", told)
    assert shown.returncode == 0, shown.stderr
    text = shown.stdout
    for words in (
        "turn audited: completed",
        "asked for: write_file",
        "verdict  ask by rule default: changes-ask",
        "verdict  allow by rule default: reads-proceed",
        "audited/b1c1/2 (edit), waited ",
        "proceed_once by ada, signature valid, key ",
        ": fine",
        "cancel by bob",
        ": not today",
        "-  one\n    +  two",
        "refused: Refused by bob: not today",
    ):
        assert words in text, words
    assert "\x1b" not in text
    body = home.json("audit", "show", told)
    assert [one["status"] for one in body["calls"]] == ["success", "cancelled", "success"]
    assert body["calls"][0]["arguments"] == {"path": "audited.txt", "content": "two\n"}
    assert body["calls"][0]["requested"] == {"path": "audited.txt", "content": "one\n"}


def test_S43_a_bundle_goes_the_whole_way_and_shows_what_the_server_showed(home: Home, told: str) -> None:
    file = home.folder / "audited.tar"
    assert home.run("keys", "create", "checker").returncode == 0
    made = home.json("audit", "export", told, "-o", str(file), "--sign", "checker")
    assert (made["signed"], made["absent"], made["kind"]) == (True, [], "turn")
    assert os.stat(file).st_mode & 0o777 == 0o600
    again = home.run("audit", "export", told, "-o", str(file))
    assert (again.returncode, "exists: give another name" in again.stderr) == (2, True)
    assert home.run("audit", "verify", str(file), "--key", "checker", "--head", made["head"]).returncode == 0
    replayed = home.json("audit", "replay", str(file))
    assert (replayed["same"], replayed["runs"], replayed["departures"]) == (True, 1, [])
    assert home.json("audit", "replay", told)["same"]
    assert home.json("audit", "show", str(file)) == home.json("audit", "show", told)

    data = bytearray(file.read_bytes())
    data[data.index(b"not today")] ^= 1
    other = home.folder / "other.tar"
    other.write_bytes(data)
    found = home.run("audit", "verify", str(other))
    assert found.returncode == 1
    assert found.stdout.startswith("changed: decision 'cancel' of bob on audited/b1c2/1\n")
    assert "Bundle was modified" in found.stdout


def test_S43_the_page_is_one_file(home: Home, told: str) -> None:
    file = home.folder / "audited.html"
    assert home.run("audit", "show", told, "--html", str(file)).returncode == 0
    text = file.read_text()
    assert text.startswith("<!doctype html>")
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', text) == []
    assert "<svg" in text
    assert home.run("audit", "show", told, "--html", str(file)).returncode == 2
    assert home.run("audit", "show", told, "--html", str(file), "--force").returncode == 0


def test_S43_a_session_is_shown_with_its_turns(home: Home) -> None:
    replies = ({"calls": [call("list_directory")]}, {"text": "Done."})
    done = home.run("run", "Look around", "--session", "audited-session", "--script", script(home, "aud", *replies))
    assert done.returncode == 0, done.stderr
    text = home.run("audit", "show", "audited-session").stdout
    for words in (
        "session audited-session: running",
        "turn audited-session~1: completed",
        ": Look around",
        "the model answers: Done.",
    ):
        assert words in text, words


def test_a_file_of_garbage_a_turn_that_is_not_and_a_folder_are_told(home: Home, empty: Home) -> None:
    garbage = home.folder / "garbage.tar"
    garbage.write_bytes(os.urandom(20_000))
    for arguments, code, words in (
        (("audit", "show", "nobody-knows"), 1, "no turn or session is called 'nobody-knows'"),
        (("audit", "verify", str(garbage)), 2, "is not a bundle of `holdfast audit export`"),
        (("audit", "show", str(garbage)), 2, "is not a bundle"),
        (("audit", "replay", str(garbage)), 2, "is not a bundle"),
        (("audit", "verify", str(home.folder)), 2, "cannot be read"),
        (("audit", "verify", "missing.tar"), 2, "cannot be read"),
        (("audit", "verify", str(garbage), "--key", "ed25519:xyz"), 2, "is not a public key"),
        (("audit", "verify", str(garbage), "--key", "nobody"), 2, "no key"),
        (("audit", "export", "x", "-o", ""), 2, "name is empty"),
        (("audit", "export", "x", "-o", "/nowhere/x.tar"), 2, "its folder does not exist"),
        (("audit", "export", "x", "-o", str(home.folder)), 2, "exists: give another name"),
        (("audit", "export", "x", "-o", "x.tar", "--sign", "nobody"), 2, "no key"),
    ):
        done = home.run(*arguments)
        assert (done.returncode, words in done.stderr) == (code, True), (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    assert empty.run("audit", "show", "x").returncode == 3


def test_a_workflow_of_another_kind_is_none_of_ours(home: Home) -> None:
    import subprocess

    from tests.cli.test_readme import _address
    from tests.support.server import temporal_command

    started = [temporal_command(), "workflow", "start", "--address", _address(home), "--type", "other"]
    subprocess.run([*started, "--task-queue", "nobody", "--workflow-id", "stranger"], check=True, capture_output=True)
    done = home.run("audit", "show", "stranger")
    assert (done.returncode, "'stranger' is not a turn or session but a workflow of type 'other'" in done.stderr) == (
        2,
        True,
    )


def test_the_commands_of_the_page_do_what_it_says(home: Home) -> None:
    blocks = read_blocks(PAGE)
    start, rest = blocks["show"].split("holdfast approve", 1)
    _shell(home, start)
    home.seen("rollout", call="b1c2", after="awaiting_approval")  # as a reader's hands would let pass
    shown = _shell(home, "holdfast approve" + rest)
    assert "turn rollout: completed" in shown
    shown = _shell(home, blocks["export"])
    assert "Bundle is intact: turn rollout" in shown
    assert "acts the same" in shown
    shown = _shell(home, f"{blocks['tamper'].rstrip()} || echo code $?")
    assert "changed: decision 'proceed_once' of ada on rollout/b1c1/1" in shown
    assert shown.rstrip().endswith("code 1")


def test_the_page_names_every_kind_of_entry(home: Home) -> None:
    from typing import get_args

    from holdfast.workers.audit.timeline.timeline import EntryKind

    text = read_page(PAGE)
    assert [kind for kind in get_args(EntryKind) if f"`{kind}`" not in text] == []
