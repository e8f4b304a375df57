"""SIGKILL of the worker around a change of a file: it is made once, and nobody is asked who need not be (S31, S36)."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Mode, Turn, TurnInput
from holdfast.domain.calls.call import CallRequest
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.processes import worker_process
from tests.support.waiting import waiting

GROW = build_request("edit", path="notes", old_text="one", new_text="one one")
"""Made twice, it would be seen."""


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        (made.workspace / "notes").write_text("one\n")
        yield made


async def _killed(engine: Engine, point: str, *calls: CallRequest) -> Turn:
    """A turn whose worker was killed around what it records of the last of these calls."""
    async with worker_process(engine) as first:
        (engine.settings.data / f"die-{point}").write_text(str(len(calls)))
        turn = await engine.start(TurnInput(batches=(calls,), mode=Mode.AUTO_EDIT))
        assert await first.died() == -signal.SIGKILL
    return turn


@pytest.mark.parametrize("point", ["before-record_intent", "after-record_intent", "before-record_result"])
async def test_S31_an_edit_is_made_once_wherever_its_worker_dies(engine: Engine, point: str) -> None:
    turn = await _killed(engine, point, GROW)
    async with worker_process(engine):
        [response] = (await turn.result()).responses
    assert response.status == "success"
    assert (engine.workspace / "notes").read_text() == "one one\n"


async def test_S31_an_edit_of_a_file_that_somebody_else_changed_meanwhile_is_asked_about(engine: Engine) -> None:
    turn = await _killed(engine, "before-record_result", GROW)
    (engine.workspace / "notes").write_text("one, said somebody else\n")
    async with worker_process(engine):
        [item] = (await wait_until(lambda: waiting(turn), 60)).approvals
        assert item.kind == "outcome_unknown"
        assert "neither as they were nor as it would have left them" in (item.question or "")
        await engine.holdfast.deny(item.approval_id)
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "outcome_unknown"
    assert (engine.workspace / "notes").read_text() == "one, said somebody else\n"


async def test_S31_the_second_edit_of_a_file_is_begun_where_the_first_left_it(engine: Engine) -> None:
    turn = await _killed(
        engine, "after-record_intent", GROW, build_request("edit", path="notes", old_text="e\n", new_text="e two\n")
    )
    async with worker_process(engine):
        responses = (await turn.result()).responses
    assert [response.status for response in responses] == ["success", "success"]
    assert (engine.workspace / "notes").read_text() == "one one two\n"
