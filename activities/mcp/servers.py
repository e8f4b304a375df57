"""All MCP servers of a worker: their lifetime, and their tools in its catalogue. Importing this imports no `mcp`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from holdfast.activities.catalogue.registry import Missing, Problem, Registry, problem_of
from holdfast.activities.mcp.approved import Approved, Change, remember
from holdfast.activities.mcp.definitions import Definition
from holdfast.activities.mcp.hearing import ServerLog
from holdfast.activities.mcp.names import prefix_of
from holdfast.activities.mcp.reading import read_by, reading_tools
from holdfast.activities.mcp.server import Authorize, Server
from holdfast.activities.mcp.servers_file import configured
from holdfast.activities.mcp.status import ServerStatus, State
from holdfast.activities.mcp.tool import McpTool
from holdfast.configuration import McpSettings

READY_SECONDS = 10.0
"""How long a worker that starts waits for its servers. One that takes longer comes in later."""
LOOK_SECONDS = 60.0
LOGS = "logs"
"""Where is kept what servers say beside the protocol, below the folder of what is known of them."""
NOT_YET = "it is not connected yet"
_LOGGER = logging.getLogger(__name__)


class Servers:
    """The servers of one process. They are connected while any worker of it runs."""

    def __init__(self, settings: McpSettings, folder: Path, *, authorize: Authorize | None = None) -> None:
        """`folder` is where is kept what is known of their tools."""
        found, self.refused = configured(settings)
        logs = {name: ServerLog(folder / LOGS / f"{name}.log") for name in found}
        self._servers = {
            name: Server(name, one, self._publish, self._meet, authorize, logs[name]) for name, one in found.items()
        }
        self._approved = {name: Approved(folder, name) for name in found}
        self._tools: dict[str, list[McpTool]] = {name: [] for name in found}
        self._registry = Registry()
        self._told: dict[str, str | None] = {}
        self._remarked: dict[str, tuple[str, ...]] = {}
        self._looking = False
        self._users = 0

    def fill(self, registry: Registry) -> None:
        """Their tools go into this catalogue, now and whenever they change."""
        self._registry = registry
        for refusal in self.refused:
            registry.refuse(refusal.source, refusal.reason)
        for server in self._servers.values():
            self._publish(server)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them."""
        return tuple(self._servers)

    def get(self, name: str) -> Server | None:
        """The server of this name."""
        return self._servers.get(name)

    @property
    def statuses(self) -> list[ServerStatus]:
        """What is known of each."""
        return [server.status for server in self._servers.values()]

    @asynccontextmanager
    async def used(self, seconds: float = READY_SECONDS) -> AsyncIterator[None]:
        """Connected, as far as they are there, until the end of the block."""
        self._users += 1
        try:
            if self._users == 1 and self._servers:
                await self._start(seconds)
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def look(self, seconds: float = LOOK_SECONDS) -> list[ServerStatus]:
        """Connect, list and close again: for whoever wants to know what there is, and calls nothing."""
        self._looking = True  # what is wrong is told by whoever looks
        async with self.used(seconds):
            return self.statuses

    def changes(self) -> Iterator[tuple[str, Definition, Change]]:
        """Tools that are not as they were when they were last let through: of which server, as they are now, how."""
        for name, server in self._servers.items():
            reading = [tool.definition for tool in reading_tools(server, self._approved[name])]
            for definition in (*server.definitions.values(), *reading):
                if change := self._approved[name].change(definition):
                    yield name, definition, change

    def accept(self, server: str, definition: Definition) -> None:
        """Let a tool through as it is now. BadInput when that cannot be written down."""
        self._approved[server].approve(definition)

    async def _start(self, seconds: float) -> None:
        from holdfast.activities.mcp.leftovers import end_leftovers

        if ended := await end_leftovers():
            _LOGGER.info("Ended %d MCP servers of workers that are no more", ended)
        for server in self._servers.values():
            if not self._looking:
                self._remember(server)
            server.start()
        trying = [asyncio.create_task(server.tried.wait()) for server in self._servers.values()]
        _, late = await asyncio.wait(trying, timeout=seconds)
        for task in late:
            task.cancel()

    def _remember(self, server: Server) -> None:
        """The tools of a server that is not there yet are known all the same, and wait for it when they are called."""
        kept = [(one, read_by(one, server.name)) for one in self._approved[server.name].definitions]
        offers = frozenset(offer for _, offer in kept if offer)
        server.remember((one for one, offer in kept if offer is None), offers)
        self._publish(server)

    async def _meet(self, server: Server) -> None:
        """Keep what is new of its tools, before anybody can call them."""
        approved = self._approved[server.name]
        reading = [tool.definition for tool in reading_tools(server, approved)]
        await remember(partial(approved.meet, [*server.definitions.values(), *reading]))

    def _publish(self, server: Server) -> None:
        """Put what a server has into the catalogue, and say what it has not."""
        approved = self._approved[server.name]
        reading = reading_tools(server, approved)
        known = {tool.definition.name: tool for tool in self._tools[server.name]}
        self._tools[server.name] = [
            McpTool(server, one, approved) if (tool := known.get(name)) is None or tool.definition != one else tool
            for name, one in server.definitions.items()
        ]
        self._registry.replace(source_of(server.name), [*self._tools[server.name], *reading], _problems(server))
        self._tell(server)

    def _tell(self, server: Server) -> None:
        """Log what is wrong with a server, once each time, and when it is right again."""
        if not self._looking and self._remarked.get(server.name) != server.remarks:
            self._remarked[server.name] = server.remarks
            for remark in server.remarks:
                _LOGGER.warning("MCP server %s: %s", server.name, remark)
        before = self._told.get(server.name)
        if self._looking or before == server.problem or server.state is State.CONNECTING:
            return
        self._told[server.name] = server.problem
        if server.problem:
            _LOGGER.warning("MCP server %s: %s", server.name, server.problem)
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
