"""`holdfast sessions`: what is open, how it stands, what was said; said, stopped, closed from elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import Home, call
from tests.cli.turns.test_chat import script

ASK = {"calls": [call("shell", command="echo asked")]}


def begin(home: Home, session: str, *replies: dict[str, Any]) -> None:
    """A session whose first message is said."""
    done = home.run("run", "Begin", "--session", session, "--script", script(home, session, *replies))
    assert done.returncode == 0, done.stderr


def idle(home: Home, session: str) -> dict[str, Any]:
    """How it stands once nothing runs and nothing waits."""

    def at_rest(found: dict[str, Any]) -> bool:
        return found["turn"] is None and not found["waiting"]

    return dict(home.json_once(at_rest, "sessions", "show", session))


def listed(home: Home, session: str, status: str) -> dict[str, Any]:
    """Its row in the list, once it has this status there."""

    def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for one in found["sessions"] if (one["id"], one["status"]) == (session, status)]

    [row] = rows(home.json_once(rows, "sessions", "list"))
    return row


def test_a_session_is_listed_shown_told_something_and_closed(home: Home) -> None:
    begin(home, "shown", {"text": "Begun."}, {"text": "More."})
    assert home.json("sessions", "send", "shown", "Go on") == {"session": "shown", "turn": "shown~2", "ahead": 0}
    found = idle(home, "shown")
    assert (found["id"], found["turns"], found["model"]) == ("shown", 2, "scripted")
    assert [message["text"] for message in found["messages"]] == ["Begin", "Begun.", "Go on", "More."]
    text = home.run("sessions", "show", "shown").stdout
    assert text.startswith("session shown: idle\n  model scripted, 2 turns, 4 messages\n  turn shown~2 completed\n")
    assert text.endswith("› Begin\nBegun.\n› Go on\nMore.\n")

    row = listed(home, "shown", "idle")
    assert (row["turns"], row["model"], row["ended"]) == (2, "scripted", None)
    shown = home.run("sessions").stdout
    assert shown.startswith("session")
    assert any(line.split()[:3] == ["shown", "idle", "2"] for line in shown.splitlines())

    assert home.run("sessions", "close", "shown").stdout == "Session shown ends when all queued messages are done.\n"
    late = home.run("sessions", "send", "shown", "Too late")
    assert late.returncode == 1
    assert "'shown'" in late.stderr
    assert idle(home, "shown")["status"] == "closed"
    assert listed(home, "shown", "closed")


def test_what_waits_is_shown_with_how_to_decide_and_a_grant_can_be_taken_back(home: Home) -> None:
    begin(home, "waits", {"text": "Begun."}, ASK, {"text": "Done."}, {"text": "Queued."})
    assert home.json("sessions", "send", "waits", "Run it")["turn"] == "waits~2"
    home.seen("waits~2", after="awaiting_approval")
    assert home.json("sessions", "send", "waits", "Then this")["turn"] == "waits~3"
    found = home.json("sessions", "show", "waits")
    assert (found["status"], found["pending"]) == ("awaiting_approval", ["waits~2/b1c1/1"])
    assert [one["command"] for one in found["approvals"]] == ["echo asked"]
    text = home.run("sessions", "show", "waits").stdout
    assert text.startswith("session waits: waiting for confirmation of 1\n")
    assert "  queued: Then this\n" in text
    assert "decide: holdfast approve 'waits~2/b1c1/1'" in text

    allowed = home.run("approve", "waits~2/b1c1/1", "--always")
    assert allowed.returncode == 0, allowed.stderr
    assert "until the session ends" in allowed.stdout
    assert idle(home, "waits")["turns"] == 3
    [grant] = home.json("sessions", "grants", "waits")["grants"]
    assert grant["id"] == "g1"
    assert "g1   allows " in home.run("sessions", "grants", "waits").stdout
    assert home.json("sessions", "revoke", "waits", "g1")["covers"] == grant["covers"]
    assert home.run("sessions", "grants", "waits").stdout == "No grants.\n"
    again = home.run("sessions", "revoke", "waits", "g1")
    assert again.returncode == 1
    assert "has no grant 'g1'" in again.stderr


def test_a_turn_is_interrupted_and_a_session_is_closed_at_once(home: Home) -> None:
    begin(home, "halting", {"text": "Begun."}, ASK, ASK)
    for turn in ("halting~2", "halting~3"):
        assert home.json("sessions", "send", "halting", "Run it")["turn"] == turn
        home.seen(turn, after="awaiting_approval")
        command = ("interrupt", "halting") if turn == "halting~2" else ("close", "halting", "--now")
        assert home.run("sessions", *command).returncode == 0
        assert home.seen(turn, kind="turn")["after"] == "cancelled"
    late = home.run("sessions", "interrupt", "halting")
    assert late.returncode == 1
    assert "Traceback" not in late.stderr


def test_only_the_last_messages_are_shown_unless_all_are_asked_for(home: Home) -> None:
    begin(home, "lengthy", *({"text": f"Answer {number}"} for number in range(6)))
    for number in range(1, 5):
        home.json("sessions", "send", "lengthy", f"Question {number}")
    assert idle(home, "lengthy")["turns"] == 5
    some = home.run("sessions", "show", "lengthy").stdout
    assert "… 4 messages before\n› Question 2\n" in some
    every = home.run("sessions", "show", "lengthy", "--all").stdout
    assert "before" not in every
    assert "› Begin\nAnswer 0\n› Question 1\n" in every
    assert len(json.loads(home.run("sessions", "show", "lengthy", "--json").stdout)["messages"]) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "nowhere"], 1, "no session is called 'nowhere'"),
        (["close", "nowhere"], 1, "no session is called 'nowhere'"),
        (["send", "nowhere", "Hello"], 1, "no session is called 'nowhere'"),
        (["send", "nowhere", " "], 2, "the message is empty"),
        (["send", "nowhere", "-"], 2, "the message is empty"),
        (["send", "nowhere", "Hello", "--how", "loudly"], 2, "'loudly' is not one of 'queue', 'interrupt', 'append'"),
        (["interrupt", "nowhere"], 1, "no session is called 'nowhere'"),
        (["grants", "nowhere"], 1, "no session is called 'nowhere'"),
        (["revoke", "nowhere", "g1"], 1, "no session is called 'nowhere'"),
        (["show", ""], 2, "the session's id is empty"),
        (["show", "a~1"], 2, "a session's id has between 1 and 400 characters, and no ~"),
        (["show", "x" * 401], 2, "a session's id has between 1 and 400 characters"),
        (["show", "half \udcff"], 2, "the session's id is not UTF-8 text"),
        (["show", "no-session"], 2, "'no-session' is a turn, not a session"),
    ],
)
def test_what_is_no_session_is_said_to_be_none(arguments: list[str], code: int, words: str, home: Home) -> None:
    if arguments[1] == "no-session":
        home.start("no-session", call("list_directory"))
    done = home.run("sessions", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_server_it_is_said_where_one_comes_from(empty: Home) -> None:
    for arguments in ([], ["list"], ["show", "any"]):
        done = empty.run("sessions", *arguments)
        assert (done.returncode, done.stdout) == (3, "")
        assert "start one with `holdfast up`" in done.stderr
    with empty.up("--no-gateway"):
        assert empty.json("sessions") == {"sessions": []}
        assert empty.run("sessions").stdout == "No sessions: start one with `holdfast chat`.\n"
