"""What is asked of a server: the list of its tools, page by page, and a call of one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    PaginatedRequestParams,
)
from mcp_types import Tool as ListedTool
from pydantic import TypeAdapter, ValidationError

from holdfast.activities.mcp.server.connection import Connection
from holdfast.activities.mcp.server.elicitation import AskPerson, find_addresses_to_open
from holdfast.activities.mcp.transport.faults import Failure, build_failure, describe_validation_error
from holdfast.activities.mcp.transport.request_state import Exchange
from holdfast.errors import BadInput
from holdfast.util.text import shorten_text

PAGES_LIMIT = 100
TOOLS_LIMIT = 1_000
WORDS_LIMIT = 500
"""Characters of what is wrong with a list."""
LAST_SECONDS = 1.0
"""How long the answer of a call that was stopped may still come. It is kept: whoever stopped it would want to know."""
CallAnswer = CallToolResult | InputRequiredResult
_ANSWER_ADAPTER: TypeAdapter[CallAnswer] = TypeAdapter(CallToolResult | InputRequiredResult)


class ListedTools(NamedTuple):
    """The tools of a server, and why others of its list are not among them."""

    tools: list[ListedTool]
    left_out: list[str]


async def list_tools(connection: Connection) -> ListedTools:
    """All of its tools, page by page. BadInput when the list makes no sense."""
    found, left_out = list[ListedTool](), list[str]()
    if not connection.has_tools:
        return ListedTools(found, left_out)
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(PAGES_LIMIT):
        exchange = Exchange()
        tools, cursor = await _fetch_page(connection, cursor, exchange)
        found += tools
        left_out += [shorten_text(connection.secrets.hide(one), WORDS_LIMIT) for one in exchange.remarks]
        if len(found) + len(left_out) > TOOLS_LIMIT:
            raise BadInput(f"it lists over {TOOLS_LIMIT:,} tools")
        if cursor is None:
            return ListedTools(found, left_out)
        if cursor in seen:
            break
        seen.add(cursor)
    raise BadInput(f"its list of tools does not end: {len(seen) + 1} pages, and one of them again or more to come")


async def _fetch_page(
    connection: Connection, cursor: str | None, exchange: Exchange
) -> tuple[list[ListedTool], str | None]:
    try:
        with exchange.make_current():
            page = await connection.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
    except MCPError as error:
        raise build_failure(error, exchange).hide_secrets(connection.secrets) from None
    except (ValidationError, RecursionError) as error:
        words = shorten_text(connection.secrets.hide(describe_validation_error(error)), WORDS_LIMIT)
        raise BadInput(f"its list of tools does not fit the protocol: {words}") from None
    return page.tools, page.next_cursor


async def send_tool_call(
    connection: Connection,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    exchange: Exchange,
    meta: Mapping[str, Any],
    progress: ProgressFnT,
    ask: AskPerson,
    answers: Mapping[str, Any] | None = None,
    state: str | None = None,
) -> CallAnswer:
    """Call a tool, once. `ask` asks a person; `answers` and `state` go on with a call that had asked for something.

    Failure says what became of it when there is no answer, FirstOpen what a person has to do before there can be one.
    A cancellation is told to the server; `exchange` says whether it may have got the call.
    """
    about = {"name": tool, "arguments": dict(arguments), "inputResponses": answers, "requestState": state}
    request = CallToolRequest(params=CallToolRequestParams.model_validate({**about, "_meta": dict(meta)}))
    try:
        with connection.track_exchange(exchange):
            try:
                with connection.eliciting.track_call(ask), exchange.make_current():
                    sending = connection.session.send_request(request, _ANSWER_ADAPTER, progress_callback=progress)
                    work = asyncio.create_task(sending)
                    work.add_done_callback(lambda task: task.cancelled() or task.exception())
                    await asyncio.wait({work})
            except asyncio.CancelledError:
                return await _wait_for_last_answer(connection, work, exchange)
            try:
                return work.result()
            except MCPError as error:
                raise find_addresses_to_open(error) or error from None
    except Failure as failure:
        raise await connection.add_reason(failure) from None


async def _wait_for_last_answer(
    connection: Connection, work: asyncio.Task[CallAnswer], exchange: Exchange
) -> CallAnswer:
    """What a call that is stopped gives all the same. Raises CancelledError when that is nothing."""
    try:
        await connection.stop_exchange(exchange)
        await asyncio.wait({work}, timeout=LAST_SECONDS if exchange.begun else 0)
        if work.done() and not work.cancelled() and work.exception() is None:
            return work.result()
    finally:
        work.cancel()
    raise asyncio.CancelledError
