"""Requests to a server: listing and calling its tools, and reading its resources and prompts. Bounded, without
secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptRequest,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsRequest,
    ListPromptsResult,
    ListResourcesRequest,
    ListResourcesResult,
    ListResourceTemplatesRequest,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
    Request,
    Resource,
    ResourceTemplate,
    TextContent,
)
from mcp_types import Tool as ListedTool
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.activities.mcp.server.connection import Connection
from holdfast.activities.mcp.server.elicitation import AskPerson, find_addresses_to_open
from holdfast.activities.mcp.server.result_content import build_result
from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.activities.mcp.transport.faults import Failure, Fault, build_failure, describe_validation_error
from holdfast.domain.calls.tool import ToolFailure
from holdfast.domain.content import Result
from holdfast.errors import BadInput
from holdfast.util.secrets import Secrets
from holdfast.util.text import shorten_text, strip_controls

PAGES_LIMIT = 100
TOOLS_LIMIT = 1_000
WORDS_LIMIT = 500
"""Characters of a problem of a list."""
LAST_SECONDS = 1.0
"""How long the answer of a stopped call may still come: its result is worth keeping."""
CallAnswer = CallToolResult | InputRequiredResult
_ANSWER_ADAPTER: TypeAdapter[CallAnswer] = TypeAdapter(CallToolResult | InputRequiredResult)


class ListedTools(NamedTuple):
    """The tools of a server, and why others of its list are left out."""

    tools: list[ListedTool]
    left_out: list[str]


async def list_tools(connection: Connection) -> ListedTools:
    """List all tools, page by page. BadInput for an invalid list, Failure when there is no answer."""
    found, left_out = list[ListedTool](), list[str]()
    if not connection.has_tools:
        return ListedTools(found, left_out)
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(PAGES_LIMIT):
        exchange = Exchange()
        tools, cursor = await _fetch_page(connection, cursor, exchange)
        found += tools
        left_out += [shorten_text(connection.secrets.hide(one), WORDS_LIMIT) for one in exchange.left_out]
        if len(found) + len(left_out) > TOOLS_LIMIT:
            raise BadInput(f"it lists over {TOOLS_LIMIT:,} tools")
        if cursor is None:
            return ListedTools(found, left_out)
        if cursor in seen:
            break
        seen.add(cursor)
    raise BadInput(f"its list of tools does not end: {len(seen) + 1} pages, then a repeated one or still more")


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
    """Call a tool once and return its answer. `ask` asks a person; `answers` and `state` continue an earlier call.

    Raises Failure when there is no answer, AddressesToOpen when a person has to act first. A cancellation is told to
    the server; `exchange` says whether the server may have received the call.
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
    """The answer of a stopped call, if it comes in time. CancelledError otherwise."""
    try:
        await connection.stop_exchange(exchange)
        await asyncio.wait({work}, timeout=LAST_SECONDS if exchange.was_sent else 0)
        if work.done() and not work.cancelled() and work.exception() is None:
            return work.result()
    finally:
        work.cancel()
    raise asyncio.CancelledError


ITEMS_LIMIT = 1_000
LINE_LIMIT = 1_000
LOOK_SECONDS = 5.0
"""How long to wait for the answer whether a server has anything."""
T = TypeVar("T", bound=BaseModel)
_Resources = TypeAdapter(ListResourcesResult)
_Templates = TypeAdapter(ListResourceTemplatesResult)
_Prompts = TypeAdapter(ListPromptsResult)
_Contents: TypeAdapter[ReadResourceResult | InputRequiredResult] = TypeAdapter(ReadResourceResult | InputRequiredResult)
_Messages: TypeAdapter[GetPromptResult | InputRequiredResult] = TypeAdapter(GetPromptResult | InputRequiredResult)


async def read_kind(connection: Connection, kind: str, arguments: Mapping[str, Any], secrets: Secrets) -> Result:
    """Read resources or prompts. Failure when there is no answer, ToolFailure when it needs a person first."""
    match kind:
        case "list_resources":
            return await _list_resources(connection, secrets)
        case "list_prompts":
            found = await _fetch_pages(connection, ListPromptsRequest, _Prompts, "prompts")
            return _build_lines([_format_prompt(one) for one in found], "It has no prompts.", secrets)
        case "read_resource":
            request = ReadResourceRequest(params=ReadResourceRequestParams(uri=arguments["uri"]))
            contents = _check_answered(await connection.send_request(request, _Contents))
            return _build_result(
                [EmbeddedResource(type="resource", resource=one) for one in contents.contents], secrets
            )
        case _:
            params = GetPromptRequestParams(name=arguments["name"], arguments=arguments.get("arguments") or None)
            prompt = _check_answered(await connection.send_request(GetPromptRequest(params=params), _Messages))
            return _build_result(_format_messages(prompt), secrets)


async def find_offered(connection: Connection) -> frozenset[str]:
    """Return which of `resources` and `prompts` the server really has. Many claim to, and have none."""
    return frozenset([kind for kind in connection.offered_kinds if await _has_kind(connection, kind)])


async def _has_kind(connection: Connection, kind: str) -> bool:
    """Whether there are any; True when that cannot be found out, so that a reader sees the error."""
    params = PaginatedRequestParams()
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            if kind == "prompts":
                return bool((await connection.send_request(ListPromptsRequest(params=params), _Prompts)).prompts)
            page = await connection.send_request(ListResourcesRequest(params=params), _Resources)
            if page.resources:
                return True
            patterns = await connection.send_request(ListResourceTemplatesRequest(params=params), _Templates)
            return bool(patterns.resource_templates)
    except Failure as failure:
        return failure.fault is not Fault.ERROR
    except TimeoutError:
        return True


async def _list_resources(connection: Connection, secrets: Secrets) -> Result:
    found = [
        _format_resource(one) for one in await _fetch_pages(connection, ListResourcesRequest, _Resources, "resources")
    ]
    try:
        templates = await _fetch_pages(connection, ListResourceTemplatesRequest, _Templates, "resource_templates")
        found += [_format_template(one) for one in templates]
    except Failure as failure:
        if failure.fault is not Fault.ERROR:  # a server without templates may answer with an error
            raise
    return _build_lines(found, "It has no resources.", secrets)


async def _fetch_pages(
    connection: Connection, request: Callable[..., Request[Any, Any]], kind: TypeAdapter[T], field: str
) -> list[Any]:
    """The items of a list, page by page, up to a limit."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES_LIMIT):
        page = await connection.send_request(request(params=PaginatedRequestParams(cursor=cursor)), kind)
        found += getattr(page, field)
        cursor = getattr(page, "next_cursor", None)
        if cursor is None or len(found) > ITEMS_LIMIT:
            break
    return found


def _format_resource(one: Resource) -> str:
    facts = [one.title or one.name, one.mime_type, f"{one.size:,} bytes" if one.size is not None else None]
    return _format_line(one.uri, facts, one.description)


def _format_template(one: ResourceTemplate) -> str:
    return _format_line(one.uri_template, ["a pattern", one.title or one.name, one.mime_type], one.description)


def _format_prompt(one: Prompt) -> str:
    arguments = [f"{argument.name}{'' if argument.required else ' (optional)'}" for argument in one.arguments or ()]
    return _format_line(
        one.name, [one.title, f"arguments: {', '.join(arguments)}" if arguments else None], one.description
    )


def _format_line(name: str, facts: Iterable[str | None], about: str | None) -> str:
    details = ", ".join(fact for fact in facts if fact)
    return f"{name}{f' ({details})' if details else ''}{f': {about}' if about else ''}"


def _build_lines(found: list[str], none: str, secrets: Secrets) -> Result:
    shown = [
        shorten_text(" ".join(secrets.hide(strip_controls(one)).split()), LINE_LIMIT) for one in found[:ITEMS_LIMIT]
    ]
    more = ["[further ones were left out]"] if len(found) > ITEMS_LIMIT else []
    return Result.from_text("\n".join([*shown, *more]) or none)


def _check_answered(answer: Any) -> Any:
    if isinstance(answer, InputRequiredResult):
        raise ToolFailure("input_required", "The server wants to ask a person first, which is not supported here")
    return answer


def _format_messages(prompt: GetPromptResult) -> list[ContentBlock]:
    """The messages of a prompt, each with its role."""
    parts: list[ContentBlock] = []
    for message in prompt.messages:
        if isinstance(message.content, TextContent):
            parts.append(TextContent(type="text", text=f"{message.role}: {message.content.text}"))
        else:
            parts += [TextContent(type="text", text=f"{message.role}:"), message.content]
    return parts


def _build_result(content: list[Any], secrets: Secrets) -> Result:
    return (
        build_result(CallToolResult(content=content), secrets)
        if content
        else Result.from_text("There is nothing in it.")
    )
