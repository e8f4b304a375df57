"""A turn on a real server, from its calls to its responses; with and without a workflow cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast import CallRequest, ModelChoice, RequestRefused, Run, ScriptedReply, TurnInput, TurnResult
from holdfast.testing import FakeTool, build_request, decide_all, script_model, wait_until
from tests.support.engine import Engine
from tests.support.waiting import done, executing, waiting


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


async def _fail(arguments: dict[str, Any], run: Run) -> str:
    raise LookupError("nothing there")


ECHO = FakeTool("echo", _echo, safe=True)
ASK = FakeTool("ask", _echo, asks=True)
FAIL = FakeTool("fail", _fail)


async def test_S3_every_call_is_answered_once_and_in_order_whatever_happened_to_it(both: Engine) -> None:
    calls = (
        build_request("echo", say="first"),
        build_request("ecko", say="unknown"),
        build_request("read_file", pth="x"),
        build_request("fail"),
        build_request("ask", say="approved"),
        build_request("ask", say="refused"),
        build_request("echo", say="last"),
    )
    async with both.worker(ECHO, ASK, FAIL):
        turn = await both.start(TurnInput(batches=(calls,)))
        await decide_all(both.holdfast, turn, lambda item: "no" if "refused" in item.title else "yes")
        result = await turn.result()
    assert [response.call_id for response in result.responses] == [f"b1c{n}" for n in range(1, 8)]
    assert [response.status for response in result.responses] == [
        "success",
        "error",
        "error",
        "error",
        "success",
        "cancelled",
        "success",
    ]
    kinds = [response.error.type if response.error else None for response in result.responses]
    assert kinds == [None, "tool_not_registered", "invalid_tool_params", "LookupError", None, "refused", None]
    assert 'Did you mean "echo"' in result.responses[1].text


async def test_S4_two_calls_with_one_model_id_are_both_run_and_both_answered(engine: Engine) -> None:
    calls = tuple(CallRequest(tool="echo", arguments={"say": n}, id="same") for n in (1, 2))
    async with engine.worker(ECHO):
        result = await (await engine.start(TurnInput(batches=(calls,)))).result()
    assert [(r.call_id, r.model_id, r.text) for r in result.responses] == [
        ("b1c1", "same", "echo 1"),
        ("b1c2", "same", "echo 2"),
    ]


async def test_S9_nothing_executes_until_every_call_is_ready(both: Engine) -> None:
    async with both.worker(ECHO, ASK):
        turn = await both.start(TurnInput(batches=((build_request("echo", say=1), build_request("ask", say=2)),)))
        view = await wait_until(lambda: waiting(turn))
        assert [call.status for call in view.batch.calls] == ["scheduled", "awaiting_approval"]
        assert "ACTIVITY_TASK_SCHEDULED" not in await both.history(turn)
        await both.holdfast.approve(view.approvals[0].approval_id)
        assert (await turn.result()).status == "completed"
        starts = [event.call for event in (await turn.fetch_events()).events if event.after == "executing"]
    assert starts == ["b1c1", "b1c2"]


async def test_S14_batches_run_one_after_another_and_each_gets_its_own_results(both: Engine) -> None:
    async with both.worker(ECHO, ASK):
        turn = await both.start(TurnInput(batches=((build_request("ask", say="a"),),), keep_open=True))
        second = await turn.submit([build_request("echo", say="b")])
        third = await turn.submit([build_request("echo", say="c")])
        view = await wait_until(lambda: waiting(turn))
        assert view.queued == (second, third)
        withdrawn = await turn.withdraw(third)
        assert [response.status for response in withdrawn.responses] == ["cancelled"]
        with pytest.raises(RequestRefused, match="has started, or never was"):
            await turn.withdraw("b1")
        await both.holdfast.approve(view.approvals[0].approval_id)
        await wait_until(lambda: done(turn, second))
        assert [response.text for response in (await turn.fetch_batch(second)).responses] == ["echo b"]
        await turn.finish()
        result = await turn.result()
    assert [(batch.id, batch.status) for batch in result.batches] == [
        ("b1", "done"),
        ("b2", "done"),
        ("b3", "withdrawn"),
    ]


async def test_an_open_turn_refuses_what_it_cannot_take_and_goes_on(engine: Engine) -> None:
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(keep_open=True))
        before = len(await engine.history(turn))
        with pytest.raises(RequestRefused, match="at least one call"):
            await turn.submit([])
        with pytest.raises(RequestRefused, match="not active"):
            await turn.cancel_call("b9c9")
        with pytest.raises(RequestRefused, match="not active"):
            await turn.cancel_batch("b9")
        assert len(await engine.history(turn)) <= before + 3
        await turn.finish()
        assert await turn.result() == TurnResult(status="completed")
        with pytest.raises(RequestRefused, match="has ended"):
            await turn.finish()


async def test_a_turn_without_anything_to_do_is_refused(engine: Engine) -> None:
    for input, words in [
        (TurnInput(), "at least one batch"),
        (TurnInput(batches=((),)), "at least one call"),
        (TurnInput(prompt="hello"), "needs a model"),
        (TurnInput(model=ModelChoice()), "needs a prompt"),
        (TurnInput(batches=(tuple(build_request("echo") for _ in range(1001)),)), "at most 1000"),
    ]:
        with pytest.raises(RequestRefused, match=words):
            await engine.start(input)


async def test_S16_cancelling_a_turn_stops_what_runs_and_answers_every_call(both: Engine) -> None:
    heard = asyncio.Event()

    async def linger(arguments: dict[str, Any], run: Run) -> str:
        run.write("half of it\n")
        try:
            await asyncio.Event().wait()
        finally:
            heard.set()
        return "never"

    async with both.worker(ECHO, FakeTool("linger", linger)):
        batches = (
            (build_request("echo", say=1), build_request("linger"), build_request("echo", say=2)),
            (build_request("echo", say=3),),
        )
        turn = await both.start(TurnInput(batches=batches))
        await wait_until(lambda: executing(turn, "b1c2"))
        await turn.cancel()
        result = await turn.result()
        assert heard.is_set()
        description = await both.client.get_workflow_handle(turn.id).describe()
    assert description.status is WorkflowExecutionStatus.COMPLETED
    assert (result.status, result.reason) == ("cancelled", "The turn was cancelled")
    assert [response.status for response in result.responses] == ["success", "cancelled", "cancelled", "cancelled"]
    assert result.responses[1].text == "The turn was cancelled\nhalf of it\n"


async def test_S16_cancelling_one_call_leaves_its_siblings_alone(both: Engine) -> None:
    async with both.worker(ECHO, ASK):
        turn = await both.start(TurnInput(batches=((build_request("ask", say=1), build_request("ask", say=2)),)))
        view = await wait_until(lambda: waiting(turn))
        await turn.cancel_call("b1c1", "changed my mind")
        await both.holdfast.approve(view.approvals[1].approval_id)
        result = await turn.result()
    assert [response.status for response in result.responses] == ["cancelled", "success"]
    assert result.responses[0].text == "changed my mind"
    assert result.status == "completed"


async def test_S16_cancelling_a_batch_lets_the_turn_go_on(engine: Engine) -> None:
    async with engine.worker(ECHO, ASK):
        batches = ((build_request("ask", say=1), build_request("ask", say=2)), (build_request("echo", say=3),))
        turn = await engine.start(TurnInput(batches=batches))
        await wait_until(lambda: waiting(turn))
        await turn.cancel_batch("b1")
        result = await turn.result()
    assert [response.status for response in result.responses] == ["cancelled", "cancelled", "success"]
    assert result.status == "completed"


async def test_S7_a_call_that_finishes_before_it_hears_of_the_stop_keeps_its_result(engine: Engine) -> None:
    async def stubborn(arguments: dict[str, Any], run: Run) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    async with engine.worker(FakeTool("stubborn", stubborn)):
        turn = await engine.start(TurnInput(batches=((build_request("stubborn"),),)))
        await wait_until(lambda: executing(turn, "b1c1"))
        await turn.cancel()
        result = await turn.result()
    assert result.status == "cancelled"
    assert [(r.status, r.text) for r in result.responses] == [("success", "done all the same")]


async def test_a_model_turn_goes_from_prompt_to_answer_through_its_batches(both: Engine) -> None:
    model = script_model(
        [build_request("echo", say=1), build_request("ask", say=2)], [build_request("echo", say=3)], "All done."
    )
    async with both.worker(ECHO, ASK):
        turn = await both.start(TurnInput(prompt="Do it", model=model))
        await decide_all(both.holdfast, turn)
        result = await turn.result()
    assert (result.status, result.text) == ("completed", "All done.")
    assert [response.text for response in result.responses] == ["echo 1", "echo 2", "echo 3"]


async def test_a_model_that_stops_answering_ends_the_turn_and_keeps_everything_before(engine: Engine) -> None:
    async with engine.worker(ECHO):
        turn = await engine.start(TurnInput(prompt="Do it", model=script_model([build_request("echo", say=1)])))
        result = await turn.result()
    assert result.status == "failed"
    assert "no reply for step 2" in (result.reason or "")
    assert [response.text for response in result.responses] == ["echo 1"]


async def test_a_model_that_asks_for_too_much_ends_the_turn_with_the_reason(engine: Engine) -> None:
    model = ModelChoice(script=(ScriptedReply(calls=tuple(build_request("echo") for _ in range(1001))),))
    async with engine.worker(ECHO):
        result = await (await engine.start(TurnInput(prompt="Do it", model=model))).result()
    assert result.status == "failed"
    assert "at most 1000 calls" in (result.reason or "")


async def test_S19_a_refusal_can_stop_the_turn(engine: Engine) -> None:
    model = script_model([build_request("ask", say=1), build_request("ask", say=2)], "never said")
    async with engine.worker(ASK):
        turn = await engine.start(TurnInput(prompt="Do it", model=model))
        view = await wait_until(lambda: waiting(turn))
        await engine.holdfast.deny(view.approvals[0].approval_id, note="not today", stop_turn=True, by="tester")
        result = await turn.result()
    assert result.status == "stopped"
    assert result.text is None
    assert [response.text for response in result.responses] == [
        "Refused by tester: not today",
        "tester refused 'ask' and stopped the turn",
    ]


async def test_S21_a_person_can_answer_in_the_tools_place(engine: Engine) -> None:
    async with engine.worker(ASK):
        turn = await engine.start(TurnInput(batches=((build_request("ask", say=1),),)))
        view = await wait_until(lambda: waiting(turn))
        await engine.holdfast.decide(view.approvals[0].approval_id, "respond", content="It is 42.")
        result = await turn.result()
        assert "ACTIVITY_TASK_SCHEDULED" not in await engine.history(turn)
    assert [(r.status, r.text) for r in result.responses] == [("success", "It is 42.")]


async def test_S10_safe_calls_run_side_by_side_and_others_alone(engine: Engine) -> None:
    together = asyncio.Barrier(2)
    running: list[str] = []
    seen: list[set[str]] = []

    async def meet(arguments: dict[str, Any], run: Run) -> str:
        running.append(run.call_id)
        async with asyncio.timeout(30):
            await together.wait()
        seen.append(set(running))
        running.remove(run.call_id)
        return "met"

    async def alone(arguments: dict[str, Any], run: Run) -> str:
        running.append(run.call_id)
        seen.append(set(running))
        running.remove(run.call_id)
        return "alone"

    calls = (
        build_request("meet"),
        build_request("meet"),
        build_request("alone"),
        build_request("meet"),
        build_request("meet"),
    )
    async with engine.worker(FakeTool("meet", meet, safe=True), FakeTool("alone", alone)):
        result = await (await engine.start(TurnInput(batches=(calls,)))).result()
    assert [response.status for response in result.responses] == ["success"] * 5
    assert {"b1c3"} in seen
