"""Which addresses are open: public ones and what is allowed, however they are spelled."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.web import open_connections
from holdfast.activities.web.open_connections import HostNotFound, OpenConnections, resolve_host
from holdfast.config.address_rules import AddressRefused, AddressRules, is_host, is_public, parse_literal

PRIVATE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "2a00::1", "2001:4860:4860::8888"]
CARRIED = ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
BLOCKS = [IPv4Network(text) for text in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "224.0.0.0/4")]
private_ipv4 = st.sampled_from(BLOCKS).flatmap(
    lambda block: st.integers(int(block[0]), int(block[-1])).map(IPv4Address)
)
ports = st.integers(1, 65_535)


@pytest.mark.parametrize("text", PRIVATE)
def test_address_that_is_not_public_is_closed(text: str) -> None:
    assert not is_public(ip_address(text))
    with pytest.raises(AddressRefused, match="not public"):
        AddressRules().check("host", (ip_address(text),), 80)


@pytest.mark.parametrize("text", PUBLIC + CARRIED)
def test_public_address_is_open(text: str) -> None:
    assert is_public(ip_address(text))
    AddressRules().check("host", (ip_address(text),), 80)


@given(private_ipv4)
def test_private_address_stays_private_whatever_carries_it(address: IPv4Address) -> None:
    number = int(address)
    carried = {
        "compatible": number,
        "mapped": 0xFFFF << 32 | number,
        "NAT64": 0x64_FF9B << 96 | number,
        "6to4": 0x2002 << 112 | number << 80 | 1,
        "Teredo": 0x2001_0000 << 96 | (number ^ 0xFFFF_FFFF),
    }
    assert [kind for kind, value in carried.items() if is_public(IPv6Address(value))] == []


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_ipv6_outside_what_is_given_out_is_closed(address: IPv6Address) -> None:
    carriers = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
    if address not in IPv6Network("2000::/3") and not any(address in block for block in carriers):
        assert not is_public(address)


# Spellings


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("2852039166", "169.254.169.254"),
        ("::1", "::1"),
        ("0:0:0:0:0:ffff:7f00:1", "::ffff:7f00:1"),
    ],
)
def test_every_spelling_of_an_address_is_seen_through(host: str, address: str) -> None:
    assert parse_literal(host) == ip_address(address)
    with pytest.raises(AddressRefused):
        AddressRules().check_literal(host, 80)


@given(private_ipv4)
def test_private_address_is_refused_in_all_number_systems(address: IPv4Address) -> None:
    number, octets = int(address), address.packed
    spellings = [
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(hex(octet) for octet in octets),
        ".".join(f"0{octet:o}" for octet in octets),
        f"{octets[0]}.{number & 0xFF_FFFF}",
        f"{octets[0]}.{octets[1]}.{number & 0xFFFF}",
        f"{address}.",
    ]
    assert {parse_literal(spelling) for spelling in spellings} == {address}


@pytest.mark.parametrize("host", ["localhost", "example.com", "1.2.3.4.5", "4294967296", "127.0.0.1.example.com", ""])
def test_name_is_no_literal(host: str) -> None:
    assert parse_literal(host) is None
    AddressRules().check_literal(host, 80)


@pytest.mark.parametrize("host", ["example.com", "example.com.", "a_b.example", "xn--bcher-kva.example", "h", "::1"])
def test_host_can_be(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "..", "a..b", ".a", "a b", "a/b", "a@b", "a\\b", "ä.example", "a." * 127 + "com"),
        *("%31", "a%2eb", "fe80::1%eth0", "::x", "[::1]"),
    ],
)
def test_host_that_is_too_clever_cannot_be(host: str) -> None:
    assert not is_host(host)


# The allow-list


@pytest.mark.parametrize(
    ("entry", "host", "address", "port"),
    [
        ("10.0.0.0/8", "intern.example", "10.9.8.7", 80),
        ("10.0.0.0/8", "10.9.8.7", "10.9.8.7", 9_000),
        ("127.0.0.1", "localhost", "127.0.0.1", 1),
        ("127.0.0.1:8080", "127.0.0.1", "127.0.0.1", 8_080),
        ("10.0.0.0/8:8080", "10.0.0.1", "10.0.0.1", 8_080),
        ("::1", "::1", "::1", 80),
        ("[::1]:8080", "::1", "::1", 8_080),
        ("[fd00::/8]:443", "x.example", "fd00::1", 443),
        ("wiki.example", "wiki.example", "10.0.0.1", 80),
        ("wiki.example", "WIKI.example.", "fd00::1", 80),
        ("Wiki.Example.:8080", "wiki.example", "10.0.0.1", 8_080),
        ("bücher.example", "xn--bcher-kva.example", "10.0.0.1", 80),
        ("faß.example", "xn--fa-hia.example", "10.0.0.1", 80),
    ],
)
def test_what_is_allowed_is_open(entry: str, host: str, address: str, port: int) -> None:
    AddressRules(allow=(entry,)).check(host, (ip_address(address),), port)


@pytest.mark.parametrize(
    ("entry", "host", "address", "port"),
    [
        ("10.0.0.0/8", "10.9.8.7", "192.168.0.1", 80),
        ("127.0.0.1:8080", "127.0.0.1", "127.0.0.1", 8_081),
        ("127.0.0.1", "127.0.0.2", "127.0.0.2", 80),
        ("127.0.0.1", "localhost", "::1", 80),
        ("127.0.0.1", "x", "::ffff:127.0.0.1", 80),
        ("wiki.example", "x.wiki.example", "10.0.0.1", 80),
        ("wiki.example", "wiki.example.evil", "10.0.0.1", 80),
        ("wiki.example:80", "wiki.example", "10.0.0.1", 81),
    ],
)
def test_nothing_else_is_opened_by_an_entry(entry: str, host: str, address: str, port: int) -> None:
    with pytest.raises(AddressRefused):
        AddressRules(allow=(entry,)).check(host, (ip_address(address),), port)


@given(private_ipv4, ports, ports)
def test_entry_with_a_port_opens_that_port_only(address: IPv4Address, allowed: int, asked: int) -> None:
    rules = AddressRules(allow=(f"{address}:{allowed}",))
    if allowed == asked:
        rules.check("host", (address,), asked)
    else:
        with pytest.raises(AddressRefused):
            rules.check("host", (address,), asked)


@pytest.mark.parametrize(
    "entry",
    [
        *("", " ", "*", "*.example", "http://wiki.example", "wiki.example/x", "user@host", "a b", "%31"),
        *("10.0.0.1/8", "h:0", "h:65536", "h:x", "2130706433", "127.1", "[::1", "::1]"),
    ],
)
def test_entry_that_cannot_be_read_is_an_error_at_once(entry: str) -> None:
    with pytest.raises(ValidationError, match=r"neither a host nor a block|an invalid port"):
        AddressRules(allow=(entry,))


def test_rules_are_frozen_and_come_from_lists() -> None:
    rules = AddressRules.model_validate({"allow": ["10.0.0.0/8"]})
    assert rules == AddressRules(allow=("10.0.0.0/8",))
    with pytest.raises(ValidationError):
        rules.allow = ()


# Resolving


def answer(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return list(found)

    monkeypatch.setattr(open_connections, "look_up_host", lookup)


async def test_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "8.8.8.8", "2606:4700::1111", "10.0.0.1")
    with pytest.raises(AddressRefused, match=r"'mixed\.example' leads to an address that is not public"):
        await resolve_host("mixed.example", 80, AddressRules())
    assert len(await resolve_host("mixed.example", 80, AddressRules(allow=("10.0.0.1",)))) == 3


async def test_name_with_public_addresses_resolves_to_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "8.8.8.8", "8.8.8.8", "2606:4700::1111")
    found = await resolve_host("public.example", 443, AddressRules())
    assert found == (ip_address("8.8.8.8"), ip_address("2606:4700::1111"))


async def test_address_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "8.8.8.8")
    with pytest.raises(AddressRefused):
        await resolve_host("0x7f.1", 80, AddressRules())
    assert await resolve_host("1.1.1.1", 80, AddressRules()) == (ip_address("1.1.1.1"),)


async def test_name_without_an_address_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch)
    with pytest.raises(HostNotFound, match="'nobody' cannot be found"):
        await resolve_host("nobody", 80, AddressRules())


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..b", "", "nul\0"])
async def test_name_the_resolver_cannot_take_is_not_found(host: str) -> None:
    with pytest.raises(HostNotFound):
        await resolve_host(host, 80, AddressRules())


async def test_own_machine_is_refused_by_its_name() -> None:
    with pytest.raises(AddressRefused):
        await resolve_host("localhost", 80, AddressRules())


async def test_sockets_of_the_machine_are_refused() -> None:
    with pytest.raises(AddressRefused):
        await OpenConnections(AddressRules()).connect_unix_socket("/run/x.sock")
