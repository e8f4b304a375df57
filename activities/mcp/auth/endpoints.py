"""HTTP to authorization servers: bounded answers in bounded time, and nothing unencrypted.

MCP servers, which are not trusted, name the authorization servers. So an address is used only if it is encrypted, or if
the user reaches the MCP server itself unencrypted, on the same host or on this machine. And a public server cannot send
us to a private address, unless the user has named that.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

import httpx2

from holdfast.activities.mcp.auth.login_store import NotAuthorized
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.activities.web.open_connections import HostNotFound, resolve_host
from holdfast.config.address_rules import AddressRefused, AddressRules
from holdfast.util.secrets import UNCUT
from holdfast.util.text import exception_text

BODY_LIMIT = 1_000_000
REQUEST_SECONDS = 30.0
_TIMEOUT = httpx2.Timeout(10.0, read=20.0)
_DROPPED_HEADERS = ("content-length", "transfer-encoding", "content-encoding")


class Unreachable(NotAuthorized):
    """An authorization server that does not answer: it may later."""


class AuthorizationTransport(httpx2.AsyncBaseTransport):
    """A transport to all that take part in the authorization of one server."""

    def __init__(self, server: str, issuer: str | None = None) -> None:
        """`issuer` is the authorization server that the settings name."""
        self._server = httpx2.URL(server)
        self._named = {self._server.host, *([httpx2.URL(issuer).host] if issuer else [])}
        self._inner: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the whole answer. NotAuthorized for a forbidden address, Unreachable without an answer."""
        if not is_allowed_address(request.url, self._server):
            raise NotAuthorized(f"{format_address(request.url)} is unencrypted, and tokens are not sent unencrypted")
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if request.url.host not in self._named and await is_inside_address(request.url, self._server):
                    raise NotAuthorized(f"{format_address(request.url)} is not public, and the server that names it is")
                return await self._fetch_answer(request)
        except TimeoutError:
            raise Unreachable(
                f"{format_address(request.url)} did not answer within {REQUEST_SECONDS:g} seconds"
            ) from None
        except (httpx2.TransportError, OSError) as error:
            raise Unreachable(
                f"{format_address(request.url)} cannot be reached: {exception_text(error, UNCUT)}"
            ) from None

    async def aclose(self) -> None:
        """Close the connections."""
        for inner in self._inner.values():
            await inner.aclose()

    async def _fetch_answer(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._send_request(request)
        body = bytearray()
        try:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise NotAuthorized(f"{format_address(request.url)} sent an encoding that was not requested")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > BODY_LIMIT:
                    raise NotAuthorized(f"{format_address(request.url)} answered with over {BODY_LIMIT:,} bytes")
        finally:
            await response.aclose()
        headers = [
            (name, value) for name, value in response.headers.multi_items() if name.lower() not in _DROPPED_HEADERS
        ]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body))

    async def _send_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with a time limit: those of the `mcp` package have none."""
        request.extensions = {**request.extensions, "timeout": _TIMEOUT.as_dict()}
        proxy = None if proxy_bypass(request.url.host) else getproxies().get(request.url.scheme)
        if proxy not in self._inner:
            self._inner[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy)
        return await self._inner[proxy].handle_async_request(request)


def is_allowed_address(url: httpx2.URL, server: httpx2.URL) -> bool:
    """Whether tokens for this server may be requested from this address."""
    if url.scheme != "http" or server.scheme != "http":
        return url.scheme == "https"
    return url.host == server.host or (_is_local(url.host) and _is_local(server.host))


async def is_inside_address(url: httpx2.URL, server: httpx2.URL) -> bool:
    """Whether this is a private address although the server is public."""
    return not await _is_public(url) and await _is_public(server)


async def _is_public(url: httpx2.URL) -> bool:
    try:
        await resolve_host(url.host, url.port or 443, AddressRules())
    except AddressRefused:
        return False
    except HostNotFound:
        return True  # unreachable, or reached by a proxy
    return True


def format_address(url: httpx2.URL) -> str:
    """Format an address without what may be secret in it."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}{url.path}"


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


PROBE_ID = "holdfast.probe"
"""Marks the request that asks the server itself."""
_VERSION = "2025-11-25"


class ProbeTransport(AuthorizationTransport):
    """A transport that asks a server once which authorization it requires.

    The OAuth client of the `mcp` package begins with a request that is rejected, and ends by sending it again. Here it
    is sent once. A server that accepts it counts as rejecting it, since the user wants to log in.
    """

    def __init__(self, server: str, issuer: str | None = None) -> None:
        super().__init__(server, issuer)
        self.wants_authorization: bool | None = None
        """Whether the server requires authorization; None until it was asked."""
        self.status = 0
        """The status of its answer."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer the marked request with 401, and send the others."""
        if PROBE_ID not in request.extensions:
            return await super().handle_async_request(request)
        if self.wants_authorization is not None:
            return httpx2.Response(204)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await self._send_request(request)
                await response.aclose()
        except (httpx2.TransportError, OSError, TimeoutError) as error:
            raise Unreachable(
                f"{format_address(request.url)} cannot be reached: {exception_text(error, UNCUT)}"
            ) from None
        self.status = response.status_code
        self.wants_authorization = self.status == 401
        return httpx2.Response(401, headers=response.headers.multi_items() if self.wants_authorization else ())


def build_probe(client: httpx2.AsyncClient, resolved: ResolvedServer) -> httpx2.Request:
    """Build the request that every session begins with. Only it gets the headers of the settings."""
    assert resolved.url, "a server that is reached"
    about = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "holdfast", "version": "0"}}
    return client.build_request(
        "POST",
        resolved.url,
        json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        headers={
            **resolved.headers,
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": _VERSION,
        },
        extensions={PROBE_ID: True},
    )
