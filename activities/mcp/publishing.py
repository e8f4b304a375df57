"""The tools of servers in a worker's catalogue: made beside everything else, put there in one step, and told about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from holdfast.activities.catalogue.registry import Missing, Problem, Registry, problem_of
from holdfast.activities.mcp.approved import Approved, remember
from holdfast.activities.mcp.definitions import Definition
from holdfast.activities.mcp.logged import logged
from holdfast.activities.mcp.names import prefix_of
from holdfast.activities.mcp.reading import reading_tools, readings
from holdfast.activities.mcp.server import Server
from holdfast.activities.mcp.status import State
from holdfast.activities.mcp.tool import McpTool

NOT_YET = "it is not connected yet"
_LOGGER = logging.getLogger(__name__)
_BESIDE = ThreadPoolExecutor(2, "holdfast-mcp-tools")
"""Not the threads that everything else shares: a server may list a thousand tools as often as it likes."""


@dataclass(frozen=True)
class _Made:
    """What became of the definitions of a server."""

    definitions: Mapping[str, Definition]
    tools: tuple[McpTool, ...] = ()
    entries: Registry | None = None
    """Those of them that can be used, as a catalogue keeps them."""
    problems: tuple[Problem, ...] = ()


class Publishing:
    """What a catalogue has of the servers of one process."""

    def __init__(self, approved: Mapping[str, Approved]) -> None:
        self.registry = Registry()
        self.silent = False
        """Whoever looks tells what is wrong."""
        self._approved = approved
        self._made: dict[str, _Made] = {}
        self._told: dict[str, str | None] = {}
        self._remarked: dict[str, tuple[str, ...]] = {}

    async def prepare(self, server: Server, definitions: Mapping[str, Definition], offers: frozenset[str]) -> None:
        """A server is to have these tools, and to offer this. What takes long of that is done now.

        What is new of them is kept, before anybody can call it.
        """
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(_BESIDE, self._make, server, definitions)
        reading = readings(server.name, server.settings, definitions, offers)
        await remember(partial(self._approved[server.name].meet, [*definitions.values(), *reading.values()]))
        self._made[server.name] = made

    def publish(self, server: Server) -> None:
        """Put what a server has into the catalogue, and say what it has not."""
        made = self._made.get(server.name)
        if made is None or made.definitions is not server.definitions:
            made = self._made[server.name] = self._make(server, server.definitions)
        reading = reading_tools(server, self._approved[server.name])
        problems = [*_problems(server), *made.problems]
        self.registry.replace(source_of(server.name), [*made.tools, *reading], problems, made.entries)
        self._tell(server)

    def _make(self, server: Server, definitions: Mapping[str, Definition]) -> _Made:
        """Tools from definitions; those that are as they were are the same tools."""
        approved, source = self._approved[server.name], source_of(server.name)
        before = self._made.get(server.name)
        known = {tool.definition.name: tool for tool in before.tools} if before else {}
        entries = Registry()
        for name, one in definitions.items():
            tool = known.get(name)
            ready = before.entries if before else None
            entries.offer(tool if tool and tool.definition == one else McpTool(server, one, approved), source, ready)
        tools = tuple(entry.tool for entry in entries.entries if isinstance(entry.tool, McpTool))
        return _Made(definitions, tools, entries, tuple(entries.problems))

    def _tell(self, server: Server) -> None:
        """Log what is wrong with a server, once each time, and when it is right again."""
        if not self.silent and self._remarked.get(server.name) != server.remarks:
            self._remarked[server.name] = server.remarks
            for remark in server.remarks:
                _LOGGER.warning("MCP server %s: %s", server.name, remark)
        before = self._told.get(server.name)
        if self.silent or before == server.problem or server.state is State.CONNECTING:
            return
        self._told[server.name] = server.problem
        if server.problem:
            _LOGGER.warning("MCP server %s: %s", server.name, logged(server.problem))
        elif before:
            _LOGGER.warning("MCP server %s is connected again", server.name)


def source_of(server: str) -> str:
    """Where a server's tools come from, as the catalogue says it."""
    return f"MCP server {server}"


def _problems(server: Server) -> list[Problem]:
    source, prefix = source_of(server.name), prefix_of(server.name)
    found = [problem_of(source, reason) for reason in (*server.left_out, *server.remarks)]
    if server.state is not State.CONNECTED or server.problem:
        error = "mcp_unauthorized" if server.state is State.UNAUTHORIZED else "mcp_unavailable"
        missing = Missing(prefix, error, server.come, pending=not server.problem)
        found.append(problem_of(source, server.problem or NOT_YET, missing))
    return found
