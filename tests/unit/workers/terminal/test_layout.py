"""Tables at any width: names stay whole, the last column gives way, and nothing is padded."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from holdfast.domain.calls.events import Event
from holdfast.domain.content import NAME_LIMIT, Response, format_tool_name
from holdfast.domain.turn.turn_io import BatchResult, TurnResult
from holdfast.workers.terminal import render, turn_text
from holdfast.workers.terminal.layout import GAP, MIN_WIDTH, UNBOUNDED_WIDTH, CallCell, PlainTable
from holdfast.workers.terminal.turn_board import Row
from tests.support.rendering import printed

LONG = "everything__trigger-long-running-operation"
LONGEST = "s" * 20 + "__" + "t" * 42
HUGE = "x" * 5_000_000
TITLE = 'Long Running Operation (everything) {"duration": 10, "steps": 5}'
NAMES = st.from_regex(r"[a-z_]{1,40}", fullmatch=True)
WORDS = st.text("ab cé漢 ", max_size=60)


def a_row(tool: str, **fields: object) -> Row:
    known: dict[str, object] = {"title": TITLE, "status": "awaiting_approval", **fields}
    return Row(call="b1c1", batch="b1", place=1, of=2, tool=tool, **known)  # type: ignore[arg-type]


@given(cells=st.lists(st.tuples(NAMES, NAMES, WORDS), min_size=1, max_size=5), width=st.integers(44, 200))
def test_nothing_is_lost_and_no_line_is_padded_or_too_long_at_any_width(
    cells: list[tuple[str, str, str]], width: int
) -> None:
    told = printed(PlainTable([tuple(map(Text, row)) for row in cells]), width)
    assert all(line == line.rstrip(" ") for line in told)
    assert all(Text(line).cell_len <= width for line in told)
    if sum(max(len(row[place]) for row in cells) + GAP for place in (0, 1)) + MIN_WIDTH <= width:
        words = [word for line in told for word in line.split()]
        assert [word for row in cells for word in row[:2] if word not in words] == []


@given(cells=st.lists(st.tuples(NAMES, st.text("ab ", max_size=3_000)), min_size=1, max_size=5))
def test_where_the_output_is_no_terminal_nothing_is_cut_wrapped_or_padded(cells: list[tuple[str, str]]) -> None:
    size = max(len(name) for name, _ in cells) + GAP
    lines = [f"{name:{size}}{words}".rstrip() for name, words in cells]
    assert printed(PlainTable([tuple(map(Text, row)) for row in cells]), UNBOUNDED_WIDTH) == lines
    calls = PlainTable([(CallCell(name, Text(words), name_width=size - GAP),) for name, words in cells])
    assert printed(calls, UNBOUNDED_WIDTH) == lines


def test_the_last_column_is_wrapped_beside_the_names_as_long_as_it_has_room() -> None:
    table = render.build_table(
        ("tool", "effect", "description"), [(LONG, "once", "Runs for as long as you say, and tells.")]
    )
    assert printed(table, 90) == [
        f"tool{' ' * 40}effect  description",
        f"{LONG}  once    Runs for as long as you say, and",
        f"{' ' * 52}tells.",
    ]
    narrow = printed(table, 60)
    assert "".join(line[:24].strip() for line in narrow[1:]) == LONG, "wrapped, and not lost"


def test_an_empty_table_is_its_header_and_an_empty_column_takes_no_room() -> None:
    assert printed(PlainTable([], ("tool", "effect")), 80) == ["tool  effect"]
    assert printed(PlainTable([]), 80) == []
    assert printed(PlainTable([(Text("a"), Text(""), Text("b"))]), 80) == ["a  b"]


def test_a_number_is_aligned_to_the_right() -> None:
    assert printed(render.build_table(("key", "runs"), [("a", 1), ("b", 1_000)], right=[1]), 80) == [
        "key  runs",
        "a       1",
        "b    1000",
    ]


@pytest.mark.parametrize("width", [80, 100, 200, UNBOUNDED_WIDTH])
@pytest.mark.parametrize("tool", ["shell", LONG, LONGEST])
def test_S40_the_name_of_a_tool_is_whole_in_every_view(tool: str, width: int) -> None:
    moment = datetime(2031, 1, 1, 12, tzinfo=UTC)
    event = Event(
        seq=1, at=moment, kind="call", call="b12c34", place=3, of=7, tool=tool, after="awaiting_approval", title=TITLE
    )
    answered = BatchResult(id="b1", status="done", responses=(Response(call_id="b1c1", tool=tool, status="success"),))
    result = TurnResult(status="completed", batches=(answered,))
    running = a_row(tool, status="executing", started=moment, tail="out 1\nout 2\n", decided="let run by ana")
    for told in (
        printed(render.render_rows([running, a_row("shell")], moment), width),
        printed(render.render_event(event), width),
        [
            line
            for part in turn_text.render_result(result, {"b1c1": "let run by policy"})
            for line in printed(part, width)
        ],
    ):
        assert tool in "".join(line.strip() for line in told), "whole, or wrapped where a line has no room for it"
        assert all(len(line) <= width and line == line.rstrip() for line in told)


def test_at_80_columns_a_long_name_has_its_title_below_and_a_short_one_beside() -> None:
    assert printed(render.render_rows([a_row(LONG)]), 80) == [
        f"  b1c1 1/2  awaiting approval  {LONG}",
        f'{" " * 31}Long Running Operation (everything) {{"duration":…',
    ]
    assert printed(render.render_rows([a_row("shell", title="Run it")]), 80) == [
        "  b1c1 1/2  awaiting approval  shell  Run it"
    ]


def test_titles_stand_one_below_the_other_where_there_is_room() -> None:
    rows = [a_row("shell", title="Run it"), a_row("list_directory", title="List .")]
    first, second = printed(render.render_rows(rows), 80)
    assert first.index("Run") == second.index("List") == 47


def test_S40_what_is_longer_than_any_name_is_cut_and_its_length_is_the_same_everywhere() -> None:
    once = format_tool_name(HUGE)
    assert len(once) == NAME_LIMIT
    assert once.endswith("x… (5,000,000 characters)")
    assert format_tool_name(once) == once
    told = printed(render.render_rows([a_row(once, title="")]), 200)
    assert told == [f"  b1c1 1/2  awaiting approval  {once}"]
    evil = format_tool_name("\u202e" * NAME_LIMIT)
    assert len(evil) == NAME_LIMIT
    assert format_tool_name(evil) == evil


def test_a_name_of_the_longest_kind_is_not_cut() -> None:
    assert format_tool_name("n" * NAME_LIMIT) == "n" * NAME_LIMIT
    [line] = printed(render.render_rows([a_row("n" * NAME_LIMIT, title="")]), 200)
    assert line.endswith("n" * NAME_LIMIT)
