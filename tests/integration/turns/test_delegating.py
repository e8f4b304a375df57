"""Turns that a turn's calls run: as children, with their own tools and limits, asked about in the same inbox."""

from __future__ import annotations

from typing import Any

from holdfast import Effect, Mode, ModelChoice, Run, Schedule, ScriptedReply, Turn, TurnInput, TurnLimits
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.stage import Stage, call
from tests.support.waiting import listed


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True, effect=Effect.READ)


def says(text: str) -> ScriptedReply:
    return ScriptedReply(text=text)


def calls(*given: Any) -> ScriptedReply:
    return ScriptedReply(calls=given)


def delegating(*replies: ScriptedReply, **scripts: tuple[ScriptedReply, ...]) -> ModelChoice:
    return ModelChoice(script=replies, delegated=scripts)


async def test_two_tasks_are_done_side_by_side_and_what_they_ask_is_in_the_same_inbox(engine: Engine) -> None:
    model = delegating(
        calls(
            build_request("delegate", prompt="one", mode="plan"), build_request("delegate", prompt="two", mode="plan")
        ),
        calls(build_request("ask", say="me too")),
        says("Both are done."),
        one=(calls(build_request("ask", say=1)), says("One is done.")),
        two=(calls(build_request("ask", say=2), build_request("echo", say=3)), says("Two is done.")),
    )
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(TurnInput(prompt="Do both", model=model))
        waiting = await listed(engine.holdfast, turn.id, count=2)
        turns = sorted(item.approval_id.rsplit("/", 2)[0] for item in waiting)
        assert turns == [f"{turn.id}~b1c1", f"{turn.id}~b1c2"]
        for item in waiting:
            await engine.holdfast.decide(item.approval_id, "proceed_always_tool")
        result = await turn.result()
    assert (result.status, result.text) == ("completed", "Both are done.")
    assert [response.text for response in result.responses] == ["One is done.", "Two is done.", "echo me too"]


async def test_a_delegated_turn_may_do_less_and_never_more(engine: Engine) -> None:
    narrow = build_request("delegate", prompt="narrow", tools=["ask", "nothing"], mode="auto_edit", max_steps=2)
    model = delegating(
        calls(narrow),
        says("So be it."),
        narrow=(
            calls(build_request("echo", say=1), build_request("write_file", path="a", content="a")),
            calls(build_request("ask")),
        ),
    )
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(TurnInput(prompt="Do it", model=model, mode=Mode.PLAN, interactive=False))
        result = await turn.result()
        child = engine.holdfast.get_turn(f"{turn.id}~b1c1")
        inner = await child.result()
        view = await child.fetch_view()
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
    model = delegating(calls(build_request("delegate", prompt="it")), it=(calls(call("alter", "a")),))
    async with engine.worker(*stage.tools):
        turn = await engine.start(TurnInput(prompt="Do it", model=model))
        await stage.began("a")
        await turn.cancel()
        result = await turn.result()
        inner = await engine.holdfast.get_turn(f"{turn.id}~b1c1").result()
    assert (result.status, inner.status) == ("cancelled", "cancelled")
    assert [response.status for response in (*result.responses, *inner.responses)] == ["cancelled", "cancelled"]
    assert stage.timeline == ["+a", "!a"]


async def test_delegating_has_a_depth_and_counts_for_the_limits(engine: Engine) -> None:
    deeper = calls(build_request("delegate", prompt="deeper"))
    model = delegating(deeper, says("Top."), deeper=(deeper, says("Down here.")))
    async with engine.worker():
        turn = await engine.start(TurnInput(prompt="Dig", model=model, limits=TurnLimits(steps=10)))
        result = await turn.result()
        deepest = await engine.holdfast.get_turn(f"{turn.id}~b1c1~b1c1~b1c1").result()
    assert (result.text, [response.text for response in result.responses]) == ("Top.", ["Down here."])
    [response] = deepest.responses
    assert response.error
    assert response.error.type == "no_delegate"


async def test_what_a_delegated_turn_took_in_from_outside_taints_the_one_that_reads_its_answer(engine: Engine) -> None:
    news = FakeTool("news", _echo, safe=True, effect=Effect.READ)
    news.open_world = True
    model = delegating(
        calls(build_request("delegate", prompt="read")), says("Read."), read=(calls(build_request("news")), says("!"))
    )
    async with engine.worker(news):
        turn = await engine.start(TurnInput(prompt="Read", model=model))
        await turn.result()
        view = await turn.fetch_view()
    assert view.outside == {"news": 1}
    assert view.tainted


async def test_S24_a_grant_that_is_revoked_meanwhile_does_not_come_back_and_a_count_is_not_shared(
    engine: Engine,
) -> None:
    stage = Stage()
    sub = build_request("delegate", prompt="sub")
    model = delegating(
        calls(build_request("ask", say="a")),
        calls(build_request("ask", say="b")),
        calls(sub),
        calls(build_request("ask", say="a")),
        says("Done."),
        sub=(calls(build_request("ask", say="b"), call("alter", "x")), says("sub")),
    )
    async with engine.worker(ASK, *stage.tools):
        turn = await engine.start(TurnInput(prompt="Go", model=model))
        [first] = await listed(engine.holdfast, turn.id)
        await engine.holdfast.decide(first.approval_id, "proceed_always")
        [second] = await listed(engine.holdfast, f"{turn.id}/b2c1")
        await engine.holdfast.decide(second.approval_id, "proceed_always", uses=2)
        [third] = await listed(engine.holdfast, f"{turn.id}~b3c1")
        await turn.revoke("g1")
        await engine.holdfast.approve(third.approval_id)
        stage.go("x")
        [fourth] = await listed(engine.holdfast, f"{turn.id}/b4c1")
        await engine.holdfast.approve(fourth.approval_id)
        result = await turn.result()
        grants = await turn.fetch_grants()
    assert result.text == "Done."
    assert [grant.id for grant in grants] == ["g2"]


async def test_S24_what_is_revoked_while_a_delegated_turn_runs_allows_nothing_there_any_more(engine: Engine) -> None:
    stage = Stage()
    model = delegating(
        calls(build_request("ask", say="a")),
        calls(build_request("delegate", prompt="sub")),
        says("Done."),
        sub=(
            calls(build_request("delegate", prompt="deeper")),
            says("sub"),
        ),
        deeper=(calls(call("alter", "x")), calls(build_request("ask", say="a")), says("deeper")),
    )
    async with engine.worker(ASK, *stage.tools):
        turn = await engine.start(TurnInput(prompt="Go", model=model))
        [first] = await listed(engine.holdfast, turn.id)
        await engine.holdfast.decide(first.approval_id, "proceed_always")
        await stage.began("x")
        await turn.revoke("g1")
        stage.go("x")
        [asked] = await listed(engine.holdfast, f"{turn.id}~b2c1~b1c1")
        await engine.holdfast.approve(asked.approval_id)
        result = await turn.result()
    assert result.text == "Done."


async def test_S12_a_task_is_not_handed_over_before_the_reply_is_complete(engine: Engine) -> None:
    done: list[str] = []

    async def transfer(arguments: dict[str, Any], run: Run) -> str:
        done.append(run.key)
        return "done"

    sub = build_request("delegate", prompt="sub", mode="plan")
    model = ModelChoice(
        script=(ScriptedReply(calls=(sub, build_request("echo", say=1)), seconds=0.5, breaks=(1,)), says("Done.")),
        delegated={"sub": (calls(build_request("transfer")), says("sub"))},
    )
    async with engine.worker(ECHO, FakeTool("transfer", transfer, safe=True, effect=Effect.READ)):
        turn = await engine.start(TurnInput(prompt="Go", model=model, schedule=Schedule.STREAMING))
        result = await turn.result()
    assert (result.text, len(done)) == ("Done.", 1)


async def test_a_stricter_mode_reaches_what_was_delegated(engine: Engine) -> None:
    stage = Stage()
    model = delegating(
        calls(build_request("delegate", prompt="sub")), says("Top."), sub=(calls(call("alter", "a")), says("!"))
    )
    async with engine.worker(*stage.tools):
        turn = await engine.start(TurnInput(prompt="Go", model=model, mode=Mode.AUTO_EDIT))
        await stage.began("a")
        await turn.set_mode(Mode.PLAN)
        child = engine.holdfast.get_turn(f"{turn.id}~b1c1")
        await wait_until(lambda: _in_mode(child, Mode.PLAN))
        stage.go("a")
        await turn.result()


async def _in_mode(turn: Turn, mode: Mode) -> bool:
    return (await turn.fetch_view(live=False)).mode is mode
