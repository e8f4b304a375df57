"""Turns that a turn's calls run: as children, with their own tools and limits, asked about in the same inbox."""

from __future__ import annotations

from typing import Any

from holdfast import Effect, Mode, ModelChoice, Run, ScriptedReply, TurnInput, TurnLimits
from holdfast.testing import FakeTool, request, until
from holdfast.views import ApprovalView
from tests.support.engine import Engine
from tests.support.stage import Stage, call


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True)


def says(text: str) -> ScriptedReply:
    return ScriptedReply(text=text)


def calls(*given: Any) -> ScriptedReply:
    return ScriptedReply(calls=given)


def delegating(*replies: ScriptedReply, **scripts: tuple[ScriptedReply, ...]) -> ModelChoice:
    return ModelChoice(script=replies, delegated=scripts)


async def _inbox(engine: Engine, turn_id: str, count: int = 1) -> list[ApprovalView] | None:
    found = [item for item in await engine.holdfast.inbox() if item.approval_id.startswith(turn_id)]
    return found if len(found) == count else None


async def test_two_tasks_are_done_side_by_side_and_what_they_ask_is_in_the_same_inbox(engine: Engine) -> None:
    model = delegating(
        calls(request("delegate", prompt="one"), request("delegate", prompt="two")),
        calls(request("ask", say="me too")),
        says("Both are done."),
        one=(calls(request("ask", say=1)), says("One is done.")),
        two=(calls(request("ask", say=2), request("echo", say=3)), says("Two is done.")),
    )
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(TurnInput(prompt="Do both", model=model))
        waiting = await until(lambda: _inbox(engine, turn.id, 2))
        turns = sorted(item.approval_id.rsplit("/", 2)[0] for item in waiting)
        assert turns == [f"{turn.id}~b1c1", f"{turn.id}~b1c2"]
        for item in waiting:
            await engine.holdfast.decide(item.approval_id, "proceed_always_tool")
        result = await turn.result()
    assert (result.status, result.text) == ("completed", "Both are done.")
    assert [response.text for response in result.responses] == ["One is done.", "Two is done.", "echo me too"]


async def test_a_delegated_turn_may_do_less_and_never_more(engine: Engine) -> None:
    narrow = request("delegate", prompt="narrow", tools=["ask", "nothing"], mode="auto_edit", max_steps=2)
    model = delegating(
        calls(narrow),
        says("So be it."),
        narrow=(calls(request("echo", say=1), request("write_file", path="a", content="a")), calls(request("ask"))),
    )
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(TurnInput(prompt="Do it", model=model, mode=Mode.PLAN, interactive=False))
        result = await turn.result()
        child = engine.holdfast.turn(f"{turn.id}~b1c1")
        inner = await child.result()
        view = await child.view()
    assert [response.error and response.error.type for response in inner.responses] == [
        "tool_not_available",
        "tool_not_available",
        "denied",
    ]
    assert (inner.status, inner.reason) == ("stopped", "The turn reached its limit of 2 model steps")
    assert view.mode is Mode.PLAN
    [response] = result.responses
    assert response.error
    assert (response.status, response.error.type) == ("error", "turn_stopped")
    assert result.text == "So be it."


async def test_S16_stopping_a_turn_stops_what_it_delegated(engine: Engine) -> None:
    stage = Stage()
    model = delegating(calls(request("delegate", prompt="it")), it=(calls(call("alter", "a")),))
    async with engine.worker(*stage.tools):
        turn = await engine.start(TurnInput(prompt="Do it", model=model))
        await stage.began("a")
        await turn.cancel()
        result = await turn.result()
        inner = await engine.holdfast.turn(f"{turn.id}~b1c1").result()
    assert (result.status, inner.status) == ("cancelled", "cancelled")
    assert [response.status for response in (*result.responses, *inner.responses)] == ["cancelled", "cancelled"]
    assert stage.timeline == ["+a", "!a"]


async def test_delegating_has_a_depth_and_counts_for_the_limits(engine: Engine) -> None:
    deeper = calls(request("delegate", prompt="deeper"))
    model = delegating(deeper, says("Top."), deeper=(deeper, says("Down here.")))
    async with engine.worker():
        turn = await engine.start(TurnInput(prompt="Dig", model=model, limits=TurnLimits(steps=10)))
        result = await turn.result()
        deepest = await engine.holdfast.turn(f"{turn.id}~b1c1~b1c1~b1c1").result()
    assert (result.text, [response.text for response in result.responses]) == ("Top.", ["Down here."])
    [response] = deepest.responses
    assert response.error
    assert response.error.type == "no_delegate"


async def test_what_a_delegated_turn_took_in_from_outside_taints_the_one_that_reads_its_answer(engine: Engine) -> None:
    news = FakeTool("news", _echo, safe=True, effect=Effect.READ)
    news.open_world = True
    model = delegating(
        calls(request("delegate", prompt="read")), says("Read."), read=(calls(request("news")), says("!"))
    )
    async with engine.worker(news):
        turn = await engine.start(TurnInput(prompt="Read", model=model))
        await turn.result()
        view = await turn.view()
    assert view.outside == {"news": 1}
    assert view.tainted
