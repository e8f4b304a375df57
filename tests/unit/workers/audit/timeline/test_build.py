"""Timelines of the stored histories: told whole, drawn and escaped, whatever is in them (S43)."""

from __future__ import annotations

import io
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from temporalio.client import WorkflowHistory

from holdfast.payloads.converter import build_data_converter
from holdfast.workers.audit.read.replay import replay_runs
from holdfast.workers.audit.read.stored_payloads import build_read_only_converter, build_storage_fetch, find_reference
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, Run, build_run
from holdfast.workers.audit.render.html import LEFT, WIDTH, build_scale, render_page
from holdfast.workers.audit.render.timeline_text import render_timeline
from holdfast.workers.audit.timeline.build import build_timeline
from holdfast.workers.audit.timeline.call_story import diff_arguments
from holdfast.workers.audit.timeline.phrases import format_seconds
from holdfast.workers.audit.timeline.timeline import Timeline
from holdfast.workers.storage.referenced import list_payloads

HISTORIES = Path(__file__).parents[4] / "replay" / "histories"
STORED = sorted(path.stem for path in HISTORIES.glob("*.json"))
BASE = build_data_converter(None, HISTORIES / "payloads")
CONVERTER = build_read_only_converter(BASE, build_storage_fetch(BASE))


def stored(name: str) -> Run:
    said = json.loads((HISTORIES / f"{name}.json").read_text())
    return build_run(WorkflowHistory.from_json(name, said).events)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


async def telling(name: str) -> Timeline:
    run = stored(name)
    return await build_timeline(GatheredRuns(run.workflow, (run,)), CONVERTER)


@pytest.mark.parametrize("name", STORED)
async def test_S43_every_behaviour_that_was_ever_released_can_be_told(name: str) -> None:
    found = await telling(name)
    assert found.notes == ()
    assert found.status != "running"
    assert [entry.at for entry in found.entries] == sorted(entry.at for entry in found.entries)
    assert all(call.verdict or call.status in ("cancelled", "validating") for call in found.calls)
    assert Timeline.model_validate_json(found.model_dump_json(exclude_defaults=True)) == found
    assert render_page(found).count("<article") == len(found.calls)
    shown = io.StringIO()
    Console(file=shown, width=120).print(render_timeline(found, uncut=True))
    assert all(call.id in shown.getvalue() for call in found.calls)
    assert {entry.call for entry in found.entries} <= {None, *(call.id for call in found.calls)}


async def test_a_change_by_a_person_is_told_as_a_diff_with_who_and_both_questions() -> None:
    found = await telling("changed_arguments")
    [first, second] = found.calls
    assert (first.verdict, first.rule, first.changed_by) == ("ask", "default: changes-ask", ("recorder",))
    assert first.changes is not None
    assert '-content: "x"\n+content: "y"' in first.changes
    assert [question.approval.rpartition("/")[2] for question in first.questions] == ["1", "2"]
    assert all(question.seconds is not None and question.seconds > 0 for question in first.questions)
    assert [(said.outcome, said.how, said.counted) for said in first.decisions] == [
        ("modify", "signal", True),
        ("modify", "update", True),
        ("proceed_once", "update", True),
    ]
    assert second.shown["arguments"] == {"say": 2}
    decision = next(place for place, entry in enumerate(found.entries) if entry.kind == "decision")
    assert "changed by" in found.entries[decision + 1].words


async def test_a_decision_that_did_not_count_is_told_as_one() -> None:
    found = await telling("refusal_that_stops")
    [garbage] = [said for said in found.messages if not said.counted]
    assert (garbage.outcome, garbage.details) == ("not a decision", {"garbage": True})
    [refusal] = [said for call in found.calls for said in call.decisions]
    assert (refusal.outcome, refusal.counted, refusal.signature) == ("cancel", True, "none")
    assert (found.status, found.reason) == ("stopped", "Somebody refused 'ask' and stopped the turn")


JUDGED = {
    ("standing_answers", "b1c2"): ("ask", "no rule: the tool asks for confirmation"),
    ("mode_changed", "b1c1"): ("ask", "default: changes-ask"),
    ("denied_by_mode", "b1c1"): ("deny", "plan-only-reads"),
    ("cancelled_turn", "b2c1"): ("", None),
    ("mixed_batch", "b1c2"): ("reject", None),
}


@pytest.mark.parametrize(("name", "call"), JUDGED)
async def test_S43_a_verdict_is_told_with_the_rule_that_gave_it(name: str, call: str) -> None:
    [story] = [one for one in (await telling(name)).calls if one.id == call]
    verdict, rule = JUDGED[name, call]
    assert story.verdict == verdict
    assert rule is None or (story.rule or "").endswith(rule)


async def test_a_call_that_nobody_took_up_is_no_crash() -> None:
    found = await telling("moved_call")
    assert [entry.words for entry in found.entries if entry.kind == "crash"] == []
    assert [entry.words for entry in found.entries if entry.kind == "retry"] == [
        "no worker took holdfast.execute of b1c1 in time"
    ] * 2
    [call] = found.calls
    assert [attempt.how for attempt in call.attempts] == ["not taken up", "not taken up", "completed"]


async def test_the_sender_of_a_signal_writes_nothing_on_the_auditors_terminal() -> None:
    run = stored("refusal_that_stops")
    for event in run.events:
        said = event.workflow_execution_signaled_event_attributes
        if event.HasField("workflow_execution_signaled_event_attributes"):
            said.identity = "\x1b]0;pwned\x07"
            evil = "t/\x1b[2J\x1b]0;pwned\x07/1"
            body = {"approval_id": evil, "digest": "d", "outcome": "yes", "by": "\x1b[2Jada\nbob", "note": "\x1b[2J"}
            said.input.payloads[0].data = json.dumps(body).encode()
    found = await build_timeline(GatheredRuns(run.workflow, (run,)), CONVERTER)
    shown = io.StringIO()
    Console(file=shown, width=120).print(render_timeline(found, uncut=True))
    assert "\x1b" not in shown.getvalue()
    assert "\x1b" not in render_page(found)


async def test_runs_that_name_one_another_as_parents_are_told_once() -> None:
    run = stored("one_call")
    for event in run.events[:1]:
        event.workflow_execution_started_event_attributes.parent_workflow_execution.workflow_id = run.workflow
    found = await build_timeline(GatheredRuns(run.workflow, (build_run(run.events),)), CONVERTER)
    assert found.turns == ()


async def test_a_history_that_todays_code_cannot_follow_is_told_as_far_as_it_speaks_for_itself() -> None:
    run = stored("ten_approvals")
    events = list(run.events)
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            event.activity_task_scheduled_event_attributes.activity_type.name = "holdfast.other"
            break
    other = Run(run.workflow, run.run, run.type, tuple(events))
    [replayed] = await replay_runs([other], CONVERTER)
    [departure] = replayed.departures
    assert departure.breaks
    assert departure.first <= event.event_id <= departure.last < departure.first + 20
    assert f"events {departure.first} to {departure.last}" in departure.location
    assert "Nondeterminism error: Activity type" in departure.what
    found = await build_timeline(GatheredRuns(run.workflow, (other,)), CONVERTER)
    assert "cannot replay" in found.notes[0]
    assert sum(entry.kind == "decision" for entry in found.entries) == 10
    assert found.calls == ()


async def test_what_would_be_said_otherwise_today_is_told_beside_the_same_path() -> None:
    run = stored("refusal_that_stops")
    [result] = run.events[-1].workflow_execution_completed_event_attributes.result.payloads
    assert b'"type":"refused"' in result.data
    result.data = result.data.replace(b'"type":"refused"', b'"type":"denied"')
    [replayed] = await replay_runs([run], CONVERTER)
    [departure] = replayed.departures
    assert not departure.breaks
    assert departure.what == "it would end with batches[0].responses[0].error.type = 'refused', and was 'denied'"


async def test_a_run_whose_payloads_are_missing_says_so_and_does_not_hang(tmp_path: Path) -> None:
    run = stored("large_payloads")
    assert sum(find_reference(payload) is not None for event in run.events for payload in list_payloads(event)) > 3
    base = build_data_converter(None, tmp_path)
    converter = build_read_only_converter(base, build_storage_fetch(base))
    [replayed] = await replay_runs([run], converter)
    assert (replayed.departures, len(replayed.lacking)) == ([], 7)
    found = await build_timeline(GatheredRuns(run.workflow, (run,)), converter)
    assert "is missing" in found.notes[0]
    assert _files(tmp_path) == []


async def test_reading_an_audit_stores_nothing(tmp_path: Path) -> None:
    shutil.copytree(HISTORIES / "payloads", tmp_path / "payloads")
    before = _files(tmp_path)
    base = build_data_converter(None, tmp_path / "payloads")
    [replayed] = await replay_runs(
        [stored("large_payloads")], build_read_only_converter(base, build_storage_fetch(base))
    )
    assert replayed.departures == []
    assert _files(tmp_path) == before


async def test_a_page_runs_and_loads_nothing_whatever_a_model_wrote() -> None:
    found = await telling("mixed_batch")
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\x1b]0;title\x07\u202e"
    calls = tuple(
        call.model_copy(
            update={"tool": evil, "title": evil, "result": evil, "arguments": {evil: evil}, "changes": f"+{evil}"}
        )
        for call in found.calls
    )
    entries = tuple(entry.model_copy(update={"words": evil, "call": evil}) for entry in found.entries)
    text = render_page(found.model_copy(update={"id": evil, "calls": calls, "entries": entries, "prompt": evil}))
    assert "<script" not in text
    assert "<img" not in text
    assert "\x1b" not in text
    assert "default-src 'none'" in text
    shown = io.StringIO()
    Console(file=shown, width=120).print(
        render_timeline(found.model_copy(update={"calls": calls, "id": evil}), uncut=True)
    )
    assert "\x1b]" not in shown.getvalue()


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=40))
def test_moments_are_drawn_in_their_order_and_within_the_picture(offsets: list[float]) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(seconds=offset) for offset in offsets]
    scale = build_scale(moments)
    places = [scale.locate(moment) for moment in sorted(moments)]
    assert places == sorted(places)
    assert all(LEFT <= place <= WIDTH for place in places)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0123, "0.012 s"),
        (12.34, "12.3 s"),
        (75, "1 min 15 s"),
        (3_600, "1 h"),
        (700_000, "8 d 2 h"),
        (59.99, "60.0 s"),
    ],
)
def test_lengths_of_time_read_well(value: float, words: str) -> None:
    assert format_seconds(value) == words


def test_changes_show_texts_line_by_line() -> None:
    assert diff_arguments({"a": 1}, {"a": 1}) is None
    diff = diff_arguments({"path": "x", "content": "one\ntwo\n"}, {"path": "x", "content": "one\nthree\n"})
    assert diff is not None
    assert "-  two\n+  three" in diff
