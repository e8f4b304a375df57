"""Standing answers in real turns: what they cover, what is judged again by them, how they end (S24)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import ApprovalView, DecisionAction, DecisionRefused, RequestRefused, Run, Scope, Turn, TurnInput
from holdfast.activities.policy.saved_grants import remove_grant, save_grant
from holdfast.domain.calls.call import Call
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.waiting import asked, waiting


async def _ok(arguments: dict[str, object], run: Run) -> str:
    return "ok"


def _shell(command: str, **more: Any) -> Any:
    return build_request("shell", command=command, **more)


async def _asked_about(turn: Turn, *calls: str) -> dict[str, ApprovalView]:
    """What waits, once it is exactly these calls."""

    async def look() -> dict[str, ApprovalView] | None:
        view = await turn.fetch_view(live=False)
        found = {item.approval_id.split("/")[-2]: item for item in view.approvals}
        return found if sorted(found) == sorted(calls) else None

    found: dict[str, ApprovalView] = await wait_until(look)
    return found


@pytest.mark.needs("git")
async def test_S24_always_answers_waiting_siblings_that_it_covers_and_no_others(both: Engine) -> None:
    calls = ("git status", "git  status", "git push", "git status -s", "echo x > git status")
    async with both.worker():
        turn = await both.start(TurnInput(batches=(tuple(map(_shell, calls)),)))
        first = (await wait_until(lambda: waiting(turn, 5))).approvals[0]
        assert [offer.covers for offer in first.offers][:1] == ["`git status`, exactly these words"]
        taken = await both.holdfast.decide(first.approval_id, "proceed_always", digest=first.digest, by="ana")
        assert taken is not None
        assert (taken.status, taken.grant) == ("scheduled", "g1")
        await _asked_about(turn, "b1c3", "b1c4", "b1c5")
        second = await turn.fetch_call("b1c2")
        assert (second.status, second.grant, str(second.actor)) == ("scheduled", "g1", "ana")
        [grant] = await turn.fetch_grants()
        assert (grant.used, grant.given_by, grant.covers) == (1, "ana", "`git status`, exactly these words")
        await turn.cancel()
        assert (await turn.result()).status == "cancelled"


async def test_S24_one_file_does_not_cover_another_and_a_whole_tool_covers_both(engine: Engine) -> None:
    def write(name: str) -> Any:
        return build_request("write_file", path=name, content="x")

    async with engine.worker():
        batch = (write("a.txt"), write("./a.txt"), write("b.txt"), write(".git/hooks/pre-commit"))
        turn = await engine.start(TurnInput(batches=(batch,)))
        items = (await wait_until(lambda: waiting(turn, 4))).approvals
        assert items[3].offers == (), "what decides what runs later is asked about each time"
        await engine.holdfast.decide(items[0].approval_id, DecisionAction.PROCEED_ALWAYS)
        await _asked_about(turn, "b1c3", "b1c4")
        await engine.holdfast.decide(items[2].approval_id, "yes_always")
        await _asked_about(turn, "b1c4")
        with pytest.raises(DecisionRefused, match="does not offer this grant"):
            await engine.holdfast.decide(items[3].approval_id, "yes_always")
        await engine.holdfast.deny(items[3].approval_id)
        statuses = [response.status for response in (await turn.result()).responses]
    assert statuses == ["success", "success", "success", "cancelled"]


async def test_S24_a_grant_holds_for_the_batches_after_it_and_only_for_so_many(both: Engine) -> None:
    look = (_shell("echo hi"),)
    async with both.worker():
        turn = await both.start(TurnInput(batches=(look, look * 3), keep_open=True))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await both.holdfast.decide(item.approval_id, "proceed_always", uses=2)
        [left] = (await _asked_about(turn, "b2c3")).values()
        [grant] = await turn.fetch_grants()
        assert grant.used == 2
        await both.holdfast.approve(left.approval_id)
        await turn.finish()
        assert [response.status for response in (await turn.result()).responses] == ["success"] * 4


async def test_S24_a_grant_that_is_spent_keeps_what_it_answered_when_all_is_judged_again(both: Engine) -> None:
    batch = tuple(_shell(f"echo {word}") for word in ("a", "a", "a", "b", "c"))
    async with both.worker():
        turn = await both.start(TurnInput(batches=(batch,)))
        items = (await wait_until(lambda: waiting(turn, 5))).approvals
        await both.holdfast.decide(items[0].approval_id, "proceed_always", uses=1)
        await _asked_about(turn, "b1c3", "b1c4", "b1c5")
        await both.holdfast.deny(items[3].approval_id, remember=True)
        await turn.set_mode("auto_edit")
        await _asked_about(turn, "b1c3", "b1c5")
        await both.holdfast.approve(items[2].approval_id)
        await both.holdfast.approve(items[4].approval_id)
        statuses = [response.status for response in (await turn.result()).responses]
        [grant, _] = await turn.fetch_grants()
    assert statuses == ["success", "success", "success", "cancelled", "success"]
    assert grant.used == 1


async def test_S24_a_grant_ends_when_it_said(engine: Engine) -> None:
    look = (_shell("echo hi"),)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(look,), keep_open=True))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        soon = datetime.now(UTC) + timedelta(seconds=2)
        await engine.holdfast.decide(item.approval_id, "proceed_always", expires=soon)

        async def past() -> bool:
            return datetime.now(UTC) > soon

        await wait_until(past)
        await turn.submit(list(look))
        await wait_until(lambda: asked(turn, "b2c1", 1))
        await turn.cancel()


async def test_S24_a_revoked_grant_covers_nothing_any_more_also_what_is_scheduled_by_it(engine: Engine) -> None:
    batch = (_shell("echo hi"), _shell("echo hi"), _shell("echo other"))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=(batch,)))
        items = (await wait_until(lambda: waiting(turn, 3))).approvals
        await engine.holdfast.decide(items[0].approval_id, "proceed_always")
        await _asked_about(turn, "b1c3")
        assert (await turn.revoke("g1")).covers == "`echo hi`, exactly these words"
        again = await _asked_about(turn, "b1c2", "b1c3")
        assert again["b1c2"].approval_id.endswith("/2")
        with pytest.raises(RequestRefused, match="no grant 'g1'"):
            await turn.revoke("g1")
        await turn.cancel()
        first = (await turn.result()).responses[0]
        assert first.status == "cancelled"


async def test_S24_a_refusal_can_be_remembered_and_comes_before_every_grant(both: Engine) -> None:
    batch = (_shell("echo a"), _shell("echo b"), _shell("echo b"))
    async with both.worker():
        turn = await both.start(TurnInput(batches=(batch, (_shell("echo b"),))))
        items = (await wait_until(lambda: waiting(turn, 3))).approvals
        await both.holdfast.deny(items[1].approval_id, remember=True, by="ana", note="no b")
        [left] = (await _asked_about(turn, "b1c1")).values()
        await both.holdfast.decide(left.approval_id, "proceed_always_tool")
        a, b, other_b, later_b = (await turn.result()).responses
        last = await turn.fetch_call("b2c1")
    assert a.status == "success"
    assert b.error is not None
    assert (b.error.type, b.error.message) == ("refused", "Refused by ana: no b")
    for response in (other_b, later_b):
        assert response.error is not None
        assert (response.status, response.error.type) == ("cancelled", "refused")
        assert response.error.message == (
            "Refused by ana, for every call of this kind (`echo b`, exactly these words): no b"
        )
    assert last.actor is not None
    assert (last.actor.kind, last.actor.name) == ("person", "ana")


@pytest.mark.parametrize(
    ("details", "code"),
    [
        ({"outcome": "proceed_always_server"}, "not_offered"),
        ({"outcome": "proceed_always", "scope": Scope(tool="*")}, "not_offered"),
        ({"outcome": "proceed_always_tool", "scope": Scope(command=("rm",))}, "not_offered"),
        ({"outcome": "cancel", "remember": True, "scope": Scope(tool="*")}, "not_offered"),
        ({"outcome": "proceed_always", "expires": datetime(2020, 1, 1, tzinfo=UTC)}, "expired_decision"),
    ],
)
async def test_S24_only_what_was_offered_can_be_granted(engine: Engine, details: dict[str, Any], code: str) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_shell("echo hi"),),)))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        before = await engine.recorded(turn)
        with pytest.raises(DecisionRefused) as refusal:
            await engine.holdfast.decide(item.approval_id, **details)
        assert refusal.value.code == code
        assert await engine.recorded(turn) == before
        assert await turn.fetch_grants() == ()
        await turn.cancel()


async def test_S24_an_answer_kept_in_a_file_counts_at_once_and_lifts_no_denial(engine: Engine) -> None:
    file = engine.settings.grants_file
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((_shell("echo hi"),),), keep_open=True))
        [item] = (await wait_until(lambda: waiting(turn))).approvals
        await engine.holdfast.decide(item.approval_id, "proceed_always", by="ana")
        name = save_grant(file, (await turn.fetch_grants())[0])
        await turn.finish()
        await turn.result()
        other = await engine.start(TurnInput(batches=((_shell("echo hi"), _shell("echo ho")),), interactive=False))
        kept, denied = (await other.result()).responses
        call = await other.fetch_call("b1c1")
        assert (kept.status, call.rule) == ("success", f"saved grant: {name}")
        assert denied.status == "error"
        remove_grant(file, name)
        last = await engine.start(TurnInput(batches=((_shell("echo hi"),),), interactive=False))
        assert (await last.result()).responses[0].status == "error"


async def test_S24_at_size_one_answer_lets_two_hundred_proceed(engine: Engine) -> None:
    tool = FakeTool("touch", _ok, asks=True, safe=True)
    batch = tuple(build_request("touch", number=number) for number in range(200))
    async with engine.worker(tool):
        turn = await engine.start(TurnInput(batches=(batch,)))
        items = (await wait_until(lambda: waiting(turn, 200), 60)).approvals
        offers = (await turn.fetch_call("b1c1")).confirmation.offers  # type: ignore[union-attr]
        wide = next(offer for offer in offers if offer.outcome is DecisionAction.PROCEED_ALWAYS_TOOL)
        await engine.holdfast.decide(items[0].approval_id, wide.outcome, scope=wide.scope)
        responses = (await turn.result()).responses
        call: Call = await turn.fetch_call("b1c200")
        events = await engine.history(turn)
    assert [response.status for response in responses] == ["success"] * 200
    assert call.grant == "g1"
    assert sum(1 for event in events if event.startswith("WORKFLOW_EXECUTION_UPDATE")) <= 4
