"""Reads that rules allow run with their validation: fewer events, the same states, and nothing else runs there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Effect, Run, TurnInput
from holdfast.testing import FakeTool, build_request, decide_all, script_model, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting


async def _read(arguments: dict[str, Any], run: Run) -> str:
    return f"read {arguments.get('n')}"


READ = FakeTool("peek", _read, safe=True, effect=Effect.READ)


def _calls(tool: str, count: int) -> list[Any]:
    return [build_request(tool, n=number) for number in range(count)]


@pytest.mark.parametrize("count", [1, 3, 10, 50])
async def test_a_turn_of_reads_has_as_many_events_however_many_calls_it_makes(engine: Engine, count: int) -> None:
    async with engine.worker(READ):
        turn = await engine.start(TurnInput(prompt="go", model=script_model(_calls("peek", count), "done")))
        result = await turn.result()
        recorded = await engine.recorded(turn)
    assert [answer.text for answer in result.responses] == [f"read {number}" for number in range(count)]
    step = ["ACTIVITY_TASK_SCHEDULED", "ACTIVITY_TASK_STARTED", "ACTIVITY_TASK_COMPLETED"]
    assert recorded == [
        "WORKFLOW_EXECUTION_STARTED",
        *step,
        "MARKER_RECORDED",
        *step,
        "WORKFLOW_EXECUTION_COMPLETED",
    ]


async def test_S8_such_reads_have_the_events_of_every_call(both: Engine) -> None:
    async with both.worker(READ):
        turn = await both.start(TurnInput(batches=(tuple(_calls("peek", 2)),)))
        await turn.result()
        events = (await turn.fetch_events()).events
        call = await turn.fetch_call("b1c2")
    steps = [event.after for event in events if event.kind == "call" and event.place == 2]
    assert steps == ["validating", "scheduled", "executing", "success"]
    assert call
    assert call.started_at


async def test_S9_none_runs_while_a_call_of_its_batch_waits_for_a_person(engine: Engine) -> None:
    ran: list[Any] = []

    async def note(arguments: dict[str, Any], run: Run) -> str:
        ran.append(arguments["n"])
        return "read"

    tools = (FakeTool("note", note, safe=True, effect=Effect.READ), FakeTool("ask", _read, asks=True))
    async with engine.worker(*tools):
        turn = await engine.start(TurnInput(batches=((build_request("note", n=1), build_request("ask", n=2)),)))
        await wait_until(lambda: waiting(turn))
        assert not ran
        await decide_all(engine.holdfast, turn)
        result = await turn.result()
    assert [answer.status for answer in result.responses] == ["success", "success"]
    assert ran == [1]


async def test_a_read_that_takes_longer_goes_on_as_an_activity_and_runs_once(engine: Engine) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def slow(arguments: dict[str, Any], run: Run) -> str:
        runs.append(arguments["n"])
        begun.set()
        async with asyncio.timeout(30):
            await go.wait()
        return "at last"

    async with engine.worker(READ, FakeTool("slow", slow, safe=True, effect=Effect.READ)):
        turn = await engine.start(TurnInput(batches=((build_request("slow", n=1), build_request("peek", n=2)),)))

        async def is_running() -> bool:
            calls = [await turn.fetch_call(id) for id in ("b1c1", "b1c2")]
            return [call and call.status.value for call in calls] == ["executing", "success"]

        await wait_until(is_running)
        go.set()
        result = await turn.result()
        recorded = await engine.recorded(turn)
    assert [answer.text for answer in result.responses] == ["at last", "read 2"]
    assert runs == [1]
    assert recorded.count("ACTIVITY_TASK_SCHEDULED") == 1


async def test_S17_a_read_that_takes_longer_can_be_stopped(engine: Engine) -> None:
    async def hang(arguments: dict[str, Any], run: Run) -> str:
        await asyncio.Event().wait()
        return "never"

    async with engine.worker(FakeTool("hang", hang, safe=True, effect=Effect.READ)):
        turn = await engine.start(TurnInput(batches=((build_request("hang"),),)))

        async def is_running() -> bool:
            call = await turn.fetch_call("b1c1")
            return call is not None and call.status.value == "executing"

        await wait_until(is_running)
        await turn.cancel_call("b1c1")
        result = await turn.result()
    assert [answer.status for answer in result.responses] == ["cancelled"]


async def test_what_does_not_merely_read_has_an_activity_of_its_own(engine: Engine) -> None:
    effects = (Effect.ONCE, Effect.IDEMPOTENT)
    tools = [FakeTool(effect.value, _read, safe=True, effect=effect) for effect in effects]
    tools.append(FakeTool("alone", _read, safe=False, effect=Effect.READ))
    tools.append(FakeTool("questions", _read, safe=True, effect=Effect.READ, questions=True))
    async with engine.worker(*tools):
        for tool in tools:
            turn = await engine.start(TurnInput(batches=((build_request(tool.name),),)))
            await turn.result()
            assert (await engine.recorded(turn)).count("ACTIVITY_TASK_SCHEDULED") == 1, tool.name


async def test_S3_at_size_every_read_is_answered_once(both: Engine) -> None:
    """40,000 characters each: more than one marker may hold, so that some calls end there and others as activities."""

    async def large(arguments: dict[str, Any], run: Run) -> str:
        return f"{arguments['n']:>40000}"

    async with both.worker(FakeTool("large", large, safe=True, effect=Effect.READ)):
        turn = await both.start(TurnInput(batches=(tuple(_calls("large", 50)), tuple(_calls("large", 200)))))
        result = await turn.result()
    assert [answer.status for answer in result.responses] == ["success"] * 250
    assert [int(answer.text) for answer in result.responses] == [*range(50), *range(200)]
