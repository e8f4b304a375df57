"""All MCP servers of a worker: their lifetime, and their tools in its registry. Importing this imports no `mcp`."""

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
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning
from holdfast.util.mcp_names import build_prefix
from holdfast.util.text import shorten_text

READY_SECONDS = 10.0
"""How long a worker that starts waits for its servers. One that takes longer is added later."""
LOOK_SECONDS = 60.0
CHECK_SECONDS = 20.0
LOGS_FOLDER = "logs"
"""The subfolder of the logs of servers."""
_LOGGER = logging.getLogger(__name__)


class McpServers:
    """The servers of one process. They are connected while any of its workers runs."""

    def __init__(self, settings: McpSettings, folder: Path, *, authorize: Authorizer | None = None) -> None:
        """`folder` holds the pinned definitions of their tools."""
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
        """Publish their tools in this registry, now and whenever they change."""
        self._publisher.registry = registry
        for refusal in self.refusals:
            registry.refuse(refusal.source, refusal.reason)
        for server in self._servers.values():
            self._publisher.publish_server(server)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all servers."""
        return tuple(self._servers)

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The environment variables that the settings of any server refer to."""
        return tuple(name for server in self._servers.values() for name in list_secret_variables(server.settings))

    def get(self, name: str) -> Server | None:
        """Return the server with this name, or None."""
        return self._servers.get(name)

    @property
    def statuses(self) -> list[ServerStatus]:
        """The status of each server."""
        return [server.status for server in self._servers.values()]

    @asynccontextmanager
    async def keep_connected(self, seconds: float = READY_SECONDS) -> AsyncIterator[None]:
        """Keep the servers connected until the end of the block; waits up to `seconds` for the first attempts."""
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
        """Connect, list the tools, disconnect, and return the statuses: for those who only want to look."""
        self._publisher.is_silent = True  # the caller shows the problems
        async with self.keep_connected(seconds):
            return self.statuses

    def list_changes(self) -> Iterator[tuple[str, Definition, DefinitionChange]]:
        """Yield tools whose definition differs from the pinned one: the server, the definition, the change."""
        for name, server in self._servers.items():
            reading = [tool.definition for tool in build_reading_tools(server, self._pinned[name])]
            for definition in (*server.definitions.values(), *reading):
                if change := self._pinned[name].find_change(definition):
                    yield name, definition, change

    def accept_tool(self, server: str, definition: Definition) -> None:
        """Pin the definition of a tool as it is now. BadInput when it cannot be written."""
        self._pinned[server].approve(definition)

    async def _start_servers(self, seconds: float) -> None:
        from holdfast.activities.mcp.server.lifecycle import end_leftovers

        if ended := await end_leftovers():
            _LOGGER.info("Ended %d MCP servers that their workers had left behind", ended)
        for server in self._servers.values():
            if not self._publisher.is_silent:
                await self._restore_tools(server)
            server.start()
        trying = [asyncio.create_task(server.first_attempt.wait()) for server in self._servers.values()]
        _, late = await asyncio.wait(trying, timeout=seconds)
        for task in late:
            task.cancel()

    async def _restore_tools(self, server: Server) -> None:
        """Publish the pinned tools of a server that is not connected yet; a call of one waits for the server."""
        pinned = [(one, find_read_kind(one, server.name)) for one in self._pinned[server.name].definitions]
        offers = frozenset(offer for _, offer in pinned if offer)
        server.restore_tools((one for one, offer in pinned if offer is None), offers)
        await self._publisher.prepare_server(server, server.definitions, offers)
        self._publisher.publish_server(server)


NOT_CONNECTED = "it is not connected yet"
_EXECUTOR = ThreadPoolExecutor(2, "holdfast-mcp-tools")
"""A pool of its own: a server may list a thousand tools as often as it likes."""


@dataclass(frozen=True)
class _ServerTools:
    """The tools that were made of a server's definitions."""

    definitions: Mapping[str, Definition]
    tools: tuple[McpTool, ...] = ()
    entries: Registry | None = None
    """The usable ones, as the registry keeps them."""
    problems: tuple[SourceProblem, ...] = ()


class ToolPublisher:
    """Publishes the tools of servers in a registry: built in a thread, replaced in one step."""

    def __init__(self, approved: Mapping[str, PinnedDefinitions]) -> None:
        self.registry = Registry()
        self.is_silent = False
        """Log no problems: the caller shows them."""
        self._approved = approved
        self._made: dict[str, _ServerTools] = {}
        self._reported: dict[str, str | None] = {}
        self._remarked: dict[str, tuple[str, ...]] = {}

    async def prepare_server(
        self, server: Server, definitions: Mapping[str, Definition], offers: frozenset[str]
    ) -> None:
        """Build the tools for new definitions and pin the new ones, before any of them can be called.

        `offers`: whether the server has resources and prompts.
        """
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(_EXECUTOR, self._build_tools, server, definitions)
        reading = list_read_definitions(server.name, server.settings, definitions, offers)
        await write_in_background(
            partial(self._approved[server.name].pin_new, [*definitions.values(), *reading.values()])
        )
        self._made[server.name] = made

    def publish_server(self, server: Server) -> None:
        """Put the tools of a server into the registry, with the problems it has."""
        made = self._made.get(server.name)
        if made is None or made.definitions is not server.definitions:
            made = self._made[server.name] = self._build_tools(server, server.definitions)
        reading = build_reading_tools(server, self._approved[server.name])
        problems = [*_list_problems(server), *made.problems]
        self.registry.replace_source(format_source(server.name), [*made.tools, *reading], problems, made.entries)
        self._log_problems(server)

    def _build_tools(self, server: Server, definitions: Mapping[str, Definition]) -> _ServerTools:
        """Build tools from definitions. The tool of an unchanged definition stays the same object."""
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
        """Log each problem of a server once, and when it is connected again."""
        if not self.is_silent and self._remarked.get(server.name) != server.remarks:
            self._remarked[server.name] = server.remarks
            for remark in server.remarks:
                _LOGGER.warning("MCP server %s: %s", server.name, remark)
        before = self._reported.get(server.name)
        if self.is_silent or before == server.problem or server.state is ServerState.CONNECTING:
            return
        self._reported[server.name] = server.problem
        if server.problem:
            _LOGGER.warning("MCP server %s: %s", server.name, redact_problem(server.problem))
        elif before:
            _LOGGER.warning("MCP server %s is connected again", server.name)


def format_source(server: str) -> str:
    """The name of a server as the source of tools."""
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
    found = [report_problem(f"{one.source} is not used: {one.reason}", do) for one in servers.refusals]
    if settings.ledger and (unused := list_logins(settings.mcp_logins_folder)):
        says = f"the logins {shorten_text(', '.join(unused), 200)} in {settings.mcp_logins_folder} are not used"
        do = "log in once more with holdfast mcp login, since logins are in the shared ledger, and remove these files"
        found.append(report_warning(says, do))
    return [*found, *map(_judge_status, statuses)] or [report_ok("none in the settings")]


def _judge_status(status: ServerStatus) -> Finding:
    look = f"holdfast mcp test {status.name}"
    if status.state is ServerState.CONNECTED and not status.problem:
        if status.left_out:
            return report_warning(f"{status.name}: {len(status.left_out)} of its tools are left out", look)
        return report_ok(f"{status.name} is connected, with {status.tools} tools")
    why = " ".join((status.problem or f"it was not ready within {CHECK_SECONDS:g} seconds").split())
    login = status.state is ServerState.UNAUTHORIZED
    do = f"holdfast mcp login {status.name}" if login else f"{look}; its calls wait for it, or fail"
    return report_problem(f"{status.name}: {shorten_text(why, 500)}", do)
