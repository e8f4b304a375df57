"""JSON-RPC messages as bytes: bounded before they are parsed, repaired where possible, cut to what is read of them.

The cost of a message depends on the number of its values more than on its bytes: a million empty ones would block the
event loop for seconds. So values are counted before parsing. The `mcp` package validates an answer as a whole, and more
than once; so long lists are cut before, and one invalid tool is left out instead of failing the list.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import JSONRPCMessage, Tool
from mcp_types.jsonrpc import jsonrpc_message_adapter
from mcp_types.methods import validate_server_result
from pydantic import ValidationError
from pydantic_core import from_json

from holdfast.activities.mcp.transport.exchange import PARTS_LIMIT, Exchange
from holdfast.activities.mcp.transport.faults import Failure, Fault, describe_validation_error

MESSAGE_LIMIT = 32_000_000
"""Bytes of one message."""
VALUES_LIMIT = 300_000
"""Values in one message."""
END_KEPT = 200
"""Bytes kept of either end of an overlong message, to find out which request it answers."""
_ID = rb'"id"\s*:\s*"?(\d{1,15})"?\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_FIRST = re.compile(rb"^\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")
_REQUEST_START = re.compile(rb"\s*\{?\s*(?:" + _VERSION + rb',\s*)?"method"\s*:')
"""The beginning of a request of the server: its method comes before anything long."""
_SURROGATE_PAIR = rb"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rb"\\(?:" + _SURROGATE_PAIR + rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class UnreadableMessage(Exception):
    """Bytes that are not a usable message, and why."""


def read_message(data: bytes) -> JSONRPCMessage:
    """Parse a message. Raises UnreadableMessage, without repeating the bytes."""
    if has_too_many_values(data):
        raise UnreadableMessage(f"its message holds over {VALUES_LIMIT:,} values")
    try:
        try:
            value = from_json(data)
        except ValueError:
            value = from_json(repair_bytes(data))
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, RecursionError):
        raise UnreadableMessage("its message is not JSON-RPC") from None


def encode_message(message: JSONRPCMessage) -> bytes:
    """Encode a message of ours. Failure when it holds what JSON cannot express."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        raise Failure(Fault.REFUSED, "the request cannot be written as JSON") from None


def has_too_many_values(data: bytes, limit: int = VALUES_LIMIT) -> bool:
    """Whether a message holds more values than are read. Text inside strings does not count."""
    if _count_openings(data) <= limit:
        return False
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * (limit + 1):  # a name and a text for each value
        return True
    return _count_openings(b"".join(bare.split(b'"')[::2])) > limit


def _count_openings(data: bytes) -> int:
    """An upper bound of the number of values: each but the first follows one of these characters."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def repair_bytes(data: bytes) -> bytes:
    """Replace by U+FFFD what is not a character: bytes of another encoding, and half of a surrogate pair."""
    return _ESCAPES.sub(
        lambda found: b"\\ufffd" if found["half"] else found[0], data.decode("utf-8", "replace").encode()
    )


def find_answered_id(data: bytes) -> int | None:
    """Find the id of the request that unparsed bytes answer, from their two ends."""
    first, last = data[:END_KEPT], data[-END_KEPT:]
    if found := _ID_FIRST.search(first):
        return None if _REQUEST_START.match(first[found.end() :]) else int(found[1])
    found = _ID_LAST.search(last)
    return int(found[1]) if found and not _REQUEST_START.match(first) else None


ITEMS_LIMIT = 1_000
"""Items of a list that are read. One more is passed on, to show that there are more."""
REMARKS_LIMIT = 100
TYPED_VERSION = "2026-07-28"
"""From this version on results have a `resultType`. The specification says that a result without one is complete, but
the `mcp` package refuses it, and the outcome of a call that has run would be unknown.
"""
_LIST_FIELDS = ("tools", "resources", "resourceTemplates", "prompts", "contents", "messages")


def fit_result(exchange: Exchange, result: dict[str, Any], version: str) -> dict[str, Any]:
    """Cut the lists of a result to their limits, and leave out invalid tools."""
    cut: dict[str, Any] = {
        name: value[: ITEMS_LIMIT + 1] for name in _LIST_FIELDS if isinstance(value := result.get(name), list)
    }
    content = result.get("content")
    if isinstance(content, list) and len(content) > PARTS_LIMIT:
        shown = content[: PARTS_LIMIT - 1]
        note = {"type": "text", "text": f"[{len(content) - len(shown):,} further parts were left out]"}
        cut["content"] = [*shown, note]
    if version >= TYPED_VERSION and result.get("resultType") is None:
        cut["resultType"] = "complete"
    result = {**result, **cut} if cut else result
    if exchange.method == "tools/list" and "tools" in cut and not _is_fitting(result, version):
        result["tools"] = _list_usable_tools(exchange, result, version)
    return result


def _list_usable_tools(exchange: Exchange, result: dict[str, Any], version: str) -> list[Any]:
    """The valid tools. A list that is invalid apart from its tools is left to the package to refuse."""
    if not _is_fitting({**result, "tools": []}, version):
        return list(result["tools"])
    usable = []
    for place, tool in enumerate(result["tools"]):
        if (problem := _find_problem({**result, "tools": [tool]}, version)) is None:
            usable.append(tool)
        elif len(exchange.left_out) < REMARKS_LIMIT:
            exchange.left_out.append(f"{_format_tool(tool, place)} does not fit the protocol: {problem}")
    return usable


def _is_fitting(result: dict[str, Any], version: str) -> bool:
    return _find_problem(result, version) is None


def _find_problem(result: dict[str, Any], version: str) -> str | None:
    """Find what is wrong with a list of tools, by the schema of its version and by the package's model."""
    try:
        validate_server_result("tools/list", version, result)
        for tool in result["tools"]:
            Tool.model_validate(tool, by_name=False)
    except (ValidationError, RecursionError) as error:
        return describe_validation_error(error).removeprefix("tools.0.")
    return None


def _format_tool(tool: Any, place: int) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return repr(name) if isinstance(name, str) else f"the tool at place {place + 1}"


TIME_SHARE = 0.2
"""The share of the event loop's time that one server may take, in the long run."""
BURST_SECONDS = 0.5
"""Seconds that one server may take before it has to wait."""
MESSAGE_SECONDS = 0.0002
"""The approximate cost of handling a message."""


class Pace:
    """Limits how much time the messages of one server may take, so that a flood slows down only its sender."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._left = BURST_SECONDS
        self._seen = now()

    async def spend(self, seconds: float) -> None:
        """Account for time that was spent; returns when there is time again."""
        now = self._now()
        self._left = min(BURST_SECONDS, self._left + (now - self._seen) * TIME_SHARE) - seconds
        self._seen = now
        if self._left < 0:
            await self._sleep(-self._left / TIME_SHARE)
