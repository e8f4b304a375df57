"""The HTTP client for one server: answers are bounded and unencoded, and redirects are followed only where it is safe.

The body of an answer is streamed. The body of an error is read up to a limit, and that of a redirect not at all, before
anything else can read it whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.request import getproxies, proxy_bypass

import httpx2
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast.activities.ledger.ledger import LedgerUnavailable
from holdfast.activities.mcp.auth.bearer import REFUSED_KEY
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.activities.mcp.transport.faults import Failure, Fault

CONNECT_SECONDS = 10.0
WRITE_SECONDS = 30.0
ERROR_LIMIT = 65_536
"""Bytes of the body of an error."""
ERROR_SECONDS = 10.0
_BODY_HEADERS = ("content-length", "transfer-encoding", "content-encoding")


def build_http_client(resolved: ResolvedServer, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """Build a client for one server. It sets no time limit for an answer: its caller does."""
    assert resolved.url, "a server that is reached"
    url = httpx2.URL(resolved.url)
    proxy = None if proxy_bypass(url.host) else getproxies().get(url.scheme)
    inner = httpx2.AsyncHTTPTransport(
        proxy=proxy, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    )
    return httpx2.AsyncClient(
        transport=GuardedTransport(inner),
        headers={**resolved.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, write=WRITE_SECONDS, read=None, pool=CONNECT_SECONDS),
        auth=auth,
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """A transport that bounds the bodies of errors and refuses encoded answers."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer. Raises Failure when the request may not be sent or its answer is encoded."""
        if (why := request.extensions.get(REFUSED_KEY)) is not None:
            raise Failure(Fault.REFUSED if isinstance(why, LedgerUnavailable) else Fault.UNAUTHORIZED, str(why))
        response = await self._inner.handle_async_request(request)
        packed = response.headers.get("content-encoding", "identity").lower() != "identity"
        if response.is_success and request.method != "DELETE":
            if packed:
                await response.aclose()
                raise Failure(Fault.UNREADABLE, "it sent an encoding that it was not asked for")
            return response
        body = b"" if packed or response.is_success else await _read_beginning(response)
        await response.aclose()
        remaining = [
            (name, value) for name, value in response.headers.multi_items() if name.lower() not in _BODY_HEADERS
        ]
        return httpx2.Response(response.status_code, headers=remaining, content=body)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


async def _read_beginning(response: httpx2.Response) -> bytes:
    """The body of an error, if it is short and comes in time."""
    with suppress(httpx2.TransportError, TimeoutError):
        async with asyncio.timeout(ERROR_SECONDS):
            return await read_whole(response, ERROR_LIMIT) or b""
    return b""


async def read_whole(response: httpx2.Response, limit: int) -> bytes | None:
    """Return the whole body; None if it is over the limit."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > limit:
            return None
    return bytes(body)


SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Address:
    """The address of one connection: builds its requests and remembers where the server has moved."""

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self._url = httpx2.URL(url)
        self._client = client
        self.session: str | None = None
        """The id of the session, in the stateful protocol versions."""
        self.version: str | None = None
        """The protocol version of the last request that had one."""

    @property
    def is_modern(self) -> bool:
        """Whether the version is stateless, so that closing a request also cancels it."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    @asynccontextmanager
    async def open_response(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, *, may_move: bool = True
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its answer, whose body is still to be read.

        `may_move`: follow one redirect, and remember the new address. A request that must not run twice is not
        redirected, but uses the address that an earlier one found.
        """
        response = await self._send_request(self._url, method, headers, content)
        if may_move and (place := _find_new_address(response)):
            self._url = place if method == "POST" else self._url
            response = await self._send_request(place, method, headers, content)
        try:
            yield response
        finally:
            await response.aclose()

    async def _send_request(
        self, url: httpx2.URL, method: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        ours = {SESSION_HEADER: self.session, VERSION_HEADER: self.version}
        sent = {**_HEADERS, **{name: value for name, value in ours.items() if value}, **headers}
        request = self._client.build_request(method, url, headers=sent, content=content)
        return await self._client.send(request, stream=True)


def _find_new_address(response: httpx2.Response) -> httpx2.URL | None:
    """Find the target of a redirect: the same server, or its https address."""
    following = response.next_request
    if following is None or following.method != response.request.method:
        return None
    here, there = response.request.url, following.url
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    safer = (here.scheme, there.scheme) == ("http", "https") and here.host == there.host
    own = not there.userinfo or there.userinfo == here.userinfo
    return there if own and (same or (safer and here.port is None and there.port is None)) else None
