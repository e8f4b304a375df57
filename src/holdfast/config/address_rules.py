"""The network addresses that tools may connect to: every public one, and those of an allow-list. Nothing here connects.

A URL comes from a model, which may have read it on a page that a stranger wrote. So only public addresses are allowed,
unless a person has listed others.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

import httpx2
from pydantic import field_validator

from holdfast.domain.base import Data

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_CLOSED_4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by providers, and where some clouds keep their metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # looks public, and is the host agent of every Azure machine
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, and everything after it
    )
)
_OPEN_6 = IPv6Network("2000::/3")
"""The only block of global IPv6 addresses: the rest is local, multicast, reserved or not assigned."""
_CLOSED_6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # Teredo among them: it carries IPv4 addresses
        "2001:db8::/32",
        "2002::/16",  # 6to4: it carries IPv4 addresses
        "3fff::/20",
    )
)
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""IPv6 that stands for the IPv4 address in its last 32 bits: mapped, and translated by NAT64."""

_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_PORT = re.compile(r"(?P<host>\[.*\]|[^:]*):(?P<port>[0-9]{1,5})")


class AddressRefused(ValueError):
    """A host is, or resolves to, an address that is not allowed."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host!r} leads to an address that is not public")
        self.host = host


class _AllowedTarget(NamedTuple):
    """An entry of an allow-list: a name or a block of addresses, at one port or at all ports."""

    what: str | Network
    port: int | None

    def covers_target(self, host: str, address: Address, port: int) -> bool:
        if self.port not in (None, port):
            return False
        return host == self.what if isinstance(self.what, str) else address in self.what


class AddressRules(Data):
    """The allowed addresses: every public one, and those that `allow` lists.

    An entry is a name ("wiki.example"), an address or a block of them ("10.0.0.0/8"), each with or without a port
    ("127.0.0.1:8080", "[::1]:8080"). A name is allowed whatever it resolves to; a block whatever name resolves into it.
    """

    allow: tuple[str, ...] = ()

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for entry in allow:
            _parse_entry(entry)
        return allow

    @cached_property
    def _entries(self) -> tuple[_AllowedTarget, ...]:
        return tuple(_parse_entry(entry) for entry in self.allow)

    def check(self, host: str, addresses: Iterable[Address], port: int) -> None:
        """Raise AddressRefused when any of a host's addresses is not allowed."""
        name = host.rstrip(".").lower()
        for address in addresses:
            if not is_public(address) and not any(entry.covers_target(name, address, port) for entry in self._entries):
                raise AddressRefused(host)

    def check_literal(self, host: str, port: int) -> None:
        """Check a host that is an address. Names pass, since `check` is called for them when they are resolved."""
        if address := parse_literal(host):
            self.check(host, (address,), port)


def _parse_entry(text: str) -> _AllowedTarget:
    """Read one entry of an allow-list; ValueError says what is wrong with it."""
    if (block := _parse_block(text)) is not None:
        return _AllowedTarget(block, None)
    found = _PORT.fullmatch(text)
    host, port = (found["host"], int(found["port"])) if found else (text, None)
    if port is not None and not 0 < port < 65_536:
        raise ValueError(f"{text!r} has an invalid port")
    if (block := _parse_block(host[1:-1] if host.startswith("[") and host.endswith("]") else host)) is not None:
        return _AllowedTarget(block, port)
    return _AllowedTarget(_normalise_name(host), port)


def _parse_block(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _normalise_name(text: str) -> str:
    """Normalise a host name: lower case, without the last dot, other scripts as Punycode."""
    try:
        name = httpx2.URL(scheme="http", host=text.removesuffix(".")).raw_host.decode("ascii")
    except httpx2.InvalidURL:
        name = ""
    if not is_host(name) or parse_literal(name):
        raise ValueError(f"{text!r} is neither a host nor a block of addresses, with or without a port")
    return name


def is_host(text: str) -> bool:
    """Is this text a host name or an address, without escapes and zones?"""
    if ":" in text:
        return "%" not in text and _is_address(text)
    return len(text) < 255 and _NAME.fullmatch(text.removesuffix(".")) is not None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def parse_literal(host: str) -> Address | None:
    """Parse a host that is an address, also in the forms that only resolvers read: 2130706433, 0x7f.1, 127.1."""
    spelled = host.rstrip(".")
    try:
        return ip_address(spelled) if ":" in spelled else IPv4Address(socket.inet_aton(spelled))
    except (OSError, ValueError):
        return None


def is_public(address: Address) -> bool:
    """Is this a public address? An IPv6 address that carries an IPv4 address is judged by that."""
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in block for block in _CLOSED_4)
    if any(address in block for block in _CARRIERS):
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address.is_global and address in _OPEN_6 and not any(address in block for block in _CLOSED_6)
