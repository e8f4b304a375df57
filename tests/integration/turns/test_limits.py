"""Limits of a turn on the real server: each ends it with its reason, everything answered (S44)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import CallRequest, Effect, ModelChoice, Run, Schedule, ScriptedReply, TurnInput, TurnLimits
from holdfast.domain.conversation.messages import AssistantMessage, ToolMessage, Usage
from holdfast.testing import FakeTool, build_request
from tests.support.engine import Engine
from tests.support.waiting import listed


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True)


def _endless(*calls: CallRequest) -> ModelChoice:
    reply = ScriptedReply(calls=calls, usage=Usage(input_tokens=60, output_tokens=40))
    return ModelChoice(script=(reply,) * 50)


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize(
    ("limits", "reason", "answered"),
    [
        (TurnLimits(steps=3), "limit of 3 model steps", ["success"] * 6),
        (TurnLimits(calls=5), "limit of 5 tool calls", ["success"] * 4),
        (TurnLimits(tokens=250), "limit of 250 tokens", ["success"] * 4),
    ],
    ids=["steps", "calls", "tokens"],
)
async def test_S44_a_turn_that_reaches_a_limit_ends_with_its_reason_and_a_usable_conversation(
    engine: Engine, limits: TurnLimits, reason: str, answered: list[str], schedule: Schedule
) -> None:
    model = _endless(build_request("echo", say=1), build_request("echo", say=2))
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(prompt="Go", model=model, limits=limits, schedule=schedule))
        result = await turn.result()
        conversation = await turn.fetch_conversation()
    assert result.status == "stopped"
    assert reason in (result.reason or "")
    statuses = [response.status for response in result.responses]
    assert statuses[: len(answered)] == answered
    assert set(statuses[len(answered) :]) <= {"cancelled", "success"}
    assert conversation
    asked = [message.call_ids for message in conversation.messages if isinstance(message, AssistantMessage)]
    told = [message.responses for message in conversation.messages if isinstance(message, ToolMessage)]
    assert asked == [tuple(response.call_id for response in responses) for responses in told]


async def test_S44_a_turn_whose_time_is_up_stops_though_it_waits_for_somebody(engine: Engine) -> None:
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(
            TurnInput(
                prompt="Go",
                model=_endless(build_request("echo", say=1), build_request("ask", say=2)),
                limits=TurnLimits(seconds=1),
            )
        )
        result = await turn.result()
        await listed(engine.holdfast, turn.id, count=0)
    assert (result.status, result.reason) == ("stopped", "The turn reached its limit of 1 seconds")
    assert [response.status for response in result.responses] == ["cancelled", "cancelled"]


async def test_S44_a_limit_that_is_reached_while_the_rest_of_the_batch_waits_ends_the_turn(engine: Engine) -> None:
    """Nothing is at work then whose end would be noticed."""
    used = Usage(input_tokens=400, output_tokens=100)
    reply = ScriptedReply(calls=(build_request("ask", say=1), build_request("ask", say=2)), seconds=0.5, usage=used)
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(
            TurnInput(
                prompt="Go",
                model=ModelChoice(script=(reply,)),
                limits=TurnLimits(tokens=100),
                schedule=Schedule.STREAMING,
            )
        )
        result = await turn.result()
    assert (result.status, result.reason) == ("stopped", "The turn reached its limit of 100 tokens: it has used 500")
    assert [response.status for response in result.responses] == ["cancelled", "cancelled"]


async def test_S44_what_a_delegated_turn_used_up_ends_the_batch_that_it_is_part_of(engine: Engine) -> None:
    calls = (build_request("delegate", prompt="sub"), build_request("ask", say=1))
    inner = (ScriptedReply(text="Much.", usage=Usage(input_tokens=5_000)),)
    model = ModelChoice(script=(ScriptedReply(calls=calls),), delegated={"sub": inner})
    async with engine.worker(ASK):
        turn = await engine.start(
            TurnInput(prompt="Go", model=model, limits=TurnLimits(tokens=100), schedule=Schedule.STREAMING, early=True)
        )
        result = await turn.result()
    assert result.status == "stopped"
    assert [response.status for response in result.responses] == ["success", "cancelled"]


async def test_S44_a_turn_without_a_model_has_limits_too(engine: Engine) -> None:
    batches = ((build_request("echo", say=1),), (build_request("echo", say=2), build_request("echo", say=3)))
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(batches=batches, limits=TurnLimits(calls=2)))
        result = await turn.result()
    assert result.status == "stopped"
    assert {response.status for response in result.responses} == {"cancelled"}
