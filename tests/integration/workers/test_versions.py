"""Versions of the workers on the real server: who runs what, and that it replays (S36, S42)."""

from __future__ import annotations

import asyncio
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from temporalio.client import WorkflowHistory
from temporalio.common import PinnedVersioningOverride, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Replayer

from holdfast import Effect, Holdfast, HoldfastPlugin, ModelChoice, Run, ScriptedReply, SessionInput, TurnInput
from holdfast.names import SessionSignal
from holdfast.testing import FakeTool, build_request, wait_until
from holdfast.workers.lookup import task_queues
from holdfast.workers.versions import deployments
from holdfast.workers.versions.check_versions import announce_version
from holdfast.workers.versions.deployments import Version, claim_current, fetch_deployment, is_known
from holdfast.workflows import workflow_run
from tests.support.conversations import idle, runs, spoken
from tests.support.engine import Engine
from tests.support.versions import make_current, run_temporal, versioned, versions_in, wake_sessions
from tests.support.waiting import waiting


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ECHO = FakeTool("echo", _echo, safe=True, effect=Effect.READ)
ASK = FakeTool("ask", _echo, asks=True)


@pytest.fixture
def deployment() -> str:
    return f"d-{uuid4().hex[:8]}"


async def replayed(engine: Engine, id: str) -> None:
    """Every run of a workflow, on the code of today; an error if it takes other steps."""
    description = await engine.client.get_workflow_handle(id).describe()
    first = description.raw_description.workflow_execution_info.first_run_id
    for run_id in {first, description.run_id}:
        history: WorkflowHistory = await engine.client.get_workflow_handle(id, run_id=run_id).fetch_history()
        await Replayer(workflows=[], plugins=[HoldfastPlugin(engine.settings)]).replay_workflow(history)


async def test_S42_a_session_goes_over_when_it_is_told_and_its_history_replays(both: Engine, deployment: str) -> None:
    script = tuple(ScriptedReply(text=f"Answer {number}.") for number in (1, 2))
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=script)))
    session = both.holdfast.get_session()
    async with versioned(both, deployment, "v1", ECHO, ASK):
        sent = await session.send("First", start=start)
        await session.get_turn(sent.turn).result()
        await wait_until(lambda: idle(session))
        async with versioned(both, deployment, "v2", ECHO, ASK):
            assert (await fetch_deployment(both.client, deployment, both.queue)).find_version("v1") == Version(
                "v1", 1, 1
            )
            await wake_sessions(both, deployment, "v1")

            async def moved() -> bool:
                return await versions_in(both, session.id) == {"v2"}

            await wait_until(moved)
            again = await session.send("Second")
            await (await session.wait_for_turn(again.turn)).result()
            assert await versions_in(both, again.turn) == {"v2"}, "its turns begin on the version it is on"
            assert (await spoken(session))[-2:] == ["user: Second", "assistant: Answer 2."]
            await session.close()
            await session.result()
    await replayed(both, session.id)


async def test_S42_a_session_that_has_continued_on_its_version_still_goes_over(engine: Engine, deployment: str) -> None:
    script = tuple(ScriptedReply(text=f"Answer {number}.") for number in range(1, 5))
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=script)))
    session = engine.holdfast.get_session()
    async with versioned(engine, deployment, "v1", ECHO, ASK):
        with patch.object(workflow_run, "EVENT_LIMIT", 20):
            for number in range(3):
                sent = await session.send(f"Message {number}", start=start)
                await (await session.wait_for_turn(sent.turn)).result()
                await wait_until(lambda: idle(session))
        await wait_until(lambda: runs(engine.client, session, 2))
        async with versioned(engine, deployment, "v2", ECHO, ASK):
            sent = await session.send("One more")
            await (await session.wait_for_turn(sent.turn)).result()
            assert await versions_in(engine, sent.turn) == {"v2"}
            assert (await session.fetch_view()).turns == 4


async def test_S42_a_session_that_came_back_from_an_upgrade_that_was_taken_back_goes_over_to_the_next(
    engine: Engine, deployment: str
) -> None:
    script = tuple(ScriptedReply(text=f"Answer {number}.") for number in (1, 2))
    session = engine.holdfast.get_session()
    async with versioned(engine, deployment, "v1", ECHO):
        sent = await session.send("First", start=SessionInput(turn=TurnInput(model=ModelChoice(script=script))))
        await session.get_turn(sent.turn).result()
        await wait_until(lambda: idle(session))
        first = (await engine.client.get_workflow_handle(session.id).describe()).run_id
        async with versioned(engine, deployment, "v2", ECHO, current=False):
            pass
        await make_current(engine, deployment, "v2", "--ignore-missing-task-queues", "--allow-no-pollers")
        await wake_sessions(engine, deployment, "v1")

        async def left() -> bool:
            return (await engine.client.get_workflow_handle(session.id).describe()).run_id != first

        await wait_until(left)
        await make_current(engine, deployment, "v1", "--ignore-missing-task-queues")

        async def back() -> bool:
            return await versions_in(engine, session.id) == {"v1"}

        await wait_until(back)
        async with versioned(engine, deployment, "v3", ECHO):
            again = await session.send("Second")
            await (await session.wait_for_turn(again.turn)).result()

            async def moved() -> bool:
                return await versions_in(engine, session.id) == {"v3"}

            await wait_until(moved)
            assert (await spoken(session))[-2:] == ["user: Second", "assistant: Answer 2."]
            await session.close()
            await session.result()
    await replayed(engine, session.id)


async def test_S42_a_turn_that_continues_as_new_stays_with_its_version(engine: Engine, deployment: str) -> None:
    with patch.object(workflow_run, "EVENT_LIMIT", 20):
        async with versioned(engine, deployment, "v1", ECHO, ASK):
            batches = tuple((build_request("ask", say=number),) for number in range(4))
            turn = await engine.start(TurnInput(batches=batches))
            await wait_until(lambda: waiting(turn))
            async with versioned(engine, deployment, "v2", ECHO, ASK):
                for number in range(1, 5):

                    async def asked(number: int = number) -> Any:
                        view = await turn.fetch_view(live=False)
                        return next((one for one in view.approvals if f"/b{number}c" in one.approval_id), None)

                    item = await wait_until(asked)
                    await engine.holdfast.approve(item.approval_id)
                async with asyncio.timeout(60):
                    result = await turn.result()
                assert len(result.runs) > 0, "it has continued as new"
                assert await versions_in(engine, turn.id) == {"v1"}
                assert await versions_in(engine, turn.id, result.runs[0].run_id) == {"v1"}
        await replayed(engine, turn.id)


async def test_S36_a_delegated_turn_runs_on_the_version_of_the_turn_that_asked(engine: Engine, deployment: str) -> None:
    model = ModelChoice(
        script=(
            ScriptedReply(calls=(build_request("ask", say="may I?"),)),
            ScriptedReply(calls=(build_request("delegate", prompt="one"),)),
            ScriptedReply(text="Done."),
        ),
        delegated={"one": (ScriptedReply(calls=(build_request("echo", say=1),)), ScriptedReply(text="One is done."))},
    )
    async with versioned(engine, deployment, "v1", ECHO, ASK):
        turn = await engine.start(TurnInput(prompt="Go", model=model))
        view = await wait_until(lambda: waiting(turn))
        async with versioned(engine, deployment, "v2", ECHO, ASK):
            await engine.holdfast.approve(view.approvals[0].approval_id)
            async with asyncio.timeout(60):
                result = await turn.result()
    assert [response.text for response in result.responses][-1] == "One is done."
    assert await versions_in(engine, turn.id) == {"v1"}
    assert await versions_in(engine, f"{turn.id}~b2c1") == {"v1"}


async def test_the_first_of_two_that_claim_is_current(engine: Engine, deployment: str) -> None:
    async with (
        versioned(engine, deployment, "v1", ECHO, ASK, current=False),
        versioned(engine, deployment, "v2", ECHO, ASK, current=False),
    ):
        first, second = await asyncio.gather(
            claim_current(engine.client, deployment, "v1"), claim_current(engine.client, deployment, "v2")
        )
        assert first == second
        assert (await fetch_deployment(engine.client, deployment, engine.queue)).current == first


async def test_a_claim_that_the_server_goes_on_refusing_ends_with_its_reason(engine: Engine, deployment: str) -> None:
    with patch.object(deployments, "JOIN_SECONDS", 1), pytest.raises(RPCError, match=deployment):
        async with asyncio.timeout(30):
            await claim_current(engine.client, deployment, "v1")


async def test_a_worker_says_that_it_gets_nothing_and_does_not_push_workers_without_a_version_aside(
    engine: Engine, deployment: str
) -> None:
    said: list[str] = []
    async with engine.worker(ASK), versioned(engine, deployment, "v1", ECHO, ASK, current=False) as settings:
        await announce_version(engine.client, settings, said.append, claims=True)
        assert (await fetch_deployment(engine.client, deployment, engine.queue)).current is None
        turn = await engine.start(TurnInput(batches=((build_request("ask"),),)))
        await wait_until(lambda: waiting(turn))
        assert await versions_in(engine, turn.id) == {""}
        await make_current(engine, deployment, "v1")
        view = await wait_until(lambda: waiting(turn))
        await engine.holdfast.approve(view.approvals[0].approval_id)
        await turn.result()
        assert "v1" in await versions_in(engine, turn.id), "what had no version goes on with the current one"
    assert len(said) == 1
    assert "workers without a version get new turns" in said[0]
    assert "--build-id v1" in said[0]


async def test_a_clock_that_is_ahead_pushes_no_worker_without_a_version_aside(engine: Engine, deployment: str) -> None:
    said: list[str] = []
    async with engine.worker(ASK), versioned(engine, deployment, "v1", ECHO, ASK, current=False) as settings:
        turn = await engine.start(TurnInput(batches=((build_request("ask"),),)))
        await wait_until(lambda: waiting(turn))
        with patch.object(
            task_queues, "ALIVE_PERIOD", -timedelta(minutes=10)
        ):  # as everybody looks to a clock that is ahead
            await announce_version(engine.client, settings, said.append, claims=True)
        assert (await fetch_deployment(engine.client, deployment, engine.queue)).current is None
        await turn.cancel()
        await turn.result()
    assert "polled a few minutes ago" in said[0]
    assert "--build-id v1" in said[1]


async def test_a_version_that_lacks_a_task_queue_is_not_made_current(engine: Engine, deployment: str) -> None:
    """A tool may live on a queue of its own: its calls would go to whoever has no version there."""
    gpu = copy(engine)
    gpu.queue = f"{engine.queue}-gpu"
    async with (
        versioned(engine, deployment, "v1", ECHO, current=False),
        versioned(gpu, deployment, "v1", ECHO),
        versioned(engine, deployment, "v2", ECHO, current=False),
    ):
        turn = await Holdfast(engine.client, task_queue=gpu.queue).start(TurnInput(batches=((build_request("echo"),),)))
        await turn.result()
        words = ("worker", "deployment", "set-current-version", "--deployment-name", deployment, "--build-id", "v2")
        code, said = await run_temporal(engine.address, *words, "--yes")
        assert (code != 0, "missing active task queues" in said) == (True, True), said


async def test_what_no_worker_has_named_has_no_versions(engine: Engine, deployment: str) -> None:
    assert not await is_known(engine.client, deployment, "v1")
    assert (await fetch_deployment(engine.client, deployment, engine.queue)).versions == ()


async def test_a_version_is_not_stuck_whose_workers_are_on_another_task_queue(engine: Engine, deployment: str) -> None:
    later = datetime.now(UTC) + timedelta(minutes=2)
    async with versioned(engine, deployment, "v1", ASK):
        turn = await engine.start(TurnInput(batches=((build_request("ask"),),)))
        await wait_until(lambda: waiting(turn))
        [seen] = (await fetch_deployment(engine.client, deployment, "another-queue")).versions
        assert (seen.open, seen.workers) == (1, 1)
        [seen] = (await fetch_deployment(engine.client, deployment, engine.queue, later)).versions
        assert (seen.open, seen.workers) == (1, 0), "as it looks when nobody has polled for two minutes"
        await turn.cancel()
        await turn.result()


async def test_workflows_of_others_hold_a_version_too(engine: Engine, deployment: str) -> None:
    async with versioned(engine, deployment, "v1", ECHO):
        theirs = await engine.client.start_workflow(
            "somebodys.own",
            id=f"own-{engine.queue}",
            task_queue=engine.queue,
            versioning_override=PinnedVersioningOverride(WorkerDeploymentVersion(deployment, "v1")),
        )

        async def counted() -> bool:
            [seen] = (await fetch_deployment(engine.client, deployment, engine.queue)).versions
            return seen.open == 1

        await wait_until(counted)
        await theirs.terminate()


async def test_without_versions_a_session_that_is_told_to_move_stays_where_it_is(engine: Engine) -> None:
    start = SessionInput(turn=TurnInput(model=ModelChoice(script=(ScriptedReply(text="Hello."),))))
    session = engine.holdfast.get_session()
    async with engine.worker():
        sent = await session.send("Hello", start=start)
        await session.get_turn(sent.turn).result()
        await wait_until(lambda: idle(session))
        await engine.client.get_workflow_handle(session.id).signal(SessionSignal.MOVE)
        await session.close()
        await session.result()
    history = await engine.history(session)
    assert "WORKFLOW_EXECUTION_CONTINUED_AS_NEW" not in history
    assert history.count("WORKFLOW_EXECUTION_SIGNALED") == 1
