"""Turns on a real server with encryption: what is written, what is forged, and keys that change under way (S45)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeActivityExecutionRequest
from temporalio.client import Client
from temporalio.common import RawValue

from holdfast import Holdfast, Run, SessionInput, TurnInput
from holdfast.client.turn import Turn
from holdfast.client.turn_reader import fetch_memo
from holdfast.domain.calls.tool import ToolFailure
from holdfast.errors import DecisionRefused, HoldfastError, NoWorker, PayloadUnreadable, RequestRefused
from holdfast.payloads.encryption import ENCRYPTED, KEY_ID, VOUCHED, find_key_id
from holdfast.testing import FakeTool, build_request, decide_all, script_model, wait_until
from holdfast.workers.lookup.approvals import fetch_waiting
from tests.support.engine import Engine
from tests.support.secrets.encrypting import encryption, payloads_in
from tests.support.waiting import listed, speaking, waiting

LONG = 40_000


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return "r" * LONG


async def _echo(arguments: dict[str, Any], run: Run) -> str:
    return f"echo {arguments.get('say')}"


ASKS = FakeTool("asks", _echo, asks=True, safe=True)
ECHO = FakeTool("echo", _echo, safe=True)


async def use(engine: Engine, monkeypatch: pytest.MonkeyPatch, *ids: str, **more: Any) -> None:
    """Workers and clients from now on have these keys."""
    engine.settings = replace(engine.settings, encryption=encryption(monkeypatch, *ids, **more))
    engine.client = await engine.connect()
    engine.holdfast = Holdfast(engine.client, task_queue=engine.queue)


async def keys_of(engine: Engine, turn_id: str) -> set[str | None]:
    """The keys of all payloads of a history; None is one that is not encrypted."""
    bare = await Client.connect(engine.address)
    history = await bare.get_workflow_handle(turn_id).fetch_history()
    found = [one for event in history.events for one in payloads_in(event)]
    assert found
    return {find_key_id(one) for one in found if not _of_the_server(one)}


def _of_the_server(payload: Payload) -> bool:
    """Search attributes, what Temporal's core notes of local activities, and references to what is stored."""
    if payload.metadata.get("type") or payload.metadata.get("messageType"):
        return True
    return payload.data.startswith((b'{"seq"', b'{"id"')) or payload.metadata.get("encoding") == b"json/protobuf"


async def test_S45_every_payload_of_a_turn_is_encrypted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(engine, monkeypatch, "a")
    async with engine.worker(ASKS, ECHO, FakeTool("long", _long, safe=True)):
        turn = await engine.start(
            TurnInput(
                prompt="go", model=script_model([build_request("asks", say="hello"), build_request("long")], "Done.")
            )
        )
        view = await wait_until(lambda: waiting(turn))
        assert (await wait_until(engine.holdfast.list_approvals))[0].approval_id == view.approvals[0].approval_id
        await engine.holdfast.approve(view.approvals[0].approval_id, note="well")
        result = await turn.result()
    assert result.text == "Done."
    assert [len(response.text) for response in result.responses] == [10, LONG]
    assert await keys_of(engine, turn.id) == {"a"}


async def test_S42_S45_200_calls_with_long_results_are_an_ordinary_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(engine, monkeypatch, "a")
    async with engine.worker(FakeTool("long", _long, safe=True)):
        calls = tuple(build_request("long", data="a" * 90_000, number=number) for number in range(200))
        turn = await engine.start(TurnInput(batches=(calls,)))
        result = await turn.result()
    assert {len(response.text) for response in result.responses} == {LONG}
    assert len(result.responses) == 200
    history = await engine.client.get_workflow_handle(turn.id).fetch_history()
    assert sum(event.ByteSize() for event in history.events) < 600_000


async def test_a_turn_that_began_in_the_clear_goes_on_encrypted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.worker(ASKS, ECHO):
        turn = await engine.start(
            TurnInput(batches=((build_request("asks", say="x"),), (build_request("echo", say="y"),)))
        )
        await wait_until(lambda: waiting(turn))
    await use(engine, monkeypatch, "a")
    async with engine.worker(ASKS, ECHO):
        await decide_all(engine.holdfast, engine.holdfast.get_turn(turn.id))
        result = await engine.holdfast.get_turn(turn.id).result()
    assert [response.text for response in result.responses] == ["echo x", "echo y"]
    assert await keys_of(engine, turn.id) == {None, "a"}


async def test_S45_keys_are_rotated_in_the_middle_of_a_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All can read with the new key before anybody writes with it; then the order changes, and nothing is lost."""
    await use(engine, monkeypatch, "old")
    async with engine.worker(ASKS, ECHO):
        turn = await engine.start(
            TurnInput(batches=((build_request("asks", say="x"),), (build_request("asks", say="y"),)))
        )
        await wait_until(lambda: waiting(turn))
    await use(engine, monkeypatch, "old", "new")
    async with engine.worker(ASKS, ECHO):
        view = await wait_until(lambda: waiting(engine.holdfast.get_turn(turn.id)))
        await engine.holdfast.approve(view.approvals[0].approval_id)
        await wait_until(lambda: waiting(engine.holdfast.get_turn(turn.id)))
    await use(engine, monkeypatch, "new", "old")
    async with engine.worker(ASKS, ECHO):
        await decide_all(engine.holdfast, engine.holdfast.get_turn(turn.id))
        result = await engine.holdfast.get_turn(turn.id).result()
    assert [response.text for response in result.responses] == ["echo x", "echo y"]
    assert await keys_of(engine, turn.id) == {"old", "new"}


async def test_S45_a_worker_that_is_behind_with_its_keys_drops_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A decision under a key that it lacks is tried again until the key is there, though it came as a signal."""
    await use(engine, monkeypatch, "old")
    async with engine.worker(ASKS):
        turn = await engine.start(TurnInput(batches=((build_request("asks", say="x"),),)))
        view = await wait_until(lambda: waiting(turn))
    behind = engine.settings
    await use(engine, monkeypatch, "new", "old")
    ahead = engine.settings
    assert await engine.holdfast.approve(view.approvals[0].approval_id, seconds=0.2) is None
    engine.settings = behind
    async with engine.worker(ASKS):
        await wait_until(lambda: _logged(caplog, "the key 'new', which this process does not have"))
    engine.settings = ahead
    async with engine.worker(ASKS):
        result = await engine.holdfast.get_turn(turn.id).result()
    assert [response.text for response in result.responses] == ["echo x"]


async def _logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


async def test_S45_a_turn_whose_key_is_missing_waits_until_it_is_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await use(engine, monkeypatch, "a")
    whole = engine.settings
    turn = await engine.start(TurnInput(batches=((build_request("echo", say="x"),),)))
    for without in ((), ("b",)):
        await use(engine, monkeypatch, *without)
        caplog.clear()
        async with engine.worker(ECHO):
            await wait_until(lambda: _logged(caplog, "the key 'a', which this process does not have"))
    engine.settings = whole
    async with engine.worker(ECHO):
        async with asyncio.timeout(60):
            result = await Holdfast(await engine.connect()).get_turn(turn.id).result()
    assert [response.text for response in result.responses] == ["echo x"]


async def test_a_client_without_the_key_is_told_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(engine, monkeypatch, "a")
    async with engine.worker(ASKS):
        turn = await engine.start(TurnInput(batches=((build_request("asks", say="x"),),)))
        view = await wait_until(lambda: waiting(turn))
        stranger = Holdfast(await replaced(engine, monkeypatch), task_queue=engine.queue)
        for asking in (stranger.get_turn(turn.id).fetch_view(), stranger.get_turn(turn.id).fetch_call("b1c1")):
            with pytest.raises(PayloadUnreadable, match="no keys are in effect here"):
                await asking
        with pytest.raises((RequestRefused, HoldfastError)):
            await stranger.get_turn(turn.id).withdraw("b9")
        await engine.holdfast.approve(view.approvals[0].approval_id)
        await turn.result()
        with pytest.raises(PayloadUnreadable, match="the key 'a'"):
            await stranger.get_turn(turn.id).result()


async def test_S41_a_turn_that_cannot_be_read_hides_no_other_from_the_inbox(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.worker(ASKS):
        plain = await engine.start(TurnInput(batches=((build_request("asks", say="x"),),)))
        await wait_until(lambda: waiting(plain))
    stranger = engine.holdfast
    await use(engine, monkeypatch, "a")
    async with engine.worker(ASKS):
        secret = await engine.start(TurnInput(batches=((build_request("asks", say="y"),),)))
        await wait_until(lambda: waiting(secret))
        await listed(engine.holdfast, plain.id, secret.id, count=2)
        [theirs] = await listed(stranger, plain.id, secret.id)
        assert theirs.approval_id == f"{plain.id}/b1c1/1"
        for turn in (plain, secret):
            await engine.holdfast.get_turn(turn.id).cancel()
            await engine.holdfast.get_turn(turn.id).result()


async def test_S41_what_an_unreadable_memo_may_hold_is_asked_of_the_turn_and_never_hidden(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.worker(ASKS):
        plain = await engine.start(TurnInput(batches=((build_request("asks", say="x"),),)))
        await wait_until(lambda: waiting(plain))
    stranger = engine.holdfast
    await use(engine, monkeypatch, "a")
    async with engine.worker(ASKS):
        secret = await engine.start(TurnInput(batches=((build_request("asks", say="y"),),)))
        await wait_until(lambda: waiting(secret))
        await listed(engine.holdfast, plain.id, secret.id, count=2)
    inbox = await stranger.fetch_inbox()  # no worker answers
    assert f"{plain.id}/b1c1/1" in [item.approval_id for item in inbox.approvals]
    assert "no worker answered" in inbox.unread[secret.id]
    assert (await fetch_memo(stranger.client, secret.id)).total == 1
    with pytest.raises(NoWorker):
        await fetch_waiting(stranger, secret.id)
    async with engine.worker(ASKS):
        assert "the key 'a'" in (await stranger.fetch_inbox()).unread[secret.id]
        await engine.holdfast.get_turn(plain.id).cancel()
        await engine.holdfast.decide(f"{secret.id}/b1c1/1", "yes")
        await engine.holdfast.get_turn(secret.id).result()


async def test_S41_what_was_decided_waits_no_more_though_the_memo_still_has_it(engine: Engine) -> None:
    begun = asyncio.Event()

    async def hang(arguments: dict[str, Any], run: Run) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with engine.worker(FakeTool("hang", hang, asks=True)):
        turn = await engine.start(TurnInput(batches=((build_request("hang"),),)))
        await wait_until(lambda: waiting(turn))
        assert (await fetch_memo(engine.client, turn.id)).total == 1
        await engine.holdfast.decide(f"{turn.id}/b1c1/1", "yes")
        await asyncio.wait_for(begun.wait(), 30)
        assert (await fetch_memo(engine.client, turn.id)).approvals == ()
        await turn.cancel()
        await turn.result()


async def replaced(engine: Engine, monkeypatch: pytest.MonkeyPatch, *ids: str) -> Client:
    """A client with other keys."""
    kept = engine.settings
    engine.settings = replace(kept, encryption=encryption(monkeypatch, *ids))
    client = await engine.connect()
    engine.settings = kept
    return client


def forged(genuine: Payload) -> list[Payload]:
    """What somebody can make up who has seen a payload of ours, and has no key."""
    metadata = dict(genuine.metadata)
    changed = bytes([genuine.data[0] ^ 1]) + genuine.data[1:]
    return [
        Payload(metadata=metadata, data=changed),
        Payload(metadata=metadata, data=genuine.data[:20]),
        Payload(metadata=metadata),
        Payload(metadata={**metadata, KEY_ID: b"made-up"}, data=genuine.data),
        Payload(metadata={**metadata, KEY_ID: b"made-up", VOUCHED: b"x" * 64}, data=genuine.data),
        Payload(metadata={**metadata, KEY_ID: b"\xff\x00"}, data=genuine.data),
        Payload(metadata={"encoding": ENCRYPTED}, data=genuine.data),
        Payload(metadata={"encoding": b"holdfast/locked"}, data=b"x"),
        Payload(metadata={"encoding": b"holdfast/missing"}, data=b"x"),
        Payload(metadata={**metadata, "__temporal_external_storage_reference": b"true"}, data=genuine.data),
        Payload(metadata={"__temporal_external_storage_reference": b"true"}, data=b"x"),
    ]


async def genuine_of(engine: Engine, turn: Turn) -> Payload:
    bare = await Client.connect(engine.address)
    history = await bare.get_workflow_handle(turn.id).fetch_history()
    return history.events[0].workflow_execution_started_event_attributes.input.payloads[0]


@pytest.mark.parametrize("ids", [("new", "old"), ()], ids=["encrypted", "plain"])
async def test_S22_S45_forged_payloads_change_nothing_and_stop_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, ids: tuple[str, ...]
) -> None:
    await use(engine, monkeypatch, "new", "old")
    async with engine.worker(ECHO):
        other = await engine.start(TurnInput(batches=((build_request("echo"),),)))
        await other.result()
    made = forged(await genuine_of(engine, other))
    await use(engine, monkeypatch, *ids)
    async with engine.worker(ASKS):
        turn = await engine.start(TurnInput(batches=((build_request("asks", say="x"),),)))
        view = await wait_until(lambda: waiting(turn))
        handle = engine.client.get_workflow_handle(turn.id)
        bare = (await Client.connect(engine.address)).get_workflow_handle(turn.id)
        for payload in made:
            for name in ("decide", "interrupt", "add_calls", "no-such-signal"):
                await bare.signal(name, RawValue(payload))
            with pytest.raises(Exception):  # noqa: B017, PT011 - refused, in whatever words
                await bare.execute_update("decide", RawValue(payload))
        assert (await turn.fetch_view()).approvals == view.approvals
        await engine.holdfast.approve(view.approvals[0].approval_id)
        assert (await turn.result()).responses[0].text == "echo x"
        assert handle.id == turn.id


async def test_S45_where_what_is_plain_is_refused_a_plain_decision_changes_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(engine, monkeypatch, "a", plain="refuse")
    async with engine.worker(ASKS):
        turn = await engine.start(TurnInput(batches=((build_request("asks", say="x"),),)))
        view = await wait_until(lambda: waiting(turn))
        plain = Holdfast(await replaced(engine, monkeypatch), task_queue=engine.queue)
        item = view.approvals[0]
        with pytest.raises((DecisionRefused, HoldfastError)):
            await plain.decide(item.approval_id, "proceed_once", digest=item.digest)
        bare = (await Client.connect(engine.address)).get_workflow_handle(turn.id)
        await bare.signal("decide", {"approval_id": item.approval_id, "digest": item.digest, "outcome": "yes"})
        assert (await turn.fetch_view()).approvals == view.approvals
        await engine.holdfast.approve(item.approval_id)
        assert (await turn.result()).responses[0].text == "echo x"


async def test_S32_the_whole_live_output_is_asked_for_and_answered_encrypted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes around the plugin's converter, by an activity without a workflow."""
    await use(engine, monkeypatch, "a")
    go = asyncio.Event()

    async def talk(arguments: dict[str, Any], run: Run) -> str:
        run.write("word " * 10_000)
        await go.wait()
        return "done"

    async with engine.worker(FakeTool("talk", talk)):
        turn = await engine.start(TurnInput(batches=((build_request("talk"),),)))
        await wait_until(lambda: speaking(turn))
        whole = await turn.fetch_output("b1c1")
        assert whole is not None
        assert len(whole.tail) == 50_000
        bare = await Client.connect(engine.address)
        listed = [found async for found in bare.list_activities("ActivityType = 'holdfast.output'")]
        [asked] = [one for one in listed if one.task_queue.startswith(f"{engine.queue}-process-")]
        shown = await bare.workflow_service.describe_activity_execution(
            DescribeActivityExecutionRequest(
                namespace="default", activity_id=asked.activity_id, include_input=True, include_outcome=True
            )
        )
        assert [find_key_id(one) for one in payloads_in(shown)] == ["a", "a"]
        go.set()
        await turn.result()


async def test_S45_a_session_and_its_turns_are_encrypted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(engine, monkeypatch, "a")
    async with engine.worker(ECHO):
        session = engine.holdfast.get_session()
        start = SessionInput(turn=TurnInput(model=script_model([build_request("echo", say="x")], "Done.")))
        sent = await session.send("go", start=start)
        result = await session.get_turn(sent.turn).result()
    assert result.text == "Done."
    assert await keys_of(engine, session.id) == {"a"}
    assert await keys_of(engine, sent.turn) == {"a"}


async def test_a_failing_call_and_a_turn_that_cannot_start_are_told_in_full_to_who_has_the_key(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(engine, monkeypatch, "a")

    async def fail(arguments: dict[str, Any], run: Run) -> str:
        raise ToolFailure("broken", "it broke at the seam")

    async with engine.worker(FakeTool("fail", fail)):
        result = await (await engine.start(TurnInput(batches=((build_request("fail"),),)))).result()
        error = result.responses[0].error
        assert error
        assert error.message == "it broke at the seam"
        handle = await engine.client.start_workflow(
            "holdfast.turn", {"surprise": 1}, id=f"{engine.queue}-bad", task_queue=engine.queue
        )
        with pytest.raises(HoldfastError, match="The turn cannot start"):
            await engine.holdfast.get_turn(handle.id).result()


async def test_S23_S45_a_signal_that_a_worker_without_keys_dropped_stays_dropped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one worker could not read, another that can must not hear when it replays the turn."""
    plain = engine.settings
    async with engine.worker(ASKS):
        turn = await engine.start(TurnInput(batches=((build_request("asks", say=1), build_request("asks", say=2)),)))
        first, second = (await wait_until(lambda: waiting(turn, 2))).approvals
        await use(engine, monkeypatch, "a")
        body = {"approval_id": first.approval_id, "digest": first.digest, "outcome": "no", "by": "ada"}
        await engine.client.get_workflow_handle(turn.id).signal("decide", body)
        engine.settings = plain
        engine.client = await engine.connect()
        clear = Holdfast(engine.client, task_queue=engine.queue)
        await clear.approve(first.approval_id, digest=first.digest)
    await use(engine, monkeypatch, "a")
    async with engine.worker(ASKS):
        await engine.holdfast.approve(second.approval_id, digest=second.digest)
        async with asyncio.timeout(30):
            result = await engine.holdfast.get_turn(turn.id).result()
    assert [response.text for response in result.responses] == ["echo 1", "echo 2"]
    assert (await engine.history(turn)).count("WORKFLOW_TASK_FAILED") == 0
