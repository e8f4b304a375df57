"""A server as a worker has it: kept connected, listed anew when its tools change, and reached again when it was lost.

One task looks after it. A server that is down costs its own calls a clear error and nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from holdfast.activities.mcp.authorizing import Bearer, remedy
from holdfast.activities.mcp.definitions import Definition, wanted
from holdfast.activities.mcp.hearing import ServerLog
from holdfast.activities.mcp.listing import listing_of, usable
from holdfast.activities.mcp.logins import NotAuthorized
from holdfast.activities.mcp.resolving import Resolved, resolve
from holdfast.activities.mcp.secrets import Secrets
from holdfast.activities.mcp.status import ServerStatus, State, Unavailable
from holdfast.configuration import McpServerSettings
from holdfast.content import said, shorten
from holdfast.errors import BadInput

if TYPE_CHECKING:
    import httpx2
    from mcp_types import Tool as ListedTool

    from holdfast.activities.mcp.connecting import Connection

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 30.0
"""A connection that lasted so long was a good one: the next pause is short again."""
REFRESH_SECONDS = 300.0
"""How often a list is read again that nobody said had changed: not every server says so."""
SETTLE_SECONDS = 0.5
"""What a server gets to finish changing its tools before they are read."""
COME_SECONDS = 3.0
"""How long a call of a tool that is not known waits for its server: the whole batch waits with it."""
WAIT_SECONDS = 5.0
"""How long a call waits for a server to be back."""
LOOK_SECONDS = 1.0
"""How often is looked whether somebody has logged in."""
_LOGGER = logging.getLogger(__name__)


class Authorize(Protocol):
    """How requests to a server are authorized, beyond the headers of its settings."""

    def __call__(self, name: str, settings: McpServerSettings, resolved: Resolved) -> httpx2.Auth | None:
        """What authorizes requests to this server, if anything does."""

    def stamp(self, name: str) -> object:
        """Another one when that may have changed."""


class Server:
    """One server. `published` is called when its tools or its state have changed, `met` before its tools are told."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        published: Callable[[Server], None],
        met: Callable[[Server], Awaitable[None]],
        authorize: Authorize | None = None,
        log: ServerLog | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.state: State
        self.problem: str | None
        self.definitions: Mapping[str, Definition] = {}
        """Its tools as it last listed them, by its own names for them. They stay while it is away."""
        self.left_out: tuple[str, ...] = ()
        self.remarks: tuple[str, ...] = ()
        """What of the settings is about none of its tools."""
        self.offers: frozenset[str] = frozenset()
        """What it has beside tools."""
        self._published = published
        self._met = met
        self._authorize = authorize
        self._log = log
        self._stamp: object = None
        self._auth: httpx2.Auth | None = None
        self._resolved: Resolved | None = None
        self._connection: Connection | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._prepare()

    @property
    def secrets(self) -> Secrets:
        """What must not be told of what it says."""
        return self._resolved.secrets if self._resolved else Secrets()

    @property
    def status(self) -> ServerStatus:
        """What is known of it."""
        connection = self._connection
        return ServerStatus(
            name=self.name,
            state=self.state,
            place=self._resolved.place if self._resolved else None,
            protocol=connection.protocol if connection else None,
            server=connection.server if connection else None,
            tools=len(self.definitions),
            problem=self.problem,
            left_out=self.left_out,
            remarks=self.remarks,
        )

    def remember(self, definitions: Iterable[Definition], offers: frozenset[str]) -> None:
        """What it had when it was last there; it says itself what it has, once it is connected."""
        self.definitions = {one.name: one for one in definitions if wanted(one, self.settings)}
        self.offers = offers

    def start(self) -> None:
        """Begin to look after it."""
        self._prepare()
        self._task = asyncio.create_task(self._look_after(), name=f"mcp-server-{self.name}")

    def _prepare(self) -> None:
        self.state, self.problem = State.CONNECTING, None
        self.tried = asyncio.Event()
        """It was connected, or could not be, at least once."""
        self._moved = asyncio.Event()
        self._wanted = asyncio.Event()
        self._stale = asyncio.Event()
        self._ending = asyncio.Event()

    async def stop(self) -> None:
        """Close what is open; nothing that it started is left."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._ending.set()
        if self._retiring:
            await asyncio.wait(self._retiring)
        self.state = State.CLOSED

    async def connected(self, seconds: float = WAIT_SECONDS) -> Connection:
        """Its connection, once there is one; Unavailable when there is none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                tried = False
                while self._connection is None or self._connection.gone.is_set():
                    if self.state in (State.REFUSED, State.CLOSED) or (tried and self.state is State.UNAUTHORIZED):
                        break
                    self._wanted.set()
                    await self._moved.wait()
                    tried = True
        if self._connection is None or self._connection.gone.is_set():
            raise Unavailable(self.why())
        connection = self._connection
        if isinstance(self._auth, Bearer):
            await self._auth.prepare()
        return connection

    async def come(self) -> None:
        """Try to be there soon: somebody wants a tool that only it can have."""
        if self._task is not None:
            with suppress(Unavailable):
                await self.connected(COME_SECONDS)

    def why(self) -> str:
        """Why it is not there."""
        reason = f": {self.problem}" if self.problem else ""
        lasting = (State.REFUSED, State.CLOSED, State.UNAUTHORIZED)
        again = "" if self.state in lasting else ". It is tried again by itself"
        return f"The MCP server {self.name!r} is not connected{reason}{again}"

    def doubt(self, connection: Connection) -> None:
        """A call found out that a connection is no good: there is to be another. What still runs on it may finish."""
        if connection is self._connection:
            self._connection = None
            self._note(State.CONNECTING, None)

    async def listed(self, tool: str) -> Definition | None:
        """A tool as the server defines it now, asked for now."""
        connection = await self.connected()
        await self._take(await connection.tools(), self.offers)
        return self.definitions.get(tool)

    async def _look_after(self) -> None:
        try:
            self._resolved = resolve(self.settings, os.environ)
        except BadInput as error:
            self._note(State.REFUSED, str(error))
            return
        pause, loop = FIRST_PAUSE, asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._serve(self._resolved)
            pause = FIRST_PAUSE if loop.time() - began > STEADY_SECONDS else pause
            await self._wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _serve(self, resolved: Resolved) -> None:
        """Connect, and stay with it until it is lost."""
        from holdfast.activities.mcp.connecting import Connection  # it brings the mcp package along

        self._note(State.CONNECTING, self.problem)
        self._stamp = self._authorize.stamp(self.name) if self._authorize else None
        connection: Connection | None = None
        told = True
        try:
            self._auth = self._authorize(self.name, self.settings, resolved) if self._authorize else None
            connection = await Connection.open(self.name, resolved, self._stale.set, self._auth, self._log)
            async with asyncio.timeout(resolved.start_seconds):
                await self._read(connection)
            self._connection = connection
            self._note(State.CONNECTED, None)
            await self._stay(connection)
            if told := connection is self._connection:
                self._note(State.WAITING, connection.reason)
        except TimeoutError:
            self._note(State.WAITING, f"it did not list its tools within {resolved.start_seconds:g} seconds")
        except Exception as error:
            if isinstance(error, NotAuthorized) or getattr(error, "fault", None) == "unauthorized":
                self._note(State.UNAUTHORIZED, f"{self._words(error)}; {remedy(self.name, self.settings)}")
            else:
                self._note(State.WAITING, self._words(error))
        finally:
            self._connection = None
            closing = self._retire(connection, told=told) if connection else None
        if closing and connection and not connection.calls:
            await asyncio.wait({closing})  # two of them at once may be in each other's way

    async def _stay(self, connection: Connection) -> None:
        """Read its list whenever that may have changed, until it is gone or another takes its place."""
        while connection is self._connection and not connection.gone.is_set():
            waits = [asyncio.create_task(event.wait()) for event in (connection.gone, self._stale, self._moved)]
            try:
                done, _ = await asyncio.wait(waits, timeout=REFRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if not connection.gone.is_set() and connection is self._connection and waits[2] not in done:
                await asyncio.sleep(SETTLE_SECONDS if done else 0)
                self._stale.clear()
                await self._refresh(connection)

    async def _refresh(self, connection: Connection) -> None:
        """Read its list. What it lists wrongly changes nothing, and is told; when it does not answer, it is lost."""
        try:
            async with asyncio.timeout(self.settings.start_seconds):
                await self._read(connection)
        except BadInput as error:
            self.problem = self._words(error)
            self._published(self)
        except Exception as error:
            if not connection.gone.is_set():
                _LOGGER.info("MCP server %s did not list its tools: %s", self.name, self._words(error))
                self.doubt(connection)

    async def _read(self, connection: Connection) -> None:
        from holdfast.activities.mcp.readable import offered  # as above

        tools = await connection.tools()
        await self._take(tools, await offered(connection))

    async def _take(self, tools: list[ListedTool], offers: frozenset[str]) -> None:
        """What it has from now on, told when that is something else."""
        found, left_out, remarks = await usable(listing_of(tools, self.settings), self.definitions)
        now = (found, left_out, remarks, offers)
        if now != (self.definitions, self.left_out, self.remarks, self.offers) or self.problem:
            self.definitions, self.left_out, self.remarks, self.offers = now
            self.problem = None
            await self._met(self)
            self._published(self)

    def _retire(self, connection: Connection, *, told: bool) -> asyncio.Task[None]:
        """Close it, once what runs on it has finished."""
        task = asyncio.create_task(self._close_when_idle(connection, told=told))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return task

    async def _close_when_idle(self, connection: Connection, *, told: bool) -> None:
        while connection.calls and not connection.gone.is_set() and not self._ending.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # calls have limits of their own
        await connection.close()
        if connection.broken and not told:  # by the call that noticed it, and to nobody else
            _LOGGER.warning("MCP server %s: %s", self.name, connection.reason)

    async def _wait(self, pause: float) -> None:
        """The pause before the next attempt, or a short one when a call wants it now or somebody has logged in."""
        await asyncio.sleep(FIRST_PAUSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, pause * random.uniform(0.8, 1.2) - FIRST_PAUSE)):
                while not self._wanted.is_set() and not self._logged_in():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wanted.wait(), LOOK_SECONDS)
        self._wanted.clear()

    def _logged_in(self) -> bool:
        return self._authorize is not None and self._authorize.stamp(self.name) != self._stamp

    def _note(self, state: State, problem: str | None) -> None:
        """Where it stands now, told to whoever waits and, when it is news, to everybody."""
        before, now = (self.state is State.CONNECTED, self.problem), (state is State.CONNECTED, problem)
        self.state, self.problem = state, problem
        if state is not State.CONNECTING:
            self.tried.set()
        self._moved.set()
        self._moved = asyncio.Event()
        if now != before:
            self._published(self)

    def _words(self, error: BaseException) -> str:
        return shorten(self.secrets.hide(said(error)), 1_000)
