"""What whoever reaches the namespace can do with decisions, grants and inputs of their own making (S22, S24, S41)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue, SearchAttributePair, TypedSearchAttributes

from holdfast import Decision, Effect, Run, TurnInput
from holdfast.client.turn_reader import check_digest, fetch_memo
from holdfast.domain.approvals.approval import DecisionAction, Scope, digest_call
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.approvals.signing import sign_decision
from holdfast.domain.calls.call import Call
from holdfast.domain.context import Context
from holdfast.domain.turn.approval_view import ApprovalView, InboxSummary
from holdfast.errors import HoldfastError
from holdfast.names import MEMO_KEY, STATE_ATTRIBUTE, TURN_WORKFLOW
from holdfast.testing import FakeTool, build_request, wait_until
from tests.security.test_one_approval_one_execution import (
    ANA,
    Counted,
    attack,
    attacker,
    input_of,
    item_of,
    queue_of,
    with_keys,
)
from tests.support.engine import Engine
from tests.support.waiting import asked, listed

EVE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LOOKALIKES = (
    "Ana",
    "ana ",
    " ana",
    "аna",
    "an\u0430",
    "ana\u200b",
    "a\u00adna",
    "ＡＮＡ",
    "ana\x00",
    "",
    "ana\u202e",
    "root",
    "owner",
)


def forged(true: Decision, other_turn: str) -> Iterator[tuple[str, Any]]:
    """Bodies that look like the signed decision, and are not it."""
    said = true.model_dump(mode="json", exclude_defaults=True)
    now = datetime.now(UTC)

    def with_(**fields: Any) -> dict[str, Any]:
        return {**said, **fields}

    def signed(key: Ed25519PrivateKey = ANA, /, **fields: Any) -> dict[str, Any]:
        made = sign_decision(Decision.model_validate({**said, **fields}), key)
        return made.model_dump(mode="json", exclude_defaults=True)

    turn, call, revision = true.approval_id.rsplit("/", 2)
    yield "unsigned", {name: value for name, value in said.items() if name not in ("signature", "signer")}
    yield "no signature", {name: value for name, value in said.items() if name != "signature"}
    yield "no signer", {name: value for name, value in said.items() if name != "signer"}
    yield "another key", signed(EVE)
    yield "another key under her id", {**signed(EVE), "signer": true.signer}
    yield "no key", with_(signature="A" * 86 + "==")
    for name, value in {
        "a space in the signature": f"{true.signature} ",
        "a line in the signature": f"{true.signature}\n",
        "no padding": (true.signature or "").rstrip("="),
        "URL-safe": (true.signature or "").replace("+", "-").replace("/", "_") + "x",
        "an empty signature": "",
        "half a signature": (true.signature or "")[:44],
        "two signatures": (true.signature or "") * 2,
    }.items():
        yield name, with_(signature=value)
    for approval in (
        f"{other_turn}/{call}/{revision}",
        f"{turn}/b1c2/{revision}",
        f"{turn}/{call}/2",
        f"{turn}/{call}/0",
        f"{turn}/{call}/01",
        f"{turn}/{call}/1 ",
        f" {turn}/{call}/1",
        f"{turn}/{call}",
        f"{turn}~1/{call}/1",
        f"{turn}/../{turn}/{call}/1",
        f"{turn.upper()}/{call}/1",
        f"{turn}/{call}/１",
        "//",
        "",
    ):
        yield f"the approval {approval!r}", with_(approval_id=approval)
        if approval:
            yield f"the approval {approval!r}, signed", signed(approval_id=approval)
    for digest in ("", "0" * 64, true.digest.upper(), f"{true.digest} ", true.digest[:-1], f"{true.digest}0", "*"):
        yield f"the digest {digest!r}", with_(digest=digest)
        yield f"the digest {digest!r}, signed", signed(digest=digest)
    for by in LOOKALIKES:
        yield f"by {by!r}", with_(by=by)
        yield f"by {by!r}, signed", signed(by=by)
        yield f"by {by!r}, with another key", signed(EVE, by=by)
    changes: tuple[dict[str, Any], ...] = (
        {"outcome": "proceed_always"},
        {"outcome": "proceed_always_tool"},
        {"outcome": "proceed_always_server"},
        {"outcome": "yes_always"},
        {"outcome": "modify", "arguments": {"x": 1}},
        {"arguments": {"x": 1}},
        {"arguments": {}},
        {"content": "x"},
        {"note": "changed"},
        {"id": "another"},
        {"at": now.isoformat()},
        {"at": "9999-12-31T23:59:59+00:00"},
        {"at": "0001-01-01T00:00:00+00:00"},
        {"expires": "9999-12-31T23:59:59+00:00"},
        {"expires": (now - timedelta(seconds=1)).isoformat()},
        {"lasting": "turn"},
        {"scope": {"tool": "*"}, "outcome": "proceed_always"},
        {"outcome": "proceed_always", "uses": 1_000_000},
        {"outcome": "cancel", "remember": True},
        {"outcome": "respond", "content": "done"},
    )
    for fields in changes:
        yield f"changed: {json.dumps(fields)}", with_(**fields)
    for fields in (
        {"scope": {"tool": "*"}, "outcome": "proceed_always"},
        {"scope": {}, "outcome": "proceed_always"},
        {"scope": {"digest": "*"}, "outcome": "proceed_always_tool"},
        {"outcome": "proceed_always"},
        {"expires": (now - timedelta(seconds=1)).isoformat()},
    ):
        yield f"signed: {json.dumps(fields)}", signed(**fields)
    yield (
        "an expired one, made to count longer",
        {**signed(expires=(now - timedelta(days=1)).isoformat()), "expires": None},
    )
    for name, value in {"digest": true.digest, "outcome": "yes", "by": "ana"}.items():
        yield f"{name} in a list", with_(**{name: [value]})
        yield f"{name} as a number", with_(**{name: 1})
    text = json.dumps(said)
    for name, data in {
        "outcome twice": text[:-1] + ', "outcome": "proceed_always"}',
        "digest twice": text[:-1] + f', "digest": "{"0" * 64}"}}',
        "an unknown field": text[:-1] + ', "approved": true}',
        "something after it": text + "{}",
        "a NaN": text[:-1] + ', "uses": NaN}',
        "half a character": text[:-1] + ', "note": "\\ud800"}',
        "deep arguments": text[:-1] + ', "arguments": ' + '{"a":' * 90 + "1" + "}" * 91,
        "a long note": text[:-1] + f', "note": "{"x" * 1_000_000}"}}',
    }.items():
        yield name, RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data.encode()))


async def test_S22_no_forged_decision_counts_by_signal_or_update_and_the_true_one_then_does(engine: Engine) -> None:
    ana, counted, name = with_keys(engine), Counted(Effect.ONCE), f"{engine.queue}-forged"
    stranger = await Client.connect(engine.address)
    async with engine.worker(counted.tool):
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)), turn_id=name)
        item = await item_of(turn)
        true = await ana.prepare_decision(item.approval_id, "yes", note="n", expires=datetime.now(UTC) + timedelta(1))
        handle = stranger.get_workflow_handle(name)
        tries = list(forged(true, "other"))
        assert len(tries) > 120
        for what, body in tries:
            await handle.signal("decide", body)
            with pytest.raises(WorkflowUpdateFailedError):
                pytest.fail(f"{what} counted: {await handle.execute_update('decide', body)}")
        view = await item_of(turn)
        assert (view.approval_id, view.digest, counted.runs) == (item.approval_id, item.digest, 0)
        await handle.signal("decide", true.model_dump(mode="json"))
        assert (await turn.result()).responses[0].text == "ran 1"
        assert counted.runs == 1


def grant(decision: Decision, scope: Scope, **more: Any) -> Grant:
    """As a turn would carry it."""
    return Grant(id="g1", scope=scope, covers="x", decision=decision, given_at=datetime.now(UTC), **more)


async def test_S24_an_answer_for_one_turn_lets_nothing_run_in_another_turn_of_its_session(engine: Engine) -> None:
    ana, counted, name = with_keys(engine), Counted(Effect.READ), f"{engine.queue}-session"
    async with engine.worker(counted.tool), attacker(engine) as client:
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)), turn_id=name)
        item = await item_of(turn)
        call = await turn.fetch_call("b1c1")
        scope = next(offer.scope for offer in item.offers if offer.outcome is DecisionAction.PROCEED_ALWAYS_TOOL)
        details: dict[str, Any] = {"scope": scope}
        for_turn = await ana.prepare_decision(item.approval_id, "proceed_always_tool", lasting="turn", **details)
        for_session = await ana.prepare_decision(item.approval_id, "proceed_always_tool", **details)
        refusal = await ana.prepare_decision(item.approval_id, "cancel", remember=True, **details)
        once = await ana.prepare_decision(item.approval_id, "yes")
        await engine.client.get_workflow_handle(name).terminate()
        wide = Scope(tool="*")

        async def answers(turn_id: str, *grants: Grant) -> list[str]:
            inputs = [input_of(call, grants=(given,), run=number) for number, given in enumerate(grants, start=1)]
            return [each["kind"] for each in await attack(engine, client, turn_id, queue_of(engine, call), *inputs)]

        lasting = for_turn.model_copy(update={"lasting": "session"})
        assert (
            await answers(
                f"{name}~2",
                grant(for_turn, scope),
                grant(lasting, scope),
                grant(for_session, wide),
                grant(for_session.model_copy(update={"scope": wide}), wide),
                grant(refusal, scope),
                grant(
                    refusal.model_copy(update={"outcome": DecisionAction.PROCEED_ALWAYS_TOOL, "remember": False}), scope
                ),
                grant(once, scope),
            )
            == ["reconsider"] * 7
        )
        assert await answers("another", grant(for_turn, scope), grant(for_session, scope)) == ["reconsider"] * 2
        assert counted.runs == 0
        assert await answers(f"{name}~3", grant(for_session, scope)) == ["finished"], "what it is for"
        assert await answers(name, grant(for_turn, scope)) == ["finished"], "what it is for"


CONTEXTS: dict[str, dict[str, Any]] = {
    "our own variables": {"environment": {"X": "HOLDFAST_DATA"}},
    "a key of Temporal": {"environment": {"X": "TEMPORAL_API_KEY"}},
    "in small letters": {"environment": {"X": "holdfast_data"}},
    "into our variables": {"environment": {"HOLDFAST_DATA": "PATH"}},
    "what is not set": {"environment": {"X": "NOBODY_SET_THIS"}},
    "an absolute folder": {"folder": "/etc"},
    "a folder above": {"folder": "../.."},
    "a folder through one": {"folder": "sub/../../.."},
    "a link out": {"folder": "out"},
    "a folder with NUL": {"folder": "a\0b"},
    "no folder": {"folder": ""},
    "other tools": {"tools": ("read_file",)},
    "no tools": {"tools": ()},
}


async def test_S22_S47_a_made_up_context_leads_no_command_out_and_tells_it_no_secret(engine: Engine) -> None:
    engine.with_rules('[[rule]]\ndecision = "allow"\ncommand = ["pwd", "ls"]')
    (engine.workspace / "sub").mkdir()
    (engine.workspace / "out").symlink_to("/etc")
    os.environ["HOLDFAST_FOR_TEST"] = "secret"
    try:
        async with engine.worker(), attacker(engine) as client:
            turn = await engine.start(TurnInput(batches=((build_request("shell", command="pwd"),),)))
            assert (await turn.result()).responses[0].status == "success"
            call = await turn.fetch_call("b1c1")
            inputs = [
                input_of(call, run=number, context=Context.model_construct(**context))
                for number, context in enumerate(CONTEXTS.values(), start=1)
            ]
            answers = await attack(engine, client, f"{engine.queue}-context", queue_of(engine, call), *inputs)
    finally:
        del os.environ["HOLDFAST_FOR_TEST"]
    for what, answer in zip(CONTEXTS, answers, strict=True):
        assert answer["kind"] == "reconsider", (what, answer)
        assert answer["verdict"]["kind"] == "reject", (what, answer)


async def test_S33_a_made_up_call_id_reads_no_output_of_another_session(engine: Engine) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))

    async def much(arguments: dict[str, Any], run: Run) -> str:
        return text

    tool = FakeTool("much", much, effect=Effect.READ)
    name = f"{engine.queue}/victim"
    async with engine.worker(tool), attacker(engine) as client:
        turn = await engine.holdfast.start(TurnInput(batches=((build_request("much"),),)), turn_id=name)
        part = (await turn.result()).responses[0].parts[0]
        output = (getattr(part, "whole", "") or "").rpartition("/")[2][:32]
        reader = await engine.start(
            TurnInput(batches=((build_request("read_output", name=output, character_count=20),),))
        )
        response = (await reader.result()).responses[0]
        assert (response.status, response.error and response.error.type) == ("error", "no_such_output")
        call = await reader.fetch_call("b1c1")
        inputs = [
            input_of(call).model_copy(update={"call_id": made_up})
            for made_up in ("victim/b1c1", "victim~/b1c1", "victim~1/b1c1", "../victim/b1c1", "victim/", "/", "/b1c1")
        ]
        for input in inputs:
            with pytest.raises(WorkflowFailureError) as failure:
                await attack(engine, client, engine.queue, queue_of(engine, call), input)
            assert "a call's id has no slash" in str(failure.value.cause.__cause__)


async def test_S41_a_workflow_that_speaks_for_another_turn_is_not_heard(engine: Engine) -> None:
    """A memo can be given to any workflow that is started; no worker is needed."""
    ana, counted, name = with_keys(engine), Counted(Effect.ONCE), f"{engine.queue}-true"
    async with engine.worker(counted.tool):
        turn = await ana.start(TurnInput(batches=((build_request("act"),),)), turn_id=name)
        item = await item_of(turn)
        harmless = {**item.model_dump(mode="json"), "title": "harmless", "command": "git status"}
        below = {**harmless, "approval_id": f"{name}-memo/deeper/b1c1/1"}
        attributes = TypedSearchAttributes([SearchAttributePair(STATE_ATTRIBUTE, "awaiting_approval")])
        await engine.client.start_workflow(
            "nobody's",
            id=f"{name}-memo",
            task_queue="nobody",
            memo={MEMO_KEY: {"approvals": [harmless, below], "total": 2}},
            search_attributes=attributes,
        )
        stranger = engine.client.get_workflow_handle(f"{name}-memo")
        await wait_until(lambda: _listed_by_server(engine, f"{name}-memo"))
        found: list[ApprovalView] = await listed(engine.holdfast, name)
        assert [(one.approval_id, one.title) for one in found] == [(item.approval_id, item.title)]
        await stranger.terminate()
        await turn.cancel()


@pytest.mark.parametrize(
    "memo",
    [{}, {MEMO_KEY: "garbage"}, {MEMO_KEY: {"approvals": 7}}],
    ids=["missing", "text", "wrong type"],
)
async def test_S41_a_memo_that_cannot_be_read_counts_as_one_pending_approval(
    engine: Engine, memo: dict[str, Any]
) -> None:
    """Never as none: what waits must not be hidden. The turn itself is then asked, and named where it does not say."""
    attributes = TypedSearchAttributes([SearchAttributePair(STATE_ATTRIBUTE, "awaiting_approval")])
    name = f"{engine.queue}-unread"
    await engine.client.start_workflow(
        "nobody's", id=name, task_queue="nobody", memo=memo, search_attributes=attributes
    )
    assert await fetch_memo(engine.client, name) == InboxSummary(total=1)
    await engine.client.get_workflow_handle(name).terminate()
    assert await fetch_memo(engine.client, f"{name}-no-such") == InboxSummary(total=1)


async def _listed_by_server(engine: Engine, name: str) -> bool:
    query = f"{STATE_ATTRIBUTE.name} = 'awaiting_approval' AND WorkflowId = '{name}'"
    return bool([found async for found in engine.client.list_workflows(query)])


CHANGES: dict[str, Callable[[Call], Any]] = {
    "its arguments": lambda call: {"arguments": {"say": "harmless"}},
    "its tool": lambda call: {"tool": call.bound and call.bound.tool.model_copy(update={"name": "read_file"})},
    "its server": lambda call: {"tool": call.bound and call.bound.tool.model_copy(update={"server": "s"})},
    "its definition": lambda call: {"tool": call.bound and call.bound.tool.model_copy(update={"definition": "d"})},
    "its context": lambda call: {"context": {"folder": "elsewhere"}},
    "its digest": lambda call: {"digest": "0" * 64},
}


async def test_S22_what_is_told_of_a_waiting_call_is_what_its_digest_is_of(engine: Engine) -> None:
    counted = Counted(Effect.ONCE)
    async with engine.worker(counted.tool):
        turn = await engine.start(TurnInput(batches=((build_request("act", say="harm"),),)))
        await wait_until(lambda: asked(turn, "b1c1", 1))
        call = await turn.fetch_call("b1c1")
        assert call.bound
        digest = digest_call(tool="act", server=None, definition=call.bound.tool.definition, arguments={"say": "harm"})
        assert digest == call.bound.digest
        for change in CHANGES.values():
            told = call.model_copy(update={"bound": call.bound.model_copy(update=change(call))})
            with pytest.raises(HoldfastError, match="do not match its digest"):
                check_digest(told)
        await turn.cancel()


@pytest.mark.parametrize("name", ["session~3", "turn~b1c2", "~", "a~b~c"])
async def test_S24_nobody_starts_a_turn_by_hand_under_an_id_that_belongs_to_a_session(
    engine: Engine, name: str
) -> None:
    input = TurnInput(batches=((build_request("act"),),))
    async with engine.worker(Counted(Effect.READ).tool):
        handle: WorkflowHandle[Any, Any] = await engine.client.start_workflow(
            TURN_WORKFLOW, input, id=f"{engine.queue}{name}", task_queue=engine.queue
        )
        with pytest.raises(WorkflowFailureError) as failure:
            async with asyncio.timeout(20):
                await handle.result()
        assert "for the turns of sessions" in str(failure.value.cause)
