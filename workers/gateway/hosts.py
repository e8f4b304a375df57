"""Which names the endpoint answers to, and which pages may speak to it.

A web page that somebody visits can have a name of its own point to this machine, and so talk to what listens here
(DNS rebinding). The browser then sends that name as the Host, and we know that we are not meant. An address cannot be
pointed elsewhere, so where we listen on all of them any address is fine.

A page can also send requests to an address of this machine under its right name. The browser then says where the page
comes from (Origin), and a page of another origin is refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from holdfast.workers.gateway.answers import Problem

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST_HEADER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\s]+))(?::[0-9]{1,5})?")


class HostNames:
    """The names of one endpoint: loopback's, that of the host it listens on, and further ones."""

    def __init__(self, host: str, extra: Iterable[str] = ()) -> None:
        self._known = LOOPBACK_NAMES | {_normalize_name(name) for name in (host, *extra)}
        self._any_address = _is_any_address(host)

    def check_host(self, hosts: list[str]) -> None:
        """Problem unless the one Host header names us."""
        found = _HOST_HEADER.fullmatch(hosts[0]) if len(hosts) == 1 else None
        name = _normalize_name(found[1] or found[2]) if found else ""
        if name in self._known or (self._any_address and _parse_address(name)):
            return
        hint = "names of a proxy are set as `names` of [gateway] in the settings file"
        raise Problem(421, "wrong_host", f"the Host header names a host that this endpoint is not: {hint}")

    def check_origin(self, origins: list[str], host: str) -> None:
        """Problem when a page of another origin sends the request. Programs send no Origin header."""
        if any(origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}") for origin in origins):
            raise Problem(403, "foreign_origin", "the Origin header names a web page that is not served here")


def is_loopback(host: str) -> bool:
    """Is it reached from this machine only?"""
    address = _parse_address(host)
    return address.is_loopback if address else host.lower() == "localhost"


def _normalize_name(name: str) -> str:
    return name.lower().removesuffix(".")


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_any_address(host: str) -> bool:
    address = _parse_address(host)
    return address is not None and address.is_unspecified
