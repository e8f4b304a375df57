"""One connection to a server: opened, listed from, called on, closed. The one place that drives the `mcp` package.

A connection belongs to a task of its own, which opens it and closes it: what breaks inside ends that task, and whoever
waits for an answer learns that none comes. (Awaited in the task that opened it, the same would read as a cancellation.)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import httpx2
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    LoggingMessageNotification,
    PaginatedRequestParams,
    PromptListChangedNotification,
    Request,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types import Tool as ListedTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.activities.mcp.eliciting import Ask, Eliciting, to_open_first
from holdfast.activities.mcp.faults import Failure, Fault, failure_of, problems_of, unauthorized, words_of
from holdfast.activities.mcp.hearing import Heard, ServerLog
from holdfast.activities.mcp.http import http_client
from holdfast.activities.mcp.leftovers import mark_of
from holdfast.activities.mcp.logins import NotAuthorized
from holdfast.activities.mcp.package import ourselves, quiet
from holdfast.activities.mcp.resolving import Resolved
from holdfast.activities.mcp.stdio import MESSAGE_LIMIT, Streams, child
from holdfast.content import shorten
from holdfast.errors import BadInput

T = TypeVar("T", bound=BaseModel)
CLOSE_SECONDS = 10.0
"""How long a connection may take to close before it is dropped."""
TOLD_SECONDS = 1.0
"""How long is waited for the exit code of a server that ended in the middle of a call."""
RELISTEN_SECONDS = 5.0
"""Between attempts to hear of changes, when the server ends the stream."""
PAGES_LIMIT = 100
TOOLS_LIMIT = 1_000
_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


class Connection:
    """A server that answers. `gone` is set when it does not any more, `reason` says why."""

    def __init__(
        self, name: str, resolved: Resolved, changed: Callable[[], None], log: ServerLog | None = None
    ) -> None:
        self.name = name
        self.gone = asyncio.Event()
        self.reason = ""
        self.broken = False
        """Did it end though nobody had closed it?"""
        self.calls = 0
        """How many are under way on it."""
        self._resolved = resolved
        self._changed = changed
        self._eliciting = Eliciting(name, resolved.secrets)
        self._heard = Heard(resolved.secrets.hide, log)
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        name: str,
        resolved: Resolved,
        changed: Callable[[], None],
        auth: httpx2.Auth | None = None,
        log: ServerLog | None = None,
    ) -> Connection:
        """Connect, in whichever protocol the server speaks. `changed` is called when its tools are others.

        What else it says goes into the `log`. BadInput, in words without secrets, when that fails or takes too long;
        NotAuthorized when we may not.
        """
        connection = cls(name, resolved, changed, log)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection._owner = asyncio.create_task(connection._own(opened, auth), name=f"mcp-{name}")
        try:
            async with asyncio.timeout(resolved.start_seconds):
                await asyncio.shield(opened)
        except TimeoutError:
            why = connection._why() or connection._heard.said()  # before it is ended by us
            await connection.close()
            raise BadInput(f"it was not ready within {resolved.start_seconds:g} seconds{why}") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def protocol(self) -> str:
        """The version of the protocol that was agreed on."""
        return self._session_of().protocol_version

    @property
    def server(self) -> str | None:
        """What the server calls itself, with its version."""
        info = self._session_of().server_info
        return shorten(f"{info.name} {info.version}".strip(), 200) if info else None

    @property
    def offers(self) -> frozenset[str]:
        """What it may have beside tools, as it says: `resources`, `prompts`."""
        known = self._session_of().server_capabilities
        return frozenset(name for name in ("resources", "prompts") if getattr(known, name) is not None)

    async def tools(self) -> list[ListedTool]:
        """All of its tools, page by page. BadInput when the list makes no sense."""
        client, found, cursor = self._session_of(), list[ListedTool](), None
        if client.server_capabilities.tools is None:
            return []
        seen: set[str] = set()
        for _ in range(PAGES_LIMIT):
            try:
                page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                raise failure_of(error) from None
            except (ValidationError, RecursionError) as error:
                raise BadInput(f"its list of tools does not fit the protocol: {problems_of(error)}") from None
            found += page.tools
            cursor = page.next_cursor
            if len(found) > TOOLS_LIMIT:
                raise BadInput(f"it lists over {TOOLS_LIMIT:,} tools")
            if cursor is None:
                return found
            if cursor in seen:
                break
            seen.add(cursor)
        raise BadInput(f"its list of tools does not end: {len(seen) + 1} pages, and one of them again or more to come")

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        progress: ProgressFnT,
        ask: Ask,
        answers: Mapping[str, Any] | None = None,
        state: str | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool, once. `ask` asks a person; `answers` and `state` go on with a call that had asked for something.

        Failure says what became of it when there is no answer, FirstOpen what a person has to do before there can be
        one. A cancellation is told to the server.
        """
        request = CallToolRequest(
            params=CallToolRequestParams.model_validate(
                {
                    "name": tool,
                    "arguments": dict(arguments),
                    "inputResponses": answers,
                    "requestState": state,
                    "_meta": dict(meta),
                }
            )
        )
        try:
            with self._under_way(), self._eliciting.calling(ask):
                try:
                    return await self._session_of().session.send_request(request, _ANSWER, progress_callback=progress)
                except MCPError as error:
                    raise to_open_first(error) or error from None
        except Failure as failure:
            if failure.fault is Fault.LOST and self._resolved.url is None:
                raise Failure(Fault.LOST, f"{failure}{await self._how_it_ended()}") from None
            raise

    async def _how_it_ended(self) -> str:
        """Why a server that we started is gone, as soon as that is known."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                await self.gone.wait()
        return self._why()

    async def ask_for(self, request: Request[Any, Any], kind: TypeAdapter[T]) -> T:
        """Ask for something that is no tool's call. Failure when there is no answer."""
        with self._under_way():
            return await self._session_of().session.send_request(request, kind)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """An exchange. What goes wrong with it is a Failure."""
        if self.gone.is_set():
            raise Failure(Fault.NOT_SENT, self.reason or "it is not connected")
        self.calls += 1
        try:
            yield
        except MCPError as error:
            raise failure_of(error) from None
        except (ValidationError, RecursionError) as error:
            raise Failure(Fault.UNREADABLE, f"what it answered is no result: {problems_of(error)}") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise Failure(Fault.LOST, "the connection broke before it answered") from None
        finally:
            self.calls -= 1

    async def close(self) -> None:
        """End it, and everything it started."""
        self._closing.set()
        if self._owner is None:
            return
        _, late = await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS if self._client else 0)
        for task in late:
            task.cancel()
        await asyncio.wait({self._owner})

    async def _own(self, opened: asyncio.Future[None], auth: httpx2.Auth | None) -> None:
        """Open it, keep it until it is to be closed or breaks, and close it."""
        try:
            async with self._transport(auth) as transport, self._speaking(transport) as client:
                self._client = client
                if not opened.done():
                    opened.set_result(None)
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

    @asynccontextmanager
    async def _speaking(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Client]:
        async with Client(
            transport,
            client_info=ourselves(),
            message_handler=self._hear,
            elicitation_callback=self._eliciting.elicit,
            mode="auto",
            cache=None,
        ) as client:
            yield client

    @asynccontextmanager
    async def _transport(self, auth: httpx2.Auth | None) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        resolved = self._resolved
        if resolved.url is None:
            streams: AbstractAsyncContextManager[Streams] = child(resolved, mark_of(self.name), self._end, self._heard)
            yield streams
            return
        async with http_client(resolved, auth) as client:
            yield streamable_http_client(resolved.url, http_client=client, max_sse_event_size=MESSAGE_LIMIT)

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

    def _end(self, reason: str) -> None:
        """It does not answer any more; the first reason counts."""
        if not self.gone.is_set():
            self.broken = not self._closing.is_set()
            self.reason = shorten(self._resolved.secrets.hide(reason), 1_000)
            self.gone.set()

    def _why(self) -> str:
        return f": {self.reason}" if self.reason else ""

    def _session_of(self) -> Client:
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
