"""A server as a worker has it: kept connected, listed anew when its tools change, and reached again when it was lost.

One task looks after it. A server that is down costs its own calls a clear error and nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.activities.mcp.authorizing import Authorize, Bearer, remedy
from holdfast.activities.mcp.definitions import Definition, wanted
from holdfast.activities.mcp.hearing import ServerLog
from holdfast.activities.mcp.listing import listing_of, usable
from holdfast.activities.mcp.logged import logged
from holdfast.activities.mcp.logins import NotAuthorized
from holdfast.activities.mcp.pausing import Retrying, Settling
from holdfast.activities.mcp.resolving import Resolved, resolve
from holdfast.activities.mcp.retiring import Retiring
from holdfast.activities.mcp.secrets import UNCUT, Secrets
from holdfast.activities.mcp.status import ServerStatus, State, Unavailable
from holdfast.configuration import McpServerSettings
from holdfast.content import said, shorten
from holdfast.errors import BadInput

if TYPE_CHECKING:
    import httpx2

    from holdfast.activities.mcp.connecting import Connection

REFRESH_SECONDS = 300.0
"""How often a list is read again that nobody said had changed: not every server says so."""
CHECK_SECONDS = 5.0
"""How long a server may take to show that it still answers, after a call that it did not answer."""
COME_SECONDS = 3.0
"""How long a call of a tool that is not known waits for its server: the whole batch waits with it."""
WAIT_SECONDS = 5.0
"""How long a call waits for a server to be back."""
_LOGGER = logging.getLogger(__name__)
Prepare = Callable[["Server", Mapping[str, Definition], frozenset[str]], Awaitable[None]]


class Server:
    """One server. `published` is called when its tools or its state have changed.

    Before it has other tools, or offers something else, than it had, `prepare` does with that what takes long.
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        published: Callable[[Server], None],
        prepare: Prepare,
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
        self._prepare = prepare
        self._authorize = authorize
        self._log = log
        self._stamp: object = None
        self._auth: httpx2.Auth | None = None
        self._resolved: Resolved | None = None
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._reset()

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
        fit = (one for one in definitions if self.secrets.hide(one.name) == one.name)
        self.definitions = {one.name: one for one in fit if wanted(one, self.settings)}
        self.offers = offers

    def start(self) -> None:
        """Begin to look after it."""
        self._reset()
        self._task = asyncio.create_task(self._look_after(), name=f"mcp-server-{self.name}")

    def _reset(self) -> None:
        self.state, self.problem = State.CONNECTING, None
        with suppress(BadInput):  # it is told once it is started
            self._resolved = resolve(self.settings, os.environ)
        self.tried = asyncio.Event()
        """It was connected, or could not be, at least once."""
        self._moved = asyncio.Event()
        self._stale = asyncio.Event()
        self._doubtful = asyncio.Event()
        self._retrying = Retrying(self._logged_in)
        self._retiring = Retiring()

    async def stop(self) -> None:
        """Close what is open; nothing that it started is left."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._retiring.end()
        self.state = State.CLOSED

    async def connected(self, seconds: float = WAIT_SECONDS) -> Connection:
        """Its connection, once there is one; Unavailable when there is none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                tried = False
                while self._connection is None or self._connection.gone.is_set():
                    if self.state in (State.REFUSED, State.CLOSED) or (tried and self.state is State.UNAUTHORIZED):
                        break
                    self._retrying.wanted.set()
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

    def check(self, connection: Connection) -> None:
        """A call had no answer in time: it is looked whether there are any at all, and if not there is another."""
        if connection is self._connection:
            self._doubtful.set()
            self._stale.set()

    async def listed(self, tool: str) -> Definition | None:
        """A tool as the server defines it now, asked for now."""
        await self._read(await self.connected(), self.offers)
        return self.definitions.get(tool)

    async def _look_after(self) -> None:
        try:
            self._resolved = resolve(self.settings, os.environ)
        except BadInput as error:
            self._note(State.REFUSED, str(error))
            return
        while True:
            self._retrying.begin()
            await self._serve(self._resolved)
            await self._retrying.wait()

    async def _serve(self, resolved: Resolved) -> None:
        """Connect, and stay with it until it is lost."""
        from holdfast.activities.mcp.connecting import Connection  # it brings the mcp package along

        self._note(State.CONNECTING, self.problem)
        self._stamp = await self._authorize.stamp(self.name) if self._authorize else None
        connection: Connection | None = None
        told = True
        try:
            self._auth = self._authorize(self.name, self.settings, resolved) if self._authorize else None
            connection = Connection(self.name, resolved, self._stale.set, self._auth, self._log)
            await connection.open()
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
            closing = self._retiring.retire(connection, told=told) if connection else None
        if closing and connection and not connection.calls:
            await asyncio.wait({closing})  # two of them at once may be in each other's way

    async def _stay(self, connection: Connection) -> None:
        """Read its list whenever that may have changed, until it is gone or another takes its place."""
        settling = Settling()
        while self._good(connection):
            changed = await self._lasts(connection, REFRESH_SECONDS, self._stale)
            if changed:
                await self._lasts(connection, settling.pause(), self._doubtful)
            if self._good(connection):
                self._stale.clear()
                await self._refresh(connection)

    def _good(self, connection: Connection) -> bool:
        return connection is self._connection and not connection.gone.is_set()

    async def _lasts(self, connection: Connection, seconds: float, *events: asyncio.Event) -> bool:
        """Wait so long, or until one of the events, while there is this connection. Was it an event?"""
        watched = (connection.gone, self._moved, *events)
        waits = [asyncio.create_task(event.wait()) for event in watched]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return any(event.is_set() for event in events)

    async def _refresh(self, connection: Connection) -> None:
        """Read its list. What it lists wrongly changes nothing, and is told; when it does not answer, it is lost."""
        seconds = self.settings.start_seconds
        seconds = min(CHECK_SECONDS, seconds) if self._doubtful.is_set() else seconds
        self._doubtful.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._read(connection)
        except BadInput as error:
            self.problem = self._words(error)
            self._published(self)
        except Exception as error:
            if not connection.gone.is_set():
                _LOGGER.info("MCP server %s did not list its tools: %s", self.name, logged(self._words(error)))
                self.doubt(connection)

    async def _read(self, connection: Connection, offers: frozenset[str] | None = None) -> None:
        """Take what it lists now; and what it offers besides, unless that is given."""
        from holdfast.activities.mcp.readable import offered  # as above
        from holdfast.activities.mcp.requests import listed

        found = await listed(connection)
        if offers is None:
            offers = await offered(connection)
        listing = await asyncio.to_thread(listing_of, found.tools, self.settings, self.secrets)
        definitions, left_out, remarks = await usable(listing, self.definitions)
        if definitions == self.definitions:
            definitions = self.definitions
        if definitions is not self.definitions or offers != self.offers:
            await self._prepare(self, definitions, offers)
        now = (definitions, (*found.left_out, *left_out), remarks, offers)
        if now != (self.definitions, self.left_out, self.remarks, self.offers) or self.problem:
            self.definitions, self.left_out, self.remarks, self.offers = now
            self.problem = None
            self._published(self)

    async def _logged_in(self) -> bool:
        return self._authorize is not None and await self._authorize.stamp(self.name) != self._stamp

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
        return shorten(self.secrets.hide(said(error, UNCUT)), 1_000)
