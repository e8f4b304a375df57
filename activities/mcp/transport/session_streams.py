"""The two ends of a connection that a session of the `mcp` package holds.

Each message travels with the context of whoever passed it on: over HTTP that is how a question finds its call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextvars import Context
from types import TracebackType
from typing import Self, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage

Envelope: TypeAlias = tuple[Context, SessionMessage]


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
    """Where it reads. `last_context` goes with the last message."""

    def __init__(self, inner: MemoryObjectReceiveStream[Envelope]) -> None:
        self._inner = inner
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        self.last_context, item = await self._inner.receive()
        return item

    async def aclose(self) -> None:
        """Read no more."""
        self._inner.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class OutgoingStream(_StreamEnd):
    """Where it writes."""

    def __init__(self, send: Callable[[SessionMessage], Awaitable[None]], close: Callable[[], None]) -> None:
        self._send = send
        self._close = close

    async def send(self, item: SessionMessage, /) -> None:
        """Returns when it was handed over."""
        await self._send(item)

    async def aclose(self) -> None:
        """Write no more."""
        self._close()
