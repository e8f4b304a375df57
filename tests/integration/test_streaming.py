"""Calls that begin while the model still writes (S10–S13, S15), on a real server."""

from __future__ import annotations

from typing import Any

from holdfast import CallRequest, Effect, ModelChoice, Run, Schedule, ScriptedReply, Turn, TurnInput
from holdfast.testing import FakeTool, request
from tests.support.engine import Engine


async def test_a_streamed_turn(engine: Engine) -> None:
    async def echo(arguments: dict[str, Any], run: Run) -> str:
        return f"echo {arguments['say']}"

    model = ModelChoice(
        script=(
            ScriptedReply(calls=(request("echo", say=1), request("echo", say=2)), seconds=0.5, breaks=(1,)),
            ScriptedReply(text="done"),
        )
    )
    tool = FakeTool("echo", echo, safe=True, effect=Effect.READ)
    async with engine.worker(tool):
        turn = await engine.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        result = await turn.result()
    for event in (await turn.events()).events if False else ():
        print(event)
    print(result)
    print(await engine.history(turn))
    assert 0
