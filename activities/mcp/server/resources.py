"""What can be read of a server beside calling its tools: asked for, and told as parts. Bounded, without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from mcp_types import (
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
from pydantic import BaseModel, TypeAdapter

from holdfast.activities.mcp.secrets.redactor import Secrets
from holdfast.activities.mcp.server.connection import Connection
from holdfast.activities.mcp.server.requests import PAGES_LIMIT
from holdfast.activities.mcp.server.result_content import build_result
from holdfast.activities.mcp.transport.faults import Failure, Fault
from holdfast.domain.calls.tool import ToolFailure
from holdfast.domain.content import Result
from holdfast.util.text import shorten_text, strip_controls

ITEMS_LIMIT = 1_000
LINE_LIMIT = 1_000
LOOK_SECONDS = 5.0
"""How long is looked whether a server has anything."""
T = TypeVar("T", bound=BaseModel)
_Resources = TypeAdapter(ListResourcesResult)
_Templates = TypeAdapter(ListResourceTemplatesResult)
_Prompts = TypeAdapter(ListPromptsResult)
_Contents: TypeAdapter[ReadResourceResult | InputRequiredResult] = TypeAdapter(ReadResourceResult | InputRequiredResult)
_Messages: TypeAdapter[GetPromptResult | InputRequiredResult] = TypeAdapter(GetPromptResult | InputRequiredResult)


async def read_kind(connection: Connection, kind: str, arguments: Mapping[str, Any], secrets: Secrets) -> Result:
    """What is asked for. Failure when there is no answer, ToolFailure when it cannot be had without a person."""
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
    """What it has beside tools. Many say that they may have such things, and have none; those are left out."""
    return frozenset([kind for kind in connection.offered_kinds if await _has_kind(connection, kind)])


async def _has_kind(connection: Connection, kind: str) -> bool:
    """Is there any? Whatever goes wrong is told to whoever wants to read it."""
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
        return failure.fault is not Fault.TOLD
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
        if failure.fault is not Fault.TOLD:  # one that has none may say so as an error
            raise
    return _build_lines(found, "It has no resources.", secrets)


async def _fetch_pages(
    connection: Connection, request: Callable[..., Request[Any, Any]], kind: TypeAdapter[T], field: str
) -> list[Any]:
    """A list page by page, as far as it is told."""
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
    told = ", ".join(fact for fact in facts if fact)
    return f"{name}{f' ({told})' if told else ''}{f': {about}' if about else ''}"


def _build_lines(found: list[str], none: str, secrets: Secrets) -> Result:
    shown = [
        shorten_text(" ".join(secrets.hide(strip_controls(one)).split()), LINE_LIMIT) for one in found[:ITEMS_LIMIT]
    ]
    more = ["[further ones were left out]"] if len(found) > ITEMS_LIMIT else []
    return Result.from_text("\n".join([*shown, *more]) or none)


def _check_answered(answer: Any) -> Any:
    if isinstance(answer, InputRequiredResult):
        raise ToolFailure("input_required", "The server wants to ask a person something first, and cannot here")
    return answer


def _format_messages(prompt: GetPromptResult) -> list[ContentBlock]:
    """Who says what."""
    said: list[ContentBlock] = []
    for message in prompt.messages:
        if isinstance(message.content, TextContent):
            said.append(TextContent(type="text", text=f"{message.role}: {message.content.text}"))
        else:
            said += [TextContent(type="text", text=f"{message.role}:"), message.content]
    return said


def _build_result(content: list[Any], secrets: Secrets) -> Result:
    return (
        build_result(CallToolResult(content=content), secrets)
        if content
        else Result.from_text("There is nothing in it.")
    )
