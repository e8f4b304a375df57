"""MCP over HTTP (streamable HTTP): requests by POST, answers as JSON or as a stream of events.

In place of the `mcp` package's: a failed message fails that message alone, and how far a request got is recorded. Each
request has a task of its own, notifications have a limit, and answers are bounded and read once. See
`transport/__init__.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import Context
from typing import Any, NamedTuple

import anyio
import httpx2
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest

from holdfast.activities.mcp.transport.dispatcher import CANCELLED_METHOD, Dispatcher, IncomingStream, OutgoingStream
from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.activities.mcp.transport.faults import Failure, Fault
from holdfast.activities.mcp.transport.http_answers import StreamPosition, explain_status, is_stream, read_events
from holdfast.activities.mcp.transport.http_client import SESSION_HEADER, VERSION_HEADER, Address, read_whole
from holdfast.activities.mcp.transport.jsonrpc import MESSAGE_LIMIT, encode_message
from holdfast.util.secrets import UNCUT
from holdfast.util.text import exception_text

TELL_SECONDS = 10.0
"""How long sending a notification may take."""
TELLING_LIMIT = 100
"""Notifications on their way at once."""
FIRST_SECONDS = 5.0
"""How long other messages wait for `notifications/initialized`, which they must follow."""
LEAVE_SECONDS = 2.0
"""How long ending the session may take."""
LINGER_SECONDS = 5.0
"""How long the answer of a cancelled request is still read."""
FAILURES_LIMIT = 2
"""Attempts to read a stream that fail in a row."""
_LAST_EVENT = "last-event-id"
_INITIALIZED = "notifications/initialized"
_UNSENT_ERRORS = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)


@asynccontextmanager
async def open_streams(
    url: str, client: httpx2.AsyncClient, dispatcher: Dispatcher
) -> AsyncIterator[tuple[IncomingStream, OutgoingStream]]:
    """Yield the streams of the server at this address, until the end of the block."""
    wire = _HttpWire(Address(url, client), dispatcher)
    writing = asyncio.create_task(wire.send_messages())
    try:
        yield dispatcher.ends
    finally:
        writing.cancel()
        await wire.close()


class _Post(NamedTuple):
    task: asyncio.Task[None]
    exchange: Exchange
    modern: bool


class _HttpWire:
    """The messages of one connection on their way."""

    def __init__(self, address: Address, dispatcher: Dispatcher) -> None:
        self._address = address
        self._dispatcher = dispatcher
        self._posts: dict[object, _Post] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling = 0

    async def send_messages(self) -> None:
        """Send what the session writes."""
        async for context, item in self._dispatcher.take_messages():
            message, headers = item.message, _build_headers(item)
            if isinstance(message, JSONRPCRequest):
                self._begin_request(message, headers, context)
            elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED_METHOD:
                self._withdraw_request(message, headers)
            elif isinstance(message, JSONRPCNotification) and message.method == _INITIALIZED:
                self._address.version = headers.get(VERSION_HEADER, self._address.version)
                await self._send_notice(message, headers, FIRST_SECONDS)
                self._start_task(self._listen_for_messages())
            else:
                self._start_task(self._send_notice(message, headers))

    async def close(self) -> None:
        """Cancel what is under way, and end the session at the server."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVE_SECONDS)
        if self._address.session:
            with suppress(Exception):
                async with asyncio.timeout(LEAVE_SECONDS), self._address.open_response("DELETE", {}):
                    pass

    def _start_task(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Requests

    def _begin_request(self, message: JSONRPCRequest, headers: Mapping[str, str], context: Context) -> None:
        if message.method == "initialize":
            self._address.version = None  # it is negotiated by this request
        else:
            self._address.version = headers.get(VERSION_HEADER, self._address.version)
        exchange = self._dispatcher.get_exchange(message)
        task = self._start_task(self._send_request(message, exchange, headers), context)
        self._posts[message.id] = _Post(task, exchange, self._address.is_modern)
        task.add_done_callback(lambda _: self._posts.pop(message.id, None))

    async def _send_request(self, message: JSONRPCRequest, exchange: Exchange, headers: Mapping[str, str]) -> None:
        """Send a request and deliver its answer, or what became of it."""
        try:
            await self._exchange_messages(message, exchange, headers)
            failure = Failure(Fault.LOST, "the connection ended before it answered")
        except Failure as error:
            failure = error
        except _UNSENT_ERRORS as error:
            failure = Failure(Fault.NOT_SENT, f"it cannot be reached: {_describe_unreached(error)}")
        except httpx2.TransportError as error:
            failure = Failure(Fault.LOST, f"the connection broke: {exception_text(error, UNCUT)}")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session is gone
        except Exception as error:
            failure = Failure(Fault.LOST, f"{type(error).__name__}: {exception_text(error, UNCUT)}")
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._dispatcher.fail_exchange(exchange, failure)

    async def _exchange_messages(self, message: JSONRPCRequest, exchange: Exchange, headers: Mapping[str, str]) -> None:
        place = StreamPosition()
        once = message.method == "tools/call"
        async with self._address.open_response("POST", headers, encode_message(message), may_move=not once) as response:
            if not response.is_success:
                return await self._answer_refusal(response, exchange)
            if message.method == "initialize":
                self._address.session = response.headers.get(SESSION_HEADER)
            if not is_stream(response):
                return await self._read_whole(response, exchange)
            try:
                await self._follow_stream(response, exchange, place)
            except httpx2.TransportError:
                if place.id is None:
                    raise
        return await self._resume_stream(exchange, place)

    async def _read_whole(self, response: httpx2.Response, exchange: Exchange) -> None:
        """Read an answer that is one message."""
        status = response.status_code
        if status == 202 or not response.headers.get("content-type", "").lower().startswith("application/json"):
            raise Failure(Fault.UNREADABLE, f"it accepted the request and gave no answer (HTTP status {status})")
        body = await read_whole(response, MESSAGE_LIMIT)
        if body is None:
            raise Failure(Fault.UNREADABLE, f"it answered with over {MESSAGE_LIMIT:,} bytes")
        await self._dispatcher.deliver_data(body, exchange)
        if not exchange.answered:
            raise Failure(Fault.UNREADABLE, "its answer is not one to this request")

    async def _follow_stream(self, response: httpx2.Response, exchange: Exchange | None, place: StreamPosition) -> bool:
        """Deliver the messages of a stream, until the answer of the exchange if there is one. Whether any came."""
        came = False
        async with aclosing(read_events(response, place, self._dispatcher.pace)) as messages:
            async for data in messages:
                came = True
                await self._dispatcher.deliver_data(data, exchange)
                if exchange and exchange.answered:
                    break
        return came

    async def _resume_stream(self, exchange: Exchange, place: StreamPosition) -> None:
        """Resume a stream that ended before the answer, as far as the server allows it."""
        failed, came = 0, True
        while not exchange.answered and place.id is not None and failed < FAILURES_LIMIT:
            await asyncio.sleep(place.choose_pause(came=came))
            failed += 1
            with suppress(httpx2.TransportError):
                async with self._address.open_response("GET", {_LAST_EVENT: place.id}) as response:
                    if response.is_success and is_stream(response):
                        failed = 0
                        came = await self._follow_stream(response, exchange, place)

    async def _answer_refusal(self, response: httpx2.Response, exchange: Exchange) -> None:
        await response.aread()
        session = self._address.session is not None
        error = explain_status(response, exchange.id, has_session=session)
        await self._dispatcher.answer_exchange(exchange, error)
        if session and response.status_code == 404:
            self._dispatcher.on_suspect()

    # Notifications, and messages of the server

    async def _send_notice(
        self, message: JSONRPCMessage, headers: Mapping[str, str], seconds: float = TELL_SECONDS
    ) -> None:
        """Send a message that has no answer."""
        self._telling += 1
        if self._telling > TELLING_LIMIT:
            self._dispatcher.on_break("it does not accept notifications")
        try:
            with suppress(Exception):
                async with (
                    asyncio.timeout(seconds),
                    self._address.open_response("POST", headers, encode_message(message)),
                ):
                    pass
        finally:
            self._telling -= 1

    def _withdraw_request(self, message: JSONRPCNotification, headers: Mapping[str, str]) -> None:
        """Cancel a request. In the stateless protocol versions this is done by closing it."""
        post = self._posts.get((message.params or {}).get("requestId"))
        if post and post.modern:
            post.task.cancel()
            self._start_task(self._dispatcher.fail_exchange(post.exchange, Failure(Fault.LOST, "it was cancelled")))
        elif not self._address.is_modern:
            self._start_task(self._send_notice(message, headers))
        if post and not post.modern:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, post.task.cancel)

    async def _listen_for_messages(self) -> None:
        """Read what the server sends by itself, in the stateful protocol versions."""
        failed, place = 0, StreamPosition()
        while self._address.session and failed < FAILURES_LIMIT:
            failed += 1
            headers = {_LAST_EVENT: place.id} if place.id else {}
            came = False
            with suppress(httpx2.TransportError, Failure):
                async with self._address.open_response("GET", headers) as response:
                    if response.status_code == 405 or (response.is_success and not is_stream(response)):
                        return
                    if response.is_success:
                        failed = 0
                        came = await self._follow_stream(response, None, place)
            await asyncio.sleep(place.choose_pause(came=came))


def _build_headers(item: SessionMessage) -> dict[str, str]:
    """The headers that the session wants sent with a message."""
    about = item.metadata
    return dict(about.headers or {}) if isinstance(about, ClientMessageMetadata) else {}


def _describe_unreached(error: httpx2.TransportError) -> str:
    words = exception_text(error, UNCUT)
    return f"{words} (is it at http:// and not https://?)" if "WRONG_VERSION_NUMBER" in words else words
