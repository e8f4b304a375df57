"""Resources and prompts of a server, read through tools of ours: `NAME__read_resource`, `NAME__get_prompt` and so on.

They exist when the server has such things; a tool of the server with such a name keeps it. Reading changes nothing, so
it is repeated when the server was lost. But the request goes to the server, and its answer is untrusted. So unless the
server is trusted, reading is asked about like its tools.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from holdfast.activities.mcp.auth.bearer import describe_remedy
from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions
from holdfast.activities.mcp.server.definitions import (
    Definition,
    EffectJudgement,
    find_effect,
    is_open_world,
    is_wanted,
    judge_effect,
)
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.call_outcomes import wait_for_server
from holdfast.activities.mcp.tools.mcp_tool import ServerInvocation, ServerTool
from holdfast.config.schema import McpServerSettings
from holdfast.domain.calls.tool import Effect, Invocation, Run, ToolFailure
from holdfast.domain.content import Result
from holdfast.util.text import shorten_text, strip_controls

if TYPE_CHECKING:
    from holdfast.activities.mcp.transport.faults import Failure

MAX_TRIES = 3
WORDS_LIMIT = 10_000
"""Characters of an address, a name or an argument."""
ALTERNATIVE_NAME = "mcp_{}"
"""The name when the server has a tool of the first name."""
_TEXT_SCHEMA: dict[str, JsonValue] = {"type": "string", "minLength": 1, "maxLength": WORDS_LIMIT}


def _build_definition(name: str, description: str, properties: dict[str, JsonValue] | None = None) -> Definition:
    properties = properties or {}
    needed: list[JsonValue] = [one for one in properties if one != "arguments"]
    return Definition(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": needed, "additionalProperties": False},
        annotations={"readOnlyHint": True},
    )


READ_DEFINITIONS: Mapping[str, tuple[Definition, ...]] = {
    "resources": (
        _build_definition(
            "list_resources",
            "List the resources that the server {server} has, and the patterns of addresses by which there are more.",
        ),
        _build_definition(
            "read_resource",
            "Read a resource of the server {server}, by its address.",
            {
                "uri": {
                    **_TEXT_SCHEMA,
                    "description": "The address, as list_resources tells it or as a pattern there makes it.",
                }
            },
        ),
    ),
    "prompts": (
        _build_definition("list_prompts", "List the prompts that the server {server} has, with their arguments."),
        _build_definition(
            "get_prompt",
            "Get a prompt of the server {server}, filled in.",
            {
                "name": {**_TEXT_SCHEMA, "description": "The prompt's name."},
                "arguments": {
                    "type": "object",
                    "additionalProperties": {"type": "string", "maxLength": WORDS_LIMIT},
                    "description": "Its arguments, each a text.",
                },
            },
        ),
    ),
}


def find_read_kind(definition: Definition, server: str) -> str | None:
    """Return which of `resources` and `prompts` the tool with this definition reads; None for a tool of the server."""
    for offer, several in READ_DEFINITIONS.items():
        for one in several:
            names = (one.name, ALTERNATIVE_NAME.format(one.name))
            if definition.name in names and definition == _adapt_definition(one, server, definition.name):
                return offer
    return None


def _adapt_definition(definition: Definition, server: str, name: str) -> Definition:
    return definition.model_copy(update={"name": name, "description": definition.description.format(server=server)})


def list_read_definitions(
    server: str, settings: McpServerSettings, own: Container[str], offers: Container[str]
) -> dict[str, Definition]:
    """List the definitions of the tools that read what a server offers, by kind. Names of its own tools are avoided."""
    found = {}
    for definition in (one for offer, several in READ_DEFINITIONS.items() if offer in offers for one in several):
        names = (definition.name, ALTERNATIVE_NAME.format(definition.name))
        free = next((name for name in names if name not in own), None)
        if free and is_wanted(definition, settings):
            found[definition.name] = _adapt_definition(definition, server, free)
    return found


def build_reading_tools(server: Server, approved: PinnedDefinitions) -> list[ReadingTool]:
    """Build the tools that read what a server offers."""
    found = list_read_definitions(server.name, server.settings, server.definitions, server.offered_kinds)
    return [ReadingTool(server, kind, definition, approved) for kind, definition in found.items()]


class ReadingTool(ServerTool):
    """One way to read what a server has."""

    def __init__(self, server: Server, kind: str, definition: Definition, pinned: PinnedDefinitions) -> None:
        settings = server.settings
        called = definition.model_copy(update={"name": kind})  # as the settings name it
        super().__init__(server, definition, pinned, _judge_reading(called, settings))
        self.kind = kind
        self.description = definition.description
        self.asks_first = find_effect(called, settings) is not Effect.READ
        self.open_world = is_open_world(called, settings)
        self.Parameters: Mapping[str, JsonValue] = definition.parameters

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        return _ReadInvocation(self, arguments)


def _judge_reading(definition: Definition, settings: McpServerSettings) -> EffectJudgement:
    """Reading changes nothing, whether or not the server is trusted, unless the settings say otherwise."""
    found = judge_effect(definition, settings)
    if found.effect is Effect.READ or definition.name in settings.effects:
        return found
    return EffectJudgement(Effect.READ, f"it only reads; it is asked about, since {found.because}")


class _ReadInvocation(ServerInvocation):
    def __init__(self, tool: ReadingTool, arguments: dict[str, Any]) -> None:
        super().__init__(tool, arguments)
        self._kind = tool.kind
        self._server = tool.server

    def describe(self) -> str:
        arguments = shorten_text(json.dumps(self._arguments, ensure_ascii=False), 200) if self._arguments else ""
        return f"{self._server.name}/{self._kind} {arguments}".rstrip()

    async def execute(self, run: Run) -> Result:
        await self._server_tool.pin_definition()
        seconds = self._server.settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._read_until_answered()
        except TimeoutError:
            raise ToolFailure("timeout", f"{self._format_server()} did not answer within {seconds:g} seconds") from None

    async def _read_until_answered(self) -> Result:
        """Read, and try again when the server was lost."""
        from holdfast.activities.mcp.server.requests import read_kind
        from holdfast.activities.mcp.transport.faults import Failure, Fault  # they import the mcp package

        again = {Fault.NOT_SENT, Fault.SESSION, Fault.LOST}
        for left in reversed(range(MAX_TRIES)):
            connection = await wait_for_server(self._server)
            try:
                return await read_kind(connection, self._kind, self._arguments, self._server.secrets)
            except Failure as failure:
                if failure.fault in again:
                    self._server.replace_connection(connection)
                if not left or failure.fault not in again:
                    raise self._build_failure(failure) from None
        raise AssertionError("the last attempt returns or raises")

    def _build_failure(self, failure: Failure) -> ToolFailure:
        words = self._server.secrets.hide(strip_controls(str(failure)))
        match failure.fault:
            case "error":
                return ToolFailure("mcp_error", f"{self._format_server()} answered with an error: {words}")
            case "unauthorized":
                todo = describe_remedy(self._server.name, self._server.settings)
                return ToolFailure("mcp_unauthorized", f"{self._format_server()} may not be read: {words}; {todo}")
            case "unreadable":
                return ToolFailure(
                    "bad_result", f"{self._format_server()} has answered, but the answer cannot be read: {words}"
                )
            case _:
                return ToolFailure("mcp_unavailable", f"{self._format_server()} could not be read: {words}")

    def _format_server(self) -> str:
        return f"The MCP server {self._server.name!r}"
