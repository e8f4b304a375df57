"""What counts as a decision, however it arrives, and what is refused without a trace."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast import Decision, DecisionAction, DecisionRefused, Run, Turn, TurnInput, TurnNotFound, TurnView
from holdfast.domain.turn.activity_io import ExecuteInput
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine, new_engine
from tests.support.server import address_of, start_server, temporal_command
from tests.support.waiting import waiting


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ASK = FakeTool("ask", _echo, asks=True)


async def _signal(engine: Engine, turn: Turn, *inputs: str, name: str = "decide") -> int:
    """The stock command, as anybody would use it."""
    arguments = ["workflow", "signal", "--address", engine.address, "--workflow-id", turn.id, "--name", name]
    for input in inputs:
        arguments += ["--input", input]
    process = await asyncio.create_subprocess_exec(
        temporal_command(), *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(30):
        return await process.wait()


async def _asked(engine: Engine, calls: int = 1) -> tuple[Turn, TurnView]:
    turn = await engine.start(TurnInput(batches=(tuple(build_request("ask", say=n) for n in range(calls)),)))
    return turn, await wait_until(lambda: waiting(turn, calls))


def _decision(view: TurnView, place: int = 0, **changes: Any) -> Decision:
    item = view.approvals[place]
    fields = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "yes", "id": uuid4().hex}
    return Decision.model_validate({**fields, **changes})


async def test_S23_a_decision_sent_by_the_stock_temporal_command_counts(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        item = view.approvals[0]
        body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "yes", "by": "shell user"}
        assert await _signal(engine, turn, json.dumps(body)) == 0
        result = await turn.result()
        call = await turn.fetch_call("b1c1")
    assert [response.text for response in result.responses] == ["echo 0"]
    assert call.decision is not None
    assert call.decision.by == "shell user"


async def test_S22_garbage_from_the_stock_command_changes_no_state_and_the_turn_goes_on(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        good = _decision(view).model_dump(mode="json")
        garbage: list[tuple[str, ...]] = [
            (),
            ('"yes"',),
            ("null",),
            ("[1, 2, 3]",),
            ("{}",),
            ('{"outcome": "yes"}',),
            (json.dumps({**good, "outcome": "maybe"}),),
            (json.dumps({**good, "digest": "0" * 64}),),
            (json.dumps({**good, "digest": None}),),
            (json.dumps({**good, "approval_id": "nonsense"}),),
            (json.dumps({**good, "approval_id": f"{turn.id}/b1c1/7"}),),
            (json.dumps({**good, "approval_id": "other-turn/b1c1/1"}),),
            (json.dumps({**good, "surprise": True}),),
            (json.dumps({**good, "note": "x" * 30_000}),),
            (json.dumps(good), json.dumps(good)),
            ("[" * 5_000 + "]" * 5_000,),
        ]
        assert [await _signal(engine, turn, *inputs) for inputs in garbage] == [0] * len(garbage)
        assert await _signal(engine, turn, "1", name="no-such-signal") == 0
        after = await turn.fetch_view(live=False)
        assert after.approvals == view.approvals
        assert after.last_event == view.last_event
        await turn.decide(_decision(view))
        assert (await turn.result()).responses[0].status == "success"


async def test_S22_a_refused_decision_says_why_and_adds_nothing_to_the_history(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine, calls=2)
        before = await engine.recorded(turn)
        good = _decision(view)
        for code, decision in [
            ("other_digest", _decision(view, digest="0" * 64)),
            ("other_digest", _decision(view, digest=view.approvals[1].digest)),
            ("old_revision", _decision(view, approval_id=f"{turn.id}/b1c1/0")),
            ("unknown_approval", _decision(view, approval_id=f"{turn.id}/b1c1/2")),
            ("unknown_approval", _decision(view, approval_id=f"{turn.id}/b1c9/1")),
            ("unknown_approval", _decision(view, approval_id=f"{turn.id}/b2c1/1")),
            ("unknown_approval", _decision(view, approval_id="x/b1c1/1")),
            ("unknown_approval", _decision(view, approval_id="rubbish")),
            ("no_content", _decision(view, outcome="respond")),
        ]:
            with pytest.raises(DecisionRefused) as refusal:
                await turn.decide(decision)
            assert refusal.value.code == code
        assert await engine.recorded(turn) == before
        await turn.decide(good)
        with pytest.raises(DecisionRefused) as refusal:
            await turn.decide(_decision(view))
        assert refusal.value.code == "not_waiting"
        await turn.decide(_decision(view, 1))
        await turn.result()
        with pytest.raises(DecisionRefused):
            await engine.holdfast.approve(view.approvals[0].approval_id)
    with pytest.raises(TurnNotFound):
        await engine.holdfast.approve("no-such-turn/b1c1/1")


async def test_S23_the_same_decision_delivered_in_every_way_counts_once(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine, calls=2)
        handle = engine.client.get_workflow_handle(turn.id)
        decision = _decision(view)
        await asyncio.gather(
            turn.decide(decision),
            turn.decide(decision),
            handle.signal("decide", decision),
            handle.signal("decide", decision),
        )
        moves = [event.after for event in (await turn.fetch_events()).events if event.call == "b1c1"]
        assert moves == ["validating", "awaiting_approval", "scheduled"]
        await turn.decide(_decision(view, 1))
        assert [response.status for response in (await turn.result()).responses] == ["success", "success"]


async def test_S23_contradicting_decisions_at_once_leave_one_outcome(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
        outcomes = await asyncio.gather(
            *(turn.decide(_decision(view, outcome=outcome)) for outcome in ("yes", "no") * 4), return_exceptions=True
        )
        result = await turn.result()
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert len(result.responses) == 1


async def test_S23_with_no_worker_the_decision_goes_by_signal_and_counts_later(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
    taken = await engine.holdfast.approve(view.approvals[0].approval_id, seconds=0.5)
    assert taken is None
    async with engine.worker(ASK):
        assert (await turn.result()).responses[0].status == "success"


async def test_S41_the_inbox_lists_what_waits_without_a_worker_and_forgets_what_was_decided(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn, view = await _asked(engine, calls=25)
        ids = {item.approval_id for item in view.approvals}

        async def listed() -> set[str]:
            return {
                item.approval_id
                for item in await engine.holdfast.list_approvals()
                if item.approval_id.startswith(turn.id)
            }

        async def all_listed() -> bool:
            return await listed() == ids

        await wait_until(all_listed)
        await engine.holdfast.deny(view.approvals[0].approval_id)

        async def one_less() -> bool:
            return await listed() == ids - {view.approvals[0].approval_id}

        await wait_until(one_less)
    assert len(await listed()) >= 20
    async with engine.worker(ASK):
        await turn.cancel()
        await turn.result()

        async def empty() -> bool:
            return not await listed()

        await wait_until(empty)


async def test_S22_a_tool_that_changed_since_its_approval_is_asked_about_again(engine: Engine) -> None:
    async def new_body(arguments: dict[str, Any], run: Run) -> str:
        return "the new one ran"

    changed = FakeTool("ask", new_body, asks=True, description="Does something else now.")
    async with engine.worker(ASK):
        turn, view = await _asked(engine)
    await engine.holdfast.approve(view.approvals[0].approval_id, seconds=0.5)
    async with engine.worker(changed):
        again = await wait_until(lambda: _revision(turn, 2))
        assert again.approvals[0].digest != view.approvals[0].digest
        await engine.holdfast.approve(again.approvals[0].approval_id)
        result = await turn.result()
        starts = [event.after for event in (await turn.fetch_events()).events if event.kind == "call"]
    assert result.responses[0].text == "the new one ran"
    assert starts == [
        "validating",
        "awaiting_approval",
        "scheduled",
        "executing",
        "awaiting_approval",
        "scheduled",
        "executing",
        "success",
    ]


async def _revision(turn: Turn, revision: int) -> TurnView | None:
    view = await turn.fetch_view(live=False)
    return view if any(item.approval_id.endswith(f"/{revision}") for item in view.approvals) else None


@workflow.defn(name="forger")
class Forger:
    """Somebody else's workflow that schedules our executing activity with whatever it likes."""

    @workflow.run
    async def run(self, queue: str, input: ExecuteInput) -> str:
        try:
            await workflow.execute_activity(
                "holdfast.execute",
                input,
                task_queue=queue,
                start_to_close_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityError as error:
            return str(error.cause)
        return "it ran"


async def test_S22_the_executing_activity_runs_nothing_for_a_foreign_workflow(engine: Engine) -> None:
    ran = asyncio.Event()

    async def body(arguments: dict[str, Any], run: Run) -> str:
        ran.set()
        return "ran"

    tool = FakeTool("ask", body, asks=True)
    async with engine.worker(tool):
        turn, view = await _asked(engine)
        bound = (await turn.fetch_call("b1c1")).bound
        assert bound is not None
        forged = ExecuteInput(
            call_id="b1c1", bound=bound, approvals=(_decision(view, outcome=DecisionAction.PROCEED_ONCE),)
        )
        forger = Worker(
            engine.client,
            task_queue=f"{engine.queue}-forger",
            workflows=[Forger],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with forger:
            answer = await engine.client.execute_workflow(
                "forger", args=[engine.queue, forged], id=uuid4().hex, task_queue=f"{engine.queue}-forger"
            )
        assert "only a turn may execute calls" in answer
        assert not ran.is_set()
        await turn.cancel()
        await turn.result()


async def test_S23_when_updates_are_exhausted_decisions_go_by_signal(tmp_path: Path) -> None:
    few = ["--dynamic-config-value", "history.maxTotalUpdates=2"]
    async with await start_server(tmp_path / "temporal.db", few) as server:
        address = address_of(server)
        async with new_engine(address, tmp_path / "engine") as engine, engine.worker(ASK):
            turn, view = await _asked(engine, calls=4)
            for item in view.approvals:
                await engine.holdfast.approve(item.approval_id, seconds=1)
            result = await turn.result()
            history = await engine.history(turn)
    assert [response.status for response in result.responses] == ["success"] * 4
    assert history.count("WORKFLOW_EXECUTION_UPDATE_ACCEPTED") == 2
    assert history.count("WORKFLOW_EXECUTION_SIGNALED") == 2
