"""HTTP to authorization servers: whole answers of a bounded size and in bounded time, and nothing in the clear.

Which ones these are is said by MCP servers, that is by strangers. So an address is taken only if it is encrypted, or
if the user reaches the MCP server itself without that, on the same host or on this machine. And a server out there
sends us to nothing in here, unless the user has named that.
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
    """An authorization server that does not answer: it may, later."""


class AuthorizationTransport(httpx2.AsyncBaseTransport):
    """A transport to whatever takes part in the authorization of one server."""

    def __init__(self, server: str, issuer: str | None = None) -> None:
        """`issuer` is the authorization server that the user has named."""
        self._server = httpx2.URL(server)
        self._named = {self._server.host, *([httpx2.URL(issuer).host] if issuer else [])}
        self._inner: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer. NotAuthorized for an address that is not taken, Unreachable when there is no answer."""
        if not is_allowed_address(request.url, self._server):
            raise NotAuthorized(
                f"{format_address(request.url)} would be spoken to unencrypted, and tokens are not sent so"
            )
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
                raise NotAuthorized(f"{format_address(request.url)} sent an encoding that it was not asked for")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > BODY_LIMIT:
                    raise NotAuthorized(f"{format_address(request.url)} answered with over {BODY_LIMIT:,} bytes")
        finally:
            await response.aclose()
        kept = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _DROPPED_HEADERS]
        return httpx2.Response(response.status_code, headers=kept, content=bytes(body))

    async def _send_request(self, request: httpx2.Request) -> httpx2.Response:
        """What the package asks has no limits of its own."""
        request.extensions = {**request.extensions, "timeout": _TIMEOUT.as_dict()}
        proxy = None if proxy_bypass(request.url.host) else getproxies().get(request.url.scheme)
        if proxy not in self._inner:
            self._inner[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy)
        return await self._inner[proxy].handle_async_request(request)


def is_allowed_address(url: httpx2.URL, server: httpx2.URL) -> bool:
    """May tokens for this server be had from there?"""
    if url.scheme != "http" or server.scheme != "http":
        return url.scheme == "https"
    return url.host == server.host or (_is_local(url.host) and _is_local(server.host))


async def is_inside_address(url: httpx2.URL, server: httpx2.URL) -> bool:
    """Is this an address of our own network, or of this machine, that somebody out there has named?"""
    return not await _is_public(url) and await _is_public(server)


async def _is_public(url: httpx2.URL) -> bool:
    try:
        await resolve_host(url.host, url.port or 443, AddressRules())
    except AddressRefused:
        return False
    except HostNotFound:
        return True  # nobody gets there, or a proxy does
    return True


def format_address(url: httpx2.URL) -> str:
    """An address without what may be secret in it."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}{url.path}"


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


PROBE_ID = "holdfast.probe"
_VERSION = "2025-11-25"


class ProbeTransport(AuthorizationTransport):
    """A transport to the server and to whatever takes part in its authorization."""

    def __init__(self, server: str, issuer: str | None = None) -> None:
        super().__init__(server, issuer)
        self.wants_authorization: bool | None = None
        """Does the server want authorization? None as long as it was not asked."""
        self.status = 0
        """What it answered when it was."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Its answer to the one request is always that it wants authorization."""
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
    """The request that every conversation begins with. Headers of the settings go to the server alone."""
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
