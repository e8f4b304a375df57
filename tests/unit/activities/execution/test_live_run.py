"""What runs right now: the tail of its output is its end, and a heartbeat with it stays small."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from holdfast.activities.execution.live_run import LiveRun, LiveRuns
from holdfast.domain.content import TextPart
from holdfast.domain.turn.activity_io import LiveOutput, RunningCall
from holdfast.util.text import Tail, drop_surrogates, strip_controls

HOST = "holdfast-host-" + "x" * 50
BEAT_LIMIT = 8_192


def live_run() -> LiveRun:
    run = LiveRun("org/turn", "b100c1000", workspace=Path("/w"), host_queue=HOST)
    run.report_process(4_194_304)
    return run


def size(output: LiveOutput) -> int:
    return len(output.model_dump_json().encode())


# The tail


@given(pieces=st.lists(st.text(alphabet="ab\n😀", max_size=12), max_size=40), limit=st.integers(1, 20))
def test_S32_tail_is_the_end_of_everything_that_was_added(pieces: list[str], limit: int) -> None:
    tail = Tail(limit)
    whole = ""
    for piece in pieces:
        tail.add(piece)
        whole += piece
        assert (tail.text, tail.total) == (whole[-limit:], len(whole))


def test_S32_tail_of_many_empty_pieces_holds_nothing() -> None:
    tail = Tail(10)
    for _ in range(30_000):
        tail.add("")
    assert (tail.text, tail.total) == ("", 0)
    assert len(tail._pieces) <= 10_001


def test_S32_tail_does_not_keep_a_giant() -> None:
    tail = Tail(10)
    tail.add("x" * 10_000_000)
    assert sum(map(len, tail._pieces)) <= 10
    assert tail.total == 10_000_000


# A heartbeat

NASTY = [
    '"',
    "\\",
    "\n",
    "\t",
    "\r",
    "é",
    "日",
    "😀",
    "\x1b",
    "\x1b[31m",
    "\x00",
    "\x7f",
    "\u2028",
    "\ud800",
    "x",
    '"""😀',
    "\\\\日",
]


@pytest.mark.parametrize("piece", NASTY)
def test_S32_heartbeat_takes_at_most_eight_kibibytes(piece: str) -> None:
    run = live_run()
    run.write(piece * 50_000)
    assert size(run.build_heartbeat()) <= BEAT_LIMIT


@given(st.lists(st.sampled_from(NASTY) | st.text(max_size=3), min_size=1, max_size=8), st.integers(1, 3_000))
def test_S32_heartbeat_of_any_mixture_is_small_and_is_the_end(pieces: list[str], times: int) -> None:
    run = live_run()
    written = "".join(pieces) * times
    run.write(written)
    beat = run.build_heartbeat()
    assert size(beat) <= BEAT_LIMIT
    assert strip_controls(drop_surrogates(written)).endswith(beat.tail)
    assert (beat.call_id, beat.pid, beat.host) == ("b100c1000", 4_194_304, HOST)


def test_S32_heartbeat_shows_what_fits() -> None:
    run = live_run()
    run.write("a" * 1_000 + "b" * 4_000)
    assert run.build_heartbeat().tail == "b" * 4_000


def test_S32_escape_codes_are_gone_before_anybody_looks() -> None:
    run = live_run()
    run.write("\x1b[31mred\x1b[0m\x1b]0;title\x07\u202e")
    assert run.build_heartbeat().tail == run.build_live_output().tail == "red"
    assert run.build_partial_parts() == (TextPart(text="red"),)


def test_S32_colours_are_kept_beside_the_plain_tail() -> None:
    run = live_run()
    run.write("\x1b[31mred\x1b[0m\x1b]0;title\x07\u202e")
    assert run.build_heartbeat().styled == run.build_live_output().styled == "\x1b[31mred\x1b[0m"
    other = live_run()
    other.write("no colours")
    assert other.build_heartbeat().styled is None


def test_S32_an_escape_code_that_is_cut_in_two_leaves_no_rest() -> None:
    for length in range(3_990, 4_010):
        run = live_run()
        run.write("\x1b[38;5;208m" + "x" * length)
        assert set(run.build_heartbeat().tail) == {"x"}
        assert set(strip_controls(run.build_heartbeat().styled or "x")) == {"x"}
    long = live_run()
    long.write("\x1b[38;5;208mx\x1b[0m" * 5_000)
    assert set(strip_controls(long.build_heartbeat().styled or "")) == {"x"}


# What was put out


def test_run_that_put_nothing_out_has_no_part() -> None:
    assert live_run().build_partial_parts() == ()


def test_run_knows_its_call_and_what_the_turn_saw() -> None:
    run = live_run()
    assert (run.call_id, run.key, run.workspace) == ("b100c1000", "org/turn/b100c1000", Path("/w"))


@pytest.mark.parametrize("text", ["half \ud800", "\udcff"])
def test_output_that_is_no_text_can_be_written_down(text: str) -> None:
    run = live_run()
    run.write(text)
    assert run.build_live_output().model_dump_json()
    assert run.build_heartbeat().model_dump_json()
    assert TextPart.model_validate(run.build_partial_parts()[0]).model_dump_json()


# Asking a worker


async def ask(runs: LiveRuns, turn: str, call: str) -> LiveOutput | None:
    async with asyncio.timeout(10):
        return await ActivityEnvironment().run(runs.find_output, RunningCall(turn=turn, call=call))


async def test_S32_worker_is_asked_for_the_end_of_a_call_that_runs_on_it() -> None:
    runs = LiveRuns(HOST)
    with runs.track_run("turn", "b1c1", workspace=Path()) as run:
        run.write("\x1b[1m" + "é" * 200_000 + "end")
        output = await ask(runs, "turn", "b1c1")
        assert output is not None
        assert len(output.tail) == 100_000
        assert output.tail.endswith("ééend")
        assert (output.total, output.host) == (200_007, HOST)
        assert await ask(runs, "turn", "b1c2") is None
        assert await ask(runs, "tur", "nb1c1") is None
    assert await ask(runs, "turn", "b1c1") is None


async def test_S32_second_attempt_of_a_call_is_not_forgotten_when_the_first_ends() -> None:
    runs = LiveRuns(HOST)
    first = runs.track_run("turn", "b1c1", workspace=Path())
    first.__enter__().write("first")
    with runs.track_run("turn", "b1c1", workspace=Path()) as second:
        second.write("second")
        first.__exit__(None, None, None)
        output = await ask(runs, "turn", "b1c1")
        assert output is not None
        assert output.tail == "firstsecond"


async def test_call_that_breaks_is_forgotten_too() -> None:
    runs = LiveRuns(HOST)
    with pytest.raises(RuntimeError), runs.track_run("turn", "b1c1", workspace=Path()):
        raise RuntimeError
    assert await ask(runs, "turn", "b1c1") is None
