"""What comes from servers, byte by byte: lines, what stands for an answer, results."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, JSONRPCError

from holdfast.activities.mcp.faults import Fault, failure_of, marked
from holdfast.activities.mcp.outputs import ResultSchema
from holdfast.activities.mcp.parts import result_of
from holdfast.activities.mcp.secrets import Secret, Secrets
from holdfast.activities.mcp.stdio import END_KEPT, Lines, Oversized, parsed
from holdfast.content import DataPart, Response, TextPart
from holdfast.responses import function_response


def test_S39_nothing_imports_the_mcp_package_until_a_server_is_configured() -> None:
    code = (
        "import sys, holdfast.plugin, holdfast.workers.cli; print([name for name in sys.modules if name[:3] == 'mcp'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


# Lines


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=50))
def test_lines_are_the_same_however_they_come(data: bytes, sizes: list[int]) -> None:
    lines, found, rest = Lines(1_000), list[bytes](), data
    for size in [*sizes, len(data)]:
        found += lines.take(rest[:size])
        rest = rest[size:]
    assert found == data.split(b"\n")[:-1]


@pytest.mark.parametrize("chunk", [1, 7, 1_000, 100_000])
def test_S39_of_a_line_that_is_too_long_the_ends_are_kept(chunk: int) -> None:
    data = b'{"id": 1}\n{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 50_000 + b'"}\n{"id": 2}\n'
    lines = Lines(10_000)
    found = [line for at in range(0, len(data), chunk) for line in lines.take(data[at : at + chunk])]
    first, second, third = found
    assert (first, third) == (b'{"id": 1}', b'{"id": 2}')
    assert isinstance(second, Oversized)
    assert len(second) <= 2 * END_KEPT
    assert second.id == 7


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":', 7),
        (b'{"id": 7, "jsonrpc":"2.0"', 7),
        (b'"},"jsonrpc":"2.0","id":12}', 12),
        (b'"},"id":12,"jsonrpc":"2.0"}', 12),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":7}}', None),
        (b'{"result":{"id":7},"jsonrpc":"2.0"}', None),
        (b"xxxx", None),
    ],
)
def test_S39_whose_answer_was_too_long_is_told_by_its_ends(line: bytes, id: int | None) -> None:
    assert Oversized(line).id == id


def test_S39_a_line_that_is_no_message_is_an_error_without_its_words() -> None:
    for line in (b"", b"secret words", b"[]", b"{}", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 100_000):
        found = parsed(line)
        assert isinstance(found, ValueError)
        assert str(found) == "not a JSON-RPC message"
    assert parsed(Oversized(b"xxx")) is None
    found = parsed(Oversized(b'{"jsonrpc":"2.0","id":7,"result":'))
    assert isinstance(found, SessionMessage)
    assert isinstance(found.message, JSONRPCError)
    assert failure_of(MCPError.from_jsonrpc_error(found.message)).fault is Fault.UNREADABLE


# Faults


@pytest.mark.parametrize("fault", Fault)
def test_faults_of_ours_are_known_again(fault: Fault) -> None:
    assert failure_of(MCPError.from_error_data(marked(fault, "words"))).fault is fault


@pytest.mark.parametrize(
    ("code", "message", "data", "fault"),
    [
        (-32000, "Connection closed", None, Fault.LOST),
        (-32000, "SSE stream ended without a response", None, Fault.LOST),
        (-32000, "SSE stream failed: too long", None, Fault.UNREADABLE),
        (-32000, "my own error", None, Fault.TOLD),
        (-32603, "broken", {"mark": "guessed", "fault": "not_sent"}, Fault.TOLD),
        (-32602, "Invalid params", None, Fault.TOLD),
        (-32700, "Failed to parse JSON response: x", None, Fault.UNREADABLE),
    ],
)
def test_S31_what_a_server_says_is_not_taken_for_a_loss(code: int, message: str, data: Any, fault: Fault) -> None:
    assert failure_of(MCPError(code, message, data)).fault is fault


# Results


def result(*content: dict[str, Any], secrets: Secrets | None = None, **more: Any) -> Any:
    answer = CallToolResult.model_validate({"content": list(content), **more})
    return result_of(answer, secrets or Secrets())


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
    assert function_response(response).response == {"output": value}


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
    problem = await ResultSchema(schema).problem(value)
    assert (problem is None) == (words is None)
    if words is not None and problem is not None:
        assert words in problem
        assert len(problem) <= 300
