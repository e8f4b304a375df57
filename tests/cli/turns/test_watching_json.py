"""`turn watch --json`: what a program reads of a turn, line by line, to its end."""

from __future__ import annotations

import json

from tests.cli.support import Home, call


def test_S40_every_event_is_a_json_line_until_the_turn_ends(home: Home) -> None:
    home.start("lines", call("shell", command="echo said"))
    asked = home.seen("lines", after="awaiting_approval")
    assert home.run("approve", "lines/b1c1/1", "--by", "ana").returncode == 0
    ended = home.seen("lines", kind="turn", after="completed")

    done = home.run("turn", "watch", "lines", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert {name for item in items for name in item} <= {"event", "live_output"}
    events = [item["event"] for item in items if "event" in item]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert asked in events
    assert events[-1] == ended
