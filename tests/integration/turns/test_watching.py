"""Watching: everything is seen, soon, by many, and the history does not know."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Event, Holdfast, HoldfastPlugin, LiveOutput, NoWorker, Run, Turn, TurnInput, TurnNotFound
from holdfast.client import queries
from holdfast.testing import FakeTool, build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return "echo"


PROCESSES = 5
"""A hundred watchers sit behind a few clients, as they do behind gateways."""

ASK = FakeTool("ask", _echo, asks=True)


async def _collect(turn: Turn) -> list[Event]:
    return [item async for item in turn.watch() if isinstance(item, Event)]


async def test_S8_a_watcher_sees_every_transition_with_its_place_and_order(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn = await engine.start(
            TurnInput(batches=((build_request("ask"), build_request("nope")), (build_request("ask"),)))
        )
        watching = asyncio.create_task(_collect(turn))
        await decide_all(engine.holdfast, turn)
        events = await watching
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    moves = [(e.call, e.place, e.of, e.before, e.after) for e in events if e.kind == "call" and e.batch == "b1"]
    assert [move for move in moves if move[0] == "b1c1"] == [
        ("b1c1", 1, 2, None, "validating"),
        ("b1c1", 1, 2, "validating", "awaiting_approval"),
        ("b1c1", 1, 2, "awaiting_approval", "scheduled"),
        ("b1c1", 1, 2, "scheduled", "executing"),
        ("b1c1", 1, 2, "executing", "success"),
    ]
    assert [move for move in moves if move[0] == "b1c2"] == [
        ("b1c2", 2, 2, None, "validating"),
        ("b1c2", 2, 2, "validating", "error"),
    ]
    assert events[-1].after == "completed"


async def test_a_watcher_who_comes_late_sees_the_rest_and_ends(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn = await engine.start(TurnInput(batches=((build_request("ask"),),)))
        await decide_all(engine.holdfast, turn)
        late = [item async for item in turn.watch(after=3)]
    assert next(item.seq for item in late if isinstance(item, Event)) == 4


async def test_watching_a_turn_that_does_not_exist_says_so(engine: Engine) -> None:
    with pytest.raises(TurnNotFound, match="no turn is called 'nobody'"):
        async for _ in engine.holdfast.get_turn("nobody").watch():
            pass


async def test_S40_a_watcher_survives_the_absence_of_workers(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn = await engine.start(TurnInput(batches=((build_request("ask"),),)))
        view = await wait_until(lambda: waiting(turn))
        watching = asyncio.create_task(_collect(turn))
    await engine.holdfast.approve(view.approvals[0].approval_id, seconds=0.5)
    async with engine.worker(ASK):
        async with asyncio.timeout(30):
            events = await watching
    assert events[-1].kind == "turn"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_S40_a_turn_that_has_ended_is_asked_again_for_its_events(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.worker(ASK):
        turn = await engine.start(TurnInput(batches=((build_request("ask"),),)))
        await decide_all(engine.holdfast, turn)
    watching = asyncio.create_task(_collect(turn))
    done, _ = await asyncio.wait([watching], timeout=queries.QUERY_SECONDS + 1)
    assert not done, "one time without an answer says little"
    async with engine.worker(ASK), asyncio.timeout(30):
        events = await watching
    assert events[-1].after == "completed"
    monkeypatch.setattr("holdfast.client.watch.ENDED_SECONDS", 0)
    with pytest.raises(NoWorker, match="has ended, and no worker answers for its events"):
        await _collect(turn)


@pytest.mark.alone
async def test_S40_live_output_reaches_a_watcher_within_a_second(engine: Engine) -> None:
    said: dict[str, float] = {}
    heard = asyncio.Event()

    async def talk(arguments: dict[str, Any], run: Run) -> str:
        for number in range(5):
            said[f"line {number}"] = time.monotonic()
            run.write(f"line {number}\n")
            async with asyncio.timeout(10):
                await heard.wait()
            heard.clear()
        return "done"

    delays = []
    async with engine.worker(FakeTool("talk", talk)):
        turn = await engine.start(TurnInput(batches=((build_request("talk"),),)))
        async for item in turn.watch():
            if isinstance(item, LiveOutput) and item.tail:
                delays.append(time.monotonic() - said[item.tail.splitlines()[-1]])
                heard.set()
    assert len(delays) == 5
    assert statistics.median(delays) < 1


async def _run_with_watchers(engine: Engine, count: int) -> tuple[list[str], list[float], list[float]]:
    """One turn of ten approvals with so many watchers: its history, how long decisions took, how late each saw each."""
    turn = await engine.start(TurnInput(batches=(tuple(build_request("ask", n=n) for n in range(10)),)))
    view = await wait_until(lambda: waiting(turn, 10))
    seen: list[dict[str, float]] = [{} for _ in range(count)]

    async def observe(holdfast: Holdfast, marks: dict[str, float]) -> None:
        async for item in holdfast.get_turn(turn.id).watch():
            if isinstance(item, Event) and item.call:
                marks[f"{item.call} {item.after}"] = time.monotonic()

    processes = [
        Holdfast(await Client.connect(engine.address, plugins=[HoldfastPlugin(engine.settings)]))
        for _ in range(min(count, PROCESSES))
    ]
    watchers = [asyncio.create_task(observe(processes[n % PROCESSES], seen[n])) for n in range(count)]

    async def all_watch() -> bool:
        return all("b1c10 awaiting_approval" in marks for marks in seen)

    await wait_until(all_watch, seconds=30)
    took, late = [], []
    for item in view.approvals:
        sent = time.monotonic()
        await engine.holdfast.approve(item.approval_id, digest=item.digest)
        took.append(time.monotonic() - sent)
        change = f"{item.approval_id.split('/')[-2]} scheduled"

        async def all_saw(change: str = change) -> bool:
            return all(change in marks for marks in seen)

        await wait_until(all_saw, seconds=30)
        late += [marks[change] - sent for marks in seen]
    await turn.result()
    await asyncio.gather(*watchers)
    return await engine.history(turn), took, late


@pytest.mark.alone
async def test_S40_a_hundred_watchers_add_no_event_and_slow_no_decision(engine: Engine) -> None:
    async with engine.worker(ASK):
        await _run_with_watchers(engine, 0)
        alone, quick, _ = await _run_with_watchers(engine, 0)
        watched, took, late = await _run_with_watchers(engine, 100)
    assert watched == alone
    p95 = sorted(late)[int(0.95 * len(late))]
    assert p95 < 0.25
    assert statistics.median(took) < 3 * statistics.median(quick) + 0.02
