"""The chaos harness in small, and that it finds what is wrong: a judge who cannot condemn proves nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.content import CallError, Response, TextPart
from holdfast.domain.modes import Mode
from holdfast.domain.turn.turn_io import BatchResult, TurnResult
from tests.chaos.harness.effects import Truth
from tests.chaos.harness.judging import EndedTurn, Wrong, judge
from tests.chaos.harness.person import AGAIN, DONE, FAIL, Question, answer_to
from tests.chaos.harness.plan import MOST_DEATHS, Kind, PlannedCall, PlannedTurn, Point, points_of, turns
from tests.chaos.harness.report import Report
from tests.chaos.harness.storm import Blow
from tests.support.marks import alive, until

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 200.0
PAUSES = (Blow.FREEZE, Blow.FREEZE_SERVER, Blow.STARVE)
"""Faults under which nobody dies."""


class Harness:
    """The harness as a process of its own, whose every descendant that inherits anything carries a mark."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self._mark = f"TMPDIR={folder}".encode()

    async def report(self) -> Report:
        """What it found."""
        async with asyncio.timeout(SECONDS):
            printed, _ = await self.process.communicate()
        return Report.model_validate_json(printed)

    def left(self) -> list[int]:
        """Who lives of those that it started."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._marked(pid) and alive(pid)]

    def _marked(self, pid: int) -> bool:
        with suppress(OSError):
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@asynccontextmanager
async def harness(folder: Path, *options: str) -> AsyncIterator[Harness]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.harness", "--json", *options),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Harness(process, folder)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_S31_nothing_is_lost_or_doubled_or_hangs_while_workers_and_server_are_killed(tmp_path: Path) -> None:
    """`make chaos` in small (S3, S17, S36)."""
    storm = ("--calls", "40", "--kills", "20", "--at-once", "20", "--limit", "90", "--quiet", "90")
    async with harness(tmp_path, "--seed", "7", *storm) as running:
        report = await running.report()
        assert (report.findings, report.shortcomings) == ([], [])
        assert running.process.returncode == 0
        assert running.left() == []
    assert report.calls >= 40
    assert report.kills.all >= 20
    assert report.kills.while_running >= 10
    assert all(report.kills.at_points.values())
    assert all(report.other_faults[blow] for blow in PAUSES)
    assert sum(report.answered.values()) == report.calls
    assert not left_in(tmp_path)


async def test_what_is_spoiled_is_found(tmp_path: Path) -> None:
    """Effects that are made twice, not at all, or never end, with nobody killed."""
    spoiled = [word for how in ("doubled", "lost", "hung") for word in ("--sabotage", how)]
    async with harness(tmp_path, "--seed", "3", "--calls", "24", "--kills", "0", "--quiet", "30", *spoiled) as running:
        report = await running.report()
        assert running.process.returncode == 1
        assert running.left() == []
    wrong = Counter(finding.wrong for finding in report.findings)
    assert wrong == {Wrong.DOUBLED: 1, Wrong.LOST: 1, Wrong.HUNG: 1}
    assert not report.good


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
async def test_S17_harness_that_is_ended_in_the_middle_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    async with harness(tmp_path, "--seed", "4") as running:
        await until(lambda: len(running.left()) > 5 and any(tmp_path.glob("*/outside/attempts/*")))
        running.process.send_signal(number)
        async with asyncio.timeout(30):
            assert await running.process.wait() == code
        await until(lambda: not running.left())
    if number is signal.SIGINT:
        assert not left_in(tmp_path)


# The judge

POST = PlannedCall(label="t001-b1c1", kind=Kind.POST, seconds=0, asks=False)
LOOK = PlannedCall(label="t001-b1c2", kind=Kind.LOOK, seconds=0, asks=False)
TURN = PlannedTurn(id="t001", mode=Mode.YOLO, modelled=False, batches=((POST, LOOK),))
GOOD = {POST.label: Truth(keys=("k",)), LOOK.label: Truth()}


def answered(call: PlannedCall, error: str | None = None, text: str | None = None, status: str = "error") -> Response:
    return Response.model_validate(
        {
            "call_id": call.label.partition("-")[2],
            "tool": call.kind,
            "status": status if error else "success",
            "parts": (TextPart(text=f"done {call.label}" if text is None else text),),
            "error": CallError(type=error, message="why") if error else None,
        }
    )


def found(*responses: Response, truth: Truth | None = None, asked: str | None = None, **ended: Any) -> list[Wrong]:
    """What the judge finds wrong with a turn of two calls that answered so."""
    result = TurnResult(status="completed", batches=(BatchResult(id="b1", status="done", responses=responses),))
    truths = {**GOOD, POST.label: truth} if truth else GOOD
    questions = [Question(approval_id="a", label=POST.label, truth=Truth(), answer=asked)] if asked else []
    turn = EndedTurn.model_validate({"turn": TURN, "result": result, **ended})
    return [finding.wrong for finding in judge([turn], truths, questions)]


def test_what_is_right_is_not_condemned() -> None:
    both = (answered(POST), answered(LOOK))
    unknown = answered(POST, "outcome_unknown")
    assert found(*both) == []
    assert found(*both, asked=DONE) == []
    assert found(*both, asked=AGAIN) == []
    assert found(unknown, answered(LOOK), truth=Truth(shares=1), asked=FAIL) == []
    for not_run in ("ledger_unavailable", "command_not_started"):
        assert found(answered(POST, not_run), answered(LOOK), truth=Truth()) == []


WRONG: dict[str, tuple[list[Wrong], list[Wrong]]] = {
    "lost": (found(answered(POST), answered(LOOK), truth=Truth()), [Wrong.LOST]),
    "half of it": (found(answered(POST), answered(LOOK), truth=Truth(shares=1)), [Wrong.LOST]),
    "doubled": (found(answered(POST), answered(LOOK), truth=Truth(keys=("k", "k"))), [Wrong.DOUBLED]),
    "doubled by two keys": (found(answered(POST), answered(LOOK), truth=Truth(keys=("k", "l"))), [Wrong.DOUBLED]),
    "hung": (found(result=None), [Wrong.HUNG]),
    "hung and doubled": (found(result=None, truth=Truth(keys=("k", "k"))), [Wrong.HUNG, Wrong.DOUBLED]),
    "not asked about": (found(answered(POST, "outcome_unknown"), answered(LOOK)), [Wrong.UNASKED]),
    "answered otherwise": (found(answered(POST, "outcome_unknown"), answered(LOOK), asked=AGAIN), [Wrong.UNASKED]),
    "not run, it is said": (found(answered(POST, "ledger_unavailable"), answered(LOOK)), [Wrong.UNTRUE]),
    "another's answer": (found(answered(POST), answered(LOOK, text="done t002-b1c2")), [Wrong.UNTRUE]),
    "an error": (found(answered(POST, "worker_lost"), answered(LOOK)), [Wrong.FAILED]),
    "cancelled": (found(answered(POST, "cancelled", status="cancelled"), answered(LOOK)), [Wrong.FAILED]),
    "no answer": (found(answered(POST)), [Wrong.ANSWERS]),
    "two answers": (found(answered(POST), answered(POST), answered(LOOK)), [Wrong.ANSWERS]),
    "out of order": (found(answered(LOOK), answered(POST)), [Wrong.ANSWERS]),
    "stopped": (
        found(result=TurnResult(status="stopped", batches=()), truth=Truth()), [Wrong.FAILED, Wrong.ANSWERS],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_condemned(name: str) -> None:
    judged, expected = WRONG[name]
    assert judged == expected


def test_a_careful_person_repeats_only_what_has_not_happened() -> None:
    assert answer_to(Truth()) == AGAIN
    assert answer_to(Truth(keys=("k",))) == DONE
    assert answer_to(Truth(shares=1)) == FAIL


# The plan


def test_a_seed_decides_what_is_run() -> None:
    first, again, other = (list(islice(turns(seed, 0.4), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_kind_meets_every_point_soon() -> None:
    calls = [call for turn in islice(turns(1, 0.4), 250) for call in turn.calls]
    met = {(call.kind, call.deaths[0]) for call in calls if call.deaths}
    assert met == {(kind, point) for kind in Kind for point in points_of(kind)}
    deaths = Counter(point for call in calls for point in call.deaths)
    assert min(deaths[point] for point in Point) > len(calls) * 0.4 / len(Point) / 2


def test_no_turn_is_to_die_for_ever() -> None:
    assert all(sum(len(call.deaths) for call in turn.calls) <= MOST_DEATHS for turn in islice(turns(3, 0.9), 100))
