"""A stream of events, as servers answer with it: the messages in it one by one, and from where it is taken up again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import httpx2

from holdfast.activities.mcp.transport.faults import Failure, Fault
from holdfast.activities.mcp.transport.jsonrpc import MESSAGE_LIMIT
from holdfast.activities.mcp.transport.wire_limits import Pace

RECONNECT_SECONDS = 1.0
"""Between two attempts to listen, if the server wishes nothing else."""
LONGEST_SECONDS = 30.0
"""The same when nothing ever comes, and the longest that a server may wish for."""
EARLY_SECONDS = 5.0
"""How much sooner than that a server may wish to be asked, altogether."""
LINE_SECONDS = 0.0000005
"""What a line costs us, roughly. They may come without ever making an event."""
_KIND = "text/event-stream"


@dataclass
class StreamPosition:
    """Where in a stream we are."""

    id: str | None = None
    wish: float | None = None
    """How many seconds the server wants to be left alone before it is asked for more."""
    _own: float = RECONNECT_SECONDS / 2
    _early: float = EARLY_SECONDS

    def choose_pause(self, *, came: bool) -> float:
        """How long to wait now that it has ended. `came`: it has brought something."""
        if self.wish is None:
            self._own = RECONNECT_SECONDS if came else min(self._own * 2, LONGEST_SECONDS)
            return self._own
        early = max(0.0, RECONNECT_SECONDS - self.wish)
        if early > self._early:
            return RECONNECT_SECONDS
        self._early -= early
        return self.wish


def is_stream(response: httpx2.Response) -> bool:
    """Are these events?"""
    return bool(response.headers.get("content-type", "").lower().startswith(_KIND))


async def read_events(response: httpx2.Response, place: StreamPosition, pace: Pace) -> AsyncGenerator[bytes]:
    """The messages in a stream. Failure when one is too long, httpx2's errors when it breaks."""
    assert isinstance(response.stream, httpx2.AsyncByteStream), "it is still to be read"
    response.stream = _PacedStream(response.stream, pace)
    try:
        async for event in httpx2.EventSource(response, max_event_size=MESSAGE_LIMIT):
            place.id = event.id or place.id
            if event.retry is not None:
                place.wish = min(max(0, event.retry), LONGEST_SECONDS * 1_000) / 1_000
            if event.event == "message" and event.data:
                yield event.data.encode("utf-8", "replace")
    except httpx2.SSEError:
        raise Failure(Fault.UNREADABLE, f"it answered with over {MESSAGE_LIMIT:,} bytes") from None


class _PacedStream(httpx2.AsyncByteStream):
    """A stream that is read no faster than its lines can be afforded."""

    def __init__(self, inner: httpx2.AsyncByteStream, pace: Pace) -> None:
        self._inner = inner
        self._pace = pace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            yield piece
            await self._pace.spend(piece.count(b"\n") * LINE_SECONDS)

    async def aclose(self) -> None:
        await self._inner.aclose()
