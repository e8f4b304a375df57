"""Connections that go only to addresses that `AddressRules` allow.

A name is resolved once, all its addresses are checked, and the connection goes to one of them: a name that resolves
differently a moment later changes nothing. No proxy is used, since it would resolve names itself.
Why: docs/decisions/0015-fetch-connects-to-checked-addresses.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import ip_address

import httpcore2

from holdfast.config.address_rules import Address, AddressRefused, AddressRules, parse_literal

_LOOKUP_THREADS = ThreadPoolExecutor(32, "holdfast-names")
"""A pool of its own: a resolver may be slow."""
CONNECT_SECONDS = 5.0
"""How long one of several addresses is tried before the next."""


class HostNotFound(Exception):
    """A name has no address."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host!r} cannot be found")


async def look_up_host(host: str, port: int) -> list[str]:
    """Resolve a name with the system's resolver. OSError when it has no address."""
    loop = asyncio.get_running_loop()
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(_LOOKUP_THREADS, ask)
    return [str(entry[4][0]) for entry in found]


async def resolve_host(host: str, port: int, rules: AddressRules) -> tuple[Address, ...]:
    """Return all addresses of a host. AddressRefused unless all are allowed, HostNotFound without any."""
    if address := parse_literal(host):
        addresses: tuple[Address, ...] = (address,)
    else:
        try:
            addresses = tuple(dict.fromkeys(ip_address(text) for text in await look_up_host(host, port)))
        except (OSError, UnicodeError) as error:
            raise HostNotFound(host) from error
    if not addresses:
        raise HostNotFound(host)
    rules.check(host, addresses, port)
    return addresses


class OpenConnections(httpcore2.AnyIOBackend):
    """Connects only to allowed addresses. TLS still verifies the name.

    Close it afterwards: httpcore forgets a connection whose TLS handshake is cancelled.
    """

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._streams: list[httpcore2.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers. Raises what `resolve_host` and httpcore raise."""
        *others, last = await resolve_host(host, port, self._rules)
        for address in others:
            seconds = CONNECT_SECONDS if timeout is None else min(timeout, CONNECT_SECONDS)
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return self._keep_stream(
                    await super().connect_tcp(str(address), port, seconds, local_address, socket_options)
                )
        return self._keep_stream(await super().connect_tcp(str(last), port, timeout, local_address, socket_options))

    def _keep_stream(self, stream: httpcore2.AsyncNetworkStream) -> httpcore2.AsyncNetworkStream:
        self._streams.append(stream)
        return stream

    async def aclose(self) -> None:
        """Close every connection."""
        for stream in self._streams:
            await stream.aclose()

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """AddressRefused: sockets of this machine are not allowed."""
        raise AddressRefused(path)
