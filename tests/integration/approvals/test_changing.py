"""Calls that people change before they run, and people who have them open in an editor (S25, S26)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import ApprovalView, Decision, DecisionRefused, Turn, TurnInput, build_function_response
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import asked, waiting


def _write(path: str = "a.txt", content: str = "one\n") -> Any:
    return build_request("write_file", path=path, content=content)


async def _first(turn: Turn, revision: int = 1) -> ApprovalView:
    view = await wait_until(lambda: asked(turn, "b1c1", revision))
    item: ApprovalView = view.approvals[0]
    return item


async def test_S25_modify_is_validated_and_shown_again_with_a_new_diff_and_revision(both: Engine) -> None:
    async with both.worker():
        turn = await both.start(TurnInput(batches=((_write(),),)))
        before = await _first(turn)
        taken = await both.holdfast.decide(before.approval_id, "modify", content="two\n", by="ana")
        assert taken is not None
        assert taken.status == "awaiting_approval"
        after = await _first(turn, 2)
        assert (after.diff or "").endswith("+two\n")
        assert after.changed_by == ("ana",)
        assert after.digest != before.digest
        with pytest.raises(DecisionRefused) as refusal:
            await both.holdfast.approve(before.approval_id, digest=before.digest)
        assert refusal.value.code == "old_revision"
        await both.holdfast.approve(after.approval_id, digest=after.digest, by="ben")
        [response] = (await turn.result()).responses
    assert (both.workspace / "a.txt").read_text() == "two\n"
    assert response.note == 'ana changed the arguments of this call: content is now "two\\n"'
    assert build_function_response(response).response["note"] == response.note
    assert response.note in response.text


async def test_S25_proceeding_with_other_content_asks_no_second_time(both: Engine) -> None:
    async with both.worker():
        turn = await both.start(TurnInput(batches=((_write(),),)))
        item = await _first(turn)
        arguments = {"path": "b.txt", "content": "three"}
        taken = await both.holdfast.decide(item.approval_id, "proceed_once", arguments=arguments, by="ana")
        assert taken is not None
        assert taken.status in ("scheduled", "executing", "success")
        [response] = (await turn.result()).responses
        call = await turn.fetch_call("b1c1")
    assert (both.workspace / "b.txt").read_text() == "three"
    assert not (both.workspace / "a.txt").exists()
    assert call.revision == 1
    assert response.note is not None
    assert 'path is now "b.txt"' in response.note


@pytest.mark.parametrize(
    ("tool", "change", "words"),
    [
        (_write(), {"arguments": {"path": "../out", "content": "x"}}, "outside"),
        (_write(), {"arguments": {"path": "a.txt"}}, "content"),
        (_write(), {"arguments": {"path": "a.txt", "content": "x", "extra": 1}}, "extra"),
        (_write(), {"arguments": {"path": "secret/x", "content": "x"}}, "Not there."),
        (build_request("shell", command="ls"), {"content": " "}, "blank"),
        (build_request("shell", command="ls"), {"content": "git push"}, "No pushing."),
    ],
)
@pytest.mark.parametrize("outcome", ["modify", "proceed_once"])
async def test_S25_a_change_that_cannot_be_is_refused_and_leaves_everything_as_it_was(
    engine: Engine, tool: Any, change: dict[str, Any], words: str, outcome: str
) -> None:
    engine.with_rules(
        """
        [[rule]]
        decision = "deny"
        path = "secret/**"
        message = "Not there."

        [[rule]]
        decision = "deny"
        command = "git push"
        message = "No pushing."
        """
    )
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((tool,),)))
        item = await _first(turn)
        with pytest.raises(DecisionRefused) as refusal:
            await engine.holdfast.decide(item.approval_id, outcome, **change)
        assert refusal.value.code == "bad_change"
        assert words in str(refusal.value)
        after = await _first(turn)
        assert (after.approval_id, after.digest) == (item.approval_id, item.digest)
        assert words in (after.problem or "")
        await engine.holdfast.deny(item.approval_id, digest=item.digest)
        assert (await turn.result()).responses[0].status == "cancelled"


async def test_S25_a_change_by_signal_counts_and_one_that_cannot_be_is_told_to_whoever_looks(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_write(),),)))
        item = await _first(turn)
        handle = engine.client.get_workflow_handle(turn.id)
        body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "modify"}
        await handle.signal("decide", {**body, "arguments": {"path": "/etc/passwd", "content": "x"}})

        async def told() -> bool:
            return bool((await _first(turn)).problem)

        await wait_until(told)
        await handle.signal("decide", {**body, "content": "good\n"})
        after = await _first(turn, 2)
        assert after.problem is None
        await engine.holdfast.approve(after.approval_id)
        await turn.result()
    assert (engine.workspace / "a.txt").read_text() == "good\n"


async def test_S25_what_cannot_be_edited_says_so(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request("ask_user", question="Why?"),),)))
        item = await _first(turn)
        for change, code in (({"content": "x"}, "needs_answer"), ({"arguments": {"question": "x"}}, "needs_answer")):
            with pytest.raises(DecisionRefused) as refusal:
                await engine.holdfast.decide(item.approval_id, "modify", **change)
            assert refusal.value.code == code
        await turn.cancel()


async def test_S22_the_executing_worker_checks_what_a_change_made_of_what_was_shown(engine: Engine) -> None:
    """A decision that names one text does not cover another, whatever the input of the activity claims."""
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_write(), build_request("shell", command="sleep 30")),)))
        items = (await wait_until(lambda: waiting(turn, 2))).approvals
        await engine.holdfast.decide(items[0].approval_id, "proceed_once", content="as said\n")
        call = await turn.fetch_call("b1c1")
        await turn.cancel()
    assert call.bound is not None
    assert call.shown == {"path": "a.txt", "content": "one\n"}
    [decision] = call.approvals
    forged = call.bound.model_copy(update={"arguments": {"path": "a.txt", "content": "forged\n"}})
    for bound, shown, decided in (
        (forged, call.shown, decision),
        (call.bound, {"path": "a.txt", "content": "other\n"}, decision),
        (call.bound, None, decision),
        (call.bound, call.shown, decision.model_copy(update={"content": "forged\n"})),
    ):
        outcome = await engine.executed(call_id="b1c1", turn_id=turn.id, bound=bound, shown=shown, approvals=(decided,))
        assert outcome.kind == "reconsider", (bound, shown, decided)
    real = await engine.executed(
        call_id="b1c1", turn_id=turn.id, bound=call.bound, shown=call.shown, approvals=(decision,)
    )
    assert real.kind == "finished"


async def test_S25_of_two_changes_at_once_one_counts(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_write(),),)))
        item = await _first(turn)

        async def change(text: str) -> str:
            try:
                await engine.holdfast.decide(item.approval_id, "modify", digest=item.digest, content=text)
            except DecisionRefused as refusal:
                return refusal.code
            return "counted"

        found = sorted(await asyncio.gather(*(change(f"text {number}") for number in range(5))))
        assert found.count("counted") == 1
        assert set(found) <= {"counted", "being_changed", "old_revision"}
        await turn.cancel()


async def test_S25_others_see_who_edits(both: Engine) -> None:
    async with both.worker():
        turn = await both.start(TurnInput(batches=((_write(),),)))
        item = await _first(turn)
        await turn.note_editing(item.approval_id, by="ana")
        assert (await _first(turn)).editing == "ana"

        async def in_the_inbox() -> bool:
            found = [one.editing for one in await both.holdfast.list_approvals() if one.approval_id == item.approval_id]
            return found == ["ana"]

        await wait_until(in_the_inbox)
        await turn.note_editing(item.approval_id, by="ana", seconds=0)
        assert (await _first(turn)).editing is None
        await turn.cancel()


async def test_S26_a_cancelled_edit_keeps_its_diff_also_after_a_change(engine: Engine) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_write(),),)))
        item = await _first(turn)
        await engine.holdfast.decide(item.approval_id, "modify", content="changed\n", by="ana")
        after = await _first(turn, 2)
        await engine.holdfast.deny(after.approval_id)
        [response] = (await turn.result()).responses
    assert (response.display or "").endswith("+changed\n")
    assert response.note is not None


async def test_S25_at_size_a_long_text_is_changed(engine: Engine) -> None:
    long = "line of text\n" * 40_000
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_write(content=long),),)))
        item = await _first(turn)
        await engine.holdfast.decide(item.approval_id, "proceed_once", content=long.upper(), by="ana")
        [response] = (await turn.result()).responses
    assert (engine.workspace / "a.txt").read_text() == long.upper()
    assert len(response.note or "") < 3_000


def test_S21_what_does_not_go_together_is_no_decision() -> None:
    body = {"approval_id": "t/b1c1/1", "digest": "d"}
    for wrong in (
        {"outcome": "modify"},
        {"outcome": "modify", "content": "x", "arguments": {}},
        {"outcome": "proceed_once", "content": "x", "arguments": {}},
        {"outcome": "cancel", "arguments": {}},
        {"outcome": "proceed_once", "remember": True},
        {"outcome": "proceed_once", "scope": {"tool": "x"}},
        {"outcome": "proceed_once", "uses": 1},
        {"outcome": "proceed_always", "uses": 0},
        {"outcome": "proceed_always", "scope": {"tool": "x", "everything": True}},
        {"outcome": "proceed_always", "expires": "2030-01-01T00:00:00"},
        {"outcome": "proceed_always", "stop_turn": True},
    ):
        with pytest.raises(ValueError, match=r"."):
            Decision.model_validate({**body, **wrong})
