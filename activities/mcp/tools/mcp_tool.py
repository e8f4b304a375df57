"""The tools of a server as tools of the registry, and what people are shown of them.

A description is untrusted text. It is kept without secrets and is cut, since every call that is asked about takes it
into a history.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from holdfast.activities.mcp.server.definition_pins import DefinitionChange, PinnedDefinitions, write_in_background
from holdfast.activities.mcp.server.definitions import (
    TITLE_LIMIT,
    Definition,
    EffectJudgement,
    is_destructive,
    is_open_world,
    judge_effect,
)
from holdfast.activities.mcp.server.result_content import ResultSchema
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.call_outcomes import ToolRequest
from holdfast.activities.mcp.tools.call_tool import call_tool
from holdfast.activities.registry.arguments import strip_invisible
from holdfast.domain.approvals.approval import Confirmation, ToolNotes
from holdfast.domain.calls.tool import Declaration, Effect, Invocation, Run, Tool
from holdfast.domain.content import Result, format_tool_name
from holdfast.util.mcp_names import build_tool_name
from holdfast.util.text import remove_invisible, shorten_text, strip_controls

DESCRIPTION_LIMIT = 4_000
"""Characters of a description in a question; `holdfast tools show` prints all of it."""
HINT_LIMIT = 100


def build_tool_notes(server: Server, definition: Definition, judged: EffectJudgement) -> ToolNotes:
    """Build the notes on a tool for people: what its server says, and the effect that follows from it."""
    hints = (f"{name} {json.dumps(value)}" for name, value in sorted(definition.annotations.items()))
    return ToolNotes(
        description=shorten_text(server.secrets.hide(definition.description), DESCRIPTION_LIMIT),
        effect=judged.effect.value,
        because=judged.because,
        hints=tuple(shorten_text(hint, HINT_LIMIT) for hint in hints),
    )


def format_title(server: str, definition: Definition) -> str:
    """Format the server and its name for the tool, then the title that it gives the tool.

    The title alone could be that of a tool of ours.
    """
    name = f"{server}/{format_tool_name(definition.name)}"
    title = shorten_text(strip_controls(definition.title), TITLE_LIMIT) if definition.title else definition.name
    return name if title == definition.name else f"{name} ({title})"


GRACE_SECONDS = 60.0
"""How much longer the engine waits than `timeout_seconds`: for a lost server, and for a stop to be told."""


class ServerTool(Tool):
    """The base of a server's tools: the definition, its pin, and the effect that it is judged to have."""

    checks_quickly = True
    asks_first: bool
    """A person is asked about a call, where no rule says otherwise."""

    def __init__(
        self, server: Server, definition: Definition, pinned: PinnedDefinitions, judgement: EffectJudgement
    ) -> None:
        settings = server.settings
        self.server = server
        self.definition = definition
        self.name = build_tool_name(server.name, definition.name)
        self.effect = judgement.effect
        self.on_host = settings.command is not None
        self.timeout_seconds = settings.timeout_seconds + GRACE_SECONDS
        self._pinned = pinned
        self._judgement = judgement

    def build_declaration(self) -> Declaration:
        """The declaration with the server, its name for the tool, and the digest of the definition."""
        theirs = {"server": self.server.name, "origin": self.definition.digest, "own_name": self.definition.name}
        return super().build_declaration().model_copy(update=theirs)

    def build_notes(self) -> ToolNotes:
        """The notes on the tool for people. See `build_tool_notes`."""
        return build_tool_notes(self.server, self.definition, self._judgement)

    def find_change(self) -> DefinitionChange | None:
        """Find how the definition differs from the pinned one; None when it does not."""
        return self._pinned.find_change(self.definition)

    def build_confirmation(self) -> Confirmation:
        """Build the confirmation of a call for a person, without its arguments, which are shown beside it."""
        title = format_title(self.server.name, self.definition)
        return Confirmation(kind="mcp", title=title, server=self.server.name, about=self.build_notes())

    async def pin_definition(self) -> None:
        """Pin the definition: a call under it was let through."""
        await write_in_background(partial(self._pinned.approve, self.definition))


class ServerInvocation(Invocation):
    """A call of a server's tool, asked about when its definition has changed."""

    def __init__(self, tool: ServerTool, arguments: dict[str, Any]) -> None:
        self._server_tool = tool
        self._arguments = arguments

    def is_concurrency_safe(self) -> bool:
        """Reading is safe beside other calls."""
        return self._server_tool.effect is Effect.READ

    def describe_tool_change(self) -> str | None:
        """Describe how the definition differs from the pinned one."""
        return change.sentence if (change := self._server_tool.find_change()) else None

    def build_confirmation(self) -> Confirmation:
        """The confirmation for a person when a rule asks."""
        return self._server_tool.build_confirmation()

    async def should_confirm(self) -> Confirmation | None:
        """The confirmation for a person, with the diff of a changed definition."""
        change = self._server_tool.find_change()
        if change is None and not self._server_tool.asks_first:
            return None
        diff = await asyncio.to_thread(lambda: change.diff) if change else None
        return self.build_confirmation().model_copy(update={"diff": diff or None})


class McpTool(ServerTool):
    """One tool of a server, as the server defined it when it was listed."""

    live_output = True
    asks = True

    def __init__(self, server: Server, definition: Definition, pinned: PinnedDefinitions) -> None:
        settings = server.settings
        super().__init__(server, definition, pinned, judge_effect(definition, settings))
        self.display_name = shorten_text(strip_controls(definition.title), TITLE_LIMIT) if definition.title else None
        self.description = remove_invisible(definition.description or f"{definition.name}, a tool of {server.name}")
        self.asks_first = self.effect is not Effect.READ
        self.open_world = is_open_world(definition, settings)
        self.destructive = is_destructive(definition, settings)
        self.Parameters: Mapping[str, JsonValue] = {"type": "object", **strip_invisible(definition.parameters)}
        self._output = ResultSchema(definition.output) if definition.output is not None else None

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        request = ToolRequest(self.server, self.definition, arguments, self.effect, self._output)
        return _CallInvocation(self, request, arguments)


class _CallInvocation(ServerInvocation):
    def __init__(self, tool: McpTool, request: ToolRequest, arguments: dict[str, Any]) -> None:
        super().__init__(tool, arguments)
        self._request = request

    def describe(self) -> str:
        given = json.dumps(self._arguments, ensure_ascii=False)
        return f"{format_title(self._request.server.name, self._request.definition)} {shorten_text(given, 200)}"

    async def execute(self, run: Run) -> Result:
        await self._server_tool.pin_definition()
        return await call_tool(self._request, run)
