"""All MCP servers of a worker: their lifetime, and their tools in its catalogue. Importing this imports no `mcp`."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.activities.mcp.auth.bearer import Authorizer, LoginAuthorizer
from holdfast.activities.mcp.auth.login_store import list_logins
from holdfast.activities.mcp.auth.shared_logins import open_login_store
from holdfast.activities.mcp.resolve import list_secret_variables
from holdfast.activities.mcp.server.definition_pins import DefinitionChange, PinnedDefinitions, write_in_background
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.lifecycle import ServerState, ServerStatus
from holdfast.activities.mcp.server.server import Server
from holdfast.activities.mcp.tools.mcp_tool import McpTool
from holdfast.activities.mcp.tools.resource_tools import build_reading_tools, find_read_kind, list_read_definitions
from holdfast.activities.mcp.transport.server_log import ServerLog, redact_problem
from holdfast.activities.process.command import run_to_end
from holdfast.activities.registry.registry import MissingSource, Registry, SourceProblem, build_problem
from holdfast.config.mcp_servers_file import load_configured
from holdfast.config.schema import McpSettings
from holdfast.config.settings import Settings
from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.util.mcp_names import build_prefix
from holdfast.util.text import shorten_text

READY_SECONDS = 10.0
"""How long a worker that starts waits for its servers. One that takes longer comes in later."""
LOOK_SECONDS = 60.0
CHECK_SECONDS = 20.0
LOGS_FOLDER = "logs"
"""Where is kept what servers say beside the protocol, below the folder of what is known of them."""
_LOGGER = logging.getLogger(__name__)


class McpServers:
    """The servers of one process. They are connected while any worker of it runs."""

    def __init__(self, settings: McpSettings, folder: Path, *, authorize: Authorizer | None = None) -> None:
        """`folder` is where is kept what is known of their tools."""
        found, self.refusals = load_configured(settings)
        logs = {name: ServerLog(folder / LOGS_FOLDER / f"{name}.log") for name in found}
        self._pinned = {name: PinnedDefinitions(folder, name, self._build_hider(name)) for name in found}
        self._publisher = ToolPublisher(self._pinned)
        publish, prepare = self._publisher.publish_server, self._publisher.prepare_server
        self._servers = {
            name: Server(name, one, publish, prepare, authorize, logs[name]) for name, one in found.items()
        }
        self._users = 0

    def _build_hider(self, name: str) -> Callable[[Definition], Definition]:
        return lambda definition: definition.hide_secrets(self._servers[name].secrets)

    def fill_registry(self, registry: Registry) -> None:
        """Their tools go into this catalogue, now and whenever they change."""
        self._publisher.registry = registry
        for refusal in self.refusals:
            registry.refuse(refusal.source, refusal.reason)
        for server in self._servers.values():
            self._publisher.publish_server(server)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them."""
        return tuple(self._servers)

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The variables that the settings of any of them refer to."""
        return tuple(name for server in self._servers.values() for name in list_secret_variables(server.settings))

    def get(self, name: str) -> Server | None:
        """The server of this name."""
        return self._servers.get(name)

    @property
    def statuses(self) -> list[ServerStatus]:
        """What is known of each."""
        return [server.status for server in self._servers.values()]

    @asynccontextmanager
    async def keep_connected(self, seconds: float = READY_SECONDS) -> AsyncIterator[None]:
        """Connected, as far as they are there, until the end of the block."""
        self._users += 1
        try:
            if self._users == 1 and self._servers:
                await self._start_servers(seconds)
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await run_to_end(self._stop_servers())

    async def _stop_servers(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def fetch_statuses(self, seconds: float = LOOK_SECONDS) -> list[ServerStatus]:
        """Connect, list and close again: for whoever wants to know what there is, and calls nothing."""
        self._publisher.is_silent = True  # what is wrong is told by whoever looks
        async with self.keep_connected(seconds):
            return self.statuses

    def list_changes(self) -> Iterator[tuple[str, Definition, DefinitionChange]]:
        """Tools that are not as they were when they were last let through: of which server, as they are now, how."""
        for name, server in self._servers.items():
            reading = [tool.definition for tool in build_reading_tools(server, self._pinned[name])]
            for definition in (*server.definitions.values(), *reading):
                if change := self._pinned[name].find_change(definition):
                    yield name, definition, change

    def accept_tool(self, server: str, definition: Definition) -> None:
        """Let a tool through as it is now. BadInput when that cannot be written down."""
        self._pinned[server].approve(definition)

    async def _start_servers(self, seconds: float) -> None:
        from holdfast.activities.mcp.server.lifecycle import end_leftovers

        if ended := await end_leftovers():
            _LOGGER.info("Ended %d MCP servers of workers that are no more", ended)
        for server in self._servers.values():
            if not self._publisher.is_silent:
                await self._restore_tools(server)
            server.start()
        trying = [asyncio.create_task(server.first_attempt.wait()) for server in self._servers.values()]
        _, late = await asyncio.wait(trying, timeout=seconds)
        for task in late:
            task.cancel()

    async def _restore_tools(self, server: Server) -> None:
        """The tools of a server that is not there yet are known all the same, and wait for it when they are called."""
        kept = [(one, find_read_kind(one, server.name)) for one in self._pinned[server.name].definitions]
        offers = frozenset(offer for _, offer in kept if offer)
        server.restore_tools((one for one, offer in kept if offer is None), offers)
        await self._publisher.prepare_server(server, server.definitions, offers)
        self._publisher.publish_server(server)


NOT_CONNECTED = "it is not connected yet"
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


async def check_servers(settings: Settings) -> list[Finding]:
    """Connect to every server as a worker would, and close again. What it says now is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        logins = open_login_store(settings)
        servers = McpServers(settings.mcp, Path(folder), authorize=LoginAuthorizer(logins))
        servers.fill_registry(Registry())
        try:
            statuses = await servers.fetch_statuses(CHECK_SECONDS)
        finally:
            await logins.disconnect()
    do = "correct it in the settings"
    found = [problem(f"{one.source} is not used: {one.reason}", do) for one in servers.refusals]
    if settings.ledger and (unused := list_logins(settings.mcp_logins_folder)):
        says = f"the logins {shorten_text(', '.join(unused), 200)} in {settings.mcp_logins_folder} are not used"
        do = "log in once more with holdfast mcp login, since logins are in the shared ledger, and remove these files"
        found.append(warning(says, do))
    return [*found, *map(_judge_status, statuses)] or [ok("none in the settings")]


def _judge_status(status: ServerStatus) -> Finding:
    look = f"holdfast mcp test {status.name}"
    if status.state is ServerState.CONNECTED and not status.problem:
        if status.left_out:
            return warning(f"{status.name}: {len(status.left_out)} of its tools are left out", look)
        return ok(f"{status.name} is connected, with {status.tools} tools")
    why = " ".join((status.problem or f"it was not ready within {CHECK_SECONDS:g} seconds").split())
    login = status.state is ServerState.UNAUTHORIZED
    do = f"holdfast mcp login {status.name}" if login else f"{look}; its calls wait for it, or fail"
    return problem(f"{status.name}: {shorten_text(why, 500)}", do)
