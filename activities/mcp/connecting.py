"""One connection to a server: opened, asked on, closed. The one place that drives the `mcp` package.

A connection belongs to a task of its own, which opens it and closes it: what breaks inside ends that task, and whoever
waits for an answer learns that none comes. (Awaited in the task that opened it, the same would read as a cancellation.)
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import httpx2
from mcp.client.client import Client
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    LoggingMessageNotification,
    PromptListChangedNotification,
    Request,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.activities.mcp.eliciting import Eliciting
from holdfast.activities.mcp.exchange import Exchange
from holdfast.activities.mcp.faults import Failure, Fault, failure_of, problems_of, unauthorized, words_of
from holdfast.activities.mcp.hearing import Heard, ServerLog
from holdfast.activities.mcp.http import http_client
from holdfast.activities.mcp.leftovers import mark_of
from holdfast.activities.mcp.logins import NotAuthorized
from holdfast.activities.mcp.package import ourselves, quiet
from holdfast.activities.mcp.resolving import Resolved
from holdfast.activities.mcp.secrets import Secrets
from holdfast.activities.mcp.stdio import child
from holdfast.activities.mcp.streamable import reached
from holdfast.activities.mcp.traffic import Traffic
from holdfast.content import shorten
from holdfast.errors import BadInput

T = TypeVar("T", bound=BaseModel)
CLOSE_SECONDS = 10.0
"""How long a connection may take to close before it is dropped, and once more until it is left."""
STOP_SECONDS = 0.5
"""How long a server may take to take it that it is to stop."""
TOLD_SECONDS = 1.0
"""How long is waited for the exit code of a server that ended in the middle of a call."""
RELISTEN_SECONDS = 5.0
"""Between attempts to hear of changes, when the server ends the stream."""
_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_LOGGER = logging.getLogger(__name__)


class Connection:
    """A server that answers, once it is opened. `gone` is set when it does not any more, `reason` says why."""

    def __init__(
        self,
        name: str,
        resolved: Resolved,
        changed: Callable[[], None],
        auth: httpx2.Auth | None = None,
        log: ServerLog | None = None,
    ) -> None:
        """`changed` is called when its tools are others. What it says beside the protocol goes into the `log`."""
        self.name = name
        self.gone = asyncio.Event()
        self.reason = ""
        self.broken = False
        """Did it end though nobody had closed it?"""
        self.calls = 0
        """How many are under way on it."""
        self.eliciting = Eliciting(name, resolved.secrets)
        self._resolved = resolved
        self._changed = changed
        self._auth = auth
        self._heard = Heard(resolved.secrets, log)
        self._traffic = Traffic(self._break_off, changed)
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, in whichever protocol the server speaks. Whether it works or not, it is to be closed.

        BadInput, in words without secrets, when it fails or takes too long; NotAuthorized when we may not.
        """
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(opened), name=f"mcp-{self.name}")
        gone = asyncio.create_task(self.gone.wait())
        either: list[asyncio.Future[Any]] = [opened, gone]
        seconds = self._resolved.start_seconds
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if opened.done():
            opened.result()
        elif self.gone.is_set():
            raise BadInput(self.reason)
        else:
            raise BadInput(f"it was not ready within {seconds:g} seconds{self._heard.said()}")

    @property
    def protocol(self) -> str:
        """The version of the protocol that was agreed on."""
        return self._opened().protocol_version

    @property
    def server(self) -> str | None:
        """What the server calls itself, with its version."""
        info = self._opened().server_info
        return shorten(self._resolved.secrets.hide(f"{info.name} {info.version}".strip()), 200) if info else None

    @property
    def has_tools(self) -> bool:
        """May it have any, as it says?"""
        return self._opened().server_capabilities.tools is not None

    @property
    def offers(self) -> frozenset[str]:
        """What it may have beside tools, as it says: `resources`, `prompts`."""
        known = self._opened().server_capabilities
        return frozenset(name for name in ("resources", "prompts") if getattr(known, name) is not None)

    @property
    def secrets(self) -> Secrets:
        """What must not be told of what it says."""
        return self._resolved.secrets

    @property
    def session(self) -> ClientSession:
        """What speaks the protocol."""
        return self._opened().session

    async def ask_for(self, request: Request[Any, Any], kind: TypeAdapter[T], exchange: Exchange | None = None) -> T:
        """Ask for something that is no tool's call. Failure when there is no answer."""
        with self.under_way(exchange := exchange or Exchange()), exchange.under_way():
            return await self.session.send_request(request, kind)

    @contextmanager
    def under_way(self, exchange: Exchange) -> Iterator[None]:
        """An exchange. What goes wrong with it is a Failure."""
        if self.gone.is_set():
            raise Failure(Fault.NOT_SENT, self.reason or "it is not connected")
        self.calls += 1
        try:
            yield
        except MCPError as error:
            raise failure_of(error, exchange).told(self._resolved.secrets) from None
        except (ValidationError, RecursionError) as error:
            failure = Failure(Fault.UNREADABLE, f"what it answered is no result: {problems_of(error)}")
            raise failure.told(self._resolved.secrets) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise Failure(Fault.LOST, "the connection broke before it answered") from None
        finally:
            self.calls -= 1

    async def stop(self, exchange: Exchange) -> None:
        """Tell the server that nobody wants an answer any more, if it will hear that."""
        with suppress(Exception):
            async with asyncio.timeout(STOP_SECONDS):
                await self._traffic.stop(exchange)

    async def told(self, failure: Failure) -> Failure:
        """A failure, with why a server that we started is gone, as soon as that is known."""
        if failure.fault is not Fault.LOST or self._resolved.url is not None:
            return failure
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                await self.gone.wait()
        return Failure(Fault.LOST, f"{failure}{self._why()}")

    async def close(self) -> None:
        """End it, and everything it started. Returns in any case."""
        self._closing.set()
        if self._owner is None:
            return
        for seconds in (CLOSE_SECONDS if self._client else 0, CLOSE_SECONDS, CLOSE_SECONDS):
            await asyncio.wait({self._owner}, timeout=seconds)
            if self._owner.done():
                return
            self._owner.cancel()
        _LOGGER.warning("MCP server %s: its connection does not end, and is left", self.name)

    async def _own(self, opened: asyncio.Future[bool]) -> None:
        """Open it, keep it until it is to be closed or breaks, and close it."""
        try:
            async with self._transport() as transport, self._speaking(transport) as client:
                self._client = client
                self._traffic.version = client.protocol_version
                if not opened.done():
                    opened.set_result(True)
                async with _beside(self._listen(client)):
                    await self._closing.wait()
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
            self._end(words_of(error))
            if not opened.done():
                kind = NotAuthorized if unauthorized(error) else BadInput
                opened.set_exception(kind(self._why().removeprefix(": ") or "it cannot be connected"))
                opened.exception()  # it is told by whoever waits, if anybody still does
        finally:
            self._end("it was closed")
            self._traffic.close()

    @asynccontextmanager
    async def _speaking(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Client]:
        async with Client(
            transport,
            client_info=ourselves(),
            message_handler=self._hear,
            elicitation_callback=self.eliciting.elicit,
            mode="auto",
            cache=None,
        ) as client:
            yield client

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        resolved = self._resolved
        if resolved.url is None:
            yield child(resolved, mark_of(self.name), self._traffic, self._end, self._heard)
            return
        async with http_client(resolved, self._auth) as client:
            yield reached(resolved.url, client, self._traffic)

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, _CHANGES):
            self._changed()
        elif isinstance(message, LoggingMessageNotification):
            said = message.params.data
            self._heard.logged(message.params.level, said if isinstance(said, str) else json.dumps(said, default=str))

    async def _listen(self, client: Client) -> None:
        """Hear of changes in the newer protocol, where one has to ask for that."""
        capability = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (capability and capability.list_changed):
            return
        while True:
            with suppress(Exception):  # whatever it is, the list is also read from time to time
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._changed()
            await asyncio.sleep(RELISTEN_SECONDS)
            self._changed()

    def _break_off(self, reason: str) -> None:
        """It is not gone on with."""
        self._end(reason)
        self._closing.set()

    def _end(self, reason: str) -> None:
        """It does not answer any more; the first reason counts."""
        if not self.gone.is_set():
            self.broken = not self._closing.is_set()
            self.reason = shorten(self._resolved.secrets.hide(reason), 1_000)
            self.gone.set()

    def _why(self) -> str:
        return f": {self.reason}" if self.reason else ""

    def _opened(self) -> Client:
        assert self._client, "it was opened"
        return self._client


@asynccontextmanager
async def _beside(work: Any) -> AsyncIterator[None]:
    """Work that goes on during the block and ends with it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


quiet()
