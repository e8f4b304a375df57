"""SIGKILL of the worker while people decide: every answer counts once, and none is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import NoWorker, Turn, TurnInput
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.processes import worker_process
from tests.support.waiting import asked, waiting

SOON = 0.5
"""Seconds after which a decision that no worker takes is left as a signal."""


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        yield made


async def test_S24_a_standing_answer_given_while_no_worker_lives_counts_for_its_siblings(engine: Engine) -> None:
    calls = tuple(build_request("shell", command=f"echo {word}") for word in ("a", "a", "b"))
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=(calls,)))
        items = (await wait_until(lambda: waiting(turn, 3))).approvals
        await first.kill()
    assert (
        await engine.holdfast.decide(items[0].approval_id, "proceed_always", digest=items[0].digest, seconds=SOON)
        is None
    )
    async with worker_process(engine) as second:
        await wait_until(lambda: _left(turn, 1), seconds=40)
        await second.kill()
    async with worker_process(engine):
        [grant] = await turn.fetch_grants()
        assert grant.used == 1
        await engine.holdfast.deny(items[2].approval_id, remember=True)
        assert [response.status for response in (await turn.result()).responses] == ["success", "success", "cancelled"]


async def _left(turn: Turn, count: int) -> bool:
    with suppress(NoWorker):  # a task that went down with its worker is given to the next one after ten seconds
        return len((await turn.fetch_view(live=False)).approvals) == count
    return False


async def test_S25_a_change_made_while_no_worker_lives_is_shown_again(engine: Engine) -> None:
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=((build_request("write_file", path="a", content="one"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await first.kill()
    change = await engine.holdfast.decide(item.approval_id, "modify", digest=item.digest, content="two", seconds=SOON)
    assert change is None
    async with worker_process(engine):
        [again] = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals
        await engine.holdfast.approve(again.approval_id, digest=again.digest)
        await turn.result()
    assert (engine.workspace / "a").read_text() == "two"


async def test_S28_a_deadline_that_passes_while_no_worker_lives_holds(engine: Engine) -> None:
    async with worker_process(engine) as first:
        turn = await engine.start(
            TurnInput(batches=((build_request("shell", command="echo hi"),),), approval_seconds=4)
        )
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await first.kill()

    async def passed() -> bool:
        return (await engine.history(turn)).count("TIMER_FIRED") == 1

    await wait_until(passed)
    async with worker_process(engine):
        [response] = (await turn.result()).responses
    assert item.deadline is not None
    assert response.error is not None
    assert response.error.type == "expired"


async def test_S27_a_mode_changed_by_a_worker_that_is_killed_holds_for_the_next(engine: Engine) -> None:
    calls = (build_request("write_file", path="a", content="one"), build_request("shell", command="echo hi"))
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(batches=(calls,)))
        items = (await wait_until(lambda: waiting(turn, 2))).approvals
        await turn.set_mode("auto_edit")
        await first.kill()
    async with worker_process(engine):
        await wait_until(lambda: _left(turn, 1), seconds=40)
        await engine.holdfast.approve(items[1].approval_id)
        assert [response.status for response in (await turn.result()).responses] == ["success", "success"]
