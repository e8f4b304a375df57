"""SIGKILL of the worker at every stage of a call: the turn goes on, and nothing runs twice that must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from holdfast import DecisionRefused, TurnInput, TurnResult
from holdfast.testing import build_request, script_model, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.processes import worker_process
from tests.support.waiting import speaking, waiting


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        yield made


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def _killed_while(
    engine: Engine, mark: str, *batch: str, spoken: bool = False, interactive: bool = True
) -> TurnResult:
    """Kill the worker once the mark is there (and output was seen); the result after another one took over."""
    calls = tuple(build_request(tool, counter=f"{tool}-{n}") for n, tool in enumerate(batch))
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=(calls,), interactive=interactive))
        await wait_until(lambda: _exists(engine.workspace / mark))
        if spoken:
            await wait_until(lambda: speaking(turn))
        await first.kill()
    async with worker_process(engine):
        return await turn.result()


async def test_S3_a_worker_killed_while_validating_loses_nothing(engine: Engine) -> None:
    (engine.workspace / "idempotent-1.begun").touch()
    result = await _killed_while(engine, "validating", "slow_to_validate", "idempotent")
    assert [response.status for response in result.responses] == ["success", "success"]


async def test_S31_a_read_whose_worker_was_killed_is_repeated_by_itself(engine: Engine) -> None:
    result = await _killed_while(engine, "read-0.begun", "read")
    assert [response.text for response in result.responses] == ["done"]
    assert (engine.workspace / "read-0").read_text() == "xx"


async def test_S31_an_idempotent_call_whose_worker_was_killed_is_repeated_by_itself(engine: Engine) -> None:
    result = await _killed_while(engine, "idempotent-0.begun", "idempotent")
    assert [response.text for response in result.responses] == ["done"]


async def test_S31_a_once_call_whose_worker_was_killed_is_never_run_again_and_says_so(engine: Engine) -> None:
    """With nobody to ask, it is an error that says so."""
    (engine.workspace / "read-1.begun").touch()
    result = await _killed_while(engine, "once-0.begun", "once", "read", spoken=True, interactive=False)
    lost, sibling = result.responses
    assert (engine.workspace / "once-0").read_text() == "x"
    assert lost.status == "error"
    assert lost.error is not None
    assert lost.error.type == "outcome_unknown"
    assert "may have taken effect" in lost.error.message
    assert sibling.status == "success"


@pytest.mark.parametrize(
    ("outcome", "content", "runs", "status", "text"),
    [
        ("proceed_once", None, 2, "success", "done"),
        ("respond", "it was done, I looked", 1, "success", "it was done, I looked"),
        ("cancel", None, 1, "error", "ana took it as failed"),
    ],
)
async def test_S31_somebody_is_asked_what_became_of_a_once_call_whose_worker_was_killed(
    engine: Engine, outcome: str, content: str | None, runs: int, status: str, text: str
) -> None:
    """Run again, take as done, or fail: nothing else can be said of it."""
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=((build_request("once", counter="c"), build_request("ask")),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.approve(item.approval_id)
        await wait_until(lambda: _exists(engine.workspace / "c.begun"))
        await first.kill()
    async with worker_process(engine):
        [unknown] = (await wait_until(lambda: waiting(turn), 40)).approvals
        assert unknown.kind == "outcome_unknown"
        assert "may have taken effect" in (unknown.question or "")
        for other in ("proceed_always", "modify"):
            with pytest.raises(DecisionRefused, match="it is unknown whether this call ran"):
                await engine.holdfast.decide(unknown.approval_id, other, arguments={} if other == "modify" else None)
        await engine.holdfast.decide(unknown.approval_id, outcome, content=content, by="ana")
        once, asked = (await turn.result()).responses
    assert (engine.workspace / "c").read_text() == "x" * runs
    assert once.status == status
    assert text in once.text
    assert asked.status == "success", "its sibling was answered too"


async def test_S7_a_call_whose_worker_is_lost_while_stopping_is_cancelled_and_says_it_may_have_run(
    engine: Engine,
) -> None:
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=((build_request("once", counter="c"),),)))
        await wait_until(lambda: _exists(engine.workspace / "c.begun"))
        await first.kill()
        await turn.cancel()
    async with worker_process(engine):
        result = await turn.result()
    assert result.status == "cancelled"
    assert result.responses[0].status == "cancelled"
    assert "may have taken effect" in result.responses[0].text


async def test_S3_a_worker_killed_while_an_approval_waits_finds_it_waiting(engine: Engine) -> None:
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(prompt="go", model=script_model([build_request("ask")], "Answered.")))
        before = await wait_until(lambda: waiting(turn))
        await first.kill()
    async with worker_process(engine):
        after = await turn.fetch_view()
        assert after.approvals == before.approvals
        await engine.holdfast.approve(before.approvals[0].approval_id)
        result = await turn.result()
    assert result.text == "Answered."
    assert [response.text for response in result.responses] == ["done"]


async def test_S3_a_turn_of_many_steps_survives_a_kill_at_every_one(engine: Engine) -> None:
    steps = 2
    script = [[build_request("read", counter=f"c{n}"), build_request("ask")] for n in range(steps)]
    turn = await engine.start(TurnInput(prompt="go", model=script_model(*script, "Answered.")))
    for step in range(steps):
        async with worker_process(engine) as worker:
            view = await wait_until(lambda: waiting(turn), seconds=40)
            await worker.kill()
        async with worker_process(engine) as worker:
            await engine.holdfast.approve(view.approvals[0].approval_id)
            await wait_until(partial(_exists, engine.workspace / f"c{step}.begun"))
            await worker.kill()
    async with worker_process(engine):
        result = await turn.result()
    assert result.text == "Answered."
    assert [response.text for response in result.responses] == ["done"] * 2 * steps
