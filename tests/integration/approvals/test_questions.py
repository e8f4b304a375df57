"""`ask_user`: a question in the same inbox as approvals, whose answer is the result."""

from __future__ import annotations

import pytest

from holdfast import DecisionRefused, Turn, TurnInput
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import listed, waiting

OPTIONS = ["red", "green"]


async def _asked(engine: Engine, **more: object) -> tuple[Turn, str, str]:
    call = build_request("ask_user", question="Which colour?\nThink well.", options=OPTIONS, **more)  # type: ignore[arg-type]
    turn = await engine.start(TurnInput(batches=((call, build_request("list_directory")),)))
    [item] = (await wait_until(lambda: waiting(turn, 1))).approvals
    assert (item.kind, item.question, item.options) == ("question", "Which colour?\nThink well.", ("red", "green"))
    return turn, item.approval_id, item.digest


async def test_S37_an_answer_to_a_question_is_its_result(both: Engine) -> None:
    async with both.worker():
        turn, approval, digest = await _asked(both)
        await both.holdfast.decide(approval, "respond", digest=digest, content="blue, if I may")
        asked, listed = (await turn.result()).responses
    assert (asked.status, asked.text) == ("success", "blue, if I may")
    assert listed.status == "success"


async def test_S41_a_question_is_in_the_inbox_and_can_be_answered_while_no_worker_runs(engine: Engine) -> None:
    async with engine.worker():
        turn, approval, digest = await _asked(engine)
    [item] = await listed(engine.holdfast, approval)
    assert (item.kind, item.options) == ("question", ("red", "green"))
    assert await engine.holdfast.decide(approval, "respond", digest=digest, content="green") is None
    async with engine.worker():
        assert (await turn.result()).responses[0].text == "green"


async def test_a_question_is_not_approved_but_answered(engine: Engine) -> None:
    async with engine.worker():
        turn, approval, digest = await _asked(engine, allow_other=False)
        with pytest.raises(DecisionRefused, match="this is a question") as refused:
            await engine.holdfast.approve(approval, digest=digest)
        assert refused.value.code == "needs_answer"
        with pytest.raises(DecisionRefused, match="'red', 'green'") as refused:
            await engine.holdfast.decide(approval, "respond", digest=digest, content="blue")
        assert refused.value.code == "not_an_option"
        await engine.holdfast.decide(approval, "respond", digest=digest, content="red")
        assert (await turn.result()).responses[0].text == "red"


async def test_a_question_that_is_declined_tells_the_model_so(engine: Engine) -> None:
    async with engine.worker():
        turn, approval, digest = await _asked(engine)
        await engine.holdfast.decide(approval, "cancel", digest=digest, note="none of my business", by="me")
        response = (await turn.result()).responses[0]
    assert response.status == "cancelled"
    assert "none of my business" in response.text
