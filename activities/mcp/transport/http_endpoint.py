"""The address of a server: how a request to it is made, what every request carries, and where it has moved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Address:
    """Where one connection's requests go."""

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self._url = httpx2.URL(url)
        self._client = client
        self.session: str | None = None
        """What the server calls our session, in the older protocol."""
        self.version: str | None = None
        """Of the protocol, as the last request said that had one."""

    @property
    def is_modern(self) -> bool:
        """Is it the newer protocol, in which the end of a request is also the end of what it asks for?"""
        return self.version in MODERN_PROTOCOL_VERSIONS

    @asynccontextmanager
    async def open_response(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, *, may_move: bool = True
    ) -> AsyncIterator[httpx2.Response]:
        """The answer to a request, whose body is still to be read. `may_move`: it may be sent to where it redirects.

        That is done once, and remembered: what must not run twice is then sent there at once.
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
        told = {**_HEADERS, **{name: value for name, value in ours.items() if value}, **headers}
        request = self._client.build_request(method, url, headers=told, content=content)
        return await self._client.send(request, stream=True)


def _find_new_address(response: httpx2.Response) -> httpx2.URL | None:
    """Where a request is to be sent instead, as it is: to the same server, the same way or a safer one."""
    following = response.next_request
    if following is None or following.method != response.request.method:
        return None
    here, there = response.request.url, following.url
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    safer = (here.scheme, there.scheme) == ("http", "https") and here.host == there.host
    own = not there.userinfo or there.userinfo == here.userinfo
    return there if own and (same or (safer and here.port is None and there.port is None)) else None
