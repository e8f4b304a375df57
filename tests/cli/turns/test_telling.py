"""Events as people read them: what came early, was held back, discarded or interrupted. Without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from holdfast.domain.calls.call import Status
from holdfast.domain.calls.events import Event
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.content import CallError, Response
from holdfast.domain.context import Context
from holdfast.domain.turn.turn_io import BatchResult, TurnResult
from holdfast.domain.turn.turn_view import BatchView, CallView, TurnView
from holdfast.workers.terminal import event_lines, render, turn_text
from holdfast.workers.terminal.event_lines import EventTeller
from holdfast.workers.terminal.turn_board import Board
from tests.support.rendering import printed

BEGAN = datetime(2031, 1, 1, 12, tzinfo=UTC)
WIDE = 400


class Story:
    """Events, each some seconds after the beginning."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, seconds: float, kind: str, after: str, **fields: Any) -> Story:
        told = {"seq": len(self.events) + 1, "at": BEGAN + timedelta(seconds=seconds), "kind": kind, "after": after}
        self.events.append(Event.model_validate({**told, **fields}))
        return self

    def call(self, seconds: float, place: int, of: int, after: str, *, batch: str = "b1", **fields: Any) -> Story:
        known = {"batch": batch, "call": f"{batch}c{place}", "place": place, "of": of, "tool": "look", "title": "Look"}
        return self.add(seconds, "call", after, **{"before": "executing", **known, **fields})

    def came(self, seconds: float, place: int, of: int, *, batch: str = "b1") -> Story:
        return self.call(seconds, place, of, "validating", batch=batch, before=None, title=None)

    def complete(self, seconds: float) -> Story:
        return self.add(seconds, "batch", "complete", batch="b1", of=2)

    def result(self, seconds: float, place: int, of: int) -> Story:
        fields = {"batch": "b1", "call": f"b1c{place}", "place": place, "of": of, "tool": "look"}
        return self.add(seconds, "result", "success", **fields)

    def lines(self) -> list[str]:
        telling = EventTeller()
        found = [telling.render_event(event) for event in self.events]
        return [line.partition("  ")[2] for item in found if item for line in printed(item, WIDE)]

    def board(self) -> Board:
        board = Board()
        for event in self.events:
            board.apply_item(event)
        return board


def streamed() -> Story:
    """A model that has written two calls, of which the second has ended."""
    story = Story().add(0, "model", "thinking", note="step 1").add(1, "batch", "queued", batch="b1", of=0)
    story.came(1, 1, 1).add(1, "batch", "active", batch="b1", of=1).call(1, 1, 1, "executing")
    return story.came(2, 2, 2).call(2, 2, 2, "executing").call(3, 2, 2, "success")


def test_S13_a_result_has_a_line_only_where_it_was_held_back() -> None:
    usual = Story().add(0, "batch", "queued", batch="b1", of=2).came(0, 1, 2).came(0, 2, 2)
    usual.call(1, 1, 2, "success").result(1, 1, 2).call(2, 2, 2, "success").result(2, 2, 2)
    assert not [line for line in usual.lines() if "delivered" in line]

    held = Story().add(0, "batch", "queued", batch="b1", of=2).came(0, 1, 2).came(0, 2, 2)
    held.call(1, 2, 2, "success").call(3, 1, 2, "success").result(3, 1, 2).result(3, 2, 2)
    assert held.lines()[-2:] == [
        "b1c1   1/2  success            look  Look",
        "b1c2   2/2  delivered          look  2.0 s after its end, behind b1c1",
    ]


def test_S11_calls_that_come_while_the_model_writes_say_so_and_that_more_may_come() -> None:
    story = streamed()
    lines = story.lines()
    assert lines[2] == "b1c1   1/1+  validating         look  while the model still writes"
    assert lines[-1] == "b1c2   2/2+  success            look  Look"
    story.call(4, 1, 2, "success").complete(5).result(5, 1, 2).result(5, 2, 2).add(5, "model", "asked")
    assert story.lines()[-3:] == [
        "b1c1   1/2  delivered          look  1.0 s after its end, when the reply was complete",
        "b1c2   2/2  delivered          look  2.0 s after its end, behind b1c1",
        "model asked",
    ]


def test_S13_the_board_says_what_an_answer_that_is_there_waits_for() -> None:
    story = streamed()
    board = story.board()
    assert board.is_thinking
    assert board.find_held_back("b1") == {"b1c2": "after b1c1"}
    [first, second] = printed(
        render.render_rows(board.list_batch_rows("b1"), held_back=board.find_held_back("b1")), WIDE
    )
    assert first.startswith("  b1c1 1/2+  executing")
    assert second.endswith("delivered after b1c1: Look")

    story.call(4, 1, 2, "success")
    assert set(story.board().find_held_back("b1").values()) == {"when the reply is complete"}
    board = story.complete(5).result(5, 1, 2).result(5, 2, 2).add(5, "model", "asked").board()
    assert (board.find_held_back("b1"), board.is_thinking, board.growing) == ({}, False, set())
    assert printed(render.render_rows(board.list_batch_rows("b1")), WIDE)[0].startswith("  b1c1 1/2  success")


def test_S12_a_discarded_attempt_says_once_why_and_its_calls_what_they_were() -> None:
    story, why = streamed(), "The model's reply broke off, and it begins anew: gone"
    story.add(4, "batch", "discarding", batch="b1", of=2, note=why)
    story.call(4, 1, 2, "executing", note=f"stopping: {why}")
    story.call(5, 1, 2, "cancelled", error=f"discarded: {why}; it had finished")
    story.add(5, "batch", "discarded", batch="b1", of=2).add(5, "model", "thinking", note="step 1, attempt 2: gone")
    assert story.lines()[-5:] == [
        f"batch b1 discarding 2 calls: {why}",
        "b1c1   1/2  executing          look  discarded: Look",
        "b1c1   1/2  cancelled          look  discarded: it had finished: Look",
        "batch b1 discarded",
        "model thinking: step 1, attempt 2: gone",
    ]
    board = story.board()
    assert board.is_thinking
    assert board.find_held_back("b1") == {}


@pytest.mark.parametrize(("coloured", "codes"), [(True, True), (False, False)])
def test_S12_what_is_discarded_is_dim_on_a_terminal_and_plain_elsewhere(coloured: bool, codes: bool) -> None:
    story = streamed().add(4, "batch", "discarding", batch="b1", of=2, note="gone")
    story.call(5, 1, 2, "cancelled", error="discarded: gone")
    telling, file = EventTeller(), StringIO()
    lines = [telling.render_event(event) for event in story.events]
    assert lines[-1]
    Console(file=file, force_terminal=coloured, color_system="standard" if coloured else None, width=200).print(
        lines[-1]
    )
    assert ("\x1b[2m" in file.getvalue()) is codes
    assert "\x1b[35m" not in file.getvalue(), "no colour of a call that counts"


def test_S18_an_interruption_ends_the_reply_and_is_told_with_who_said_it() -> None:
    story = streamed().add(4, "turn", "interrupted", note="No, \x1bwait", by="ana").complete(4)
    assert story.lines()[-1] == "turn interrupted: No, ␛wait  (by ana)"
    assert (story.board().is_thinking, story.board().growing) == (False, set())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "turn", "after": "interrupted", "note": "Wait", "by": "me"}, "me interrupts: Wait"),
        ({"kind": "turn", "after": "context", "note": "folder src"}, "the calls after this one run with folder src"),
        ({"kind": "batch", "after": "discarding", "batch": "b1", "note": "gone"}, "batch b1 is discarded: gone"),
        ({"kind": "batch", "after": "discarded", "batch": "b1"}, None),
        ({"kind": "result", "after": "success", "call": "b1c1"}, None),
    ],
)
def test_what_no_row_of_the_board_shows_is_told_above_it(fields: dict[str, Any], words: str | None) -> None:
    assert event_lines.describe_news(Event.model_validate({"seq": 1, "at": BEGAN, **fields}), "me") == words


def a_view(**fields: Any) -> TurnView:
    call = CallView(
        id="b1c1", place=1, of=1, tool="look", status=Status.EXECUTING, title="Look", arguments="{}", started_at=BEGAN
    )
    return TurnView(id="t", state="running", batch=BatchView(id="b1", calls=(call,)), **fields)


def test_S18_a_turn_says_whether_what_runs_is_interruptible() -> None:
    assert "  interruptible: a new message stops the running calls" in printed(turn_text.render_turn(a_view()), WIDE)
    finishes = "  not interruptible: a new message is read when the running calls have finished"
    assert finishes in printed(turn_text.render_turn(a_view(interruptible=False)), WIDE)
    idle = printed(turn_text.render_turn(TurnView(id="t", state="idle", interruptible=False)), WIDE)
    assert idle == ["turn t: idle"]


def test_S11_a_batch_that_waits_for_further_calls_says_so() -> None:
    call = a_view().batch.calls[0].model_copy(update={"status": Status.SUCCESS, "ended_at": BEGAN})  # type: ignore[union-attr]
    view = TurnView(id="it's", state="running", batch=BatchView(id="b1", calls=(call,), stream="a b", complete=False))
    said = """  waits for more calls; to end it: holdfast turn add 'it'"'"'s' 'a b' --complete"""
    assert printed(turn_text.render_turn(view), WIDE)[-1] == said
    writing = view.model_copy(update={"prompt": "Go"})
    assert printed(turn_text.render_turn(writing), WIDE)[-1] == "  the model still writes"
    assert "more" not in printed(turn_text.render_turn(a_view()), WIDE)[-1]


def test_S47_schedule_and_context_are_told_where_they_are_not_the_usual_ones() -> None:
    within = Context(folder="src/\x1bdeep", environment={"TOKEN": "HOLDFAST_TOKEN"}, tools=("shell",))
    shown = printed(turn_text.render_turn(a_view(schedule=Schedule.STREAMING, context=within)), WIDE)
    assert shown[1:5] == [
        "  schedule streaming",
        "  commands run in src/␛deep",
        "  commands get TOKEN",
        "  only these tools: shell",
    ]
    usual = "\n".join(printed(turn_text.render_turn(a_view()), WIDE))
    assert not {"schedule", "commands", "only"} & set(usual.split())


def test_S12_a_discarded_batch_is_one_line_of_the_result() -> None:
    error = CallError(type="discarded", message="The line broke; it had finished")
    gone = Response(call_id="b1c2", tool="look", status="cancelled", error=error)
    ended = Response(call_id="b1c1", tool="look", status="success")
    batches = (
        BatchResult(id="b1", status="discarded", responses=(ended, gone), reason="The line broke"),
        BatchResult(id="b2", status="discarded", responses=(ended,)),
    )
    parts = turn_text.render_result(TurnResult(status="completed", batches=batches))
    assert [line for part in parts for line in printed(part, WIDE)] == [
        "batch b1: discarded, 2 calls: The line broke",
        "batch b2: discarded, 1 call",
    ]
