"""Resources and prompts of a server, read through tools of ours: `NAME__read_resource`, `NAME__get_prompt` and so on.

They are there when the server says that it has such things, and a tool of its own with such a name keeps it. Reading
changes nothing, and so is repeated when the server was lost; but what is asked for goes to the server, and what it
answers is its word. So unless it is trusted it is asked about, like its tools.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from holdfast.activities.mcp.auth.bearer import describe_remedy
from holdfast.activities.mcp.server.definition_pins import DefinitionChange, PinnedDefinitions, write_in_background
from holdfast.activities.mcp.server.definitions import (
    Definition,
    EffectJudgement,
    find_effect,
    is_open_world,
    is_wanted,
    judge_effect,
)
from holdfast.activities.mcp.server.lifecycle import ServerState, ServerUnavailable
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.mcp_tool import GRACE_SECONDS, build_tool_confirmation, build_tool_notes
from holdfast.config.schema import McpServerSettings
from holdfast.domain.approvals.approval import Confirmation, ToolNotes
from holdfast.domain.calls.tool import Declaration, Effect, Invocation, Run, Tool, ToolFailure
from holdfast.domain.content import Result
from holdfast.util.mcp_names import build_tool_name
from holdfast.util.text import shorten_text, strip_controls

if TYPE_CHECKING:
    from holdfast.activities.mcp.server.connection import Connection
    from holdfast.activities.mcp.transport.faults import Failure

MAX_TRIES = 3
WORDS_LIMIT = 10_000
"""Characters of an address, a name or an argument."""
ALTERNATIVE_NAME = "mcp_{}"
"""What is called so when the server has a tool of the first name."""
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
    """What of a server is read by the tool that is defined so; None when it is the server's own tool."""
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
    """What reads what a server offers, by kind. Names that its own tools have stay theirs."""
    found = {}
    for definition in (one for offer, several in READ_DEFINITIONS.items() if offer in offers for one in several):
        names = (definition.name, ALTERNATIVE_NAME.format(definition.name))
        free = next((name for name in names if name not in own), None)
        if free and is_wanted(definition, settings):
            found[definition.name] = _adapt_definition(definition, server, free)
    return found


def build_reading_tools(server: Server, approved: PinnedDefinitions) -> list[ReadingTool]:
    """What reads what a server has beside its tools."""
    found = list_read_definitions(server.name, server.settings, server.definitions, server.offered_kinds)
    return [ReadingTool(server, kind, definition, approved) for kind, definition in found.items()]


class ReadingTool(Tool):
    """One way to read what a server has."""

    checks_quickly = True

    def __init__(self, server: Server, kind: str, definition: Definition, approved: PinnedDefinitions) -> None:
        settings = server.settings
        self.server = server
        self.kind = kind
        self.definition = definition
        self.name = build_tool_name(server.name, definition.name)
        self.description = definition.description
        called = definition.model_copy(update={"name": kind})  # as the settings know it
        self.effect_judgement = _judge_reading(called, settings)
        self.effect = self.effect_judgement.effect
        self.asks_first = find_effect(called, settings) is not Effect.READ
        self.open_world = is_open_world(called, settings)
        self.on_host = settings.command is not None
        self.timeout_seconds = settings.timeout_seconds + GRACE_SECONDS
        self.Parameters: Mapping[str, JsonValue] = definition.parameters
        self.pinned = approved

    def declaration(self) -> Declaration:
        """With the server."""
        theirs = {"server": self.server.name, "origin": self.definition.digest, "own_name": self.definition.name}
        return super().declaration().model_copy(update=theirs)

    def build_notes(self) -> ToolNotes:
        """What it does, and why it is asked about."""
        return build_tool_notes(self.server, self.definition, self.effect_judgement)

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        return _ReadInvocation(self, arguments)


def _judge_reading(definition: Definition, settings: McpServerSettings) -> EffectJudgement:
    """Reading changes nothing, whoever is trusted; unless the settings know better."""
    found = judge_effect(definition, settings)
    if found.effect is Effect.READ or definition.name in settings.effects:
        return found
    return EffectJudgement(Effect.READ, f"it only reads; it is asked about, since {found.because}")


class _ReadInvocation(Invocation):
    def __init__(self, tool: ReadingTool, arguments: dict[str, Any]) -> None:
        self._tool = tool
        self._server = tool.server
        self._arguments = arguments

    def describe(self) -> str:
        told = shorten_text(json.dumps(self._arguments, ensure_ascii=False), 200) if self._arguments else ""
        return f"{self._server.name}/{self._tool.kind} {told}".rstrip()

    def is_concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    def describe_tool_change(self) -> str | None:
        return change.sentence if (change := self._find_change()) else None

    def build_confirmation(self) -> Confirmation:
        return build_tool_confirmation(self._server, self._tool.definition, self._tool.effect_judgement)

    async def should_confirm(self) -> Confirmation | None:
        change = self._find_change()
        if change is None and not self._tool.asks_first:
            return None
        diff = await asyncio.to_thread(lambda: change.diff) if change else None
        return self.build_confirmation().model_copy(update={"diff": diff or None})

    async def execute(self, run: Run) -> Result:
        await write_in_background(partial(self._tool.pinned.approve, self._tool.definition))
        seconds = self._server.settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._read_until_answered()
        except TimeoutError:
            raise ToolFailure("timeout", f"{self._format_server()} did not answer within {seconds:g} seconds") from None

    async def _read_until_answered(self) -> Result:
        """Read it, and again when it was lost on the way."""
        from holdfast.activities.mcp.server.requests import read_kind
        from holdfast.activities.mcp.transport.faults import Failure, Fault  # they bring the mcp package along

        again = {Fault.NOT_SENT, Fault.SESSION, Fault.LOST}
        for left in reversed(range(MAX_TRIES)):
            connection = await self._wait_for_connection()
            try:
                return await read_kind(connection, self._tool.kind, self._arguments, self._server.secrets)
            except Failure as failure:
                if failure.fault in again:
                    self._server.replace_connection(connection)
                if not left or failure.fault not in again:
                    raise self._build_failure(failure) from None
        raise AssertionError("the last try ends it")

    async def _wait_for_connection(self) -> Connection:
        try:
            return await self._server.wait_for_connection()
        except ServerUnavailable as error:
            kind = "mcp_unauthorized" if self._server.state is ServerState.UNAUTHORIZED else "mcp_unavailable"
            raise ToolFailure(kind, str(error)) from None

    def _build_failure(self, failure: Failure) -> ToolFailure:
        words = self._server.secrets.hide(strip_controls(str(failure)))
        match failure.fault:
            case "told":
                return ToolFailure("mcp_error", f"{self._format_server()} answered with an error: {words}")
            case "unauthorized":
                todo = describe_remedy(self._server.name, self._server.settings)
                return ToolFailure("mcp_unauthorized", f"{self._format_server()} may not be read: {words}; {todo}")
            case "unreadable":
                return ToolFailure(
                    "bad_result", f"{self._format_server()} has answered, but that cannot be read: {words}"
                )
            case _:
                return ToolFailure("mcp_unavailable", f"{self._format_server()} could not be read: {words}")

    def _format_server(self) -> str:
        return f"The MCP server {self._server.name!r}"

    def _find_change(self) -> DefinitionChange | None:
        return self._tool.pinned.find_change(self._tool.definition)
