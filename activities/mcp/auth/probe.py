"""Asking a server what authorization it wants, without asking it for anything else.

The OAuth of the `mcp` package begins with a request that is turned away and ends by sending it again. Here the request
is sent once; a server that lets everybody in is taken for one that does not, since whoever logs in wants to.
"""

from __future__ import annotations

import asyncio

import httpx2

from holdfast.activities.mcp.auth.endpoints import REQUEST_SECONDS, AuthorizationTransport, Unreachable, format_address
from holdfast.activities.mcp.config.resolve import ResolvedServer
from holdfast.activities.mcp.secrets.redactor import UNCUT
from holdfast.util.text import exception_text

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
