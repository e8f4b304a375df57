"""A server's tool as a tool of ours: declared, asked about and run like all others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from holdfast.activities.catalogue.schemas import without_unseen
from holdfast.activities.mcp.approved import Approved, Change, remember
from holdfast.activities.mcp.calling import call
from holdfast.activities.mcp.definitions import TITLE_LIMIT, Definition, destructive, judged, open_world
from holdfast.activities.mcp.endings import Asked
from holdfast.activities.mcp.names import tool_name
from holdfast.activities.mcp.outputs import ResultSchema
from holdfast.activities.mcp.server import Server
from holdfast.activities.mcp.showing import about, confirmation, title_of
from holdfast.approvals import About, Confirmation
from holdfast.content import Result, plain, seen, shorten
from holdfast.tools import Declaration, Effect, Invocation, Run, Tool

GRACE_SECONDS = 60.0
"""How much longer the engine waits than we do: for the server to be back, and for it to hear of a stop."""


class McpTool(Tool):
    """One tool of a server, as the server defined it when it was listed."""

    checks_quickly = True

    live_output = True
    asks = True

    def __init__(self, server: Server, definition: Definition, approved: Approved) -> None:
        settings = server.settings
        self.name = tool_name(server.name, definition.name)
        self.display_name = shorten(plain(definition.title), TITLE_LIMIT) if definition.title else None
        self.description = seen(definition.description or f"{definition.name}, a tool of {server.name}")
        self.judged = judged(definition, settings)
        self.effect = self.judged.effect
        self.asks_first = self.effect is not Effect.READ
        self.open_world = open_world(definition, settings)
        self.destructive = destructive(definition, settings)
        self.on_host = settings.command is not None
        self.timeout_seconds = settings.timeout_seconds + GRACE_SECONDS
        self.Parameters: Mapping[str, JsonValue] = {"type": "object", **without_unseen(definition.parameters)}
        self._server = server
        self.definition = definition
        self._approved = approved
        self._output = ResultSchema(definition.output) if definition.output is not None else None

    def declaration(self) -> Declaration:
        """With the server, and a digest over all that it says of the tool."""
        theirs = {"server": self._server.name, "origin": self.definition.digest, "own_name": self.definition.name}
        return super().declaration().model_copy(update=theirs)

    def about(self) -> About:
        """What its server says of it, and what follows from that here."""
        return about(self._server, self.definition, self.judged)

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        asked = Asked(self._server, self.definition, arguments, self.effect, self._output)
        return _Calling(self, asked, self._approved)


class _Calling(Invocation):
    def __init__(self, tool: McpTool, asked: Asked, approved: Approved) -> None:
        self._tool = tool
        self._asked = asked
        self._approved = approved

    def describe(self) -> str:
        given = json.dumps(self._asked.arguments, ensure_ascii=False)
        return f"{title_of(self._asked.server.name, self._asked.definition)} {shorten(given, 200)}"

    def concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    def changed(self) -> str | None:
        return change.sentence if (change := self._change()) else None

    def shown(self) -> Confirmation:
        return confirmation(self._asked.server, self._asked.definition, self._tool.judged)

    async def should_confirm(self) -> Confirmation | None:
        change = self._change()
        if change is None and not self._tool.asks_first:
            return None
        diff = await asyncio.to_thread(lambda: change.diff) if change else None
        return self.shown().model_copy(update={"diff": diff or None})

    async def execute(self, run: Run) -> Result:
        await remember(partial(self._approved.approve, self._asked.definition))
        return await call(self._asked, run)

    def _change(self) -> Change | None:
        return self._approved.change(self._asked.definition)
