"""Rolling upgrades with old and new code at once, real processes that are killed, and nothing lost (S36, S42, S46)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import ModelChoice, ScriptedReply, Session, SessionInput, Turn, TurnInput
from holdfast.testing import build_request, wait_until
from holdfast.workers.versions.deployments import fetch_deployment
from tests.support.conversations import idle, spoken
from tests.support.engine import Engine, new_engine
from tests.support.versions import PATCHED, PATIENCE, Rollout, end, other_code, versions_in, wake_sessions
from tests.support.waiting import waiting


@pytest.fixture
async def engine(server_address: str, tmp_path: Path) -> AsyncIterator[Engine]:
    async with new_engine(server_address, tmp_path) as made:
        yield made


@pytest.fixture
def rollout(engine: Engine, tmp_path: Path) -> Rollout:
    return Rollout(engine, tmp_path)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Code whose turns and sessions take other steps than ours."""
    return other_code(tmp_path / "old")


async def begin(engine: Engine, name: str) -> Turn:
    """A turn that waits until somebody lets it write its name."""
    turn = await engine.start(TurnInput(batches=((build_request("shell", command=f"echo {name} >> effects"),),)))
    await wait_until(lambda: waiting(turn), seconds=PATIENCE)
    return turn


async def approve(engine: Engine, turn: Turn) -> None:
    view = await wait_until(lambda: waiting(turn), seconds=PATIENCE)
    await engine.holdfast.approve(view.approvals[0].approval_id)


async def finish(engine: Engine, turn: Turn) -> str:
    """Let it, and wait for its end."""
    await approve(engine, turn)
    async with asyncio.timeout(PATIENCE):
        [batch] = (await turn.result()).batches
    return batch.responses[0].status


async def effects(engine: Engine) -> list[str]:
    return sorted((await asyncio.to_thread((engine.workspace / "effects").read_text)).split())


async def took_other_steps(engine: Engine, turn_id: str) -> bool:
    """Was it the old code that ran it?"""
    events = engine.client.get_workflow_handle(turn_id).fetch_history_events()
    return any([event.HasField("timer_started_event_attributes") async for event in events])


async def test_S36_turns_end_on_the_code_they_began_on_while_new_ones_begin_on_the_next(
    engine: Engine, rollout: Rollout, old: Path
) -> None:
    async with rollout.worker("v1", old) as first:
        await rollout.make_current("v1")
        turns = [await begin(engine, name) for name in ("a", "b", "c")]
        async with rollout.worker("v2") as second:
            early = await begin(engine, "d")
            assert await versions_in(engine, early.id) == {"v1"}, "a version that is not current gets nothing"
            await rollout.make_current("v2")
            late = await begin(engine, "e")
            assert await versions_in(engine, late.id) == {"v2"}
            assert await finish(engine, late) == "success"
            assert await finish(engine, turns[0]) == "success"
            await first.kill()
            async with rollout.worker("v1", old) as again:
                for turn in (turns[1], turns[2], early):
                    assert await finish(engine, turn) == "success"
                for turn in (*turns, early):
                    assert await versions_in(engine, turn.id) == {"v1"}
                    assert await took_other_steps(engine, turn.id)
                assert not await took_other_steps(engine, late.id)
                await rollout.drained("v1")
                assert await end(again) == 0
            view = await turns[0].fetch_view()
            assert (view.state, view.result and view.result.status) == ("ended", "completed"), "known without v1, too"
            assert await finish(engine, await begin(engine, "f")) == "success"
            assert await end(second) == 0
    assert await effects(engine) == ["a", "b", "c", "d", "e", "f"], "each once"


async def test_a_version_becomes_current_while_its_worker_is_still_coming(engine: Engine, rollout: Rollout) -> None:
    """The server refuses a version until it knows of who polls for it."""
    for build in ("v1", "v2", "v3"):
        async with rollout.worker(build, ready=False):
            await rollout.make_current(build)
            assert (await fetch_deployment(engine.client, rollout.name, engine.queue)).current == build


async def test_S45_what_a_version_says_is_in_a_log_for_machines_a_line_of_it(rollout: Rollout) -> None:
    with rollout.file.open("a") as file:
        file.write('[telemetry]\nlogs = "json"\n')
    async with rollout.worker("v1"):
        await wait_until(lambda: rollout.remarked("v1", "set-current-version"), seconds=PATIENCE)
    lines = (await asyncio.to_thread(rollout.log("v1").read_text)).splitlines()
    assert any("set-current-version" in json.loads(line)["message"] for line in lines)


async def test_S36_a_pinned_turn_has_its_host_calls_run_by_whoever_lives_there(
    engine: Engine, rollout: Rollout, old: Path, tmp_path: Path
) -> None:
    """Queues of hosts have no versions. Here the host has new code only, and the old code is on another host."""
    async with rollout.worker("v1", old) as first:
        await rollout.make_current("v1")
        turn = await begin(engine, "a")
        async with rollout.worker("v2") as second, rollout.worker("v1", old, data=tmp_path / "another-host"):
            await rollout.make_current("v2")
            await first.kill()
            assert await finish(engine, turn) == "success"
            events = [event async for event in engine.client.get_workflow_handle(turn.id).fetch_history_events()]
            ran = [event.activity_task_started_event_attributes.identity.partition("@")[0] for event in events]
            assert [pid for pid in ran if pid] == [str(second.pid)]
            assert await versions_in(engine, turn.id) == {"v1"}
    assert await effects(engine) == ["a"]


def _session() -> SessionInput:
    script = tuple(ScriptedReply(text=f"Answer {number}.") for number in range(1, 5))
    return SessionInput(turn=TurnInput(model=ModelChoice(script=script)))


async def _say(session: Session, text: str) -> None:
    sent = await session.send(text, start=_session())
    await (await session.wait_for_turn(sent.turn)).result()
    await wait_until(lambda: idle(session), seconds=PATIENCE)


async def _on(engine: Engine, session: Session, build: str) -> bool:
    return await versions_in(engine, session.id) == {build}


async def test_S42_a_session_goes_over_to_new_code_between_its_turns_and_knows_what_was_said(
    engine: Engine, rollout: Rollout, old: Path
) -> None:
    session, quiet = engine.holdfast.get_session(), engine.holdfast.get_session()
    async with rollout.worker("v1", old) as first:
        await rollout.make_current("v1")
        await _say(session, "First")
        await _say(quiet, "Hello")
        assert await versions_in(engine, session.id) == {"v1"}
        async with rollout.worker("v2"):
            await rollout.make_current("v2")
            await _say(session, "Second")
            assert await _on(engine, session, "v2")
            assert await versions_in(engine, f"{session.id}~2") == {"v2"}
            assert not await took_other_steps(engine, f"{session.id}~2")
            assert (await rollout.version("v1")).open == 1, "nobody speaks in the other one"
            await wake_sessions(engine, rollout.name, "v1")
            await wait_until(lambda: _on(engine, quiet, "v2"), seconds=PATIENCE)
            await rollout.drained("v1")
            assert await end(first) == 0
            await _say(session, "Third")
            await _say(quiet, "Still there?")
            assert await spoken(quiet) == [
                "user: Hello",
                "assistant: Answer 1.",
                "user: Still there?",
                "assistant: Answer 2.",
            ]
            assert (await spoken(session))[-2:] == ["user: Third", "assistant: Answer 3."]
            assert (await session.fetch_view()).turns == 3


async def test_a_turn_whose_version_is_gone_is_told_of_and_can_be_moved_and_moved_back(
    engine: Engine, rollout: Rollout, old: Path
) -> None:
    """Old code alone can replay what it did: moved to other code a turn stands still, and nothing of it is lost."""
    async with rollout.worker("v1", old) as first, rollout.worker("v2") as second:
        await rollout.make_current("v1")
        turn = await begin(engine, "a")
        await rollout.make_current("v2")
        assert (await rollout.version("v1")).open == 1
        assert await end(first) == 0
        await rollout.move(turn.id, "v2")
        await engine.client.get_workflow_handle(turn.id).signal("decide", "nonsense, which wakes it")
        await wait_until(lambda: _failed(engine, turn), seconds=PATIENCE)
        await rollout.move(turn.id, "v1")
        async with rollout.worker("v1", old):
            assert await finish(engine, turn) == "success"
        assert await end(second) == 0
    assert await effects(engine) == ["a"]


async def test_a_turn_goes_on_with_another_version_of_the_same_steps(engine: Engine, rollout: Rollout) -> None:
    async with rollout.worker("v1") as first, rollout.worker("v2"):
        await rollout.make_current("v1")
        turn = await begin(engine, "a")
        await first.kill()
        await rollout.move(turn.id, "v2")
        assert await finish(engine, turn) == "success"
        assert await versions_in(engine, turn.id) == {"v1", "v2"}
    assert await effects(engine) == ["a"]


async def _failed(engine: Engine, turn: Turn) -> bool:
    """Did a task of it fail because the code takes other steps?"""
    description = await engine.client.get_workflow_handle(turn.id).describe()
    events = [event async for event in engine.client.get_workflow_handle(turn.id).fetch_history_events()]
    pending = description.raw_description.pending_workflow_task
    return pending.attempt > 1 or any(event.HasField("workflow_task_failed_event_attributes") for event in events)


async def test_S46_without_versions_an_old_worker_ends_while_a_new_one_goes_on_with_its_turns(
    engine: Engine, rollout: Rollout, tmp_path: Path
) -> None:
    """New code of the same line: what it does otherwise it does behind `workflow.patched`, for turns that begin."""
    new = other_code(tmp_path / "new", PATCHED)
    async with rollout.worker(None) as first:
        turns = [await begin(engine, name) for name in ("a", "b")]
        async with rollout.worker(None, new) as second:
            ending = asyncio.create_task(end(first))
            assert await ending == 0
            for turn in turns:
                assert await finish(engine, turn) == "success"
                assert not await took_other_steps(engine, turn.id)
            late = await begin(engine, "c")
            assert await finish(engine, late) == "success"
            assert await took_other_steps(engine, late.id)
            assert await end(second) == 0
    assert await effects(engine) == ["a", "b", "c"]


async def test_the_first_version_makes_itself_current_only_where_nobody_else_takes_turns(
    engine: Engine, rollout: Rollout
) -> None:
    async with rollout.worker("v1", None, "--current-if-none"):
        assert await finish(engine, await begin(engine, "a")) == "success"
        await wait_until(
            lambda: rollout.remarked("v1", f"version 'v1' of {rollout.name!r} is current"), seconds=PATIENCE
        )
        async with rollout.worker("v2", None, "--current-if-none"):
            await wait_until(
                lambda: rollout.remarked("v2", "version 'v2' gets no new turns, 'v1' does"), seconds=PATIENCE
            )
            turn = await begin(engine, "b")
            assert await versions_in(engine, turn.id) == {"v1"}
            assert await finish(engine, turn) == "success"
