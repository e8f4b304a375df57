"""Sessions on the real server: messages, grants and what waits outlive each turn (S18, S24, S42)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import (
    Effect,
    Mode,
    ModelChoice,
    RequestRefused,
    Run,
    ScriptedReply,
    SessionInput,
    TurnInput,
)
from holdfast.domain.session.session_io import SessionChange
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.conversations import idle, pending, spoken
from tests.support.engine import Engine
from tests.support.stage import Stage, call


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True)


def session_of(*replies: ScriptedReply, **more: Any) -> SessionInput:
    return SessionInput(turn=TurnInput(model=ModelChoice(script=replies), **more))


def says(text: str) -> ScriptedReply:
    return ScriptedReply(text=text)


async def test_the_first_message_creates_the_session_and_the_next_turn_knows_it(both: Engine) -> None:
    start = session_of(ScriptedReply(calls=(build_request("echo", say=1),)), says("One."), says("Two."))
    session = both.holdfast.get_session()
    async with both.worker(ECHO):
        sent = await session.send("First", start=start)
        assert sent.turn == f"{session.id}~1"
        await session.get_turn(sent.turn).result()
        again = await session.send("Second", start=start)
        assert again.turn == f"{session.id}~2"
        await (await session.wait_for_turn(again.turn)).result()
        view = await wait_until(lambda: idle(session))
        assert (view.turns, view.messages) == (2, 6)
        assert await spoken(session) == [
            "user: First",
            "assistant:  echo",
            "tool: echo 1",
            "assistant: One.",
            "user: Second",
            "assistant: Two.",
        ]
        await session.close()
        assert (await session.result()).turns == 2
        with pytest.raises(RequestRefused, match="was closed"):
            await session.send("Third", start=start)


async def test_S24_a_grant_of_one_turn_answers_in_the_next(engine: Engine) -> None:
    asks = ScriptedReply(calls=(build_request("ask", say="a"),))
    start = session_of(asks, says("Done."), asks, says("Done again."))
    session = engine.holdfast.get_session()
    async with engine.worker(ASK):
        await session.send("Do it", start=start)
        view = await wait_until(lambda: pending(session))
        assert (view.status, view.doing) == ("awaiting_approval", "waiting for confirmation of 1")
        await engine.holdfast.decide(view.pending[0], "proceed_always")
        await wait_until(lambda: idle(session))
        assert [grant.id for grant in await session.fetch_grants()] == ["g1"]
        await session.send("And again")
        view = await wait_until(lambda: idle(session))
        assert view.turns == 2
        assert (await spoken(session))[-2:] == ["tool: echo a", "assistant: Done again."]
        await session.revoke("g1")
        assert await session.fetch_grants() == ()


async def test_S24_what_was_granted_for_a_turn_ends_with_it(engine: Engine) -> None:
    asks = ScriptedReply(calls=(build_request("ask", say="a"), build_request("ask", say="a")))
    session = engine.holdfast.get_session()
    async with engine.worker(ASK):
        await session.send("Do it", start=session_of(asks, says("Done."), asks, says("Done again.")))
        view = await wait_until(lambda: pending(session))
        await engine.holdfast.decide(view.pending[0], "proceed_always", lasting="turn")
        await wait_until(lambda: idle(session))
        assert await session.fetch_grants() == ()
        await session.send("And again")
        view = await wait_until(lambda: pending(session))
    assert len(view.pending) == 2


async def test_S18_steering_queue_append_and_interrupt(engine: Engine) -> None:
    stage = Stage()
    start = session_of(
        ScriptedReply(calls=(call("alter", "a"), call("look", "b"))),
        ScriptedReply(calls=(call("look", "c"),)),
        says("After the interruption."),
        says("After the queue."),
    )
    session = engine.holdfast.get_session()
    async with engine.worker(*stage.tools):
        first = await session.send("Begin", start=start)
        await stage.began("a")
        queued = await session.send("Later")
        appended = await session.send("By the way", how="append")
        assert (appended.turn, queued.turn) == (first.turn, f"{session.id}~2")
        assert (await session.fetch_view()).waiting == ("Later",)
        stage.go("a", "b")
        await stage.began("c")
        await session.send("Stop that", how="interrupt")
        view = await wait_until(lambda: idle(session))
        assert view.turns == 2
        told = await spoken(session)
    assert stage.timeline == ["+a", "-a", "+b", "-b", "+c", "!c"]
    stopped = told.pop(5)
    assert "interrupted" in stopped
    assert told == [
        "user: Begin",
        "assistant:  alter,look",
        "tool: a is done; b is done",
        "user: By the way",
        "assistant:  look",
        "user: Stop that",
        "assistant: After the interruption.",
        "user: Later",
        "assistant: After the queue.",
    ]


async def test_an_interrupted_turn_ends_and_the_session_goes_on(engine: Engine) -> None:
    stage = Stage()
    start = session_of(ScriptedReply(calls=(call("move", "a"), call("alter", "b"))), says("Still here."))
    session = engine.holdfast.get_session()
    async with engine.worker(*stage.tools):
        sent = await session.send("Begin", start=start)
        await stage.began("a")
        await session.interrupt()
        result = await session.get_turn(sent.turn).result()
        assert result.status == "cancelled"
        assert [response.status for response in result.responses] == ["cancelled", "cancelled"]
        await wait_until(lambda: idle(session))
        with pytest.raises(RequestRefused, match="no turn runs"):
            await session.interrupt()
        await session.send("Are you there?")
        await wait_until(lambda: idle(session))
        told = await spoken(session)
    assert told[-2:] == ["user: Are you there?", "assistant: Still here."]
    assert told[1] == "assistant:  move,alter"
    assert told[2].startswith("tool: ")


async def test_the_same_message_counts_once_and_too_many_are_refused(engine: Engine) -> None:
    start = session_of(*(says(f"Answer {number}") for number in range(200)))
    session = engine.holdfast.get_session()
    async with engine.worker():
        await asyncio.gather(*(session.send("Once", start=start, message_id="same") for _ in range(5)))
        await wait_until(lambda: idle(session))
        await session.send("Once", start=start, message_id="same")
        view = await wait_until(lambda: idle(session))
    assert view.turns == 1


async def test_a_failed_turn_keeps_everything_before_it(engine: Engine) -> None:
    start = session_of(ScriptedReply(calls=(build_request("echo", say=1),)))
    session = engine.holdfast.get_session()
    async with engine.worker(ECHO):
        await session.send("Do it", start=start)
        view = await wait_until(lambda: idle(session))
        assert view.last
        assert view.last.status == "failed"
        assert "no reply for step 2" in (view.last.reason or "")
        await session.configure(model=ModelChoice(script=(says("Here I am."),)))
        await session.send("Go on")
        await wait_until(lambda: idle(session))
        assert await spoken(session) == [
            "user: Do it",
            "assistant:  echo",
            "tool: echo 1",
            "user: Go on",
            "assistant: Here I am.",
        ]


async def test_what_is_no_session_input_ends_with_a_reason(engine: Engine) -> None:
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.session", {"turn": {"prompt": "no model"}}, id="session-bad", task_queue=engine.queue
        )
        with pytest.raises(Exception, match="failed"):
            await handle.result()


async def test_S7_a_terminated_turn_and_a_stop_in_one_task_end_the_turn_and_not_the_session(engine: Engine) -> None:
    session = engine.holdfast.get_session()
    async with engine.worker(ASK):
        start = session_of(ScriptedReply(calls=(build_request("ask", say=1),)), says("Here I am."))
        sent = await session.send("Begin", start=start)
        await wait_until(lambda: pending(session))
    await engine.client.get_workflow_handle(sent.turn).terminate("by an operator")
    stopping = asyncio.create_task(session.interrupt())
    async with engine.worker(ASK):
        await stopping
        view = await wait_until(lambda: idle(session))
        assert view.last
        assert view.last.status == "failed"
        await session.send("Go on")
        again = await wait_until(lambda: pending(session))
        told = await spoken(session)
    assert (again.turns, told) == (2, ["user: Begin"])


async def test_a_session_that_is_closed_at_once_begins_nothing_more(engine: Engine) -> None:
    stage = Stage()
    session = engine.holdfast.get_session()
    async with engine.worker(*stage.tools):
        start = session_of(ScriptedReply(calls=(call("alter", "a"),)), says("Never."), says("Never."))
        await session.send("Begin", start=start)
        await stage.began("a")
        await session.send("Later")
        await session.send("By the way", how="append")
        await session.close(now=True)
        result = await session.result()
    assert (result.turns, stage.timeline) == (1, ["+a", "!a"])


async def test_a_mode_that_is_wished_for_while_a_turn_runs_is_that_of_the_next(engine: Engine) -> None:
    stage = Stage()
    session = engine.holdfast.get_session()
    async with engine.worker(*stage.tools):
        start = session_of(ScriptedReply(calls=(call("alter", "a"),)), says("Done."))
        await session.send("Begin", start=start)
        await stage.began("a")
        handle = engine.client.get_workflow_handle(session.id)
        await handle.execute_update("configure", SessionChange(mode=Mode.PLAN))
        stage.go("a")
        view = await wait_until(lambda: idle(session))
    assert view.mode is Mode.PLAN


async def test_S22_nobody_gives_a_turn_what_only_its_session_gives(engine: Engine) -> None:
    forged = {"memory": TurnMemory(), "depth": 1, "session": "somebody-elses"}
    for name, value in forged.items():
        input = TurnInput(batches=((build_request("echo"),),)).model_copy(update={name: value})
        with pytest.raises(RequestRefused, match="only a session may set that for its turns"):
            await engine.holdfast.start(input)
        async with engine.worker(ECHO):
            handle = await engine.client.start_workflow(
                "holdfast.turn", input, id=f"forged-{name}", task_queue=engine.queue
            )
            with pytest.raises(WorkflowFailureError) as caught:
                await handle.result()
        assert "only a session" in str(caught.value.cause)
