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

from holdfast.activities.mcp.connecting import Connection
from holdfast.activities.mcp.faults import Failure, Fault
from holdfast.activities.mcp.parts import result_of
from holdfast.activities.mcp.requests import PAGES_LIMIT
from holdfast.activities.mcp.secrets import Secrets
from holdfast.content import Result, plain, shorten
from holdfast.tools import ToolFailure

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


async def read(connection: Connection, kind: str, arguments: Mapping[str, Any], secrets: Secrets) -> Result:
    """What is asked for. Failure when there is no answer, ToolFailure when it cannot be had without a person."""
    match kind:
        case "list_resources":
            return await _listed_resources(connection, secrets)
        case "list_prompts":
            found = await _paged(connection, ListPromptsRequest, _Prompts, "prompts")
            return _lines([_prompt(one) for one in found], "It has no prompts.", secrets)
        case "read_resource":
            request = ReadResourceRequest(params=ReadResourceRequestParams(uri=arguments["uri"]))
            contents = _answered(await connection.ask_for(request, _Contents))
            return _told([EmbeddedResource(type="resource", resource=one) for one in contents.contents], secrets)
        case _:
            params = GetPromptRequestParams(name=arguments["name"], arguments=arguments.get("arguments") or None)
            prompt = _answered(await connection.ask_for(GetPromptRequest(params=params), _Messages))
            return _told(_spoken(prompt), secrets)


async def offered(connection: Connection) -> frozenset[str]:
    """What it has beside tools. Many say that they may have such things, and have none; those are left out."""
    return frozenset([kind for kind in connection.offers if await _has(connection, kind)])


async def _has(connection: Connection, kind: str) -> bool:
    """Is there any? Whatever goes wrong is told to whoever wants to read it."""
    params = PaginatedRequestParams()
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            if kind == "prompts":
                return bool((await connection.ask_for(ListPromptsRequest(params=params), _Prompts)).prompts)
            page = await connection.ask_for(ListResourcesRequest(params=params), _Resources)
            if page.resources:
                return True
            patterns = await connection.ask_for(ListResourceTemplatesRequest(params=params), _Templates)
            return bool(patterns.resource_templates)
    except Failure as failure:
        return failure.fault is not Fault.TOLD
    except TimeoutError:
        return True


async def _listed_resources(connection: Connection, secrets: Secrets) -> Result:
    found = [_resource(one) for one in await _paged(connection, ListResourcesRequest, _Resources, "resources")]
    try:
        templates = await _paged(connection, ListResourceTemplatesRequest, _Templates, "resource_templates")
        found += [_template(one) for one in templates]
    except Failure as failure:
        if failure.fault is not Fault.TOLD:  # one that has none may say so as an error
            raise
    return _lines(found, "It has no resources.", secrets)


async def _paged(
    connection: Connection, request: Callable[..., Request[Any, Any]], kind: TypeAdapter[T], field: str
) -> list[Any]:
    """A list page by page, as far as it is told."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES_LIMIT):
        page = await connection.ask_for(request(params=PaginatedRequestParams(cursor=cursor)), kind)
        found += getattr(page, field)
        cursor = getattr(page, "next_cursor", None)
        if cursor is None or len(found) > ITEMS_LIMIT:
            break
    return found


def _resource(one: Resource) -> str:
    facts = [one.title or one.name, one.mime_type, f"{one.size:,} bytes" if one.size is not None else None]
    return _line(one.uri, facts, one.description)


def _template(one: ResourceTemplate) -> str:
    return _line(one.uri_template, ["a pattern", one.title or one.name, one.mime_type], one.description)


def _prompt(one: Prompt) -> str:
    arguments = [f"{argument.name}{'' if argument.required else ' (optional)'}" for argument in one.arguments or ()]
    return _line(one.name, [one.title, f"arguments: {', '.join(arguments)}" if arguments else None], one.description)


def _line(name: str, facts: Iterable[str | None], about: str | None) -> str:
    told = ", ".join(fact for fact in facts if fact)
    return f"{name}{f' ({told})' if told else ''}{f': {about}' if about else ''}"


def _lines(found: list[str], none: str, secrets: Secrets) -> Result:
    shown = [shorten(" ".join(secrets.hide(plain(one)).split()), LINE_LIMIT) for one in found[:ITEMS_LIMIT]]
    more = ["[further ones were left out]"] if len(found) > ITEMS_LIMIT else []
    return Result.of("\n".join([*shown, *more]) or none)


def _answered(answer: Any) -> Any:
    if isinstance(answer, InputRequiredResult):
        raise ToolFailure("input_required", "The server wants to ask a person something first, and cannot here")
    return answer


def _spoken(prompt: GetPromptResult) -> list[ContentBlock]:
    """Who says what."""
    said: list[ContentBlock] = []
    for message in prompt.messages:
        if isinstance(message.content, TextContent):
            said.append(TextContent(type="text", text=f"{message.role}: {message.content.text}"))
        else:
            said += [TextContent(type="text", text=f"{message.role}:"), message.content]
    return said


def _told(content: list[Any], secrets: Secrets) -> Result:
    return result_of(CallToolResult(content=content), secrets) if content else Result.of("There is nothing in it.")
