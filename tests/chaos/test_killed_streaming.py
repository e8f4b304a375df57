"""SIGKILL of the worker in the middle of a streamed reply: nothing hangs, doubles or dangles (S3, S11, S12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import CallRequest, ModelChoice, Schedule, ScriptedReply, Turn, TurnInput
from holdfast.client.queries import query_turn
from holdfast.domain.conversation.messages import AssistantMessage, Conversation, ToolMessage
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.processes import worker_process


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        yield made


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def _start(engine: Engine, *calls: CallRequest, seconds: float = 0, **input: object) -> Turn:
    script = (ScriptedReply(calls=calls, seconds=seconds), ScriptedReply(text="Done."))
    given = {"prompt": "Go", "model": ModelChoice(script=script), "schedule": Schedule.STREAMING, **input}
    return await engine.start(TurnInput.model_validate(given))


def _counted(*names: str) -> tuple[CallRequest, ...]:
    return tuple(build_request(name.partition("-")[0], counter=name) for name in names)


async def _check_whole(engine: Engine, turn: Turn) -> list[str]:
    """S3 over the conversation; the calls in it."""
    conversation = await query_turn(engine.client, turn.id, "conversation", result_type=Conversation)
    asked: list[str] = []
    answered: list[str] = []
    for message in conversation.messages:
        asked += message.call_ids if isinstance(message, AssistantMessage) else ()
        answered += [one.call_id for one in message.responses] if isinstance(message, ToolMessage) else ()
    assert asked == answered
    return asked


async def test_S12_a_worker_killed_while_its_model_writes_begins_the_reply_anew(engine: Engine) -> None:
    """A read of the first attempt runs; the worker dies with model and tool. The reply is written again, once."""
    async with worker_process(engine) as first:
        turn = await _start(engine, *_counted("read-1", "read-2"), *_counted(*["read-3"] * 3), seconds=1)
        await wait_until(lambda: _exists(engine.workspace / "read-1.begun"))
        await first.kill()
    for mark in ("read-2", "read-3"):
        (engine.workspace / f"{mark}.begun").touch()
    async with worker_process(engine):
        result = await turn.result()
        calls = await _check_whole(engine, turn)
    discarded, done = result.batches
    assert (result.status, discarded.status, done.status) == ("completed", "discarded", "done")
    assert {response.status for response in discarded.responses} <= {"cancelled", "success"}
    assert [response.text for response in result.responses] == ["done"] * 5
    assert calls == [f"{done.id}c{place}" for place in range(1, 6)]


async def test_S11_a_worker_killed_while_streamed_calls_run_loses_none(engine: Engine) -> None:
    """The reply is complete; a read and a once call are at work when the worker dies."""
    async with worker_process(engine) as first:
        turn = await _start(engine, *_counted("read-1", "once-2", "read-3"), interactive=False)
        await wait_until(lambda: _exists(engine.workspace / "read-1.begun"))
        await first.kill()
        async with worker_process(engine) as second:
            await wait_until(lambda: _exists(engine.workspace / "once-2.begun"), seconds=40)
            await second.kill()
    (engine.workspace / "read-3.begun").touch()
    async with worker_process(engine):
        result = await turn.result()
        assert await _check_whole(engine, turn) == ["b1c1", "b1c2", "b1c3"]
    read, once, last = result.responses
    assert (read.status, last.status) == ("success", "success")
    assert once.error is not None
    assert once.error.type == "outcome_unknown"
    assert (engine.workspace / "once-2").read_text() == "x"


async def test_S12_what_must_run_once_and_ran_early_is_not_run_twice_without_a_word(engine: Engine) -> None:
    """With `early` a once call begins before the reply is complete. Its attempt dies with the worker: the call that the
    next attempt asks for is another one, and the conversation knows of that alone."""
    async with worker_process(engine) as first:
        turn = await _start(engine, *_counted("once-1"), *_counted(*["read-2"] * 3), seconds=1, early=True)
        await wait_until(lambda: _exists(engine.workspace / "once-1.begun"))
        await first.kill()
    (engine.workspace / "read-2.begun").touch()
    async with worker_process(engine):
        result = await turn.result()
        await _check_whole(engine, turn)
    discarded, done = result.batches
    [gone, *_] = discarded.responses
    assert (discarded.status, gone.status) == ("discarded", "cancelled")
    assert "may have taken effect" in gone.text
    assert [response.status for response in done.responses] == ["success"] * 4


async def test_S18_an_interrupt_that_comes_while_no_worker_lives_is_heard(engine: Engine) -> None:
    async with worker_process(engine) as first:
        turn = await _start(engine, *_counted("read-1"))
        await wait_until(lambda: _exists(engine.workspace / "read-1.begun"))
        await first.kill()
    await turn.interrupt("While you were away")
    async with worker_process(engine):
        result = await turn.result()
        conversation = await query_turn(engine.client, turn.id, "conversation", result_type=Conversation)
        assert await _check_whole(engine, turn) == ["b1c1"]
    assert [message.kind for message in conversation.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert result.text == "Done."
