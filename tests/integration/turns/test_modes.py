"""The mode of a turn, changed while it runs: what waits is judged again (S27)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import BadInput, Mode, RequestRefused, TurnInput
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting

WRITE = build_request("write_file", path="a.txt", content="x")
RUN = build_request("shell", command="touch b.txt")


async def test_S27_a_mode_that_lets_edits_proceed_lets_the_waiting_one(both: Engine) -> None:
    async with both.worker():
        turn = await both.start(TurnInput(batches=((WRITE, RUN),)))
        await wait_until(lambda: waiting(turn, 2))
        await turn.set_mode("auto_edit", by="ana")

        async def one_left() -> bool:
            view = await turn.fetch_view(live=False)
            return [item.tool for item in view.approvals] == ["shell"]

        await wait_until(one_left)
        call = await turn.fetch_call("b1c1")
        assert (call.status, call.rule) == ("scheduled", "default: edits-proceed")
        view = await turn.fetch_view(live=False)
        assert view.mode is Mode.AUTO_EDIT
        await turn.set_mode(Mode.PLAN)
        write, run = (await turn.result()).responses
        [mode, _] = [event for event in (await turn.fetch_events()).events if event.after == "mode"]
    assert (mode.note, mode.by) == ("mode auto_edit", "ana")
    for response in (write, run):
        assert response.error is not None
        assert response.error.type == "denied", "also what was scheduled and had not begun"
    assert list(both.workspace.iterdir()) == []


async def test_S27_a_mode_that_the_worker_does_not_permit_changes_nothing(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((RUN,),)))
        [before] = (await wait_until(lambda: waiting(turn))).approvals
        await turn.set_mode("yolo")
        [after] = (await wait_until(lambda: waiting(turn))).approvals
        assert after.approval_id == before.approval_id
        await engine.holdfast.deny(before.approval_id)
        await turn.result()
    assert not (engine.workspace / "b.txt").exists()


async def test_S27_where_it_is_permitted_yolo_lets_all_proceed(engine: Engine) -> None:
    engine.settings = replace(engine.settings, modes=tuple(Mode))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((WRITE, RUN),)))
        await wait_until(lambda: waiting(turn, 2))
        await turn.set_mode("yolo")
        assert [response.status for response in (await turn.result()).responses] == ["success", "success"]


async def test_S27_a_change_back_before_it_began_asks_again(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((WRITE, RUN),), mode=Mode.AUTO_EDIT))
        await wait_until(lambda: waiting(turn))
        await turn.set_mode(Mode.DEFAULT)
        items = (await wait_until(lambda: waiting(turn, 2))).approvals
        assert sorted(item.tool for item in items) == ["shell", "write_file"]
        await turn.cancel()


async def test_S27_what_is_no_mode_is_refused(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((RUN,),)))
        await wait_until(lambda: waiting(turn))
        with pytest.raises(BadInput, match="unknown mode 'anything': use default, auto_edit, plan or yolo"):
            await turn.set_mode("anything")
        await turn.cancel()
        await turn.result()
        with pytest.raises(RequestRefused, match="has ended"):
            await turn.set_mode("plan")
