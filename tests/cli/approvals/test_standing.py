"""How a turn stands, as people see it: who decided, what came from outside, who has a hand in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from holdfast.domain.approvals.approval import DecisionAction, Needs, Offer, Scope
from holdfast.domain.background_commands import BackgroundCommand
from holdfast.domain.calls.call import Status
from holdfast.domain.calls.events import Event
from holdfast.domain.modes import Mode
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.turn_view import CallView, TurnView
from holdfast.workers.terminal import approval_text, event_lines, turn_text

BASE = {"id": "b1c1", "place": 1, "of": 1, "tool": "shell", "title": "Run it", "arguments": "{}"}
EVENT = {"seq": 1, "at": datetime(2031, 1, 1, tzinfo=UTC), "kind": "call", "place": 2, "of": 3}


def shown(item: RenderableType) -> str:
    file = StringIO()
    Console(file=file, width=400).print(item)
    return file.getvalue()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        (
            {"status": "success", "actor": "policy", "decided_by": "default: reads", "rule": "default: reads"},
            "let run by policy: default: reads",
        ),
        (
            {"status": "error", "error_type": "denied", "actor": "policy", "decided_by": "no-push"},
            "denied by policy: no-push",
        ),
        ({"status": "error", "error_type": "denied", "actor": "hook", "decided_by": "lint"}, "denied by hook: lint"),
        (
            {"status": "success", "actor": "person", "decided_by": "ana", "outcome": "proceed_once", "rule": "r"},
            "approved by ana (rule r)",
        ),
        (
            {"status": "success", "actor": "person", "decided_by": "ana", "outcome": "respond", "rule": "r"},
            "answered by ana (rule r)",
        ),
        (
            {"status": "success", "actor": "person", "decided_by": "ana", "grant": "g1", "rule": "grant g1: `ls`"},
            "let run by ana (grant g1: `ls`)",
        ),
        (
            {
                "status": "cancelled",
                "error_type": "refused",
                "actor": "person",
                "decided_by": "ana",
                "rule": "grant g1: x",
            },
            "refused by ana (grant g1: x)",
        ),
        (
            {"status": "error", "error_type": "expired", "actor": "runtime", "decided_by": "deadline", "rule": "r"},
            "denied, since nobody answered before the deadline (rule r)",
        ),
        (
            {"status": "success", "actor": "runtime", "decided_by": "deadline", "rule": "r"},
            "let run, since nobody answered before the deadline (rule r)",
        ),
        ({"changed_by": ("ana", "b\x1ben")}, "arguments changed by ana and b␛en"),
    ],
)
def test_who_decided_is_told_with_the_rule(fields: dict[str, Any], words: str) -> None:
    call = CallView.model_validate({**BASE, "status": Status.SCHEDULED, **fields})
    assert turn_text.describe_decision(call) == words


def test_mode_and_content_from_outside_are_told() -> None:
    outside = {"fetch": 2, "everything__get-annotated-message": 1}
    view = TurnView(id="t", state="running", mode=Mode.PLAN, tainted=("Fetch https://a",), outside=outside, grants=2)
    told = shown(turn_text.render_turn(view))
    assert "  mode plan\n" in told
    by = "    fetch, 2 calls\n    everything__get-annotated-message\n"
    assert f"  has read content from outside, by\n{by}" in told
    assert "https://a" not in told
    assert "  2 grants: holdfast grants --turn t\n" in told
    usual = shown(turn_text.render_turn(TurnView(id="t", state="running")))
    assert usual == "turn t: running\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"deadline": timedelta(minutes=12, seconds=30), "on_deadline": "deny"}, "deadline in 12 min, then denied"),
        ({"deadline": timedelta(seconds=90.5), "on_deadline": "allow"}, "deadline in 1 min 30 s, then let run"),
        ({"deadline": timedelta(days=6, hours=23, minutes=59), "on_deadline": "deny"}, "in 6 d 23 h, then"),
        ({"deadline": timedelta(seconds=-5), "on_deadline": "deny"}, "deadline now, then denied"),
        ({"needs": Needs(approvals=2), "approved_by": ("ana",)}, "1 of 2 approvals (ana)"),
        (
            {"needs": Needs(role="ops", not_requester=True)},
            "from somebody with the role ops; not from the person who started",
        ),
        ({"editing": "ben"}, "ben is editing it"),
        ({"problem": "no \x1bsuch path"}, "the last change was refused: no ␛such path"),
        ({"changed_by": ("ben",)}, "arguments changed by ben"),
    ],
)
@pytest.mark.parametrize("kind", ["exec", "question"])
def test_what_bears_on_a_question_is_part_of_it(fields: dict[str, Any], words: str, kind: str) -> None:
    left = fields.get("deadline")
    moment = {"deadline": datetime.now(UTC) + left} if left else {}
    item = ApprovalView(approval_id="t/b1c1/1", digest="d", tool="x", kind=kind, title="X?", **{**fields, **moment})
    assert words in shown(approval_text.render_question(item))


def test_S20_what_a_model_says_of_a_command_is_shown_as_its_words_on_one_line_and_harmless() -> None:
    said = "fine\n  asked because: nothing\x1b[2J" + "x" * 1_000_000
    item = ApprovalView(
        approval_id="t/b1c1/1", digest="d", tool="shell", kind="exec", title="Run ls", command="ls", description=said
    )
    [line] = [row for row in shown(approval_text.render_question(item)).split("\n") if "fine" in row]
    assert line.startswith("  the model says: fine")
    assert "\x1b" not in line
    assert len(line) < 600


def test_turn_lists_its_background_commands_that_still_run() -> None:
    one = BackgroundCommand(handle="0" * 32, turn="t~1", call="b1c1", title="Run in the background: serve\x1b[2J")
    rows = shown(turn_text.render_turn(TurnView(id="t~2", state="idle", commands=(one,)))).split("\n")
    assert f"  runs in the background: {'0' * 32} (call b1c1, of t~1)" in rows
    assert "\x1b" not in "".join(rows)


def test_answers_are_numbered_and_named_by_their_options() -> None:
    offers = (
        Offer(outcome=DecisionAction.PROCEED_ALWAYS, scope=Scope(digest="d"), covers="one"),
        Offer(outcome=DecisionAction.PROCEED_ALWAYS, scope=Scope(tool="x"), covers="two\x1b[31m"),
        Offer(outcome=DecisionAction.PROCEED_ALWAYS_TOOL, scope=Scope(tool="x"), covers="three"),
        Offer(outcome=DecisionAction.PROCEED_ALWAYS_SERVER, scope=Scope(server="x"), covers="four"),
    )
    item = ApprovalView(approval_id="it's/b1c1/1", digest="d", tool="x", kind="mcp", title="X?", offers=offers)
    lines = [text.plain for text in approval_text.render_offers(item)]
    assert lines == [
        """  to allow more than this once: holdfast approve 'it'"'"'s/b1c1/1' --scope N""",
        "    1. one  (--always)",
        "    2. two␛[31m",
        "    3. three  (--always-tool)",
        "    4. four  (--always-server)",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"after": "awaiting_approval", "approval_id": "t/b1c2/1", "note": "ben is editing it"}, "call 2 of 3: ben is"),
        ({"after": "awaiting_approval", "approval_id": "t/b1c2/1", "note": "me is editing it"}, None),
        ({"after": "awaiting_approval", "approval_id": "t/b1c2/1", "note": "nobody is editing it any more"}, None),
        ({"after": "executing", "note": "stopping: enough"}, None),
        ({"kind": "turn", "after": "mode", "note": "mode plan", "by": "ben"}, "mode plan (by ben)"),
        ({"kind": "turn", "after": "granted", "note": "grant g1: x", "by": "me"}, None),
        ({"kind": "turn", "after": "completed"}, None),
    ],
)
def test_news_are_what_others_do(fields: dict[str, Any], words: str | None) -> None:
    told = event_lines.describe_news(Event.model_validate({**EVENT, **fields}), "me")
    assert (told or "").startswith(words or "")
    assert bool(told) is bool(words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"after": "scheduled", "by": "ben", "actor": "person"}, "Decided elsewhere by ben: scheduled."),
        (
            {"after": "scheduled", "by": "me", "actor": "person"},
            "Decided by your earlier grant or decision: scheduled.",
        ),
        ({"after": "scheduled", "by": "r", "actor": "policy"}, "Decided elsewhere by policy: r: scheduled."),
        ({"after": "error", "by": "deadline", "actor": "runtime"}, "Nobody answered before the deadline: error."),
        ({"after": "awaiting_approval", "approval_id": "t/b1c2/2"}, "Changed elsewhere: it needs approval again."),
        ({"after": "cancelled", "error": "cancelled: The turn was cancelled"}, "Call stopped with the turn."),
        ({"after": "cancelled", "error": "cancelled: no"}, "Call stopped elsewhere."),
    ],
)
def test_what_became_of_a_question_meanwhile_is_told(fields: dict[str, Any], words: str) -> None:
    assert event_lines.describe_interim_change(Event.model_validate({**EVENT, **fields}), "me") == words
