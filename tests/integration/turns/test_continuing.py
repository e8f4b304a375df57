"""Turns and sessions that continue as new often, while messages and decisions arrive: nothing is lost (S42)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import CallRequest, Effect, ModelChoice, Run, Schedule, ScriptedReply, SessionInput, Turn, TurnInput
from holdfast.domain.conversation.messages import AssistantMessage, ToolMessage
from holdfast.testing import FakeTool, build_request, decide_all, wait_until
from tests.support.conversations import idle, runs, spoken
from tests.support.engine import Engine, new_engine
from tests.support.processes import worker_process
from tests.support.waiting import done, waiting

TOGETHER = 10
"""Messages at once: so many updates a server takes in, and each waits for its own ten seconds."""


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True)


@pytest.fixture
async def engine(impatient: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(impatient, tmp_path) as made:
        yield made


def _script(*batches: tuple[CallRequest, ...]) -> ModelChoice:
    return ModelChoice(script=(*(ScriptedReply(calls=calls) for calls in batches), ScriptedReply(text="Done.")))


async def _check(turn: Turn, calls: list[str]) -> None:
    """Events without a gap, answers and conversation in order, over all runs."""
    assert [response.call_id async for response in turn.watch_responses()] == calls
    events = [event async for event in turn.watch() if hasattr(event, "seq")]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    conversation = await turn.fetch_conversation()
    asked: list[str] = []
    answered: list[str] = []
    for message in conversation.messages if conversation else ():
        asked += message.call_ids if isinstance(message, AssistantMessage) else ()
        answered += [one.call_id for one in message.responses] if isinstance(message, ToolMessage) else ()
    assert asked == answered == (calls if conversation else [])


@pytest.mark.parametrize("schedule", list(Schedule))
async def test_S42_a_turn_continues_between_batches_with_its_grants_and_approvals(
    engine: Engine, schedule: Schedule
) -> None:
    batches = tuple((build_request("echo", say=n), build_request("ask", say="a" if n % 2 else n)) for n in range(20))
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(TurnInput(prompt="Go", model=_script(*batches), schedule=schedule))
        first = await wait_until(lambda: waiting(turn))
        await engine.holdfast.approve(first.approvals[0].approval_id)
        second = await wait_until(lambda: _asked(turn, "b2c2"))
        await engine.holdfast.decide(second, "proceed_always")
        answered = await decide_all(engine.holdfast, turn)
        result = await turn.result()
        view = await turn.fetch_view()
        await _check(turn, [f"b{n}c{place}" for n in range(1, 21) for place in (1, 2)])
    assert (result.status, result.text) == ("completed", "Done.")
    assert len(result.runs) >= 3
    assert len(answered) == 9, "what the grant of an earlier run covers is not asked again"
    assert view.counts == {"success": 40}
    assert view.grants == 1
    alone = await turn.result()
    assert alone.unread == result.runs, "without a worker it says what is missing"
    assert result.unread == ()


async def _asked(turn: Turn, call: str) -> str | None:
    view = await turn.fetch_view(live=False)
    found = [item.approval_id for item in view.approvals if f"/{call}/" in item.approval_id]
    return found[0] if found else None


async def test_S42_S14_a_turn_without_a_model_takes_its_queue_along(engine: Engine) -> None:
    async with engine.worker(ECHO, ASK):
        turn = await engine.start(TurnInput(keep_open=True))
        ids = [await turn.submit([build_request("echo", say=n), build_request("echo", say=-n)]) for n in range(1, 31)]
        await turn.add_calls("reply", [build_request("echo", say="streamed")])
        await wait_until(lambda: done(turn, ids[-1]), seconds=60)
        await turn.add_calls("reply", [build_request("echo", say="more")], at=1, complete=True)
        await turn.finish()
        result = await turn.result()
        assert ids == [f"b{n}" for n in range(1, 31)]
        assert [response.text for response in (await turn.fetch_batch("b1")).responses] == ["echo 1", "echo -1"]
        await _check(turn, [f"b{n}c{place}" for n in range(1, 32) for place in (1, 2)])
    assert result.status == "completed"
    assert result.runs


async def test_S42_what_is_submitted_again_to_a_later_run_is_not_run_again(engine: Engine) -> None:
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(keep_open=True))
        first = await turn.submit([build_request("echo", say="once")], key="k")
        ids = [await turn.submit([build_request("echo", say=n)]) for n in range(20)]
        await wait_until(lambda: done(turn, ids[-1]), seconds=60)
        again = await turn.submit([build_request("echo", say="once")], key="k")
        await turn.finish()
        result = await turn.result()
    assert first == again == "b1"
    assert len(result.runs) >= 1
    assert [response.text for response in result.responses].count("echo once") == 1


async def test_S42_a_session_continues_between_turns_while_messages_arrive(engine: Engine) -> None:
    count = 40
    replies = (ScriptedReply(text=f"Answer {n}.") for n in range(count))
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=tuple(replies))))
    session = engine.holdfast.get_session()
    async with engine.worker():
        await session.send("Message 0", start=start)
        for first in range(1, count, TOGETHER):
            those = range(first, min(first + TOGETHER, count))
            await asyncio.gather(*(session.send(f"Message {n}", start=start) for n in those))
        await wait_until(lambda: idle(session), seconds=60)
        told = await spoken(session)
        await wait_until(lambda: runs(engine.client, session, 3))
    assert [text for text in told if text.startswith("assistant")] == [f"assistant: Answer {n}." for n in range(count)]
    assert sorted(text for text in told if text.startswith("user")) == sorted(
        f"user: Message {n}" for n in range(count)
    )


async def test_S42_a_worker_killed_around_the_change_of_runs_loses_nothing(engine: Engine) -> None:
    batches = tuple((build_request("read", counter=f"c{n}"),) for n in range(1, 25))
    for n in range(1, 25):
        if n not in (4, 9):
            (engine.workspace / f"c{n}.begun").touch()
    async with worker_process(engine) as first:
        turn = await engine.start(TurnInput(prompt="Go", model=_script(*batches)))
        await wait_until(lambda: _exists(engine.workspace / "c4.begun"))
        await first.kill()
    async with worker_process(engine) as second:
        await wait_until(lambda: _exists(engine.workspace / "c9.begun"), seconds=60)
        await second.kill()
    async with worker_process(engine):
        result = await turn.result()
        await _check(turn, [f"b{n}c1" for n in range(1, 25)])
    assert (result.status, result.text) == ("completed", "Done.")
    assert result.runs


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def test_S18_what_is_appended_while_a_turn_changes_runs_is_told(engine: Engine) -> None:
    words = [f"Word {number}" for number in range(12)]
    replies = tuple(ScriptedReply(calls=(build_request("echo", say=n),), seconds=0.1) for n in range(40))
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=(*replies, *[ScriptedReply(text="Done.")] * 20))))
    session = engine.holdfast.get_session()
    async with engine.worker(ECHO):
        await session.send("Begin", start=start)
        for word in words:
            await session.send(word, how="append")
            await asyncio.sleep(0.3)
        await wait_until(lambda: idle(session), seconds=60)
        told = await spoken(session)
    assert [text.removeprefix("user: ") for text in told if text.startswith("user: W")] == words
