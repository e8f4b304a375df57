"""Limits of what a server may send: size of messages, length of lists, rate.

The `mcp` package checks an answer as a whole, item by item and more than once. So a million items are cut down before,
and one tool that makes no sense does not cost the others.

A server may say what it likes, and as fast as it can. Beyond a share of the time it is not listened to: what it says
then waits with it, and everybody else is served.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import Tool
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from holdfast.activities.mcp.part_limits import PARTS_LIMIT
from holdfast.activities.mcp.transport.faults import describe_validation_error
from holdfast.activities.mcp.transport.request_state import Exchange

ITEMS_LIMIT = 1_000
"""Items of a list that are read; one more is passed on, so that whoever reads it knows that there are more."""
REMARKS_LIMIT = 100
TYPED_VERSION = "2026-07-28"
"""From this version on results have a `resultType`. One without it is complete, says the specification; the `mcp`
package refuses it, and then nobody would know what became of a call that has run."""
_LIST_FIELDS = ("tools", "resources", "resourceTemplates", "prompts", "contents", "messages")


def fit_result(exchange: Exchange, result: dict[str, Any], version: str) -> dict[str, Any]:
    """A result without what nobody would read, and why of some tools nothing is."""
    cut: dict[str, Any] = {
        name: value[: ITEMS_LIMIT + 1] for name in _LIST_FIELDS if isinstance(value := result.get(name), list)
    }
    content = result.get("content")
    if isinstance(content, list) and len(content) > PARTS_LIMIT:
        kept = content[: PARTS_LIMIT - 1]
        note = {"type": "text", "text": f"[{len(content) - len(kept):,} further parts were left out]"}
        cut["content"] = [*kept, note]
    if version >= TYPED_VERSION and result.get("resultType") is None:
        cut["resultType"] = "complete"
    result = {**result, **cut} if cut else result
    if exchange.method == "tools/list" and "tools" in cut and not _is_fitting(result, version):
        result["tools"] = _list_usable_tools(exchange, result, version)
    return result


def _list_usable_tools(exchange: Exchange, result: dict[str, Any], version: str) -> list[Any]:
    """The tools that fit the protocol. Where all but the tools is wrong, that is for others to tell."""
    if not _is_fitting({**result, "tools": []}, version):
        return list(result["tools"])
    kept = []
    for place, tool in enumerate(result["tools"]):
        if (problem := _find_problem({**result, "tools": [tool]}, version)) is None:
            kept.append(tool)
        elif len(exchange.remarks) < REMARKS_LIMIT:
            exchange.remarks.append(f"{_format_tool(tool, place)} does not fit the protocol: {problem}")
    return kept


def _is_fitting(result: dict[str, Any], version: str) -> bool:
    return _find_problem(result, version) is None


def _find_problem(result: dict[str, Any], version: str) -> str | None:
    """What is wrong with a list of tools, if anything is: by its version's schema, and as the package reads it."""
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
"""Of the time, in the long run."""
BURST_SECONDS = 0.5
"""Seconds that it may take before it waits."""
MESSAGE_SECONDS = 0.0002
"""What a message costs those who get it, roughly."""


class Pace:
    """The time of one server."""

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
        """So much was spent. Returns when there is time again."""
        now = self._now()
        self._left = min(BURST_SECONDS, self._left + (now - self._seen) * TIME_SHARE) - seconds
        self._seen = now
        if self._left < 0:
            await self._sleep(-self._left / TIME_SHARE)
