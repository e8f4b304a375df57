"""At size: what is large goes outside the history, and what is too large fails its one call with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue

from holdfast import CallRequest, RequestRefused, Run, TurnInput
from holdfast.testing import FakeTool, build_request, decide_all, wait_until
from tests.support.engine import Engine
from tests.support.waiting import waiting

OUTPUT = 40_000


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return "r" * OUTPUT


LONG = FakeTool("long", _long, safe=True)


async def _history_bytes(engine: Engine, turn_id: str) -> int:
    history = await engine.client.get_workflow_handle(turn_id).fetch_history()
    return sum(event.ByteSize() for event in history.events)


async def test_S42_200_calls_with_large_arguments_and_results_are_an_ordinary_batch(engine: Engine) -> None:
    calls = tuple(build_request("long", data="a" * 90_000, number=n) for n in range(200))
    async with engine.worker(LONG):
        turn = await engine.start(TurnInput(batches=(calls,)))
        result = await turn.result()
        view = await turn.fetch_view()
        assert await _history_bytes(engine, turn.id) < 400_000
    assert [response.call_id for response in result.responses] == [f"b1c{n}" for n in range(1, 201)]
    assert {response.status for response in result.responses} == {"success"}
    assert {len(response.text) for response in result.responses} == {OUTPUT}
    assert len(view.model_dump_json()) < 1_000_000


async def test_S42_200_large_calls_that_all_ask_are_approved_and_answered(engine: Engine) -> None:
    asking = FakeTool("asking", _long, asks=True, safe=True)
    calls = tuple(build_request("asking", data="a" * 90_000, number=n) for n in range(200))
    async with engine.worker(asking):
        turn = await engine.start(TurnInput(batches=(calls,)))
        answered = await decide_all(engine.holdfast, turn)
        result = await turn.result()
    assert len(answered) == 200
    assert {response.status for response in result.responses} == {"success"}


async def test_S6_arguments_over_the_limit_fail_their_one_call_with_a_reason(engine: Engine) -> None:
    calls = (build_request("long", data="a" * 5_000_000), build_request("long", data="small"))
    async with engine.worker(LONG):
        result = await (await engine.start(TurnInput(batches=(calls,)))).result()
    assert [response.status for response in result.responses] == ["error", "success"]
    error = result.responses[0].error
    assert error is not None
    assert error.type == "invalid_tool_params"
    assert "the limit is 1,048,576" in error.message


async def test_S33_a_result_over_the_limit_is_cut_and_kept_whole(engine: Engine) -> None:
    async def huge(arguments: dict[str, Any], run: Run) -> str:
        return "x" * 5_000_000

    async with engine.worker(FakeTool("huge", huge)):
        result = await (await engine.start(TurnInput(batches=((build_request("huge"),),)))).result()
    text = result.responses[0].text
    assert len(text) < OUTPUT + 500
    assert "4,960,000 characters left out" in text
    [kept] = engine.settings.outputs_folder.iterdir()
    assert kept.read_text() == "x" * 5_000_000


async def test_an_exception_of_megabytes_is_an_error_like_any_other(engine: Engine) -> None:
    async def explode(arguments: dict[str, Any], run: Run) -> str:
        raise RuntimeError("boom " * 1_000_000)

    async with engine.worker(FakeTool("explode", explode)):
        result = await (await engine.start(TurnInput(batches=((build_request("explode"),),)))).result()
    assert result.responses[0].status == "error"
    assert len(result.responses[0].text) < 10_000


async def test_more_than_a_turn_can_take_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(RequestRefused, match="at most 5,000 calls"):
        await engine.start(TurnInput(batches=tuple(tuple(build_request("x") for _ in range(1_000)) for _ in range(6))))
    with pytest.raises(RequestRefused, match="the limit is 64,000,000"):
        await engine.start(TurnInput(batches=(tuple(build_request("x", data="a" * 900_000) for _ in range(80)),)))


async def test_a_hundred_different_tools_can_wait_at_once(engine: Engine) -> None:
    tools = [FakeTool(f"a_tool_with_quite_a_long_name_number_{n:04}", _long, asks=True) for n in range(100)]
    async with engine.worker(*tools):
        turn = await engine.start(TurnInput(batches=(tuple(build_request(tool.name) for tool in tools),)))
        await wait_until(lambda: waiting(turn, 100))
        await turn.cancel()
        assert (await turn.result()).status == "cancelled"


@pytest.mark.parametrize(
    "arguments",
    [None, "text", 7, [1, 2], {"path": None}, {"path": ""}, {"path": "a\0b"}, {"path": {"deep": []}}, {"": 1}],
    ids=repr,
)
async def test_S6_arguments_of_any_shape_are_answered(engine: Engine, arguments: Any) -> None:
    calls = (CallRequest(tool="read_file", arguments=arguments), build_request("list_directory"))
    async with engine.worker():
        result = await (await engine.start(TurnInput(batches=(calls,)))).result()
    assert [response.status for response in result.responses] == ["error", "success"]
    assert result.responses[0].error is not None
    assert result.responses[0].error.type == "invalid_tool_params"


@pytest.mark.parametrize("name", ["", " ", "\x1b[31mred", "x" * 100_000, "read_file\n", "../read_file", "☃"], ids=ascii)
async def test_S5_tool_names_of_any_shape_are_answered(engine: Engine, name: str) -> None:
    async with engine.worker():
        turn = await engine.start(TurnInput(batches=((build_request(name),),)))
        result = await turn.result()
        assert "\x1b" not in (await turn.fetch_view()).model_dump_json()
    assert result.responses[0].error is not None
    assert result.responses[0].error.type == "tool_not_registered"


def _raw(data: bytes) -> RawValue:
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


@pytest.mark.parametrize("encoding", [b"unknown", b"json/protobuf", b""])
async def test_a_turn_started_with_an_unknown_encoding_fails_at_once(engine: Engine, encoding: bytes) -> None:
    payload = Payload(metadata={"encoding": encoding} if encoding else {}, data=b"x")
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.turn", RawValue(payload), id=f"{engine.queue}-unknown", task_queue=engine.queue
        )
        with pytest.raises(WorkflowFailureError):
            await handle.result()


UNREADABLE = [b"{", b"", b'"\\ud800"', b"[" * 5_000 + b"]" * 5_000, b"9" * 5_000, b"\xff\xfe"]


@pytest.mark.parametrize("data", UNREADABLE, ids=lambda data: repr(data[:10]))
async def test_a_turn_started_with_what_is_no_json_fails_at_once(engine: Engine, data: bytes) -> None:
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.turn", _raw(data), id=f"{engine.queue}-unreadable", task_queue=engine.queue
        )
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
    assert "The turn cannot start" in str(failure.value.cause)


async def test_S22_signals_that_are_no_json_or_name_no_payload_change_nothing(engine: Engine) -> None:
    asking = FakeTool("asking", _long, asks=True)
    claim = b'{"driverName": "holdfast.files", "claimData": {"sha256": "%s"}}'
    encoding = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
    legacy = {"encoding": b"json/external-storage-reference"}
    forged = [
        *(Payload(metadata=encoding, data=claim % name) for name in (b"0" * 64, b"../../etc/passwd", b"")),
        Payload(metadata=encoding, data=b'{"driverName": "x"}'),
        Payload(metadata=encoding, data=b"garbage"),
        Payload(metadata=legacy, data=b'{"driver_name": "x", "driver_claim": {"claim_data": {}}}'),
        Payload(metadata=legacy, data=b"garbage"),
        Payload(metadata={"encoding": b"unknown"}, data=b"x"),
        Payload(),
    ]
    async with engine.worker(asking):
        turn = await engine.start(TurnInput(batches=((build_request("asking"),),)))
        view = await wait_until(lambda: waiting(turn))
        handle = engine.client.get_workflow_handle(turn.id)
        for data in UNREADABLE:
            await handle.signal("decide", _raw(data))
        for payload in forged:
            await handle.signal("decide", RawValue(payload))
            await handle.signal("no-such-signal", RawValue(payload))
        assert (await turn.fetch_view()).approvals == view.approvals
        await engine.holdfast.approve(view.approvals[0].approval_id)
        assert (await turn.result()).responses[0].status == "success"


@pytest.mark.parametrize(
    "inputs",
    [[], [None], ["x"], [{}], [{"batches": 1}], [{"batches": [[]]}], [{"surprise": 1}], [{"keep_open": True}, 2]],
    ids=repr,
)
async def test_a_turn_started_with_garbage_fails_at_once_with_the_reason(engine: Engine, inputs: list[Any]) -> None:
    async with engine.worker():
        handle = await engine.client.start_workflow(
            "holdfast.turn", args=inputs, id=f"{engine.queue}-garbage", task_queue=engine.queue
        )
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
    assert "The turn cannot start" in str(failure.value.cause)
