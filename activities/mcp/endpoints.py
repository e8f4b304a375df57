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

from holdfast.activities.mcp.logins import NotAuthorized
from holdfast.activities.web.addresses import AddressRefused, AddressRules, HostNotFound, resolve
from holdfast.content import said

BODY_LIMIT = 1_000_000
REQUEST_SECONDS = 30.0
_TIMEOUT = httpx2.Timeout(10.0, read=20.0)
_DROPPED = ("content-length", "transfer-encoding", "content-encoding")


class Unreachable(NotAuthorized):
    """An authorization server that does not answer: it may, later."""


class Endpoints(httpx2.AsyncBaseTransport):
    """A transport to whatever takes part in the authorization of one server."""

    def __init__(self, server: str, issuer: str | None = None) -> None:
        """`issuer` is the authorization server that the user has named."""
        self._server = httpx2.URL(server)
        self._named = {self._server.host, *([httpx2.URL(issuer).host] if issuer else [])}
        self._inner: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer. NotAuthorized for an address that is not taken, Unreachable when there is no answer."""
        if not fit(request.url, self._server):
            raise NotAuthorized(f"{told(request.url)} would be spoken to unencrypted, and tokens are not sent so")
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if request.url.host not in self._named and await leads_inside(request.url, self._server):
                    raise NotAuthorized(f"{told(request.url)} is not public, and the server that names it is")
                return await self._answer(request)
        except TimeoutError:
            raise Unreachable(f"{told(request.url)} did not answer within {REQUEST_SECONDS:g} seconds") from None
        except (httpx2.TransportError, OSError) as error:
            raise Unreachable(f"{told(request.url)} cannot be reached: {said(error, 200)}") from None

    async def aclose(self) -> None:
        """Close the connections."""
        for inner in self._inner.values():
            await inner.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._sent(request)
        body = bytearray()
        try:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise NotAuthorized(f"{told(request.url)} sent an encoding that it was not asked for")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > BODY_LIMIT:
                    raise NotAuthorized(f"{told(request.url)} answered with over {BODY_LIMIT:,} bytes")
        finally:
            await response.aclose()
        kept = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _DROPPED]
        return httpx2.Response(response.status_code, headers=kept, content=bytes(body))

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        """What the package asks has no limits of its own."""
        request.extensions = {**request.extensions, "timeout": _TIMEOUT.as_dict()}
        proxy = None if proxy_bypass(request.url.host) else getproxies().get(request.url.scheme)
        if proxy not in self._inner:
            self._inner[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy)
        return await self._inner[proxy].handle_async_request(request)


def fit(url: httpx2.URL, server: httpx2.URL) -> bool:
    """May tokens for this server be had from there?"""
    if url.scheme != "http" or server.scheme != "http":
        return url.scheme == "https"
    return url.host == server.host or (_here(url.host) and _here(server.host))


async def leads_inside(url: httpx2.URL, server: httpx2.URL) -> bool:
    """Is this an address of our own network, or of this machine, that somebody out there has named?"""
    return not await _public(url) and await _public(server)


async def _public(url: httpx2.URL) -> bool:
    try:
        await resolve(url.host, url.port or 443, AddressRules())
    except AddressRefused:
        return False
    except HostNotFound:
        return True  # nobody gets there, or a proxy does
    return True


def told(url: httpx2.URL) -> str:
    """An address without what may be secret in it."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}{url.path}"


def _here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
