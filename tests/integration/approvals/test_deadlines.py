"""Deadlines of approvals: a week passes in a second, and what nobody said is never taken for somebody's word (S28)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import Holdfast, HoldfastPlugin, Mode, Settings, TurnInput
from holdfast.domain.approvals.approval import Deadline
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.server import start_skipping_server
from tests.support.waiting import waiting

WEEK = """
[[rule]]
name = "slow"
decision = "ask"
tool = "shell"
deadline = "7d"
warning = "1d"
on_deadline = "{default}"
"""


@asynccontextmanager
async def _skipping(folder: Path, default: str) -> AsyncIterator[tuple[Holdfast, WorkflowEnvironment]]:
    """A worker on a server where time is skipped whenever a turn does nothing but wait."""
    rules = folder / "policy.toml"
    rules.write_text(WEEK.format(default=default))
    (folder / "workspace").mkdir()
    settings = Settings(data=folder / "data", workspace=folder / "workspace", policy=(rules,), modes=tuple(Mode))
    async with (
        await start_skipping_server(HoldfastPlugin(settings)) as environment,
        Worker(environment.client, task_queue="week"),
    ):
        yield Holdfast(environment.client, task_queue="week"), environment


async def _events(environment: WorkflowEnvironment, turn_id: str) -> list[str]:
    handle = environment.client.get_workflow_handle(turn_id)
    return [event.WhichOneof("attributes") or "" async for event in handle.fetch_history_events()]


async def test_S28_a_week_later_the_default_denies_by_the_runtime(tmp_path: Path) -> None:
    async with _skipping(tmp_path, "deny") as (holdfast, environment):
        calls = tuple(build_request("shell", command=f"touch {name}") for name in "ab")
        turn = await holdfast.start(TurnInput(batches=(calls,)))
        responses = (await turn.result()).responses
        call = await turn.fetch_call("b1c1")
        page = await turn.fetch_events()
        history = await _events(environment, turn.id)
    assert [response.error.type for response in responses if response.error] == ["expired", "expired"]
    assert call.actor is not None
    assert (call.actor.kind, call.decision, call.expired) == ("runtime", None, True)
    assert call.ended_at is not None
    assert call.created_at is not None
    assert timedelta(days=7) <= call.ended_at - call.created_at < timedelta(days=8)
    notes = [event.note for event in page.events if event.call == "b1c1" and event.note]
    assert len(notes) == 1
    assert notes[0].startswith("the deadline is near: ")
    assert [event.actor for event in page.events if event.kind == "call"][-1] == "runtime"
    timers = [kind for kind in history if kind.startswith("timer_started")]
    assert len(timers) == 2, "one for the warning and one for the end, for both calls"
    assert not list((tmp_path / "workspace").iterdir())


async def test_S28_the_default_may_be_to_run(tmp_path: Path) -> None:
    async with _skipping(tmp_path, "allow") as (holdfast, _):
        turn = await holdfast.start(TurnInput(batches=((build_request("shell", command="touch made"),),)))
        [response] = (await turn.result()).responses
        call = await turn.fetch_call("b1c1")
    assert response.status == "success"
    assert (tmp_path / "workspace" / "made").exists()
    assert call.actor is not None
    assert (call.actor.kind, call.decision) == ("runtime", None)


async def test_S28_a_turn_can_say_how_long_it_waits_and_a_rule_that_is_sooner_counts(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "ask"\ntool = "read_file"\ndeadline = "1s"\n')
    (engine.workspace / "a").write_text("x")
    async with engine.worker():
        batch = (build_request("read_file", path="a"), build_request("shell", command="true"))
        turn = await engine.start(TurnInput(batches=(batch,), approval_seconds=2))
        responses = (await turn.result()).responses
        calls = [await turn.fetch_call(f"b1c{place}") for place in (1, 2)]
    assert [response.error.type for response in responses if response.error] == ["expired", "expired"]
    deadlines = [call.confirmation.deadline for call in calls if call.confirmation]
    assert deadlines == [Deadline(seconds=1, warning_seconds=0.1), Deadline(seconds=2, warning_seconds=0.2)]


async def test_S28_a_decision_in_time_ends_the_wait_and_leaves_no_timer(engine: Engine) -> None:
    engine.with_rules(WEEK.format(default="deny"))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        assert item.deadline is not None
        assert item.deadline > datetime.now(UTC) + timedelta(days=6)
        assert item.on_deadline == "deny"
        await engine.holdfast.approve(item.approval_id)
        assert (await turn.result()).responses[0].status == "success"
        events = await engine.history(turn)
    assert events.count("TIMER_STARTED") == events.count("TIMER_CANCELED") == 1


async def test_S28_no_timer_where_there_is_no_deadline(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("shell", command="true"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.approve(item.approval_id)
        await turn.result()
        assert "TIMER_STARTED" not in await engine.history(turn)


async def test_S41_the_inbox_shows_what_is_most_urgent_first(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "ask"\ncommand = "date"\ndeadline = "1h"\nwarning = "59m59s"\n')
    async with engine.worker():
        turns = []
        for command in ("date", "ls"):
            turns.append(await engine.start(TurnInput(batches=((build_request("shell", command=command),),))))
            await wait_until(lambda: waiting(turns[-1]))

        async def urgent() -> list[Any] | None:
            ours = [item for item in await engine.holdfast.list_approvals() if item.approval_id.split("/")[0] in ids]
            return ours if len(ours) == 2 and ours[0].urgent else None

        ids = [turn.id for turn in turns]
        found = await wait_until(urgent)
        assert [item.command for item in found] == ["date", "ls"], "older, and sooner due"
        for turn in turns:
            await turn.cancel()
