"""Asking a server what authorization it wants, without asking it for anything else.

The OAuth of the `mcp` package begins with a request that is turned away and ends by sending it again. Here the request
is sent once; a server that lets everybody in is taken for one that does not, since whoever logs in wants to.
"""

from __future__ import annotations

import asyncio

import httpx2

from holdfast.activities.mcp.endpoints import REQUEST_SECONDS, Endpoints, Unreachable, told
from holdfast.activities.mcp.resolving import Resolved
from holdfast.content import said

PROBE = "holdfast.probe"
_VERSION = "2025-11-25"


class Probe(Endpoints):
    """A transport to the server and to whatever takes part in its authorization."""

    def __init__(self, server: str, issuer: str | None = None) -> None:
        super().__init__(server, issuer)
        self.wanted: bool | None = None
        """Does the server want authorization? None as long as it was not asked."""
        self.status = 0
        """What it answered when it was."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Its answer to the one request is always that it wants authorization."""
        if PROBE not in request.extensions:
            return await super().handle_async_request(request)
        if self.wanted is not None:
            return httpx2.Response(204)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await self._sent(request)
                await response.aclose()
        except (httpx2.TransportError, OSError, TimeoutError) as error:
            raise Unreachable(f"{told(request.url)} cannot be reached: {said(error, 200)}") from None
        self.status = response.status_code
        self.wanted = self.status == 401
        return httpx2.Response(401, headers=response.headers.multi_items() if self.wanted else ())


def probe_of(client: httpx2.AsyncClient, resolved: Resolved) -> httpx2.Request:
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
        extensions={PROBE: True},
    )
