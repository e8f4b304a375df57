"""Interprets HTTP answers: errors with their faults, and streams of events.

The server's own error message is passed on. Only what the protocol defines for it counts as an unknown session, and
only a status that says so as a refusal: a request that may have run is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

import httpx2
from mcp_types import ErrorData, JSONRPCError

from holdfast.activities.mcp.auth.bearer import find_missing_scope
from holdfast.activities.mcp.transport.faults import Failure, Fault, build_fault_error
from holdfast.activities.mcp.transport.jsonrpc import MESSAGE_LIMIT, Pace, UnreadableMessage, read_message

_REFUSED_STATUSES = frozenset(
    [400, 402, 404, 405, 406, 410, 411, 413, 414, 415, 417, 421, 422, 426, 428, 429, 431, 451]
)
"""Statuses that are sent before anything runs. 408 and 409 are not among them."""
_LOST_STATUS = 501
"""The first status that may come from a proxy between us and the server."""

_UNKNOWN_SESSION = re.compile(r"session|not initialized", re.IGNORECASE)
"""The answers of common servers, with 400 and no id, to a session that they do not know."""


def explain_status(response: httpx2.Response, request_id: int | str | None, *, has_session: bool) -> ErrorData:
    """Build the error that an unsuccessful response stands for. `has_session`: the request named a session."""
    status, own = response.status_code, _find_error(response.content)
    answers = own is not None and own.id is not None and str(own.id) == str(request_id)
    words = own.error.message if own else _describe_status(response)
    if status == 401 or (status == 403 and not answers):
        wish = f"the scope {scope!r} in a token" if (scope := find_missing_scope(response)) else "authorization"
        return build_fault_error(Fault.UNAUTHORIZED, f"it requires {wish} (HTTP status {status})")
    if has_session and not answers and (status == 404 or (status == 400 and _UNKNOWN_SESSION.search(words))):
        return build_fault_error(Fault.SESSION, words)
    if own and status < (_LOST_STATUS if answers else 500):
        return own.error
    turned_away = status in _REFUSED_STATUSES or response.is_redirect
    return build_fault_error(Fault.REFUSED if turned_away else Fault.LOST, words)


def _describe_status(response: httpx2.Response) -> str:
    status, place = response.status_code, response.next_request.url if response.next_request else None
    if place is not None:
        address = f"{place.scheme}://{place.host}{f':{place.port}' if place.port else ''}{place.path}"
        return f"it redirects to {address} (HTTP status {status}): if the server is there, make that its `url`"
    nothing = " (check the path of its `url`: many servers are at /mcp)" if status == 404 else ""
    return f"it answered with HTTP status {status}{nothing}"


def _find_error(body: bytes) -> JSONRPCError | None:
    try:
        found = read_message(body)
    except UnreadableMessage:
        return None
    return found if isinstance(found, JSONRPCError) else None


RECONNECT_SECONDS = 1.0
"""Between two attempts to read a stream, unless the server asks for something else."""
LONGEST_SECONDS = 30.0
"""The same when nothing ever comes, and the longest that a server may ask for."""
EARLY_SECONDS = 5.0
"""Seconds by which a server may shorten the pauses, altogether."""
LINE_SECONDS = 0.0000005
"""The approximate cost of reading a line; lines may come that never make an event."""
_KIND = "text/event-stream"


@dataclass
class StreamPosition:
    """The last event id of a stream, and the pause that its server asks for."""

    id: str | None = None
    wish: float | None = None
    """Seconds to wait before the stream is resumed, if the server says so."""
    _own: float = RECONNECT_SECONDS / 2
    _early: float = EARLY_SECONDS

    def choose_pause(self, *, came: bool) -> float:
        """Choose how long to wait after the stream has ended. `came`: it has brought a message."""
        if self.wish is None:
            self._own = RECONNECT_SECONDS if came else min(self._own * 2, LONGEST_SECONDS)
            return self._own
        early = max(0.0, RECONNECT_SECONDS - self.wish)
        if early > self._early:
            return RECONNECT_SECONDS
        self._early -= early
        return self.wish


def is_stream(response: httpx2.Response) -> bool:
    """Whether a response is a stream of events."""
    return bool(response.headers.get("content-type", "").lower().startswith(_KIND))


async def read_events(response: httpx2.Response, place: StreamPosition, pace: Pace) -> AsyncGenerator[bytes]:
    """Yield the messages of a stream. Failure when one is too long, httpx2's errors when the stream breaks."""
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
    """A stream that is read no faster than `Pace` allows."""

    def __init__(self, inner: httpx2.AsyncByteStream, pace: Pace) -> None:
        self._inner = inner
        self._pace = pace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            yield piece
            await self._pace.spend(piece.count(b"\n") * LINE_SECONDS)

    async def aclose(self) -> None:
        await self._inner.aclose()
