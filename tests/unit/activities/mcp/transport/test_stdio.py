"""What comes from servers, byte by byte: lines, what stands for an answer, results."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CallToolResult, JSONRPCResponse

from holdfast.activities.mcp.server.lifecycle import ListPauses
from holdfast.activities.mcp.server.result_content import ResultSchema, build_result
from holdfast.activities.mcp.transport.dispatcher import Dispatcher
from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.activities.mcp.transport.faults import Fault, build_failure, build_fault_error
from holdfast.activities.mcp.transport.http_answers import StreamPosition, explain_status
from holdfast.activities.mcp.transport.jsonrpc import (
    END_KEPT,
    Pace,
    UnreadableMessage,
    fit_result,
    has_too_many_values,
    read_message,
)
from holdfast.activities.mcp.transport.server_log import ServerLog, ServerRemarks
from holdfast.activities.mcp.transport.stdio import LineBuffer, OversizedLine
from holdfast.domain.content import DataPart, Response, TextPart, build_function_response
from holdfast.util.secrets import Secret, Secrets


def test_S39_nothing_imports_the_mcp_package_until_a_server_is_configured() -> None:
    names = "[name for name in sys.modules if name[:3] == 'mcp']"
    code = f"import sys, holdfast.plugin.plugin, holdfast.workers.cli; print({names})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# Lines


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=50))
def test_lines_are_the_same_however_they_come(data: bytes, sizes: list[int]) -> None:
    lines, found, rest = LineBuffer(1_000), list[bytes](), data
    for size in [*sizes, len(data)]:
        found += lines.add_data(rest[:size])
        rest = rest[size:]
    assert found == data.split(b"\n")[:-1]


@pytest.mark.parametrize("chunk", [1, 7, 1_000, 100_000])
def test_S39_of_a_line_that_is_too_long_the_ends_are_kept(chunk: int) -> None:
    data = b'{"id": 1}\n{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 50_000 + b'"}\n{"id": 2}\n'
    lines = LineBuffer(10_000)
    found = [line for at in range(0, len(data), chunk) for line in lines.add_data(data[at : at + chunk])]
    first, second, third = found
    assert (first, third) == (b'{"id": 1}', b'{"id": 2}')
    assert isinstance(second, OversizedLine)
    assert len(second) <= 2 * END_KEPT
    assert second.id == 7


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":', 7),
        (b'{"id": 7, "jsonrpc":"2.0"', 7),
        (b'"},"jsonrpc":"2.0","id":12}', 12),
        (b'"},"id":12,"jsonrpc":"2.0"}', 12),
        (b'{"jsonrpc":"2.0","id":"7","result":', 7),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":7}}', None),
        (b'{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":', None),
        (b'{"jsonrpc":"2.0","method":"elicitation/create","params":{},"id":7}', None),
        (b'{"result":{"id":7},"jsonrpc":"2.0"}', None),
        (b"xxxx", None),
    ],
)
def test_S39_whose_answer_was_too_long_is_told_by_its_ends(line: bytes, id: int | None) -> None:
    assert OversizedLine(line).id == id


def test_S39_what_is_no_message_is_an_error_without_its_words() -> None:
    for data in (b"", b"secret words", b"[]", b"{}", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 100_000):
        with pytest.raises(UnreadableMessage, match=r"^its message is not JSON-RPC$"):
            read_message(data)


def answer(result: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}, **more).encode()


@given(st.text(st.characters(codec=None)))
def test_S39_half_a_character_is_replaced_and_all_others_are_kept(words: str) -> None:
    whole = words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    found = read_message(answer({"a": words}))
    assert isinstance(found, JSONRPCResponse)
    assert found.result == {"a": whole}


JSON = st.recursive(
    st.none() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


def values(value: Any) -> int:
    """How many there are in it, an empty list or object counted twice."""
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return sum(map(values, inner)) + 1 + (isinstance(value, list | dict) and not value)


@given(JSON)
def test_S39_values_are_counted_and_what_is_in_texts_is_not(value: Any) -> None:
    data, count = json.dumps(value).encode(), values(value) - 1
    assert not has_too_many_values(data, count)
    assert count == 0 or has_too_many_values(data, count - 1)


def test_S39_what_holds_too_much_is_not_read() -> None:
    began = time.process_time()
    with pytest.raises(UnreadableMessage, match="its message holds over 300,000 values"):
        read_message(answer({"a": [[]] * 1_000_000}))
    commas = read_message(answer({"a": "1,2\n" * 500_000}))
    assert isinstance(commas, JSONRPCResponse)
    assert time.process_time() - began < 5


# Answers

GOOD = {"name": "good", "inputSchema": {"type": "object"}}


def test_S39_a_list_keeps_what_fits_the_protocol() -> None:
    exchange = Exchange(method="tools/list")
    bad = {"name": "bad", "inputSchema": True}
    found = fit_result(exchange, {"tools": [GOOD, bad, None], "nextCursor": "2"}, "2025-06-18")
    assert found == {"tools": [GOOD], "nextCursor": "2"}
    first, second = exchange.left_out
    assert first.startswith("'bad' does not fit the protocol: inputSchema: ")
    assert second.startswith("the tool at place 3 does not fit the protocol: ")


def test_S39_of_a_list_as_much_is_passed_on_as_tells_that_it_is_too_long() -> None:
    exchange = Exchange(method="tools/list")
    assert len(fit_result(exchange, {"tools": [GOOD] * 50_000}, "2025-06-18")["tools"]) == 1_001
    assert fit_result(Exchange(method="tools/call"), {"content": [1, 2]}, "2025-06-18") == {"content": [1, 2]}


# Dispatcher


@pytest.fixture
async def traffic() -> AsyncIterator[Dispatcher]:
    """The messages of a connection that nothing is done about."""
    made = Dispatcher(lambda reason: None, lambda: None)
    yield made
    made.close()


async def test_S31_what_was_never_handed_over_was_not_sent(traffic: Dispatcher) -> None:
    reading, writing = traffic.ends
    dispatcher = JSONRPCDispatcher(reading, writing)
    exchange = Exchange()

    async def nothing(*_: Any) -> Any:
        return {}

    async with asyncio.timeout(10):
        running = asyncio.create_task(dispatcher.run(nothing, nothing))
        await asyncio.sleep(0)
        with exchange.make_current():
            asking = asyncio.create_task(dispatcher.send_raw_request("tools/call", {}))
        while exchange.id is None:  # noqa: ASYNC110 - it gives no notice
            await asyncio.sleep(0)
        traffic.end_exchanges()
        with pytest.raises(MCPError) as found:
            await asking
        await running
    assert build_failure(found.value, exchange).fault is Fault.NOT_SENT
    exchange.was_sent = True
    assert build_failure(found.value, exchange).fault is Fault.LOST
    exchange.answered = True  # then it is what the server says
    assert build_failure(found.value, exchange).fault is Fault.ERROR


async def test_S39_an_answer_that_nobody_waits_for_is_dropped_and_no_garbage(traffic: Dispatcher) -> None:
    assert await traffic.deliver_data(answer({}))
    assert not await traffic.deliver_data(b"garbage")
    with pytest.raises(anyio.WouldBlock):
        traffic._to_read.receive_nowait()


# Time


async def test_S39_what_nobody_asked_for_gets_a_fifth_of_the_time() -> None:
    clock = [100.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    made = Pace(lambda: clock[0], sleep)
    await made.spend(0.4)
    assert clock[0] == 100  # a little at once is nothing
    for _ in range(100):
        clock[0] += 0.1
        await made.spend(0.1)
    assert 45 < clock[0] - 100 < 52


def test_S39_a_list_that_keeps_changing_is_read_less_and_less() -> None:
    clock = [100.0]
    settling, pauses = ListPauses(lambda: clock[0]), list[float]()
    for _ in range(9):
        pauses.append(settling.choose_pause())
        clock[0] += pauses[-1]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    clock[0] += 200
    assert settling.choose_pause() == 0.5


def test_S39_a_server_may_wish_to_be_asked_sooner_and_not_without_end() -> None:
    place = StreamPosition(wish=0.0)
    assert [place.choose_pause(came=True) for _ in range(7)] == [0, 0, 0, 0, 0, 1, 1]
    assert StreamPosition(wish=0.5).choose_pause(came=True) == 0.5
    quiet = StreamPosition()
    assert [quiet.choose_pause(came=came) for came in (False, False, False, True, False)] == [1, 2, 4, 1, 2]


# Statuses

OURS, THEIRS = {"jsonrpc": "2.0", "id": 7}, {"jsonrpc": "2.0", "id": None}
SESSION = {"error": {"code": -32000, "message": "No valid session ID provided"}}


@pytest.mark.parametrize(
    ("status", "body", "session", "fault"),
    [
        (404, None, True, Fault.SESSION),
        (404, None, False, Fault.REFUSED),
        (404, THEIRS | SESSION, True, Fault.SESSION),
        (404, OURS | SESSION, True, Fault.ERROR),
        (400, THEIRS | SESSION, True, Fault.SESSION),
        (400, OURS | SESSION, True, Fault.ERROR),
        (400, THEIRS | SESSION, False, Fault.ERROR),
        (400, THEIRS | {"error": {"code": -32000, "message": "no"}}, True, Fault.ERROR),
        (400, None, True, Fault.REFUSED),
        (429, None, True, Fault.REFUSED),
        (408, None, True, Fault.LOST),
        (409, None, True, Fault.LOST),
        (500, None, True, Fault.LOST),
        (500, OURS | SESSION, True, Fault.ERROR),
        (500, THEIRS | SESSION, True, Fault.LOST),
        (502, OURS | SESSION, True, Fault.LOST),
        (504, OURS | SESSION, True, Fault.LOST),
        (401, OURS | SESSION, True, Fault.UNAUTHORIZED),
        (403, None, True, Fault.UNAUTHORIZED),
        (403, OURS | SESSION, True, Fault.ERROR),
    ],
)
def test_S31_a_status_says_only_what_it_says(status: int, body: Any, session: bool, fault: Fault) -> None:
    response = httpx2.Response(status, content=json.dumps(body).encode() if body else b"")
    error = MCPError.from_error_data(explain_status(response, 7, has_session=session))
    assert build_failure(error).fault is fault


# Faults


@pytest.mark.parametrize("fault", Fault)
def test_faults_of_ours_are_known_again(fault: Fault) -> None:
    assert build_failure(MCPError.from_error_data(build_fault_error(fault, "words"))).fault is fault


@pytest.mark.parametrize(
    ("code", "message", "data", "fault"),
    [
        (-32000, "Connection closed", None, Fault.LOST),
        (-32000, "my own error", None, Fault.ERROR),
        (-32603, "broken", {"mark": "guessed", "fault": "not_sent"}, Fault.ERROR),
        (-32602, "Invalid params", None, Fault.ERROR),
    ],
)
def test_S31_what_a_server_says_is_not_taken_for_a_loss(code: int, message: str, data: Any, fault: Fault) -> None:
    assert build_failure(MCPError(code, message, data)).fault is fault


# Results


def result(*content: dict[str, Any], secrets: Secrets | None = None, **more: Any) -> Any:
    answer = CallToolResult.model_validate({"content": list(content), **more})
    return build_result(answer, secrets or Secrets())


def text(words: str, *audience: str) -> dict[str, Any]:
    more = {"annotations": {"audience": list(audience)}} if audience else {}
    return {"type": "text", "text": words, **more}


def test_S34_structured_content_is_data_and_its_repetition_is_left_out() -> None:
    value: Any = {"a": [1, 2.5, None]}
    made = result(text(json.dumps(value, indent=2)), text("beside it"), structuredContent=value)
    assert made.parts == (TextPart(text="beside it"), DataPart(value=value))
    assert result(text("words"), structuredContent={"result": "words"}).parts == (TextPart(text="words"),)
    assert len(result(text("words"), structuredContent={"result": "words", "n": 1}).parts) == 2


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ('[{"name": "Ana"}]', {"entities": [{"name": "Ana"}]}),
        ('{\n  "b": 1, "a": {"c": "é"}}', {"a": {"c": "é"}, "b": 1}),
        ("5", {"result": 5}),
        ("null", {"result": None}),
    ],
)
def test_S34_text_that_is_the_json_of_structured_content_or_of_its_one_field_is_told_once(
    words: str, value: Any
) -> None:
    made = result(text(words), structuredContent=value)
    assert made.parts == (DataPart(value=value),)
    response = Response(call_id="b1c1", tool="t", status="success", parts=made.parts)
    assert build_function_response(response).response == {"output": value}


@pytest.mark.parametrize(
    ("words", "value"),
    [("1", {"done": True}), ("[1]", {"a": [1], "b": [1]}), ("[1]", {"a": [2]}), ("{", {"a": 1}), ("1", [[1]])],
)
def test_S34_text_that_says_anything_else_stays(words: str, value: Any) -> None:
    made = result(text(words), structuredContent=value)
    assert made.parts == (TextPart(text=words), DataPart(value=value))


def test_S34_what_is_meant_for_one_reader_goes_to_that_one() -> None:
    made = result(text("for both"), text("for you", "user"), text("for it", "assistant"))
    assert [part.text for part in made.parts] == ["for both", "for it"]
    assert [part.text for part in made.shown] == ["for both", "for you"]
    assert result(text("for you", "user")).parts == (TextPart(text="for you"),)
    assert result(text("for both", "user", "assistant")).shown == ()


def test_S34_a_thousand_parts_are_enough() -> None:
    made = result(*(text(str(number)) for number in range(1_200)))
    assert len(made.parts) == 1_001
    assert made.parts[-1].text == "[200 further parts were left out]"


def test_S45_secrets_are_hidden_in_every_part() -> None:
    secrets = Secrets([Secret("TOKEN", "0123456789")])
    link = {"type": "resource_link", "uri": "x://0123456789", "name": "0123456789"}
    memo = {"type": "resource", "resource": {"uri": "x://0123456789", "text": "0123456789"}}
    made = result(text("is 0123456789"), link, memo, structuredContent={"a": "0123456789"}, secrets=secrets)
    assert "0123456789" not in made.model_dump_json()


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"type": "object", "required": ["n"]}, {"n": 1}, None),
        ({"type": "object", "required": ["n"]}, {}, '"n" is a required property'),
        ({"type": "object"}, None, "it holds no structured content"),
        ({"type": ["object", "null"]}, None, None),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 10_000}, "a: "),
        ({"$ref": "https://example.com/x"}, {}, None),
        ({"type": "nonsense"}, {}, None),
    ],
)
async def test_S39_a_result_is_checked_against_what_its_tool_declares(
    schema: Any, value: Any, words: str | None
) -> None:
    problem = await ResultSchema(schema).find_problem(value)
    assert (problem is None) == (words is None)
    if words is not None and problem is not None:
        assert words in problem
        assert len(problem) <= 300


# What is said beside and instead of results


@pytest.mark.parametrize("before", range(1_950, 2_010, 7))
def test_S45_an_error_is_without_secrets_before_it_is_cut(before: int) -> None:
    secrets = Secrets([Secret("TOKEN", "Zq7XyW9aBc4D-" * 4)])
    failure = build_failure(MCPError(-32000, f"{'e' * before} {'Zq7XyW9aBc4D-' * 4} {'e' * 500}")).hide_secrets(secrets)
    assert len(str(failure)) <= 2_000
    assert "Zq7XyW" not in str(failure)


@pytest.mark.parametrize("before", [0, 100, 3_950, 3_960, 3_975, 3_990, 7_950, 7_970])
def test_S45_what_a_server_says_beside_the_protocol_is_without_secrets_wherever_it_is_cut(
    tmp_path: Path, before: int
) -> None:
    token = "Zq7XyW9aBc4D-" * 4
    log = ServerLog(tmp_path / "a.log")
    heard = ServerRemarks(Secrets([Secret("TOKEN", token)]), log)
    line = f"{'e' * before}{token}{'e' * 8_000}"
    for at in range(0, len(line), 1_000):
        heard.add_error_data(line[at : at + 1_000].encode())
    heard.add_error_data(b"\n")
    heard.add_stray_line(line.encode())
    heard.add_log_message("info", line)
    heard.add_error_data(f"the end: {token}".encode())
    heard.end_errors()
    told = heard.describe_remarks() + log.file.read_text()
    assert "[TOKEN]" in told
    assert not any(token[at : at + 9] in told for at in range(len(token) - 8))
