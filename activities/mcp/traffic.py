"""What goes to and fro on one connection, whichever way it goes: between the session of the `mcp` package and the wire.

Here is known which of our requests are open and which of the server's. An answer to none of ours is dropped, as cheaply
as it can be; a server that asks without end is left; and each request knows whether the server may have got it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context

import anyio
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

from holdfast.activities.mcp.exchange import Exchange, current
from holdfast.activities.mcp.faults import Failure, Fault, marked
from holdfast.activities.mcp.fitting import fitted
from holdfast.activities.mcp.messages import MESSAGE_LIMIT, Unreadable, answered, read
from holdfast.activities.mcp.pace import MESSAGE_SECONDS, Pace
from holdfast.activities.mcp.streams import Envelope, Incoming, Outgoing

UNASKED_LIMIT = 4_000_000
"""Bytes of a message that nobody waits for."""
OPEN_LIMIT = 100
"""Requests of a server's that may be open at once."""
CANCELLED = "notifications/cancelled"


class Traffic:
    """The messages of one connection. `break_off` is called when it cannot go on, with the reason."""

    def __init__(self, break_off: Callable[[str], None], doubt: Callable[[], None]) -> None:
        """`doubt` is called when it should be looked whether it can go on."""
        self.version = "2025-11-25"
        """Of the protocol, once that is agreed on."""
        self.pace = Pace()
        self.break_off = break_off
        self.doubt = doubt
        self._ours: dict[RequestId | None, Exchange] = {}
        self._theirs: set[RequestId | None] = set()
        self._to_session, self._to_read = anyio.create_memory_object_stream[Envelope](0)
        self._to_wire, self._from_session = anyio.create_memory_object_stream[Envelope](0)
        self.ends = Incoming(self._to_read), Outgoing(self.send, self._to_wire.close)
        """The session's."""

    # From the session to the wire

    async def send(self, item: SessionMessage) -> None:
        """Hand a message over; returns when the wire has taken it."""
        message = item.message
        if isinstance(message, JSONRPCRequest):
            return await self._ask(message, item)
        if isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            exchange = self._ours.pop(_coerced((message.params or {}).get("requestId")), None)
            if exchange is None or exchange.told or not exchange.begun:
                return None
        await self._to_wire.send((copy_context(), item))
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._theirs.discard(_coerced(message.id))
        return None

    async def _ask(self, message: JSONRPCRequest, item: SessionMessage) -> None:
        exchange = current() or Exchange()
        exchange.id, exchange.method = message.id, message.method
        self._ours[_coerced(message.id)] = exchange
        try:
            await self._to_wire.send((copy_context(), item))
        except BaseException:
            if not exchange.begun:
                self._ours.pop(_coerced(message.id), None)
            raise

    async def stop(self, exchange: Exchange) -> None:
        """Tell the server that nobody wants an answer any more. One that comes all the same is passed on."""
        if exchange.begun and not exchange.told and not exchange.answered:
            exchange.told = True
            params = {"requestId": exchange.id, "reason": "stopped"}
            note = JSONRPCNotification(jsonrpc="2.0", method=CANCELLED, params=params)
            await self._to_wire.send((copy_context(), SessionMessage(note)))

    async def handed_over(self) -> AsyncIterator[Envelope]:
        """For the wire: what it is to send. Of what it takes from here the server may have got all."""
        async for context, item in self._from_session:
            if isinstance(item.message, JSONRPCRequest):
                self.exchange(item.message).begun = True
            yield context, item

    def exchange(self, message: JSONRPCRequest) -> Exchange:
        """The request that this is."""
        return self._ours.get(_coerced(message.id)) or Exchange(message.id, message.method)

    # From the wire to the session

    async def hear(self, data: bytes, of: Exchange | None = None) -> bool:
        """Pass on what a server says; False when it is no message. `of`: it came as the answer to this request.

        Raises anyio's errors of a closed stream when nobody listens any more.
        """
        began = time.perf_counter()
        try:
            message = self._read(data, of)
        except Unreadable:
            await self.pace.spend(time.perf_counter() - began + MESSAGE_SECONDS)
            return False
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            await self.pace.spend(time.perf_counter() - began + MESSAGE_SECONDS)
        if message is not None:
            await self._deliver(message)
        return True

    async def fail(self, exchange: Exchange, failure: Failure) -> None:
        """Answer a request of ours in the server's place, unless it is answered."""
        await self.answer(exchange, marked(failure.fault, str(failure)))

    async def answer(self, exchange: Exchange, error: ErrorData) -> None:
        """Answer a request of ours with an error, unless it is answered."""
        if message := self._instead(exchange, error):
            await self._deliver(message)

    async def overlong(self, id: int | None) -> bool:
        """What was too long to be kept answered this request, or nobody knows which. Can it go on?"""
        exchange = self._ours.get(id) if id is not None else None
        if exchange:
            await self.fail(exchange, Failure(Fault.UNREADABLE, f"it answered with over {MESSAGE_LIMIT:,} bytes"))
        return exchange is not None or id is not None or not self._ours

    def end(self) -> None:
        """The server says nothing more: whoever waits for an answer learns that none comes."""
        self._to_session.close()

    def close(self) -> None:
        """Nobody listens any more, on either side."""
        for stream in (self._to_session, self._to_read, self._to_wire, self._from_session):
            stream.close()

    async def _deliver(self, message: JSONRPCMessage) -> None:
        await self._to_session.send((copy_context(), SessionMessage(message)))

    def _read(self, data: bytes, of: Exchange | None) -> JSONRPCMessage | None:
        """What goes on to the session. Unreadable when it is no message, and nobody waits for it."""
        id = answered(data)
        if len(data) > UNASKED_LIMIT and of is None and id is not None and id not in self._ours:
            return None
        try:
            message = read(data)
        except Unreadable as error:
            exchange = of or (self._ours.get(id) if id is not None else None)
            if instead := self._instead(exchange, marked(Fault.UNREADABLE, str(error))):
                return instead
            raise
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            return self._answer(message, len(data))
        if len(data) > UNASKED_LIMIT:
            if isinstance(message, JSONRPCNotification):
                return None
            message.params = None  # whoever asks is told that it cannot be done
        self._count(message)
        return message

    def _instead(self, exchange: Exchange | None, error: ErrorData) -> JSONRPCError | None:
        """An error in the place of an answer; None when nobody waits for one."""
        if exchange is None or exchange.id is None or self._ours.pop(_coerced(exchange.id), None) is None:
            return None
        exchange.answered = True
        return JSONRPCError(jsonrpc="2.0", id=exchange.id, error=error)

    def _answer(self, message: JSONRPCResponse | JSONRPCError, size: int) -> JSONRPCMessage | None:
        """An answer to one of our requests, cut down to what is read of it."""
        exchange = self._ours.pop(_coerced(message.id), None)
        if exchange is None:
            return None
        exchange.answered, exchange.size = True, size
        if isinstance(message, JSONRPCResponse):
            message.result = fitted(exchange, message.result, self.version)
        return message

    def _count(self, message: JSONRPCRequest | JSONRPCNotification) -> None:
        """Count what the server wants of us."""
        if isinstance(message, JSONRPCRequest):
            self._theirs.add(_coerced(message.id))
            if len(self._theirs) > OPEN_LIMIT:
                self.break_off(f"it asked over {OPEN_LIMIT} things at once")
        elif message.method == CANCELLED:
            self._theirs.discard(_coerced((message.params or {}).get("requestId")))


def _coerced(id: object) -> RequestId | None:
    """An id as both sides mean it: some servers give a number back as a text. None for what is no id."""
    if isinstance(id, str) and id.isascii() and id.isdigit() and len(id) <= 15:
        return int(id)
    return id if isinstance(id, str | int) else None
