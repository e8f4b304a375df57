"""The log of events: pages, numbers over several runs, the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, ToolRef
from holdfast.domain.calls.verdicts import BoundCall
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.turn.carryover import EarlierRun, RunCarryover, TurnMemory
from holdfast.domain.turn.event_log import EVENTS_PER_PAGE, EventLog
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.turn_state import TurnState

MODEL = ModelChoice()
TOOL = ToolRef(name="t", effect=Effect.ONCE, definition="d")
BOUND = BoundCall(tool=TOOL, title="t", arguments={}, digest="d", timeout_seconds=1, heartbeat_seconds=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE = (CallRequest(tool="t", id="m1"),)


def turn(**input: Any) -> TurnState:
    return TurnState("turn", lambda: NOW, TurnInput(**input))


def test_S8_events_are_read_in_pages_without_gap_or_overlap() -> None:
    state = turn(batches=(ONE * 600,))
    first = state.log.build_page(0)
    assert (len(first.events), first.more, first.finished) == (EVENTS_PER_PAGE, True, False)
    second = state.log.build_page(first.events[-1].seq)
    assert [event.seq for event in (*first.events, *second.events)] == list(range(1, 602))
    assert (second.more, second.finished) == (False, False)
    state.close_turn()
    last = state.log.build_page(10_000)
    assert (last.events, last.more, last.finished) == ((), False, True)
    assert state.log.build_page(-5).events == state.log.build_page(0).events


def test_numbers_go_on_from_the_earlier_runs_which_keep_their_own_events() -> None:
    runs = (EarlierRun(run_id="one", events=3, batches=1), EarlierRun(run_id="two", events=7, batches=2))
    log = EventLog(lambda: NOW, RunCarryover(memory=TurnMemory(), began_at=NOW, events=7, runs=runs))
    log.emit(kind="turn", after="mode")
    assert (log.events[0].seq, log.last_number) == (8, 8)
    assert [log.build_page(after).earlier for after in (0, 2, 3, 6, 7)] == ["one", "one", "two", "two", None]
    assert log.build_page(7).events == tuple(log.events)


def test_an_event_is_told_to_the_watcher_and_wakes_the_workflow() -> None:
    log, told = EventLog(lambda: NOW), list[str]()
    log.watcher = lambda event: told.append(event.after)
    log.emit(kind="turn", after="mode")
    assert (told, log.has_changed) == (["mode"], True)
    assert not log.build_page(0).finished
    log.close(kind="turn", after="completed")
    assert (told, log.build_page(0).finished) == (["mode", "completed"], True)
