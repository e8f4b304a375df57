"""What durability costs: our turn beside a hand-written workflow that does the same, in the same run.

    make bench            # prints medians, ratios and history events

Ratios travel between machines, times do not; no test asserts either.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Effect, ModelChoice, Run, Schedule, ScriptedReply, Session, SessionInput, TurnInput
from holdfast.testing import FakeTool, build_request, decide_all, script_model, wait_until
from tests.bench.hand_written import HandWritten, model, tool
from tests.support.engine import Engine, new_engine
from tests.support.server import start_server
from tests.support.waiting import waiting

ROUNDS = 20
WORK_SECONDS = 0.2
"""Of a slow tool, and of a slow model for each call."""


async def _nothing(arguments: dict[str, Any], run: Run) -> str:
    return "done"


async def _hand_written(engine: Engine) -> int:
    handle = await engine.client.start_workflow(
        HandWritten.run, "go", id=uuid4().hex, task_queue=f"{engine.queue}-hand"
    )
    await handle.result()
    return len((await handle.fetch_history()).events)


def _turn(input: TurnInput) -> Callable[[Engine], Awaitable[int]]:
    async def play(engine: Engine) -> int:
        turn = await engine.start(input)
        await turn.result()
        return len(await engine.history(turn))

    return play


def _approved(input: TurnInput) -> Callable[[Engine], Awaitable[int]]:
    async def play(engine: Engine) -> int:
        turn = await engine.start(input)
        await decide_all(engine.holdfast, turn)
        await turn.result()
        return len(await engine.history(turn))

    return play


def _message(input: TurnInput) -> Callable[[Engine], Awaitable[int]]:
    """A message of a session, from sending it to the end of its turn. Events of the session and of the turn."""
    sessions: list[Session] = []

    async def play(engine: Engine) -> int:
        if not sessions:
            sessions.append(engine.holdfast.get_session())
            assert input.model
            script = input.model.script * (ROUNDS + 1)
            start = SessionInput(turn=input.model_copy(update={"prompt": None, "model": ModelChoice(script=script)}))
            sent = await sessions[0].send("go", start=start)
            await sessions[0].get_turn(sent.turn).result()
        session = sessions[0]
        before = len(await engine.history(session))
        sent = await session.send("go")
        turn = session.get_turn(sent.turn)
        await turn.result()
        return len(await engine.history(turn)) + len(await engine.history(session)) - before

    return play


def _batch(tool: str, count: int) -> TurnInput:
    return TurnInput(batches=(tuple(build_request(tool) for _ in range(count)),))


async def _slow(arguments: dict[str, Any], run: Run) -> str:
    await asyncio.sleep(WORK_SECONDS)
    return "done"


def _streamed(schedule: Schedule, tool: str, seconds: float = 0) -> TurnInput:
    """A model that writes three calls, each taking it so long."""
    script = (
        ScriptedReply(calls=tuple(build_request(tool) for _ in range(3)), seconds=seconds),
        ScriptedReply(text="done"),
    )
    return TurnInput(prompt="go", model=ModelChoice(script=script), schedule=schedule)


TOOLS = (
    FakeTool("nothing", _nothing, safe=True, effect=Effect.READ),
    FakeTool("once", _nothing, safe=True, effect=Effect.ONCE),
    FakeTool("slow", _slow, safe=True, effect=Effect.READ),
    FakeTool("ask", _nothing, asks=True, safe=True),
)


MODEL_TURN = TurnInput(prompt="go", model=script_model([build_request("nothing") for _ in range(3)], "done"))
DELEGATING = TurnInput(
    prompt="go",
    model=ModelChoice(
        script=(ScriptedReply(calls=(build_request("delegate", prompt="it"),)), ScriptedReply(text="done")),
        delegated={"it": (ScriptedReply(text="done"),)},
    ),
)
COMMAND = TurnInput(batches=((build_request("shell", command="true"),),))
CASES: dict[str, Callable[[Engine], Awaitable[int]]] = {
    "hand-written: model, 3 tools, model": _hand_written,
    "turn: model, 3 calls, model": _turn(MODEL_TURN),
    "turn: model, 3 calls, model, streaming": _turn(_streamed(Schedule.STREAMING, "nothing")),
    "session: a message, model, 3 calls, model": _message(MODEL_TURN),
    "turn: model, 1 delegated turn, model": _turn(DELEGATING),
    "slow model and tools, all_ready": _turn(_streamed(Schedule.ALL_READY, "slow", WORK_SECONDS)),
    "slow model and tools, streaming": _turn(_streamed(Schedule.STREAMING, "slow", WORK_SECONDS)),
    "turn: 1 call": _turn(_batch("nothing", 1)),
    "turn: 10 calls": _turn(_batch("nothing", 10)),
    "turn: 1 call that must run once": _turn(_batch("once", 1)),
    "turn: 10 calls that must run once": _turn(_batch("once", 10)),
    "turn: 1 call, approved": _approved(_batch("ask", 1)),
    "turn: 1 command, approved": _approved(COMMAND),
    "turn: 10 calls, approved one by one": _approved(_batch("ask", 10)),
}


async def _decision_to_start(engine: Engine) -> float:
    """Seconds from sending a decision to the tool's first line."""
    begun: list[float] = []

    async def note(arguments: dict[str, Any], run: Run) -> str:
        begun.append(time.monotonic())
        return "done"

    async with engine.worker(FakeTool("note", note, asks=True)):
        times = []
        for _ in range(ROUNDS):
            turn = await engine.start(_batch("note", 1))
            view = await wait_until(lambda turn=turn: waiting(turn))  # type: ignore[misc]
            item = view.approvals[0]
            sent = time.monotonic()
            await engine.holdfast.approve(item.approval_id, digest=item.digest)
            await turn.result()
            times.append(begun[-1] - sent)
    return statistics.median(times)


async def main() -> None:
    """Play every case in turns, so that a slow moment of the machine hits all of them."""
    with tempfile.TemporaryDirectory() as folder:
        async with await start_server(Path(folder) / "temporal.db") as server:
            address = server.client.service_client.config.target_host
            async with new_engine(address, Path(folder) / "bench") as engine:
                hand = Worker(
                    await Client.connect(address),
                    task_queue=f"{engine.queue}-hand",
                    workflows=[HandWritten],
                    activities=[model, tool],
                )
                times: dict[str, list[float]] = {name: [] for name in CASES}
                events: dict[str, list[int]] = {name: [] for name in CASES}
                async with hand, engine.worker(*TOOLS):
                    for _ in range(ROUNDS):
                        for name, play in CASES.items():
                            began = time.monotonic()
                            events[name].append(await play(engine))
                            times[name].append(time.monotonic() - began)
                decision = await _decision_to_start(engine)
    base = statistics.median(times["hand-written: model, 3 tools, model"])
    print(f"{'':40}{'median':>10}{'ratio':>8}{'events':>8}")
    for name in CASES:
        median = statistics.median(times[name])
        print(f"{name:40}{median * 1000:8.0f}ms{median / base:8.2f}{statistics.median(events[name]):8.0f}")
    print(f"{'decision to tool start':40}{decision * 1000:8.0f}ms")


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
