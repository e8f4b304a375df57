"""Tools that ask a person in the middle of their run: questions of the inbox, with forms, through crashes (S2, S39)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import DecisionRefused, Effect, Run, Turn, TurnInput, TurnView
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import NeedsAnswer
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import asked, waiting

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "colour": {"type": "string", "enum": ["red", "blue"]},
    },
    "required": ["name"],
}


def _question(text: str, **more: Any) -> Confirmation:
    return Confirmation(kind="question", title=text, question=text, **more)


def _holding(begun: list[str] | None = None, *, effect: Effect = Effect.ONCE, **more: Any) -> FakeTool:
    """Asks where it runs, and waits there."""

    async def body(arguments: dict[str, Any], run: Run) -> str:
        if begun is not None:
            begun.append(run.key)
        run.write("half\n")
        answer = await run.ask(_question("Who are you?", **arguments))
        return f"{answer.action}: {answer.fields or answer.text}"

    return FakeTool("holding", body, effect=effect, questions=True, heartbeat_seconds=2, **more)


def _leaving(runs: list[Any]) -> FakeTool:
    """Ends with a question, and goes on from its state."""

    async def body(arguments: dict[str, Any], run: Run) -> str:
        runs.append(run.state)
        if run.answer is None:
            raise NeedsAnswer(_question("First?"), {"step": 1})
        if run.state == {"step": 1}:
            raise NeedsAnswer(_question("Second?"), {"step": 2, "first": run.answer.text})
        return f"{run.state} {run.answer.action} {run.answer.text}"

    return FakeTool("leaving", body, questions=True, heartbeat_seconds=2)


async def _asked(turn: Turn, revision: int = 1) -> ApprovalView:
    found: TurnView = await wait_until(lambda: asked(turn, "b1c1", revision))
    return next(item for item in found.approvals if item.approval_id.endswith(f"b1c1/{revision}"))


async def test_S39_a_tool_asks_in_the_middle_of_its_run_and_goes_on_with_the_answer(engine: Engine) -> None:
    begun: list[str] = []
    async with engine.worker(_holding(begun)):
        turn = await engine.start(TurnInput(batches=((build_request("holding"),),)))
        item = await _asked(turn)
        assert (item.kind, item.question) == ("question", "Who are you?")
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="Ana")
        [response] = (await turn.result()).responses
    assert (response.status, response.text) == ("success", "accept: Ana")
    assert len(begun) == 1


async def test_S39_an_answer_that_does_not_fit_its_form_is_refused_with_every_reason(engine: Engine) -> None:
    async with engine.worker(_holding()):
        turn = await engine.start(TurnInput(batches=((build_request("holding", form=FORM),),)))
        item = await _asked(turn)
        assert item.form == FORM
        content = '{"age": -1, "colour": "green", "more": 1}'
        with pytest.raises(DecisionRefused) as refused:
            await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content=content)
        for words in ("'name' is missing", "at least 0", "one of 'red', 'blue'", "'more' is not a field of the form"):
            assert words in str(refused.value)
        content = '{"name": "Ana", "age": 7, "colour": "red"}'
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content=content)
        [response] = (await turn.result()).responses
    assert response.text == "accept: {'name': 'Ana', 'age': 7, 'colour': 'red'}"


async def test_S39_a_person_who_will_not_say_is_told_to_the_tool(engine: Engine) -> None:
    async with engine.worker(_holding()):
        turn = await engine.start(TurnInput(batches=((build_request("holding"),),)))
        item = await _asked(turn)
        await engine.holdfast.deny(item.approval_id, digest=item.digest)
        [response] = (await turn.result()).responses
    assert (response.status, response.text) == ("success", "decline: ")


async def test_S17_a_stop_reaches_a_tool_that_waits_for_an_answer(engine: Engine) -> None:
    async with engine.worker(_holding()):
        turn = await engine.start(TurnInput(batches=((build_request("holding"), build_request("holding")),)))
        await _asked(turn)
        await turn.cancel_call("b1c1", "enough")
        item = (await wait_until(lambda: asked(turn, "b1c2", 1))).approvals[0]
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="go on")
        stopped, other = (await turn.result()).responses
    assert (stopped.status, other.status) == ("cancelled", "success")
    assert "half" in stopped.text


async def test_S11_the_clock_of_a_tool_that_waits_for_an_answer_stands_still(engine: Engine) -> None:
    async with engine.worker(_holding(timeout_seconds=2)):
        turn = await engine.start(TurnInput(batches=((build_request("holding"),),)))
        item = await _asked(turn)
        began = asyncio.get_running_loop().time()
        await wait_until(lambda: _after(began + 3))
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="late")
        [response] = (await turn.result()).responses
    assert (response.status, response.text) == ("success", "accept: late")


async def test_a_turn_that_asks_nobody_answers_for_them(engine: Engine) -> None:
    async with engine.worker(_holding(), _leaving([])):
        calls = (build_request("holding"), build_request("leaving"))
        held, left = (await (await engine.start(TurnInput(batches=(calls,), interactive=False))).result()).responses
    assert (held.status, held.text) == ("success", "cancel: ")
    assert left.error is not None
    assert (left.error.type, "First?" in left.error.message) == ("needs_a_person", True)


async def test_S39_a_tool_goes_on_from_its_state_after_every_process_was_replaced(engine: Engine) -> None:
    runs: list[Any] = []
    async with engine.worker(_leaving(runs)):
        turn = await engine.start(TurnInput(batches=((build_request("leaving"),),)))
        first = await _asked(turn)
    await engine.holdfast.decide(first.approval_id, "respond", digest=first.digest, content="one")
    async with engine.worker(_leaving(runs)):
        second = await _asked(turn, 2)
        assert second.question == "Second?"
    async with engine.worker(_leaving(runs)):
        await engine.holdfast.decide(second.approval_id, "respond", digest=second.digest, content="two")
        [response] = (await turn.result()).responses
    assert response.text == "{'step': 2, 'first': 'one'} accept two"
    assert runs == [None, {"step": 1}, {"step": 2, "first": "one"}], "nothing ran twice"


async def test_S31_a_worker_that_ends_while_its_tool_waits_for_an_answer(engine: Engine) -> None:
    """What may be repeated asks again; of what may not somebody is asked whether it ran."""
    for effect, status in ((Effect.READ, "success"), (Effect.ONCE, "error")):
        tool = _holding(effect=effect)
        async with engine.worker(tool):
            turn = await engine.start(TurnInput(batches=((build_request("holding"),),)))
            await _asked(turn)
        async with engine.worker(tool):
            item = await _asked(turn, 2)
            assert item.kind == ("question" if effect is Effect.READ else "outcome_unknown")
            if effect is Effect.READ:
                await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="again")
            else:
                await engine.holdfast.deny(item.approval_id, digest=item.digest)
            [response] = (await turn.result()).responses
        assert response.status == status


async def test_S22_an_old_answer_counts_for_no_later_question(engine: Engine) -> None:
    async with engine.worker(_leaving([])):
        turn = await engine.start(TurnInput(batches=((build_request("leaving"),),)))
        first = await _asked(turn)
        await engine.holdfast.decide(first.approval_id, "respond", digest=first.digest, content="one")
        await _asked(turn, 2)
        with pytest.raises(DecisionRefused, match="revision 2"):
            await engine.holdfast.decide(
                first.approval_id, "respond", digest=first.digest, content="x", decision_id="x"
            )
        await turn.cancel()
        assert (await turn.result()).responses[0].status == "cancelled"


async def test_calls_beside_one_that_asks_go_on_when_they_may(engine: Engine) -> None:
    async def quick(arguments: dict[str, Any], run: Run) -> str:
        return "quick"

    tools = (_holding(safe=True, effect=Effect.READ), FakeTool("quick", quick, safe=True, effect=Effect.READ))
    async with engine.worker(*tools):
        turn = await engine.start(TurnInput(batches=((build_request("holding"), build_request("quick")),)))
        item = await _asked(turn)
        await wait_until(lambda: _ended(turn, "b1c2"))
        assert await waiting(turn)
        await engine.holdfast.decide(item.approval_id, "respond", digest=item.digest, content="Ana")
        assert [response.status for response in (await turn.result()).responses] == ["success", "success"]


async def _after(moment: float) -> bool:
    return asyncio.get_running_loop().time() > moment


async def _ended(turn: Turn, call_id: str) -> bool:
    return (await turn.fetch_call(call_id)).is_terminal
