"""Standing answers on the command line: listed, revoked, kept for good (S24)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.activities.policy.saved_grants import load_saved
from holdfast.domain.approvals.approval import Decision, DecisionAction, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.workers.terminal import grant_text
from tests.cli.approvals.test_approving import asked, told, waiting
from tests.cli.support import Home, call

NOW = datetime(2031, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def granted(home: Home) -> Iterator[Path]:
    """The file of kept answers, which is gone again after the test: others go by it."""
    file = home.data / "granted.toml"
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def test_S24_answers_of_all_turns_are_listed_and_revoked_and_what_has_not_begun_is_asked_again(home: Home) -> None:
    for turn in ("listed/1", "listed/2"):
        asked(home, turn, *(call("shell", command=f"echo {word}") for word in ("twin", "twin", "other")))
        told(home, "approve", f"{turn}/b1c1/1", "--always", "--by", "ana")
        home.seen(turn, call="b1c2", after="scheduled")
    found = {grant["id"]: grant for grant in home.json("grants")["grants"]}
    assert {"listed/1/g1", "listed/2/g1"} <= set(found)
    assert found["listed/1/g1"]["scope"] == {"tool": "shell", "server": "", "command": ["echo twin $"]}
    assert [grant["id"] for grant in home.json("grants", "--turn", "listed/1")["grants"]] == ["listed/1/g1"]
    shown = home.run("grants").stdout
    assert "listed/2/g1   allows `echo twin`, exactly these words\n  by ana, " in shown

    done = home.run("grants", "revoke", "listed/1/g1", "listed/2/g9", "nowhere/g1", "--by", "ben")
    assert done.returncode == 1
    assert done.stdout == "listed/1/g1: revoked (`echo twin`, exactly these words)\n"
    assert "this turn has no grant 'g9'" in done.stderr
    assert "no turn is called 'nowhere'" in done.stderr
    assert home.seen("listed/1", kind="turn", after="revoked")["by"] == "ben"
    home.seen("listed/1", call="b1c2", after="awaiting_approval", before="scheduled")
    assert waiting(home, "listed/1") == ["listed/1/b1c2/2", "listed/1/b1c3/1"]
    assert waiting(home, "listed/2") == ["listed/2/b1c3/1"]
    assert home.json("grants", "--turn", "listed/1")["grants"] == []
    assert home.run("grants", "--turn", "listed/1").stdout == "No grants.\n"
    for turn in ("listed/1", "listed/2"):
        home.json("deny", "--turn", turn)


def test_S24_an_answer_is_kept_for_good_counts_in_the_next_turn_and_is_revoked(home: Home, granted: Path) -> None:
    asked(home, "kept", call("shell", command="echo kept"))
    done = home.run("approve", "kept/b1c1/1", "--always", "--save", "--by", "ana")
    assert done.returncode == 0, done.stderr
    assert "; permanently\n" in done.stdout
    [rule] = [entry.rule for entry in load_saved(granted).entries]
    assert done.stdout.endswith(f"Saved as {rule.name} in {granted}, for this host only.\n")

    home.start("kept-2", call("shell", command="echo kept"))
    home.seen("kept-2", kind="turn", after="completed")
    assert f"let run by policy: saved grant: {rule.name}" in home.run("turn", "show", "kept-2").stdout
    [kept] = home.json("grants")["saved"]
    assert (kept["id"], kept["allows"], kept["stands"]) == (rule.name, True, True)
    assert kept["covers"] == 'tool = ["shell"], command = ["echo kept $"]'
    assert f"{rule.name}   allows tool = " in home.run("grants").stdout
    assert "given by ana on " in home.run("grants").stdout

    assert home.json("grants", "revoke", str(rule.name))["grants"][0]["revoked"] is True
    again = home.run("grants", "revoke", str(rule.name))
    assert (again.returncode, again.stdout) == (1, "")
    assert "no saved grant is called" in again.stderr
    asked(home, "kept-3", call("shell", command="echo kept"))
    home.json("deny", "--turn", "kept-3")


def test_S24_a_refusal_is_kept_for_good(home: Home, granted: Path) -> None:
    asked(home, "refused-for-good", call("shell", command="echo bad"))
    found = told(home, "deny", "refused-for-good/b1c1/1", "--remember", "--save")
    assert found["saved"]["file"] == str(granted)
    home.start("refused-next", call("shell", command="echo bad"))
    ended = home.seen("refused-next", call="b1c1", after="error")
    assert ended["error"].startswith("denied: Refused by the saved grant")
    assert " refuses " in home.run("grants").stdout


def test_what_cannot_be_kept_is_told_and_the_decision_stands(home: Home, granted: Path) -> None:
    granted.write_text("nonsense = 1\n")
    asked(home, "unkept", call("shell", command="echo unkept"))
    done = home.run("approve", "unkept/b1c1/1", "--always", "--save", "--json")
    assert done.returncode == 1
    [found] = json.loads(done.stdout)["decisions"]
    assert (found["counted"], found["grant"], found["saved"]) == (True, "unkept/g1", None)
    assert "line 1" in found["not_saved"]
    assert granted.read_text() == "nonsense = 1\n"
    home.seen("unkept", kind="turn", after="completed")
    listed = home.run("grants")
    assert (listed.returncode, "only saved refusals are in effect" in listed.stderr) == (1, True)


def test_an_answer_about_one_call_alone_is_not_saved_and_nothing_is_decided(home: Home, granted: Path) -> None:
    asked(home, "lonely", call("shell", command="echo a > alone.txt"))
    done = home.run("approve", "lonely/b1c1/1", "--always", "--save")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be saved: leave out --save, or choose a wider grant" in done.stderr
    assert waiting(home, "lonely") == ["lonely/b1c1/1"]
    assert not granted.exists()
    home.json("deny", "--turn", "lonely")


def test_kept_answers_need_no_server_to_be_listed_and_revoked(empty: Home) -> None:
    empty.data.mkdir()
    file = empty.data / "granted.toml"
    file.write_text(
        '[[rule]]\nname = "granted-1"\ndecision = "allow"\ntool = ["a"]\npath = ["b\\u001b"]\nreason = "given by me"\n'
    )
    listed = empty.run("grants")
    assert listed.returncode == 3
    assert "granted-1   allows" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert "start one with `holdfast up`" in listed.stderr
    assert empty.run("grants", "revoke", "granted-1").returncode == 0
    assert "granted-1" not in file.read_text()
    assert empty.run("grants", "revoke", "some/g1").returncode == 3


@pytest.mark.parametrize(
    ("used", "expires", "words"),
    [
        (0, None, "by ana, "),
        (1, None, "1 of 2 uses left"),
        (2, None, "used up"),
        (0, NOW + timedelta(minutes=90), "expires in 1 h 30 min"),
        (0, NOW, "expired"),
    ],
)
def test_how_long_an_answer_still_stands_is_told(used: int, expires: datetime | None, words: str) -> None:
    said = Decision(
        approval_id="t/b1c1/1", digest="d", outcome=DecisionAction.PROCEED_ALWAYS, by="ana", uses=2, expires=expires
    )
    grant = Grant(id="g1", scope=Scope(tool="x"), covers="`x\x1b[31m`", decision=said, given_at=NOW, used=used)
    shown = StringIO()
    Console(file=shown, width=200).print(grant_text.render_grants([("t/g1", grant)], [], NOW))
    assert words in shown.getvalue()
    assert "\x1b" not in shown.getvalue()
    assert grant_text.grant_as_json("t/g1", grant, NOW)["stands"] is (used < 2 and expires != NOW)
