"""What a person is told of a call whose tool is called something else for people than its name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import RenderableType

from holdfast import tool
from holdfast.activities.gate.gate import Gate
from holdfast.activities.registry.registry import Registry
from holdfast.domain.calls.batch import Batch
from holdfast.domain.calls.call import Call, CallRequest, Status
from holdfast.domain.calls.events import Event, list_call_changes
from holdfast.domain.calls.verdicts import Ask
from holdfast.domain.turn.approval_view import build_approval_view, build_whole_approval
from holdfast.domain.turn.turn_view import BatchView, TurnView, build_call_view
from holdfast.workers.terminal import approval_text, render, turn_text
from holdfast.workers.terminal.event_lines import EventTeller
from holdfast.workers.terminal.live.answer_input import format_heading
from holdfast.workers.terminal.turn_board import Board
from tests.support.rendering import printed

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)


async def asked(display_name: str | None = "Press office", confirm: bool | str = True) -> Call:
    """A call of a tool of this name for people, which waits."""

    @tool(name="publish", display_name=display_name, confirm=confirm)
    def publish(title: str) -> str:
        """Publish."""
        return title

    request = CallRequest(tool="publish", arguments={"title": "News"})
    verdict = (await Gate(Registry([publish]), Path("/")).judge(request)).verdict
    assert isinstance(verdict, Ask)
    return Call(
        id="b1c1",
        request=request,
        status=Status.AWAITING_APPROVAL,
        bound=verdict.bound,
        confirmation=verdict.confirmation,
        revision=1,
    )


def lines(item: RenderableType) -> list[str]:
    return printed(item, 100)


async def test_S41_the_inbox_shows_what_a_tool_is_called_behind_its_name() -> None:
    item = build_approval_view("t", await asked(confirm="Print it?"), since=datetime.now(UTC))
    assert lines(approval_text.render_inbox([item], total=1, turns=1))[:4] == [
        "t/b1c1/1   publish, 0 s ago",
        "Print it?",
        '  tool publish ("Press office")',
        '  with {"title": "News"}',
    ]


async def test_S20_whoever_is_asked_sees_the_name_of_the_tool_where_the_title_has_another() -> None:
    approval = build_whole_approval("t", await asked())
    heading = format_heading(approval, "call 1 of 1")
    assert lines(approval_text.render_question(approval, heading=heading)) == [
        "Approve call 1 of 1? Press office(title='News')",
        '  tool publish ("Press office")',
        '  with {"title": "News"}',
    ]
    assert approval_text.format_whole(approval).startswith(
        "Press office(title='News')\n\ntool publish (\"Press office\")\n\n"
    )


async def test_S20_a_name_of_the_author_cannot_pass_for_the_tool_or_for_words_of_ours() -> None:
    call = await asked(confirm="Print it?")
    assert call.bound
    evil = 'shell")\n  asked because: nothing\x1b[2J' + "x" * 1_000
    ref = call.bound.tool.model_copy(update={"display_name": evil})
    view = build_approval_view("t", call.model_copy(update={"bound": call.bound.model_copy(update={"tool": ref})}))
    [_, line, _] = lines(approval_text.render_question(view))
    assert line.startswith('  tool publish ("shell\\")')
    assert ("\x1b" in line, len(line) < 120) == (False, True)


@pytest.mark.parametrize("display_name", [None, "publish"])
async def test_a_tool_without_another_name_has_no_line_of_its_own(display_name: str | None) -> None:
    view = build_approval_view("t", await asked(display_name))
    assert lines(approval_text.render_question(view)) == ["publish(title='News')", '  with {"title": "News"}']


async def test_a_question_says_which_tool_asks_by_both_names() -> None:
    view = build_approval_view("t", await asked()).model_copy(update={"kind": "question", "question": "Which page?"})
    assert lines(approval_text.render_question(view))[:2] == ['publish ("Press office") asks:', "  Which page?"]
    assert format_heading(view, "call 1 of 1") == 'Call 1 of 1, publish ("Press office"), asks you:'


async def test_a_turn_shows_a_call_by_both_names_unless_its_title_has_the_other() -> None:
    call = await asked(confirm="Print it?")
    assert call.bound
    other = call.model_copy(update={"bound": call.bound.model_copy(update={"title": "Print News"}), "id": "b1c2"})
    calls = tuple(build_call_view(one, place, 2) for place, one in enumerate((call, other), start=1))
    view = TurnView(id="t", state="awaiting_approval", interruptible=False, batch=BatchView(id="b1", calls=calls))
    assert lines(turn_text.render_turn(view))[-2:] == [
        "  b1c1 1/2  awaiting approval  publish                   Press office(title='News')",
        '  b1c2 2/2  awaiting approval  publish ("Press office")  Print News',
    ]
    assert lines(render.render_call(call))[0] == 'call b1c1 publish ("Press office") awaiting approval'


async def test_a_chat_and_whoever_watches_show_a_call_by_both_names() -> None:
    call = await asked()
    assert call.bound
    call = call.model_copy(update={"bound": call.bound.model_copy(update={"title": "Print News"})})
    batch = Batch(id="b1", calls=(call,))
    came = Batch(id="b1", calls=(Call(id="b1c1", request=call.request),))
    changes = [*list_call_changes("t", None, came), *list_call_changes("t", came, batch)]
    board, teller, told = Board(), EventTeller(), []
    for number, fields in enumerate(changes, start=1):
        event = Event.model_validate({"seq": number, "at": NOON, **fields})
        board.apply_item(event)
        told.append(teller.render_event(event))
    assert lines(render.render_rows(board.list_batch_rows("b1"))) == [
        '  b1c1 1/1  awaiting approval  publish ("Press office")  Print News'
    ]
    shown = [line.partition("  ")[2] for item in told if item for line in lines(item)]
    assert shown == [
        "b1c1   1/1  validating         publish",
        'b1c1   1/1  awaiting approval  publish ("Press office")  Print News',
    ]
