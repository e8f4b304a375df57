"""A worker that shuts down in an orderly way: what it ran is answered honestly or repeated, never lost."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Effect, Run, TurnInput
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import executing, speaking, waiting


def _tool(effect: Effect, starts: list[str]) -> FakeTool:
    async def body(arguments: dict[str, Any], run: Run) -> str:
        starts.append(run.key)
        run.write("begun\n")
        if len(starts) == 1:
            await asyncio.Event().wait()
        return "done"

    return FakeTool("slow", body, effect=effect)


async def test_S31_a_read_is_repeated_by_the_next_worker(engine: Engine) -> None:
    starts: list[str] = []
    async with engine.worker(_tool(Effect.READ, starts)):
        turn = await engine.start(TurnInput(batches=((build_request("slow"),),)))
        await wait_until(lambda: executing(turn, "b1c1"))
        await wait_until(lambda: _some(starts))
    async with engine.worker(_tool(Effect.READ, starts)):
        result = await turn.result()
    assert [(response.status, response.text) for response in result.responses] == [("success", "done")]
    assert len(starts) == 2
    assert len(set(starts)) == 1, "an idempotency key is the same for every attempt"


async def test_S31_a_once_call_is_stopped_and_somebody_is_asked_what_became_of_it(engine: Engine) -> None:
    starts: list[str] = []
    async with engine.worker(_tool(Effect.ONCE, starts)):
        turn = await engine.start(TurnInput(batches=((build_request("slow"),),)))
        await wait_until(lambda: _some(starts))
        await wait_until(lambda: speaking(turn, "begun"))
    async with engine.worker(_tool(Effect.ONCE, starts)):
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert item.kind == "outcome_unknown"
        assert "begun" in (item.question or "")
        await engine.holdfast.deny(item.approval_id, digest=item.digest)
        [response] = (await turn.result()).responses
    assert response.error is not None
    assert response.error.type == "outcome_unknown"
    assert "may have taken effect" in response.text
    assert len(starts) == 1


async def _some(starts: list[str]) -> bool:
    return bool(starts)


async def test_a_tool_over_its_time_limit_is_stopped_with_what_it_put_out(engine: Engine) -> None:
    async def endless(arguments: dict[str, Any], run: Run) -> str:
        run.write("so far\n")
        await asyncio.Event().wait()
        return "never"

    async with engine.worker(FakeTool("endless", endless, timeout_seconds=0.5)):
        result = await (await engine.start(TurnInput(batches=((build_request("endless"),),)))).result()
    [response] = result.responses
    assert response.error is not None
    assert response.error.type == "timeout"
    assert response.text.endswith("limit of 0.5 seconds\nso far\n")
