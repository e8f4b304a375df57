"""The tools of servers in a worker's catalogue: made beside everything else, put there in one step, and told about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from holdfast.activities.mcp.server.definition_pins import PinnedDefinitions, write_in_background
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.server.status import ServerState
from holdfast.activities.mcp.tools.mcp_tool import McpTool
from holdfast.activities.mcp.tools.resource_tools import build_reading_tools, list_read_definitions
from holdfast.activities.mcp.transport.server_log import redact_problem
from holdfast.activities.registry.registry import MissingSource, Registry, SourceProblem, build_problem
from holdfast.util.mcp_names import build_prefix

NOT_CONNECTED = "it is not connected yet"
_LOGGER = logging.getLogger(__name__)
_EXECUTOR = ThreadPoolExecutor(2, "holdfast-mcp-tools")
"""Not the threads that everything else shares: a server may list a thousand tools as often as it likes."""


@dataclass(frozen=True)
class _ServerTools:
    """What became of the definitions of a server."""

    definitions: Mapping[str, Definition]
    tools: tuple[McpTool, ...] = ()
    entries: Registry | None = None
    """Those of them that can be used, as a catalogue keeps them."""
    problems: tuple[SourceProblem, ...] = ()


class ToolPublisher:
    """What a catalogue has of the servers of one process."""

    def __init__(self, approved: Mapping[str, PinnedDefinitions]) -> None:
        self.registry = Registry()
        self.is_silent = False
        """Whoever looks tells what is wrong."""
        self._approved = approved
        self._made: dict[str, _ServerTools] = {}
        self._told: dict[str, str | None] = {}
        self._remarked: dict[str, tuple[str, ...]] = {}

    async def prepare_server(
        self, server: Server, definitions: Mapping[str, Definition], offers: frozenset[str]
    ) -> None:
        """A server is to have these tools, and to offer this. What takes long of that is done now.

        What is new of them is kept, before anybody can call it.
        """
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(_EXECUTOR, self._build_tools, server, definitions)
        reading = list_read_definitions(server.name, server.settings, definitions, offers)
        await write_in_background(
            partial(self._approved[server.name].pin_new, [*definitions.values(), *reading.values()])
        )
        self._made[server.name] = made

    def publish_server(self, server: Server) -> None:
        """Put what a server has into the catalogue, and say what it has not."""
        made = self._made.get(server.name)
        if made is None or made.definitions is not server.definitions:
            made = self._made[server.name] = self._build_tools(server, server.definitions)
        reading = build_reading_tools(server, self._approved[server.name])
        problems = [*_list_problems(server), *made.problems]
        self.registry.replace_source(format_source(server.name), [*made.tools, *reading], problems, made.entries)
        self._log_problems(server)

    def _build_tools(self, server: Server, definitions: Mapping[str, Definition]) -> _ServerTools:
        """Tools from definitions; those that are as they were are the same tools."""
        approved, source = self._approved[server.name], format_source(server.name)
        before = self._made.get(server.name)
        known = {tool.definition.name: tool for tool in before.tools} if before else {}
        entries = Registry()
        for name, one in definitions.items():
            tool = known.get(name)
            ready = before.entries if before else None
            entries.offer(tool if tool and tool.definition == one else McpTool(server, one, approved), source, ready)
        tools = tuple(entry.tool for entry in entries.entries if isinstance(entry.tool, McpTool))
        return _ServerTools(definitions, tools, entries, tuple(entries.problems))

    def _log_problems(self, server: Server) -> None:
        """Log what is wrong with a server, once each time, and when it is right again."""
        if not self.is_silent and self._remarked.get(server.name) != server.remarks:
            self._remarked[server.name] = server.remarks
            for remark in server.remarks:
                _LOGGER.warning("MCP server %s: %s", server.name, remark)
        before = self._told.get(server.name)
        if self.is_silent or before == server.problem or server.state is ServerState.CONNECTING:
            return
        self._told[server.name] = server.problem
        if server.problem:
            _LOGGER.warning("MCP server %s: %s", server.name, redact_problem(server.problem))
        elif before:
            _LOGGER.warning("MCP server %s is connected again", server.name)


def format_source(server: str) -> str:
    """Where a server's tools come from, as the catalogue says it."""
    return f"MCP server {server}"


def _list_problems(server: Server) -> list[SourceProblem]:
    source, prefix = format_source(server.name), build_prefix(server.name)
    found = [build_problem(source, reason) for reason in (*server.left_out, *server.remarks)]
    if server.state is not ServerState.CONNECTED or server.problem:
        error = "mcp_unauthorized" if server.state is ServerState.UNAUTHORIZED else "mcp_unavailable"
        missing = MissingSource(prefix, error, server.connect_soon, pending=not server.problem)
        found.append(build_problem(source, server.problem or NOT_CONNECTED, missing))
    return found
