"""One connection to a server: opened, used, closed. The only place that drives a session of the `mcp` package.

A connection belongs to a task of its own, which opens and closes it. What breaks inside ends that task, and open
requests fail. (If the task of a caller opened it, the same would reach the caller as a cancellation.)
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

from holdfast.activities.mcp.auth.login_store import NotAuthorized
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.activities.mcp.sdk import build_client_info, quiet_logs
from holdfast.activities.mcp.server.elicitation import ElicitationHandler
from holdfast.activities.mcp.server.lifecycle import build_mark
from holdfast.activities.mcp.transport.dispatcher import Dispatcher
from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.activities.mcp.transport.faults import (
    Failure,
    Fault,
    build_failure,
    describe_break,
    describe_validation_error,
    is_unauthorized,
)
from holdfast.activities.mcp.transport.http_client import build_http_client
from holdfast.activities.mcp.transport.server_log import ServerLog, ServerRemarks
from holdfast.activities.mcp.transport.stdio import run_server_process
from holdfast.activities.mcp.transport.streamable_http import open_streams
from holdfast.errors import BadInput
from holdfast.util.secrets import Secrets
from holdfast.util.text import shorten_text

T = TypeVar("T", bound=BaseModel)
CLOSE_SECONDS = 10.0
"""How long closing may take before the task is cancelled, and once more before it is abandoned."""
STOP_SECONDS = 0.5
"""How long telling the server to stop may take."""
REASON_SECONDS = 1.0
"""How long to wait for the exit code of a server that ended during a call."""
RELISTEN_SECONDS = 5.0
"""Between attempts to listen for changes, when the server ends the stream."""
_CHANGE_NOTICES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_LOGGER = logging.getLogger(__name__)


class Connection:
    """A connection to a server. `gone` is set when it has ended, `reason` says why."""

    def __init__(
        self,
        name: str,
        resolved: ResolvedServer,
        on_change: Callable[[], None],
        auth: httpx2.Auth | None = None,
        log: ServerLog | None = None,
    ) -> None:
        """`on_change` is called when the tools may have changed. `log` gets what the server writes beside the
        protocol.
        """
        self.name = name
        self.gone = asyncio.Event()
        self.reason = ""
        self.broken = False
        """Whether it ended without being closed."""
        self.calls = 0
        """The number of open requests."""
        self.eliciting = ElicitationHandler(name, resolved.secrets)
        self._resolved = resolved
        self._on_change = on_change
        self._auth = auth
        self._remarks = ServerRemarks(resolved.secrets, log)
        self._dispatcher = Dispatcher(self._break_off, on_change)
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, in whichever protocol version the server speaks. Close it afterwards in any case.

        BadInput, without secrets, when it fails or takes too long; NotAuthorized when access is denied.
        """
        opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._run_connection(opened), name=f"mcp-{self.name}")
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
            raise BadInput(f"it was not ready within {seconds:g} seconds{self._remarks.describe_remarks()}")

    @property
    def protocol(self) -> str:
        """The negotiated protocol version."""
        return self._get_client().protocol_version

    @property
    def server(self) -> str | None:
        """The name and version that the server gives itself."""
        info = self._get_client().server_info
        return shorten_text(self._resolved.secrets.hide(f"{info.name} {info.version}".strip()), 200) if info else None

    @property
    def has_tools(self) -> bool:
        """Whether the server says that it may have tools."""
        return self._get_client().server_capabilities.tools is not None

    @property
    def offered_kinds(self) -> frozenset[str]:
        """Which of `resources` and `prompts` the server says that it may have."""
        known = self._get_client().server_capabilities
        return frozenset(name for name in ("resources", "prompts") if getattr(known, name) is not None)

    @property
    def secrets(self) -> Secrets:
        """The secrets to be removed from what the server says."""
        return self._resolved.secrets

    @property
    def session(self) -> ClientSession:
        """The session of the `mcp` package."""
        return self._get_client().session

    async def send_request(
        self, request: Request[Any, Any], kind: TypeAdapter[T], exchange: Exchange | None = None
    ) -> T:
        """Send a request other than a tool call. Failure when there is no answer."""
        with self.track_exchange(exchange := exchange or Exchange()), exchange.make_current():
            return await self.session.send_request(request, kind)

    @contextmanager
    def track_exchange(self, exchange: Exchange) -> Iterator[None]:
        """Count a request for the block, and turn its errors into Failure."""
        if self.gone.is_set():
            raise Failure(Fault.NOT_SENT, self.reason or "it is not connected")
        self.calls += 1
        try:
            yield
        except MCPError as error:
            raise build_failure(error, exchange).hide_secrets(self._resolved.secrets) from None
        except (ValidationError, RecursionError) as error:
            failure = Failure(Fault.UNREADABLE, f"its answer is not a valid result: {describe_validation_error(error)}")
            raise failure.hide_secrets(self._resolved.secrets) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise Failure(Fault.LOST, "the connection broke before it answered") from None
        finally:
            self.calls -= 1

    async def stop_exchange(self, exchange: Exchange) -> None:
        """Tell the server to stop, if it listens."""
        with suppress(Exception):
            async with asyncio.timeout(STOP_SECONDS):
                await self._dispatcher.stop_exchange(exchange)

    async def add_reason(self, failure: Failure) -> Failure:
        """Add to a lost call why the server process ended, once that is known."""
        if failure.fault is not Fault.LOST or self._resolved.url is not None:
            return failure
        with suppress(TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                await self.gone.wait()
        return Failure(Fault.LOST, f"{failure}{self._format_reason()}")

    async def close(self) -> None:
        """Close it, and end everything that it started. Always returns."""
        self._closing.set()
        if self._owner is None:
            return
        for seconds in (CLOSE_SECONDS if self._client else 0, CLOSE_SECONDS, CLOSE_SECONDS):
            await asyncio.wait({self._owner}, timeout=seconds)
            if self._owner.done():
                return
            self._owner.cancel()
        _LOGGER.warning("MCP server %s: its connection does not end and is abandoned", self.name)

    async def _run_connection(self, opened: asyncio.Future[bool]) -> None:
        """Open the connection, keep it until it is closed or breaks, and close it."""
        try:
            async with self._open_transport() as transport, self._open_client(transport) as client:
                self._client = client
                self._dispatcher.version = client.protocol_version
                if not opened.done():
                    opened.set_result(True)
                async with _run_beside(self._listen_for_changes(client)):
                    await self._closing.wait()
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
            self._mark_gone(describe_break(error))
            if not opened.done():
                kind = NotAuthorized if is_unauthorized(error) else BadInput
                opened.set_exception(kind(self._format_reason().removeprefix(": ") or "it cannot be connected"))
                opened.exception()  # else an abandoned future logs its exception
        finally:
            self._mark_gone("it was closed")
            self._dispatcher.close()

    @asynccontextmanager
    async def _open_client(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Client]:
        async with Client(
            transport,
            client_info=build_client_info(),
            message_handler=self._handle_message,
            elicitation_callback=self.eliciting.elicit,
            mode="auto",
            cache=None,
        ) as client:
            yield client

    @asynccontextmanager
    async def _open_transport(self) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        resolved = self._resolved
        if resolved.url is None:
            yield run_server_process(resolved, build_mark(self.name), self._dispatcher, self._mark_gone, self._remarks)
            return
        async with build_http_client(resolved, self._auth) as client:
            yield open_streams(resolved.url, client, self._dispatcher)

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, _CHANGE_NOTICES):
            self._on_change()
        elif isinstance(message, LoggingMessageNotification):
            data = message.params.data
            self._remarks.add_log_message(
                message.params.level, data if isinstance(data, str) else json.dumps(data, default=str)
            )

    async def _listen_for_changes(self, client: Client) -> None:
        """Subscribe to changes of the tools, as the stateless protocol versions require."""
        capability = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (capability and capability.list_changed):
            return
        while True:
            with suppress(Exception):  # the list is also read from time to time
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._on_change()
            await asyncio.sleep(RELISTEN_SECONDS)
            self._on_change()

    def _break_off(self, reason: str) -> None:
        """End the connection for this reason."""
        self._mark_gone(reason)
        self._closing.set()

    def _mark_gone(self, reason: str) -> None:
        """Mark it as ended; the first reason counts."""
        if not self.gone.is_set():
            self.broken = not self._closing.is_set()
            self.reason = shorten_text(self._resolved.secrets.hide(reason), 1_000)
            self.gone.set()

    def _format_reason(self) -> str:
        return f": {self.reason}" if self.reason else ""

    def _get_client(self) -> Client:
        assert self._client, "it was opened"
        return self._client


@asynccontextmanager
async def _run_beside(work: Any) -> AsyncIterator[None]:
    """Run a task during the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


quiet_logs()
