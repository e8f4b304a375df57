"""Running one invocation: whatever the tool does, an outcome comes back, and what it had said is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.testing import ActivityEnvironment

from holdfast.activities.execution import run_tool as running
from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.execution.run_tool import run_tool
from holdfast.activities.process.output_store import OutputStore
from holdfast.domain.calls.tool import Invocation, Run, ToolFailure
from holdfast.domain.calls.verdicts import ExecutionOutcome, Failed, Finished, Stopped
from holdfast.domain.content import Result, TextPart
from holdfast.domain.turn.activity_io import LiveOutput

Work = Callable[[Run], Awaitable[Result]]


class Doing(Invocation):
    def __init__(self, work: Work) -> None:
        self._work = work

    def describe(self) -> str:
        return "Do it"

    async def execute(self, run: Run) -> Result:
        return await self._work(run)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(running, "STOP_SECONDS", 0.3)


class Bench:
    """An activity environment, its heartbeats, and a way to run one tool in it."""

    def __init__(self, folder: Path) -> None:
        self.environment = ActivityEnvironment()
        self.beats: list[LiveOutput] = []
        self.news = asyncio.Event()
        self.environment.on_heartbeat = self.beat
        self.outputs = OutputStore(folder, limit=1_000)

    async def run(self, work: Work, seconds: float = 10) -> ExecutionOutcome:
        async def activity() -> ExecutionOutcome:
            live = LiveRun("turn", "b1c1", workspace=Path())
            return await run_tool(Doing(work), live, seconds=seconds, outputs=self.outputs)

        async with asyncio.timeout(10):
            return await self.environment.run(activity)

    def beat(self, output: LiveOutput) -> None:
        self.beats.append(output)
        self.news.set()

    async def beaten(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.beats) < times:
                self.news.clear()
                await self.news.wait()

    def cancel(self) -> None:
        self.environment.cancel(cancellation_details=ActivityCancellationDetails(cancel_requested=True))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "outputs")


async def forever(run: Run) -> Result:
    run.report_process(7)
    run.write("half")
    await asyncio.Event().wait()
    return Result.from_text("never")


async def test_result_is_finished(bench: Bench) -> None:
    async def work(run: Run) -> Result:
        assert (run.call_id, run.key) == ("b1c1", "turn/b1c1")
        return Result.from_text("done")

    assert await bench.run(work) == Finished(result=Result.from_text("done"))


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("boom"), AssertionError("boom"), OSError(5, "boom")])
async def test_S7_exception_is_a_failure_with_its_type_and_message(bench: Bench, error: Exception) -> None:
    async def work(run: Run) -> Result:
        run.write("half")
        raise error

    outcome = await bench.run(work)
    assert isinstance(outcome, Failed)
    assert outcome.error.type == type(error).__name__
    assert "boom" in outcome.error.message
    assert outcome.parts == (TextPart(text="half"),)


async def test_S7_tool_failure_keeps_its_own_words_and_parts(bench: Bench) -> None:
    async def work(run: Run) -> Result:
        raise ToolFailure("my_type", "my words" + "x" * 100_000, (TextPart(text="mine" * 1_000),))

    outcome = await bench.run(work)
    assert isinstance(outcome, Failed)
    assert outcome.error.type == "my_type"
    assert outcome.error.message.startswith("my words")
    assert len(outcome.error.message) <= 4_000
    assert len(outcome.parts[0].text) < 1_300


async def test_call_that_runs_too_long_is_a_timeout_with_what_it_said(bench: Bench) -> None:
    outcome = await bench.run(forever, seconds=0.1)
    assert isinstance(outcome, Failed)
    assert (outcome.error.type, outcome.parts) == ("timeout", (TextPart(text="half"),))


async def test_S32_heart_beats_with_the_tail_and_the_process(bench: Bench) -> None:
    async def work(run: Run) -> Result:
        run.report_process(7)
        run.write("\x1b[31m" + "é" * 50_000 + "end")
        await bench.beaten(3)
        return Result.from_text("done")

    assert isinstance(await bench.run(work), Finished)
    for beat in bench.beats:
        assert (beat.call_id, beat.pid, beat.total) == ("b1c1", 7, 50_008)
        assert beat.tail.endswith("end")
        assert len(beat.model_dump_json().encode()) < 8_192
        assert "\x1b" not in beat.tail


async def test_S16_cancelled_call_is_stopped_with_what_it_said(bench: Bench) -> None:
    task = asyncio.create_task(bench.run(forever))
    await bench.beaten(1)
    bench.cancel()
    assert await task == Stopped(parts=(TextPart(text="half"),))


async def test_S7_call_that_finishes_although_it_was_told_to_stop_keeps_its_result(bench: Bench) -> None:
    async def work(run: Run) -> Result:
        try:
            return await forever(run)
        except asyncio.CancelledError:
            return Result.from_text("done all the same")

    task = asyncio.create_task(bench.run(work))
    await bench.beaten(1)
    bench.cancel()
    assert await task == Finished(result=Result.from_text("done all the same"))


async def test_tool_that_will_not_stop_is_left_behind_and_says_so(bench: Bench) -> None:
    release = asyncio.Event()

    async def work(run: Run) -> Result:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Result.from_text("late")

    task = asyncio.create_task(bench.run(work))
    await bench.beaten(1)
    bench.cancel()
    outcome = await task
    release.set()
    assert isinstance(outcome, Stopped)
    assert "may still be running" in outcome.reason


async def test_S33_long_result_of_any_tool_is_bounded(bench: Bench) -> None:
    async def work(run: Run) -> Result:
        return Result.from_text("x" * 100_000)

    outcome = await bench.run(work)
    assert isinstance(outcome, Finished)
    assert len(outcome.result.parts[0].text) < 1_300


async def test_many_small_writes_are_cheap() -> None:
    live = LiveRun("turn", "b1c1", workspace=Path())
    for _ in range(20_000):
        live.write("0123456789")
    assert live.build_live_output().total == 200_000
    assert live.build_partial_parts()[0].text.startswith("… [100,000 characters before this were not kept] …\n")
