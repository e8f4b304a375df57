"""A conversation of thirty turns while its workers and its server are killed: what was said is as without (S3, S42)."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from holdfast import CallRequest, ModelChoice, ScriptedReply, Session, SessionInput, Settings, TurnInput
from holdfast.domain.conversation.messages import AssistantMessage, ToolMessage
from holdfast.testing import build_request, wait_until
from holdfast.workers.embedded.temporal_server import EmbeddedServer
from tests.support.conversations import idle, pending, spoken
from tests.support.engine import Engine, new_engine
from tests.support.processes import WorkerProcess, worker_process
from tests.support.waiting import listed

TURNS = 30
PATIENCE = 60.0
AT_WORK = {4, 12, 22}
"""Turns whose worker is killed while a tool runs,"""
WAITING = {7, 18}
"""while an approval waits,"""
THINKING = {26}
"""while the model writes."""
SERVER = {10, 21}
"""Turns before which the server is killed."""


def _replies(number: int) -> tuple[ScriptedReply, ScriptedReply]:
    calls: tuple[CallRequest, ...] = (build_request("read", counter=f"c{number}"),)
    calls += (build_request("ask", say=number),) if number in WAITING else ()
    seconds = 0.5 if number in THINKING else 0
    return ScriptedReply(calls=calls, seconds=seconds), ScriptedReply(text=f"Answer {number}.")


START = SessionInput(
    turn=TurnInput(model=ModelChoice(script=tuple(one for n in range(1, TURNS + 1) for one in _replies(n))))
)


class _Workers:
    """One worker at a time, replaced when it is killed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stack = AsyncExitStack()
        self._worker: WorkerProcess | None = None

    async def begin(self) -> None:
        self._worker = await self._stack.enter_async_context(worker_process(self._engine))

    async def kill(self) -> None:
        assert self._worker
        await self._worker.kill()
        await self.begin()

    async def end(self) -> None:
        await self._stack.aclose()


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def _say(session: Session, number: int) -> None:
    """As a client does that hears nothing: the same message again, which counts once."""

    async def said() -> bool:
        try:
            await session.send(f"Message {number}", start=START, message_id=f"m{number}")
        except Exception:
            return False
        return True

    await wait_until(said, seconds=PATIENCE)


async def _converse(engine: Engine, session: Session, workers: _Workers, server: EmbeddedServer | None) -> None:
    disturbed = server is not None
    for number in range(1, TURNS + 1):
        mark = engine.workspace / f"c{number}.begun"
        if not (disturbed and number in AT_WORK):
            mark.touch()
        if server and number in SERVER:
            os.kill(server.pid, signal.SIGKILL)
            await server.process.wait()
            await server.restart()
        await _say(session, number)
        if disturbed and number in AT_WORK:
            await wait_until(lambda mark=mark: _exists(mark), seconds=PATIENCE)  # type: ignore[misc]
            await workers.kill()
        if disturbed and number in THINKING:
            await workers.kill()
        if number in WAITING:
            before = await wait_until(lambda: pending(session), seconds=PATIENCE)
            if disturbed:
                await workers.kill()
                after = await wait_until(lambda: pending(session), seconds=PATIENCE)
                assert after.pending == before.pending
            await engine.holdfast.approve(before.pending[0])
        await wait_until(lambda: idle(session), seconds=PATIENCE)


async def _transcript(address: str, folder: Path, server: EmbeddedServer | None) -> list[str]:
    async with new_engine(address, folder) as engine:
        workers, session = _Workers(engine), engine.holdfast.get_session()
        try:
            await workers.begin()
            await _converse(engine, session, workers, server)
            asked: list[str] = []
            answered: list[str] = []
            async for message in session.fetch_messages():
                asked += message.call_ids if isinstance(message, AssistantMessage) else ()
                answered += [one.call_id for one in message.responses] if isinstance(message, ToolMessage) else ()
            assert asked == answered, "every call has its one response"
            view = await session.fetch_view()
            assert view.turns == TURNS
            return await spoken(session)
        finally:
            await workers.end()


async def test_S42_S3_thirty_turns_with_kills_in_between_end_with_the_transcript_that_they_have_without(
    tmp_path: Path,
) -> None:
    server = EmbeddedServer(Settings(data=tmp_path / "data"), port=0)
    try:
        address = (await server.start()).address
        calm = await _transcript(address, tmp_path / "calm", None)
        stormy = await _transcript(address, tmp_path / "stormy", server)
    finally:
        await server.stop()
    assert stormy == calm
    assert len(calm) == TURNS * 4


async def test_a_worker_killed_while_delegated_turns_run_loses_none(server_address: str, tmp_path: Path) -> None:
    tasks = tuple(build_request("delegate", prompt=name) for name in ("one", "two"))
    scripts: dict[str, tuple[ScriptedReply, ...]] = {
        name: (
            ScriptedReply(calls=(build_request("read", counter=name), build_request("ask", say=name))),
            ScriptedReply(text=name),
        )
        for name in ("one", "two")
    }
    model = ModelChoice(script=(ScriptedReply(calls=tasks), ScriptedReply(text="Both.")), delegated=scripts)
    async with new_engine(server_address, tmp_path) as engine:
        async with worker_process(engine) as first:
            turn = await engine.start(TurnInput(prompt="Do both", model=model))
            [waiting] = await listed(engine.holdfast, turn.id)
            await first.kill()
        async with worker_process(engine) as second:
            await engine.holdfast.approve(waiting.approval_id)
            await wait_until(lambda: _exists(engine.workspace / "one.begun"), seconds=PATIENCE)
            await second.kill()
        (engine.workspace / "two.begun").touch()
        async with worker_process(engine):
            [waiting] = await listed(engine.holdfast, f"{turn.id}~b1c2", seconds=PATIENCE)
            await engine.holdfast.approve(waiting.approval_id)
            result = await turn.result()
    assert (result.status, result.text) == ("completed", "Both.")
    assert [response.text for response in result.responses] == ["one", "two"]
