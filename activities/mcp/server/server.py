"""One MCP server of a worker: kept connected, listed again when its tools change, reconnected when it is lost.

One task looks after it. A server that is down gives its own calls a clear error and affects no others.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.activities.mcp.auth.bearer import Authorizer, BearerAuth, describe_remedy
from holdfast.activities.mcp.auth.login_store import NotAuthorized
from holdfast.activities.mcp.resolve import ResolvedServer, resolve_server
from holdfast.activities.mcp.server.definitions import Definition, build_listing, drop_unusable, is_wanted
from holdfast.activities.mcp.server.lifecycle import (
    ConnectionCloser,
    ListPauses,
    McpServerUnavailable,
    RetryPauses,
    ServerState,
    ServerStatus,
)
from holdfast.activities.mcp.transport.server_log import ServerLog, redact_problem
from holdfast.config.schema import McpServerSettings
from holdfast.errors import BadInput
from holdfast.util.secrets import UNCUT, Secrets
from holdfast.util.text import exception_text, shorten_text

if TYPE_CHECKING:
    import httpx2

    from holdfast.activities.mcp.server.connection import Connection

REFRESH_SECONDS = 300.0
"""How often a list is read without a notice of change: not every server sends one."""
CHECK_SECONDS = 5.0
"""How long a server may take to answer after a call that it did not answer."""
ARRIVAL_SECONDS = 3.0
"""How long a call of an unknown tool waits for its server; the whole batch waits with it."""
WAIT_SECONDS = 5.0
"""How long a call waits for a lost server to be back."""
_LOGGER = logging.getLogger(__name__)
PrepareTools = Callable[["Server", Mapping[str, Definition], frozenset[str]], Awaitable[None]]


class Server:
    """One server.

    `prepare` builds its tools, in a thread, before they change. `on_change` is called after its tools or its state
    changed.
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        on_change: Callable[[Server], None],
        prepare: PrepareTools,
        authorize: Authorizer | None = None,
        log: ServerLog | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.state: ServerState
        self.problem: str | None
        self.definitions: Mapping[str, Definition] = {}
        """The tools of its last list, by their own names. They stay while it is disconnected."""
        self.left_out: tuple[str, ...] = ()
        self.remarks: tuple[str, ...] = ()
        """Settings that match none of its tools."""
        self.offered_kinds: frozenset[str] = frozenset()
        """Which of `resources` and `prompts` it has."""
        self._on_change = on_change
        self._prepare = prepare
        self._authorize = authorize
        self._log = log
        self._login_stamp: object = None
        self._auth: httpx2.Auth | None = None
        self._resolved_server: ResolvedServer | None = None
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._reset_state()

    @property
    def secrets(self) -> Secrets:
        """The secrets to be removed from what it says."""
        return self._resolved_server.secrets if self._resolved_server else Secrets()

    @property
    def status(self) -> ServerStatus:
        """Its state, for people."""
        connection = self._connection
        return ServerStatus(
            name=self.name,
            state=self.state,
            place=self._resolved_server.place if self._resolved_server else None,
            protocol=connection.protocol if connection else None,
            server=connection.server if connection else None,
            tools=len(self.definitions),
            problem=self.problem,
            left_out=self.left_out,
            remarks=self.remarks,
        )

    def restore_tools(self, definitions: Iterable[Definition], offers: frozenset[str]) -> None:
        """Set the tools that it had when it was last connected; its own list replaces them."""
        fit = (one for one in definitions if self.secrets.hide(one.name) == one.name)
        self.definitions = {one.name: one for one in fit if is_wanted(one, self.settings)}
        self.offered_kinds = offers

    def start(self) -> None:
        """Start the task that looks after it."""
        self._reset_state()
        self._task = asyncio.create_task(self._keep_connected(), name=f"mcp-server-{self.name}")

    def _reset_state(self) -> None:
        self.state, self.problem = ServerState.CONNECTING, None
        with suppress(BadInput):  # reported when it is started
            self._resolved_server = resolve_server(self.settings, os.environ)
        self.first_attempt = asyncio.Event()
        """Set after the first attempt to connect."""
        self._state_changed = asyncio.Event()
        self._list_stale = asyncio.Event()
        self._connection_doubtful = asyncio.Event()
        self._retry_pauses = RetryPauses(self._has_new_login)
        self._closer = ConnectionCloser()

    async def stop(self) -> None:
        """Close its connections. Nothing that it started is left."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._closer.close_all()
        self.state = ServerState.CLOSED

    async def wait_for_connection(self, seconds: float = WAIT_SECONDS) -> Connection:
        """Wait for a connection and return it. McpServerUnavailable when there is none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                tried = False
                while self._connection is None or self._connection.gone.is_set():
                    if self.state in (ServerState.REFUSED, ServerState.CLOSED) or (
                        tried and self.state is ServerState.UNAUTHORIZED
                    ):
                        break
                    self._retry_pauses.wanted.set()
                    await self._state_changed.wait()
                    tried = True
        if self._connection is None or self._connection.gone.is_set():
            raise McpServerUnavailable(self.explain_absence())
        connection = self._connection
        if isinstance(self._auth, BearerAuth):
            await self._auth.prepare_token()
        return connection

    async def connect_soon(self) -> None:
        """Try to connect now: a call wants a tool that only this server can have."""
        if self._task is not None:
            with suppress(McpServerUnavailable):
                await self.wait_for_connection(ARRIVAL_SECONDS)

    def explain_absence(self) -> str:
        """Explain why it is not connected."""
        reason = f": {self.problem}" if self.problem else ""
        lasting = (ServerState.REFUSED, ServerState.CLOSED, ServerState.UNAUTHORIZED)
        again = "" if self.state in lasting else ". It is tried again by itself"
        return f"The MCP server {self.name!r} is not connected{reason}{again}"

    def replace_connection(self, connection: Connection) -> None:
        """Replace a connection that a call found broken. What still runs on it may finish."""
        if connection is self._connection:
            self._connection = None
            self._set_state(ServerState.CONNECTING, None)

    def check_connection(self, connection: Connection) -> None:
        """Check a connection after a call without an answer; it is replaced if it does not answer."""
        if connection is self._connection:
            self._connection_doubtful.set()
            self._list_stale.set()

    async def fetch_definition(self, tool: str) -> Definition | None:
        """Fetch the current definition of a tool. Raises what a failed request raises."""
        await self._read_list(await self.wait_for_connection(), self.offered_kinds)
        return self.definitions.get(tool)

    async def _keep_connected(self) -> None:
        try:
            self._resolved_server = resolve_server(self.settings, os.environ)
        except BadInput as error:
            self._set_state(ServerState.REFUSED, str(error))
            return
        while True:
            self._retry_pauses.start_attempt()
            await self._connect_and_follow(self._resolved_server)
            await self._retry_pauses.wait()

    async def _connect_and_follow(self, resolved: ResolvedServer) -> None:
        """Connect, and stay until the connection is lost."""
        from holdfast.activities.mcp.server.connection import Connection  # imports the mcp package

        self._set_state(ServerState.CONNECTING, self.problem)
        self._login_stamp = await self._authorize.read_stamp(self.name) if self._authorize else None
        connection: Connection | None = None
        is_reported = True
        try:
            self._auth = self._authorize(self.name, self.settings, resolved) if self._authorize else None
            connection = Connection(self.name, resolved, self._list_stale.set, self._auth, self._log)
            await connection.open()
            async with asyncio.timeout(resolved.start_seconds):
                await self._read_list(connection)
            self._connection = connection
            self._set_state(ServerState.CONNECTED, None)
            await self._follow_connection(connection)
            if is_reported := connection is self._connection:
                self._set_state(ServerState.WAITING, connection.reason)
        except TimeoutError:
            self._set_state(ServerState.WAITING, f"it did not list its tools within {resolved.start_seconds:g} seconds")
        except Exception as error:
            if isinstance(error, NotAuthorized) or getattr(error, "fault", None) == "unauthorized":
                self._set_state(
                    ServerState.UNAUTHORIZED,
                    f"{self._describe_error(error)}; {describe_remedy(self.name, self.settings)}",
                )
            else:
                self._set_state(ServerState.WAITING, self._describe_error(error))
        finally:
            self._connection = None
            closing = self._closer.retire(connection, is_known=is_reported) if connection else None
        if closing and connection and not connection.calls:
            await asyncio.wait({closing})  # two processes of one server may conflict

    async def _follow_connection(self, connection: Connection) -> None:
        """Read the list whenever it may have changed, until the connection ends or is replaced."""
        settling = ListPauses()
        while self._is_current(connection):
            changed = await self._wait_while_connected(connection, REFRESH_SECONDS, self._list_stale)
            if changed:
                await self._wait_while_connected(connection, settling.choose_pause(), self._connection_doubtful)
            if self._is_current(connection):
                self._list_stale.clear()
                await self._refresh_list(connection)

    def _is_current(self, connection: Connection) -> bool:
        return connection is self._connection and not connection.gone.is_set()

    async def _wait_while_connected(self, connection: Connection, seconds: float, *events: asyncio.Event) -> bool:
        """Wait up to `seconds` or for one of the events while connected. Whether an event is set."""
        watched = (connection.gone, self._state_changed, *events)
        tasks = [asyncio.create_task(event.wait()) for event in watched]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in tasks:
                wait.cancel()
        return any(event.is_set() for event in events)

    async def _refresh_list(self, connection: Connection) -> None:
        """Read the list again. An invalid list is reported and changes nothing; no answer means that it is lost."""
        seconds = self.settings.start_seconds
        seconds = min(CHECK_SECONDS, seconds) if self._connection_doubtful.is_set() else seconds
        self._connection_doubtful.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._read_list(connection)
        except BadInput as error:
            self.problem = self._describe_error(error)
            self._on_change(self)
        except Exception as error:
            if not connection.gone.is_set():
                _LOGGER.info(
                    "MCP server %s did not list its tools: %s", self.name, redact_problem(self._describe_error(error))
                )
                self.replace_connection(connection)

    async def _read_list(self, connection: Connection, offers: frozenset[str] | None = None) -> None:
        """Read the list, and what else the server offers unless that is given."""
        from holdfast.activities.mcp.server.requests import (
            find_offered,
            list_tools,
        )

        found = await list_tools(connection)
        if offers is None:
            offers = await find_offered(connection)
        listing = await asyncio.to_thread(build_listing, found.tools, self.settings, self.secrets)
        definitions, left_out, remarks = await drop_unusable(listing, self.definitions)
        if definitions == self.definitions:
            definitions = self.definitions
        if definitions is not self.definitions or offers != self.offered_kinds:
            await self._prepare(self, definitions, offers)
        now = (definitions, (*found.left_out, *left_out), remarks, offers)
        if now != (self.definitions, self.left_out, self.remarks, self.offered_kinds) or self.problem:
            self.definitions, self.left_out, self.remarks, self.offered_kinds = now
            self.problem = None
            self._on_change(self)

    async def _has_new_login(self) -> bool:
        return self._authorize is not None and await self._authorize.read_stamp(self.name) != self._login_stamp

    def _set_state(self, state: ServerState, problem: str | None) -> None:
        """Set the state, and tell waiting calls and, if it is news, `on_change`."""
        before, now = (self.state is ServerState.CONNECTED, self.problem), (state is ServerState.CONNECTED, problem)
        self.state, self.problem = state, problem
        if state is not ServerState.CONNECTING:
            self.first_attempt.set()
        self._state_changed.set()
        self._state_changed = asyncio.Event()
        if now != before:
            self._on_change(self)

    def _describe_error(self, error: BaseException) -> str:
        return shorten_text(self.secrets.hide(exception_text(error, UNCUT)), 1_000)
