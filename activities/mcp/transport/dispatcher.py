"""The messages of one connection, in both directions, between a session of the `mcp` package and a transport.

It knows which of our requests and which of the server's are open. An answer to none of ours is dropped cheaply, a
server with too many open requests is disconnected, and each exchange records whether the server may have received it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context, copy_context
from types import TracebackType
from typing import Self, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from holdfast.activities.mcp.transport.exchange import Exchange, find_current_exchange
from holdfast.activities.mcp.transport.faults import Failure, Fault, build_fault_error
from holdfast.activities.mcp.transport.jsonrpc import (
    MESSAGE_LIMIT,
    MESSAGE_SECONDS,
    Pace,
    UnreadableMessage,
    find_answered_id,
    fit_result,
    read_message,
)

UNASKED_LIMIT = 4_000_000
"""Bytes of a message that is not an answer to a request of ours."""
OPEN_LIMIT = 100
"""Requests of a server that may be open at once."""
CANCELLED_METHOD = "notifications/cancelled"


Envelope: TypeAlias = tuple[Context, SessionMessage]
"""A message with the context of its sender: over HTTP a server's question finds its call by it."""


class _StreamEnd(ABC):
    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class IncomingStream(_StreamEnd):
    """The stream that the session reads. `last_context` is the context of the last message."""

    def __init__(self, inner: MemoryObjectReceiveStream[Envelope]) -> None:
        self._inner = inner
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        self.last_context, item = await self._inner.receive()
        return item

    async def aclose(self) -> None:
        """Stop reading."""
        self._inner.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class OutgoingStream(_StreamEnd):
    """The stream that the session writes."""

    def __init__(self, send: Callable[[SessionMessage], Awaitable[None]], close: Callable[[], None]) -> None:
        self._send = send
        self._close = close

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message; returns when the transport has taken it."""
        await self._send(item)

    async def aclose(self) -> None:
        """Stop writing."""
        self._close()


class Dispatcher:
    """The messages of one connection.

    `on_break` is called with the reason when the connection cannot go on, `on_suspect` when it should be checked.
    """

    def __init__(self, on_break: Callable[[str], None], on_suspect: Callable[[], None]) -> None:
        self.version = "2025-11-25"
        """The protocol version; the newest stateful one until a version has been negotiated."""
        self.pace = Pace()
        self.on_break = on_break
        self.on_suspect = on_suspect
        self._own_exchanges: dict[RequestId | None, Exchange] = {}
        self._server_requests: set[RequestId | None] = set()
        self._to_session, self._to_read = anyio.create_memory_object_stream[Envelope](0)
        self._to_wire, self._from_session = anyio.create_memory_object_stream[Envelope](0)
        self.ends = IncomingStream(self._to_read), OutgoingStream(self.send, self._to_wire.close)
        """The two streams of the session."""

    # From the session to the wire

    async def send(self, item: SessionMessage) -> None:
        """Send a message of the session; returns when the transport has taken it."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            return await self._send_request(message, item)
        if isinstance(message, JSONRPCNotification) and message.method == CANCELLED_METHOD:
            exchange = self._own_exchanges.pop(_coerce_id((message.params or {}).get("requestId")), None)
            if exchange is None or exchange.is_stopped or not exchange.was_sent:
                return None
        await self._to_wire.send((copy_context(), item))
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._server_requests.discard(_coerce_id(message.id))
        return None

    async def _send_request(self, message: JSONRPCRequest, item: SessionMessage) -> None:
        exchange = find_current_exchange() or Exchange()
        exchange.id, exchange.method = message.id, message.method
        self._own_exchanges[_coerce_id(message.id)] = exchange
        try:
            await self._to_wire.send((copy_context(), item))
        except BaseException:
            if not exchange.was_sent:
                self._own_exchanges.pop(_coerce_id(message.id), None)
            raise

    async def stop_exchange(self, exchange: Exchange) -> None:
        """Tell the server that the answer is no longer wanted. An answer that comes all the same is delivered."""
        if exchange.was_sent and not exchange.is_stopped and not exchange.answered:
            exchange.is_stopped = True
            params = {"requestId": exchange.id, "reason": "stopped"}
            note = JSONRPCNotification(jsonrpc="2.0", method=CANCELLED_METHOD, params=params)
            await self._to_wire.send((copy_context(), SessionMessage(note)))

    async def take_messages(self) -> AsyncIterator[Envelope]:
        """Yield what the transport is to send. A request that is taken here counts as sent."""
        async for context, item in self._from_session:
            if isinstance(item.message, JSONRPCRequest):
                self.get_exchange(item.message).was_sent = True
            yield context, item

    def get_exchange(self, message: JSONRPCRequest) -> Exchange:
        """Return the exchange of a request."""
        return self._own_exchanges.get(_coerce_id(message.id)) or Exchange(message.id, message.method)

    # From the wire to the session

    async def deliver_data(self, data: bytes, answered_exchange: Exchange | None = None) -> bool:
        """Deliver a message of the server to the session; False if the bytes are not a message.

        `answered_exchange`: the exchange whose answer this is, if the transport knows it. Raises anyio's errors of a
        closed stream when the session is gone.
        """
        began = time.perf_counter()
        try:
            message = self._read_message(data, answered_exchange)
        except UnreadableMessage:
            await self.pace.spend(time.perf_counter() - began + MESSAGE_SECONDS)
            return False
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            await self.pace.spend(time.perf_counter() - began + MESSAGE_SECONDS)
        if message is not None:
            await self._deliver_message(message)
        return True

    async def fail_exchange(self, exchange: Exchange, failure: Failure) -> None:
        """Answer a request of ours in the server's place with a failure, unless it has an answer."""
        await self.answer_exchange(exchange, build_fault_error(failure.fault, str(failure)))

    async def answer_exchange(self, exchange: Exchange, error: ErrorData) -> None:
        """Answer a request of ours in the server's place with an error, unless it has an answer."""
        if message := self._build_error(exchange, error):
            await self._deliver_message(message)

    async def handle_overlong(self, id: int | None) -> bool:
        """Fail the request that an overlong message answers; False if that is unknown and the connection must end."""
        exchange = self._own_exchanges.get(id) if id is not None else None
        if exchange:
            await self.fail_exchange(
                exchange, Failure(Fault.UNREADABLE, f"it answered with over {MESSAGE_LIMIT:,} bytes")
            )
        return exchange is not None or id is not None or not self._own_exchanges

    def end_exchanges(self) -> None:
        """The server sends nothing more: every open request fails."""
        self._to_session.close()

    def close(self) -> None:
        """Close both directions."""
        for stream in (self._to_session, self._to_read, self._to_wire, self._from_session):
            stream.close()

    async def _deliver_message(self, message: JSONRPCMessage) -> None:
        await self._to_session.send((copy_context(), SessionMessage(message)))

    def _read_message(self, data: bytes, answered_exchange: Exchange | None) -> JSONRPCMessage | None:
        """The message for the session, or None. Raises UnreadableMessage when it is not one and no request can be
        failed.
        """
        id = find_answered_id(data)
        if len(data) > UNASKED_LIMIT and answered_exchange is None and id is not None and id not in self._own_exchanges:
            return None
        try:
            message = read_message(data)
        except UnreadableMessage as error:
            exchange = answered_exchange or (self._own_exchanges.get(id) if id is not None else None)
            if instead := self._build_error(exchange, build_fault_error(Fault.UNREADABLE, str(error))):
                return instead
            raise
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return self._accept_answer(message, len(data))
        if len(data) > UNASKED_LIMIT:
            if isinstance(message, JSONRPCNotification):
                return None
            message.params = None  # the session answers that the request is invalid
        self._count_request(message)
        return message

    def _build_error(self, exchange: Exchange | None, error: ErrorData) -> JSONRPCError | None:
        """An error in the place of an answer; None if the request has been answered."""
        if exchange is None or exchange.id is None or self._own_exchanges.pop(_coerce_id(exchange.id), None) is None:
            return None
        exchange.answered = True
        return JSONRPCError(jsonrpc="2.0", id=exchange.id, error=error)

    def _accept_answer(self, message: JSONRPCResponse | JSONRPCError, size: int) -> JSONRPCMessage | None:
        """An answer to one of our requests, without what exceeds the limits."""
        exchange = self._own_exchanges.pop(_coerce_id(message.id), None)
        if exchange is None:
            return None
        exchange.answered, exchange.size = True, size
        if isinstance(message, JSONRPCResponse):
            message.result = fit_result(exchange, message.result, self.version)
        return message

    def _count_request(self, message: JSONRPCRequest | JSONRPCNotification) -> None:
        """Count the open requests of the server."""
        if isinstance(message, JSONRPCRequest):
            self._server_requests.add(_coerce_id(message.id))
            if len(self._server_requests) > OPEN_LIMIT:
                self.on_break(f"it has over {OPEN_LIMIT} open requests")
        elif message.method == CANCELLED_METHOD:
            self._server_requests.discard(_coerce_id((message.params or {}).get("requestId")))


def _coerce_id(id: object) -> RequestId | None:
    """The id as both sides mean it: some servers return a number as text. None for anything else."""
    if isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 15:
        return int(id)
    return id if isinstance(id, str | int) else None
