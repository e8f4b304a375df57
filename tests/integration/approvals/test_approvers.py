"""Whose word counts: signatures, roles, two people, not one's own turn; and what a forger gets (S22, S45)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from holdfast import ApprovalView, BadInput, Decision, DecisionRefused, Holdfast, HoldfastPlugin, Turn, TurnInput
from holdfast.client.signing_keys import Signer
from holdfast.domain.approvals.approval import Approver, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.approvals.signing import format_public_key, sign_decision
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.server import temporal_command
from tests.support.waiting import asked, waiting

ANA, BEN, EVE = (Ed25519PrivateKey.generate() for _ in range(3))


def _approver(name: str, key: Ed25519PrivateKey | None, *roles: str) -> Approver:
    return Approver(name=name, key=format_public_key(key.public_key()) if key else None, roles=roles)


KEYED = (_approver("ana", ANA, "release"), _approver("ben", BEN))
MADE = build_request("shell", command="touch made")


def _with_keys(engine: Engine, rules: str = "", approvers: tuple[Approver, ...] = KEYED) -> None:
    engine.with_rules(rules, approvers=approvers)


def _as(engine: Engine, name: str, key: Ed25519PrivateKey) -> Holdfast:
    return Holdfast(engine.client, task_queue=engine.queue, signer=Signer(name, key))


async def _item(turn: Turn) -> ApprovalView:
    item: ApprovalView = (await wait_until(lambda: waiting(turn))).approvals[0]
    return item


def _decision(item: ApprovalView, **more: Any) -> Decision:
    body = {"approval_id": item.approval_id, "digest": item.digest, "outcome": "proceed_once", "by": "ana", **more}
    return Decision.model_validate(body)


async def test_S22_with_keys_only_a_signed_decision_counts_and_access_to_the_namespace_approves_nothing(
    engine: Engine,
) -> None:
    _with_keys(engine)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        item = await _item(turn)
        plain = _decision(item)
        old = sign_decision(_decision(item, expires=datetime.now(UTC) - timedelta(seconds=1)), ANA)
        elsewhere = sign_decision(_decision(item, approval_id="other/b1c1/1"), ANA)
        moved = elsewhere.model_copy(update={"approval_id": item.approval_id})
        before = await engine.recorded(turn)
        for decision, code in (
            (plain, "unsigned"),
            (sign_decision(plain, EVE), "unknown_key"),
            (sign_decision(plain, BEN), "other_name"),
            (sign_decision(plain, ANA).model_copy(update={"note": "and more"}), "bad_signature"),
            (moved, "bad_signature"),
            (elsewhere, "unknown_approval"),
            (old, "expired_decision"),
        ):
            with pytest.raises(DecisionRefused) as refusal:
                await engine.holdfast.get_turn(turn.id).decide(decision)
            assert refusal.value.code == code
        assert await engine.recorded(turn) == before, "as updates they leave no trace"
        for decision in (plain, sign_decision(plain, EVE), moved, old):
            await engine.client.get_workflow_handle(turn.id).signal("decide", decision)
        assert (await _item(turn)).approval_id == item.approval_id, "as signals they change nothing"
        await _as(engine, "ana", ANA).approve(item.approval_id, digest=item.digest)
        assert (await turn.result()).responses[0].status == "success"
    assert (engine.workspace / "made").exists()


async def test_S22_the_executing_worker_refuses_what_is_unsigned_whatever_its_input_says(engine: Engine) -> None:
    _with_keys(engine)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        item = await _item(turn)
        call = await turn.fetch_call("b1c1")
        await turn.cancel()
        await turn.result()
    assert call.bound is not None
    plain = _decision(item)
    offer = call.confirmation.offers[0]  # type: ignore[union-attr]
    always = _decision(item, outcome="proceed_always", scope=offer.scope)
    wide = _decision(item, outcome="proceed_always_tool", scope=Scope(tool="*"))

    def grant(decision: Decision, scope: Scope = offer.scope) -> Grant:
        return Grant(id="g1", scope=scope, covers="", decision=decision, given_at=datetime.now(UTC))

    tries: list[dict[str, Any]] = [
        {},
        {"mode": "yolo"},
        {"expired": True},
        {"decision": plain},
        {"approvals": (plain,)},
        {"approvals": (sign_decision(plain, EVE),)},
        {"approvals": (sign_decision(plain, ANA), sign_decision(plain, EVE))},
        {"approvals": (sign_decision(_decision(item, approval_id="another/b1c1/1"), ANA),)},
        {"grants": (grant(always),)},
        {"grants": (grant(sign_decision(always, EVE)),)},
        {"grants": (grant(wide, Scope(tool="*")),)},
        {"grants": (grant(sign_decision(always, ANA), Scope(tool="*")),)},
        {"grants": (grant(sign_decision(always.model_copy(update={"approval_id": "another/b1c1/1"}), ANA)),)},
    ]
    for forged in tries:
        outcome = await engine.executed(turn_id=turn.id, call_id="b1c1", bound=call.bound, **forged)
        assert outcome.kind == "reconsider", forged
    assert not (engine.workspace / "made").exists()
    for real in ({"approvals": (sign_decision(plain, ANA),)}, {"grants": (grant(sign_decision(always, ANA)),)}):
        outcome = await engine.executed(turn_id=turn.id, call_id="b1c1", bound=call.bound, **real)
        assert outcome.kind == "finished", real


async def test_S22_forged_replayed_and_concurrent_decisions_by_the_stock_command(engine: Engine) -> None:
    _with_keys(engine)

    async def send(body: object) -> None:
        words = [temporal_command(), "workflow", "signal", "--workflow-id", turn.id, "--name", "decide"]
        words += ["--address", engine.address, "--input", json.dumps(body)]
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
        assert await asyncio.wait_for(process.wait(), 30) == 0

    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),), keep_open=True))
        item = await _item(turn)
        plain = _decision(item)
        for forged in (
            plain.model_dump(mode="json"),
            {**plain.model_dump(mode="json"), "signature": "A" * 88, "signer": "0" * 16},
            {"approval_id": item.approval_id, "outcome": "yes", "digest": item.digest},
            ["garbage"],
            None,
        ):
            await send(forged)
        assert (await _item(turn)).approval_id == item.approval_id
        good = sign_decision(_decision(item, id="one"), ANA).model_dump(mode="json", exclude_defaults=True)
        no = sign_decision(_decision(item, id="two", outcome="cancel", by="ben"), BEN).model_dump(
            mode="json", exclude_defaults=True
        )
        await asyncio.gather(send(good), send(good), send(no))
        first = await wait_until(lambda: _ended(turn, "b1c1"))
        await turn.submit([MADE])
        again = await wait_until(lambda: asked(turn, "b2c1", 1))
        await send(good)  # played again: it is for the first call alone
        await send({**good, "approval_id": again.approvals[0].approval_id})
        assert (await _item(turn)).approval_id == again.approvals[0].approval_id
        await turn.cancel()
    assert first.status in ("success", "cancelled"), "exactly one of them counted"


async def _ended(turn: Turn, call_id: str) -> Any:
    call = await turn.fetch_call(call_id)
    return call if call.is_terminal else None


async def test_S22_a_turn_by_hand_with_grants_of_its_own_making_is_no_turn(engine: Engine) -> None:
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.turn",
            {"batches": [[MADE.model_dump()]], "mode": "yolo", "grants": [{"scope": {"tool": "*"}}]},
            id=f"by-hand-{engine.queue}",
            task_queue=engine.queue,
        )
        with pytest.raises(Exception, match="Workflow execution failed"):
            await handle.result()
    assert not (engine.workspace / "made").exists()


async def test_S24_a_signed_standing_answer_counts_for_its_scope(engine: Engine) -> None:
    _with_keys(engine)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE, MADE),)))
        item = await _item(turn)
        with pytest.raises(DecisionRefused) as refusal:
            await turn.decide(sign_decision(_decision(item, outcome="proceed_always"), ANA))
        assert refusal.value.code == "scope_not_signed"
        await _as(engine, "ana", ANA).decide(item.approval_id, "proceed_always")
        assert [response.status for response in (await turn.result()).responses] == ["success", "success"]


TWO = '[[rule]]\ndecision = "ask"\ncommand = "touch **"\napprovals = 2\n'


async def test_S22_two_people_must_approve_and_one_of_them_twice_is_one(both: Engine) -> None:
    both.with_rules(TWO)
    async with both.worker():
        turn = await both.start(TurnInput(batches=((MADE,),)))
        item = await _item(turn)
        assert item.offers == ()
        taken = await both.holdfast.approve(item.approval_id, by="ana")
        assert taken is not None
        assert taken.status == "awaiting_approval"
        with pytest.raises(DecisionRefused) as refusal:
            await both.holdfast.approve(item.approval_id, by="ana")
        assert refusal.value.code == "already_approved"
        assert (await _item(turn)).approved_by == ("ana",)
        await both.holdfast.approve(item.approval_id, by="ben")
        assert (await turn.result()).responses[0].status == "success"
        call = await turn.fetch_call("b1c1")
        notes = [event.note for event in (await turn.fetch_events()).events if event.note]
    assert [decision.by for decision in call.approvals] == ["ana", "ben"]
    assert notes == ["1 of 2 approvals"]
    alone = await both.executed(turn_id=turn.id, call_id="b1c1", bound=call.bound, approvals=call.approvals[:1])
    assert alone.kind == "reconsider"


async def test_S22_one_of_two_can_refuse_and_a_change_needs_both_anew(engine: Engine) -> None:
    engine.with_rules(TWO)
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),)))
        item = await _item(turn)
        await engine.holdfast.approve(item.approval_id, by="ana")
        with pytest.raises(DecisionRefused) as refusal:
            await engine.holdfast.approve(item.approval_id, by="ben", content="touch other")
        assert refusal.value.code == "needs_others"
        await engine.holdfast.decide(item.approval_id, "modify", by="ben", content="touch other")
        again = (await wait_until(lambda: asked(turn, "b1c1", 2))).approvals[0]
        assert again.approved_by == ()
        await engine.holdfast.approve(again.approval_id, by="ben")
        await engine.holdfast.deny(again.approval_id, by="ana")
        assert (await turn.result()).responses[0].status == "cancelled"


async def test_S45_a_rule_can_want_a_role_or_somebody_other_than_the_requester(engine: Engine) -> None:
    rules = '[[rule]]\ndecision = "ask"\ncommand = "touch **"\nrole = "release"\nnot_requester = true\n'
    _with_keys(engine, rules, (*KEYED, _approver("cyd", EVE, "release")))
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((MADE,),), requester="ana"))
        item = await _item(turn)
        for name, key, code in (("ben", BEN, "wrong_role"), ("ana", ANA, "own_turn")):
            with pytest.raises(DecisionRefused) as refusal:
                await _as(engine, name, key).approve(item.approval_id)
            assert refusal.value.code == code
        await _as(engine, "cyd", EVE).approve(item.approval_id)
        assert (await turn.result()).responses[0].status == "success"


async def test_S29_a_role_that_too_few_hold_is_an_error_before_anything_waits_for_it(engine: Engine) -> None:
    rules = '[[rule]]\ndecision = "ask"\ncommand = "touch **"\nrole = "release"\napprovals = 2\n'
    _with_keys(engine, rules)
    with pytest.raises(BadInput, match="demands 2 approvers with the role 'release', and 1 of the"):
        HoldfastPlugin(engine.settings).build_activities(engine.client)


async def test_S22_every_decision_has_an_actor(engine: Engine) -> None:
    engine.with_rules('[[rule]]\nname = "never"\ndecision = "deny"\ncommand = "reboot"\n')
    async with engine.worker():
        batch = (
            build_request("list_directory"),
            build_request("shell", command="reboot"),
            build_request("shell", command="true"),
            build_request("shell", command="false"),
        )
        turn = await engine.start(TurnInput(batches=(batch,), approval_seconds=6))
        items = (await wait_until(lambda: waiting(turn, 2))).approvals
        await engine.holdfast.approve(items[0].approval_id, by="ana")
        await turn.result()
        actors = [(await turn.fetch_call(f"b1c{place}")).actor for place in range(1, 5)]
    assert [str(actor) for actor in actors] == [
        "policy: default: reads-proceed",
        "policy: user: never",
        "ana",
        "runtime: deadline",
    ]
