"""All MCP servers of a worker: their lifetime, and their tools in its catalogue. Importing this imports no `mcp`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.activities.catalogue.registry import Registry
from holdfast.activities.mcp.approved import Approved, Change
from holdfast.activities.mcp.authorizing import Authorize
from holdfast.activities.mcp.definitions import Definition
from holdfast.activities.mcp.hearing import ServerLog
from holdfast.activities.mcp.publishing import Publishing
from holdfast.activities.mcp.reading import read_by, reading_tools
from holdfast.activities.mcp.resolving import secret_variables
from holdfast.activities.mcp.server import Server
from holdfast.activities.mcp.servers_file import configured
from holdfast.activities.mcp.status import ServerStatus
from holdfast.activities.processes import to_the_end
from holdfast.configuration import McpSettings

READY_SECONDS = 10.0
"""How long a worker that starts waits for its servers. One that takes longer comes in later."""
LOOK_SECONDS = 60.0
LOGS = "logs"
"""Where is kept what servers say beside the protocol, below the folder of what is known of them."""
_LOGGER = logging.getLogger(__name__)


class Servers:
    """The servers of one process. They are connected while any worker of it runs."""

    def __init__(self, settings: McpSettings, folder: Path, *, authorize: Authorize | None = None) -> None:
        """`folder` is where is kept what is known of their tools."""
        found, self.refused = configured(settings)
        logs = {name: ServerLog(folder / LOGS / f"{name}.log") for name in found}
        self._approved = {name: Approved(folder, name, self._hiding(name)) for name in found}
        self._publishing = Publishing(self._approved)
        publish, prepare = self._publishing.publish, self._publishing.prepare
        self._servers = {
            name: Server(name, one, publish, prepare, authorize, logs[name]) for name, one in found.items()
        }
        self._users = 0

    def _hiding(self, name: str) -> Callable[[Definition], Definition]:
        return lambda definition: definition.hidden(self._servers[name].secrets)

    def fill(self, registry: Registry) -> None:
        """Their tools go into this catalogue, now and whenever they change."""
        self._publishing.registry = registry
        for refusal in self.refused:
            registry.refuse(refusal.source, refusal.reason)
        for server in self._servers.values():
            self._publishing.publish(server)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them."""
        return tuple(self._servers)

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The variables that the settings of any of them refer to."""
        return tuple(name for server in self._servers.values() for name in secret_variables(server.settings))

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
                await to_the_end(self._stop())

    async def _stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def look(self, seconds: float = LOOK_SECONDS) -> list[ServerStatus]:
        """Connect, list and close again: for whoever wants to know what there is, and calls nothing."""
        self._publishing.silent = True  # what is wrong is told by whoever looks
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
            if not self._publishing.silent:
                await self._remember(server)
            server.start()
        trying = [asyncio.create_task(server.tried.wait()) for server in self._servers.values()]
        _, late = await asyncio.wait(trying, timeout=seconds)
        for task in late:
            task.cancel()

    async def _remember(self, server: Server) -> None:
        """The tools of a server that is not there yet are known all the same, and wait for it when they are called."""
        kept = [(one, read_by(one, server.name)) for one in self._approved[server.name].definitions]
        offers = frozenset(offer for _, offer in kept if offer)
        server.remember((one for one, offer in kept if offer is None), offers)
        await self._publishing.prepare(server, server.definitions, offers)
        self._publishing.publish(server)
