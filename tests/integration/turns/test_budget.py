"""What a turn costs in history events. docs/explanation/costs.md quotes these numbers."""

from __future__ import annotations

from typing import Any

from holdfast import Effect, Run, TurnInput
from holdfast.testing import FakeTool, build_request, decide_all, script_model
from tests.support.engine import Engine


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return "echo"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ONCE = FakeTool("once", _echo, safe=True)
ASK = FakeTool("ask", _echo, asks=True, safe=True)


async def _events(engine: Engine, input: TurnInput) -> int:
    async with engine.worker(ECHO, ONCE, ASK):
        turn = await engine.start(input)
        await decide_all(engine.holdfast, turn)
        await turn.result()
        return len(await engine.history(turn))


def _batch(tool: str, count: int) -> TurnInput:
    return TurnInput(batches=(tuple(build_request(tool, n=n) for n in range(count)),))


async def test_S42_reads_that_rules_allow_cost_6_events_however_many_they_are(engine: Engine) -> None:
    assert await _events(engine, _batch("echo", 1)) == await _events(engine, _batch("echo", 10)) == 6


async def test_S42_one_call_that_must_run_once_costs_12_events(engine: Engine) -> None:
    assert await _events(engine, _batch("once", 1)) == 12


async def test_S42_one_call_with_its_approval_costs_20_events(engine: Engine) -> None:
    assert await _events(engine, _batch("ask", 1)) == 20


async def test_S42_ten_calls_side_by_side_cost_at_most_66_events(engine: Engine) -> None:
    """Three for each call, and three for each workflow task that takes their answers in, however few or many."""
    assert await _events(engine, _batch("once", 10)) <= 9 + 10 * 3 + 9 * 3


async def test_S42_ten_calls_with_their_approvals_cost_at_most_128_events(engine: Engine) -> None:
    assert await _events(engine, _batch("ask", 10)) <= 9 + 3 + 10 * 6 + 10 * 3 + 10 * 3


async def test_S42_history_grows_linearly_with_the_steps_of_a_model_turn(engine: Engine) -> None:
    def turn(steps: int) -> TurnInput:
        return TurnInput(prompt="go", model=script_model(*[[build_request("echo")] for _ in range(steps)], "done"))

    two, four, eight = [await _events(engine, turn(steps)) for steps in (2, 4, 8)]
    assert (eight - four) == 2 * (four - two)
