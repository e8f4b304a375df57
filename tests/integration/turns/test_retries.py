"""Tools whose failures pass by themselves are tried again; tools hear of the decision that lets them run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import BadInput, DecisionNotice, Effect, Retries, Run, ToolFailure, TurnInput, tool
from holdfast.activities.registry.registry import Registry
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting


def failing(times: int, error: Exception, retries: Retries, effect: Effect = Effect.READ) -> tuple[FakeTool, list[int]]:
    """A tool that fails so often before it succeeds, and how often it was called."""
    calls: list[int] = []

    async def body(arguments: dict[str, Any], run: Run) -> str:
        calls.append(len(calls) + 1)
        run.write(f"attempt {len(calls)}\n")
        if len(calls) <= times:
            raise error
        return "done"

    made = FakeTool("flaky", body, effect=effect)
    made.retries = retries
    return made, calls


QUICK = Retries(on=(ConnectionError, "rate_limited"), attempts=3, wait_seconds=0)


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), ToolFailure("rate_limited", "slow down")])
async def test_a_read_is_tried_again_after_a_failure_that_passes(engine: Engine, error: Exception) -> None:
    made, calls = failing(2, error, QUICK)
    async with engine.worker(made):
        turn = await engine.start(TurnInput(batches=((build_request("flaky"),),)))
        [response] = (await turn.result()).responses
        view = await turn.fetch_view()
    assert (response.status, response.text, len(calls)) == ("success", "done", 3)
    assert view.batch is None or view.batch.calls[0].attempts == 3
    assert (await engine.history(turn)).count("ACTIVITY_TASK_SCHEDULED") == 1


async def test_a_failure_that_does_not_pass_ends_the_call_at_once_or_after_the_last_attempt(engine: Engine) -> None:
    once, once_calls = failing(9, ValueError("wrong"), QUICK)
    often, often_calls = failing(9, ConnectionError("down"), QUICK)
    often.name = "often"
    async with engine.worker(once, often):
        turn = await engine.start(TurnInput(batches=((build_request("flaky"), build_request("often")),)))
        result = await turn.result()
        record = await turn.fetch_call("b1c2")
    assert [response.error.type for response in result.responses if response.error] == ["ValueError", "ConnectionError"]
    assert (len(once_calls), len(often_calls), record.attempts) == (1, 3, 3)


async def test_a_viewer_sees_the_attempt_and_why_the_one_before_failed(engine: Engine) -> None:
    made, _ = failing(1, ConnectionError("down for a moment"), Retries(on=(ConnectionError,), wait_seconds=30))
    async with engine.worker(made):
        turn = await engine.start(TurnInput(batches=((build_request("flaky"),),)))

        async def second() -> Any:
            batch = (await turn.fetch_view()).batch
            return batch.calls[0] if batch and batch.calls[0].attempts == 2 else None

        call = await wait_until(second)
        assert call.last_failure == "down for a moment"
        await turn.cancel()
        assert [response.status for response in (await turn.result()).responses] == ["cancelled"]


def test_a_tool_that_must_run_once_cannot_have_retries() -> None:
    made, _ = failing(0, ValueError(), QUICK, Effect.ONCE)
    with pytest.raises(BadInput, match="must run once"):
        Registry([made])
    for wrong in (Retries(on=(), attempts=3), Retries(on=(OSError,), attempts=1), Retries(on=(OSError,), attempts=99)):
        made, _ = failing(0, ValueError(), wrong)
        with pytest.raises(BadInput, match="2 to 10 attempts"):
            Registry([made])


async def test_a_tool_hears_the_decision_on_its_call_before_it_runs(engine: Engine) -> None:
    heard: list[object] = []

    def hear(decision: DecisionNotice) -> None:
        told = (decision.action, decision.by, decision.note, decision.changed, dict(decision.arguments))
        heard.append(told)
        if decision.note == "not like this":
            raise ToolFailure("unhappy", "The note says no.")

    @tool(effect=Effect.ONCE, on_decision=hear)
    async def deploy(target: str) -> str:
        """Deploy."""
        heard.append(target)
        return f"deployed to {target}"

    async with engine.worker(deploy), asyncio.timeout(60):
        calls = tuple((build_request("deploy", target=target),) for target in ("one", "two", "three"))
        turn = await engine.start(TurnInput(batches=calls))
        decisions: list[dict[str, Any]] = [
            {"note": "fine"},
            {"arguments": {"target": "four"}},
            {"note": "not like this"},
        ]
        for decision in decisions:
            [item] = (await wait_until(lambda: waiting(turn))).approvals
            await engine.holdfast.decide(item.approval_id, "proceed_once", digest=item.digest, by="ana", **decision)
        result = await turn.result()
    assert [response.text.splitlines()[-1] for response in result.responses][:2] == [
        "deployed to one",
        "deployed to four",
    ]
    assert result.responses[2].error is not None
    assert result.responses[2].error.type == "unhappy"
    assert heard == [
        ("proceed_once", "ana", "fine", False, {"target": "one"}),
        "one",
        ("proceed_once", "ana", None, True, {"target": "four"}),
        "four",
        ("proceed_once", "ana", "not like this", False, {"target": "three"}),
    ]
