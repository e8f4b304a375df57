"""A tool of an MCP server as a tool of the registry, and what people see of it.

A description is a stranger's words. It is kept without what is secret, and only so much of it: every call that is asked
about takes it into a history.
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
"""Characters of a description; all of it is in `holdfast tools show`."""
HINT_LIMIT = 100


def build_tool_confirmation(server: Server, definition: Definition, judged: EffectJudgement) -> Confirmation:
    """What is shown of a call of this tool. The arguments are shown beside it, once."""
    known = build_tool_notes(server, definition, judged)
    return Confirmation(kind="mcp", title=format_title(server.name, definition), server=server.name, about=known)


def build_tool_notes(server: Server, definition: Definition, judged: EffectJudgement) -> ToolNotes:
    """What the server says of a tool, and what follows from that here."""
    hints = (f"{name} {json.dumps(value)}" for name, value in sorted(definition.annotations.items()))
    return ToolNotes(
        description=shorten_text(server.secrets.hide(definition.description), DESCRIPTION_LIMIT),
        effect=judged.effect.value,
        because=judged.because,
        hints=tuple(shorten_text(hint, HINT_LIMIT) for hint in hints),
    )


def format_title(server: str, definition: Definition) -> str:
    """The server and the tool's own name, and then the title that the server gives it: a stranger's words, which may be
    those of a tool of ours."""
    name = f"{server}/{format_tool_name(definition.name)}"
    title = shorten_text(strip_controls(definition.title), TITLE_LIMIT) if definition.title else definition.name
    return name if title == definition.name else f"{name} ({title})"


GRACE_SECONDS = 60.0
"""How much longer the engine waits than we do: for the server to be back, and for it to hear of a stop."""


class McpTool(Tool):
    """One tool of a server, as the server defined it when it was listed."""

    checks_quickly = True

    live_output = True
    asks = True

    def __init__(self, server: Server, definition: Definition, approved: PinnedDefinitions) -> None:
        settings = server.settings
        self.name = build_tool_name(server.name, definition.name)
        self.display_name = shorten_text(strip_controls(definition.title), TITLE_LIMIT) if definition.title else None
        self.description = remove_invisible(definition.description or f"{definition.name}, a tool of {server.name}")
        self.effect_judgement = judge_effect(definition, settings)
        self.effect = self.effect_judgement.effect
        self.asks_first = self.effect is not Effect.READ
        self.open_world = is_open_world(definition, settings)
        self.destructive = is_destructive(definition, settings)
        self.on_host = settings.command is not None
        self.timeout_seconds = settings.timeout_seconds + GRACE_SECONDS
        self.Parameters: Mapping[str, JsonValue] = {"type": "object", **strip_invisible(definition.parameters)}
        self._server = server
        self.definition = definition
        self._pinned = approved
        self._output = ResultSchema(definition.output) if definition.output is not None else None

    def declaration(self) -> Declaration:
        """With the server, and a digest over all that it says of the tool."""
        theirs = {"server": self._server.name, "origin": self.definition.digest, "own_name": self.definition.name}
        return super().declaration().model_copy(update=theirs)

    def build_notes(self) -> ToolNotes:
        """What its server says of it, and what follows from that here."""
        return build_tool_notes(self._server, self.definition, self.effect_judgement)

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        asked = ToolRequest(self._server, self.definition, arguments, self.effect, self._output)
        return _CallInvocation(self, asked, self._pinned)


class _CallInvocation(Invocation):
    def __init__(self, tool: McpTool, request: ToolRequest, pinned: PinnedDefinitions) -> None:
        self._tool = tool
        self._request = request
        self._pinned = pinned

    def describe(self) -> str:
        given = json.dumps(self._request.arguments, ensure_ascii=False)
        return f"{format_title(self._request.server.name, self._request.definition)} {shorten_text(given, 200)}"

    def is_concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    def describe_tool_change(self) -> str | None:
        return change.sentence if (change := self._find_change()) else None

    def build_confirmation(self) -> Confirmation:
        return build_tool_confirmation(self._request.server, self._request.definition, self._tool.effect_judgement)

    async def should_confirm(self) -> Confirmation | None:
        change = self._find_change()
        if change is None and not self._tool.asks_first:
            return None
        diff = await asyncio.to_thread(lambda: change.diff) if change else None
        return self.build_confirmation().model_copy(update={"diff": diff or None})

    async def execute(self, run: Run) -> Result:
        await write_in_background(partial(self._pinned.approve, self._request.definition))
        return await call_tool(self._request, run)

    def _find_change(self) -> DefinitionChange | None:
        return self._pinned.find_change(self._request.definition)
