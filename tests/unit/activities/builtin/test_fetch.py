"""`fetch` against real servers on the loopback, kind ones and hostile ones. Nothing here reaches the internet."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from holdfast.activities.builtin import fetch as fetching
from holdfast.activities.builtin.fetch import Fetch
from holdfast.activities.web import open_connections
from holdfast.config.address_rules import AddressRules
from holdfast.domain.calls.tool import Effect, Invocation, ToolFailure
from holdfast.domain.content import BlobPart
from holdfast.testing import FakeRun

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HERE = Path()
SECONDS = 10
"""How long anything here may take before it counts as stuck."""


class Quiet(FakeRun):
    """A run nobody watches."""

    def write(self, text: str) -> None:
        raise AssertionError("fetching has no live output")

    def report_process(self, pid: int) -> None:
        raise AssertionError("fetching has no process")


class Server:
    """What a server saw: the requests, and whether a client has gone."""

    def __init__(self, *answers: bytes | Answering) -> None:
        self._answers = answers
        self._tasks: set[asyncio.Task[object]] = set()
        self.requests: list[str] = []
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.port = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            self.asked.set()
            await self._answer(reader, writer)
        self.gone.set()
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()
        self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if isinstance(answer, bytes):
            writer.write(answer.replace(b"PORT", str(self.port).encode()))
            await writer.drain()
        else:
            await answer(reader, writer)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    *answers: bytes | Answering, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that gives its answers in turn, and the last one for ever."""
    server = Server(*answers)
    listening = await asyncio.start_server(server.connected, host, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


def answer(body: bytes, *headers: str, status: str = "200 OK", type: str | None = "text/plain") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    head += [f"Content-Type: {type}"] if type else []
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer(b"moved", f"Location: {location}", "Set-Cookie: a=b", status=status)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the client goes."""
    await reader.read()


def opened(*servers: Server, max_bytes: int = 5_000_000) -> Fetch:
    return Fetch(AddressRules(allow=tuple(f"127.0.0.1:{server.port}" for server in servers)), max_bytes)


def build(tool: Fetch, url: str, **arguments: Any) -> Invocation:
    return tool.build(tool.Parameters.model_validate({"url": url, **arguments}), HERE)


async def fetch(tool: Fetch, url: str, **arguments: Any) -> str:
    async with asyncio.timeout(SECONDS):
        result = await build(tool, url, **arguments).execute(Quiet())
    [part] = result.parts
    return part.text


async def failure_of(tool: Fetch, url: str, **arguments: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await fetch(tool, url, **arguments)
    return failure.value


def resolving(monkeypatch: pytest.MonkeyPatch, **answers: list[list[str]]) -> list[str]:
    """Names of the test's own, each with its answers in turn. What was asked is in the list that comes back."""
    asked: list[str] = []

    async def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        turns = answers[host.partition(".")[0]]
        return turns[min(asked.count(host), len(turns)) - 1]

    monkeypatch.setattr(open_connections, "look_up_host", lookup)
    return asked


# What comes back


async def test_text_comes_with_its_status_url_type_and_size() -> None:
    async with serving(answer(b"hello\n")) as server:
        url = f"http://127.0.0.1:{server.port}/a?b=c"
        assert await fetch(opened(server), url) == f"200 {url} (text/plain, 6 bytes)\n\nhello\n"


async def test_request_gives_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with serving(redirect("/next"), answer(b"")) as server:
        await fetch(opened(server), f" http://127.0.0.1:{server.port}/a#part ")
    lines = [request.rstrip("\r\n").split("\r\n") for request in server.requests]
    common = [f"host: 127.0.0.1:{server.port}", "user-agent: holdfast", "accept: */*", "accept-encoding: gzip, deflate"]
    assert [line[0] for line in lines] == ["GET /a HTTP/1.1", "GET /next HTTP/1.1"]
    assert [[header.lower() for header in line[1:]] for line in lines] == [common, common]


PAGE = b"<title>t</title><h1>Hi</h1><p>to <a href=x>you</a><script>no</script>"


async def test_web_page_becomes_text() -> None:
    async with serving(answer(PAGE, type="text/html; charset=utf-8")) as server:
        base = f"http://127.0.0.1:{server.port}"
        text = await fetch(opened(server), f"{base}/a/b")
    assert text == f"200 {base}/a/b (text/html, {len(PAGE)} bytes)\n\n# Hi\n\nto you ({base}/a/x)"


async def test_raw_page_stays_as_it_is() -> None:
    async with serving(answer(PAGE, type="text/html")) as server:
        assert (await fetch(opened(server), f"http://127.0.0.1:{server.port}/", raw=True)).endswith(PAGE.decode())


@pytest.mark.parametrize(
    ("type", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", b"caf\xe9 \x93x\x94", "café “x”"),
        ('text/plain; charset="UTF-8"', "✓".encode(), "✓"),
        ("text/plain; charset=utf-16", "✓".encode("utf-16"), "✓"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ("text/plain", "\ufeff✓".encode(), "✓"),
        ("text/plain", "✓".encode("utf-16"), "✓"),
        ("text/plain", b"caf\xe9", "caf\ufffd"),
        ("text/plain; charset=nonsense", "✓".encode(), "✓"),
        ("text/plain; charset=zlib", "✓".encode(), "✓"),
        ("text/plain; charset=punycode", b"a-b", "a-b"),
        ("text/plain; charset=unicode_escape", rb"\q", r"\q"),
        ("text/plain; charset=undefined", b"x", "x"),
        ("text/plain; charset=" + "x" * 2_000, b"x", "x"),
        ("text/html", b"<meta charset=latin1><p>caf\xe9", "café"),
        ("text/html", b"<meta http-equiv=x content='text/html; charset=koi8-r'>\xcd", "м"),
        ("text/html", "<meta charset=utf-16><p>é".encode(), "é"),
        ("text/html; charset=utf-8", "<meta charset=latin1><p>é".encode(), "é"),
        ("application/rss+xml", b"<?xml encoding='latin1'?>\xe9", "<?xml encoding='latin1'?>é"),
        ("application/json", '{"a":"é"}'.encode(), '{"a":"é"}'),
        ("application/octet-stream", b"a = 1\n", "a = 1\n"),
        ("nonsense", b"text", "text"),
        (None, b"text", "text"),
        (None, b"<!DOCTYPE html><p>x", "x"),
        ("text/plain", b"\x1b[31mred\x1b[0m\x00", "red"),
    ],
)
async def test_text_is_decoded(type: str | None, body: bytes, text: str) -> None:
    async with serving(answer(body, type=type)) as server:
        assert (await fetch(opened(server), f"http://127.0.0.1:{server.port}/")).partition("\n\n")[2] == text


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("image/png", "image/png"),
        ("application/pdf", "application/pdf"),
        ("application/octet-stream", "image/png"),
        (None, "image/png"),
    ],
)
async def test_S34_what_is_not_text_is_a_part_of_its_own(type: str | None, kind: str) -> None:
    body = b"\x89PNG\r\n\x1a\n" + b"\0" * 1_000
    async with serving(answer(body, type=type)) as server:
        tool, url = opened(server), f"http://127.0.0.1:{server.port}/x.png"
        heading, blob = (await build(tool, url).execute(Quiet())).parts
    assert heading.text == f"200 {url} ({kind}, 1,008 bytes)"
    assert isinstance(blob, BlobPart)
    assert (blob.media_type, blob.data) == (kind, body)


async def test_nothing_is_a_result_too() -> None:
    async with serving(answer(b"", status="204 No Content", type=None)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert await fetch(opened(server), url) == f"204 {url} (text/plain, 0 bytes)"


async def test_compressed_text_is_unpacked() -> None:
    async with serving(
        answer(gzip.compress(b"hello"), "Content-Encoding: gzip"),
        answer(zlib.compress(b"hello"), "Content-Encoding: deflate"),
    ) as server:
        for _ in range(2):
            assert (await fetch(opened(server), f"http://127.0.0.1:{server.port}/")).endswith("5 bytes)\n\nhello")


async def test_error_status_is_a_failure_that_keeps_the_body() -> None:
    async with serving(answer(b"<h1>Gone</h1>fishing", status="404 Whatever", type="text/html")) as server:
        url = f"http://127.0.0.1:{server.port}/x"
        failure = await failure_of(opened(server), url)
    assert (failure.type, str(failure)) == ("http_error", f"{url} answered 404 Not Found")
    assert [part.text for part in failure.parts] == ["# Gone\n\nfishing"]


async def test_error_status_may_be_odd_and_without_a_body() -> None:
    async with serving(answer(b"", status="799 Odd")) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/x")
    assert (failure.type, failure.parts) == ("http_error", ())
    assert str(failure).endswith("answered 799")


# Redirects


async def test_redirects_are_followed_and_told() -> None:
    there = redirect("http://127.0.0.1:PORT/c", "308 Elsewhere")
    async with serving(redirect("/b", "301 Moved"), there, answer(b"x")) as server:
        base = f"http://127.0.0.1:{server.port}"
        text = await fetch(opened(server), f"{base}/a")
    assert text == f"200 {base}/c (text/plain, 1 bytes)\nRedirected from {base}/a -> {base}/b\n\nx"


async def test_redirect_that_says_not_where_is_a_result() -> None:
    async with serving(answer(b"where?", status="302 Found")) as server:
        assert (await fetch(opened(server), f"http://127.0.0.1:{server.port}/")).startswith("302 ")


async def test_loop_of_redirects_ends() -> None:
    async with serving(redirect("/")) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")
    assert (failure.type, len(server.requests)) == ("too_many_redirects", 6)


@pytest.mark.parametrize(
    "location",
    [
        *("http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data/", "//0x7f.1/", "http://[::1]:PORT/"),
        *("http://[::ffff:10.0.0.1]/", "http://2130706433/", "http://127。0。0。1/"),
    ],
)
async def test_S37_redirect_to_a_private_address_is_refused(location: str) -> None:
    async with serving(redirect(location.encode().decode("latin-1"))) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")
    assert failure.type == "address_refused"
    assert "Private addresses are refused; `[tools.fetch] allow` in holdfast.toml" in str(failure)


@pytest.mark.parametrize(
    "location",
    [
        *("file:///etc/passwd", "ftp://127.0.0.1:PORT/", "javascript:alert(1)", "gopher:x", "http://[", "http://[x]/"),
        *("http://user:secret@127.0.0.1:PORT/", "http://127.0.0.1:99999/", "http://x\\@y/", "http://a b/", "//a%2fb/"),
    ],
)
async def test_redirect_to_what_is_no_url_for_us_is_refused(location: str) -> None:
    async with serving(redirect(location)) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")
    assert (failure.type, len(server.requests)) == ("bad_redirect", 1)
    assert "leads to a url that is not followed" in str(failure)


async def test_S29_redirect_to_another_host_is_told_and_not_followed() -> None:
    """A policy that allows 127.0.0.1 and denies localhost has judged the first alone."""
    async with serving(redirect("http://localhost:PORT/secret?a=b"), answer(b"secret")) as server:
        tool = Fetch(AddressRules(allow=(f"127.0.0.1:{server.port}", f"localhost:{server.port}")))
        failure = await failure_of(tool, f"http://127.0.0.1:{server.port}/go")
    assert (failure.type, failure.parts, len(server.requests)) == ("redirected_elsewhere", (), 1)
    assert str(failure).endswith(f"Fetch it if you need it: http://localhost:{server.port}/secret?a=b")


async def test_redirect_to_another_port_is_told_and_not_followed() -> None:
    async with serving(answer(b"secret")) as other, serving(redirect(f"http://127.0.0.1:{other.port}/")) as server:
        failure = await failure_of(opened(server, other), f"http://127.0.0.1:{server.port}/")
    assert (failure.type, other.requests) == ("redirected_elsewhere", [])


async def test_S29_last_of_several_redirects_is_judged_as_well() -> None:
    async with serving(redirect("/b"), redirect("http://localhost:PORT/c"), answer(b"secret")) as server:
        tool = Fetch(AddressRules(allow=(f"127.0.0.1:{server.port}", f"localhost:{server.port}")))
        failure = await failure_of(tool, f"http://127.0.0.1:{server.port}/a")
    assert (failure.type, len(server.requests)) == ("redirected_elsewhere", 2)


@pytest.mark.parametrize(
    ("url", "location", "followed"),
    [
        ("http://example.com/a", "/b", True),
        ("http://example.com/a", "//EXAMPLE.com:80/b", True),
        ("http://example.com/a", "https://example.com/a", True),
        ("https://example.com/a", "https://example.com:443/b", True),
        ("https://example.com/a", "http://example.com/a", False),
        ("https://example.com/a", "https://www.example.com/a", False),
        ("https://www.example.com/a", "//example.com/a", False),
        ("https://example.com/a", "https://example.com.evil.example/", False),
        ("https://example.com/a", "https://example.com:8443/a", False),
        ("http://example.com:8080/a", "https://example.com/a", False),
        ("http://example.com/a", "https://example.com:80/a", False),
    ],
)
def test_only_the_same_host_and_port_is_the_same_place(url: str, location: str, followed: bool) -> None:
    def lead() -> str:
        return str(fetching._resolve_redirect(httpx2.URL(url), location, AddressRules()))

    if followed:
        assert lead().startswith(("http://example.com/", "https://example.com/"))
    else:
        with pytest.raises(ToolFailure, match="leads elsewhere") as failure:
            lead()
        assert failure.value.type == "redirected_elsewhere"


async def test_url_to_ask_for_instead_is_told_whole_unless_it_is_endless() -> None:
    for length, whole in ((2_000, True), (6_000, False)):
        async with serving(redirect(f"http://localhost/{'x' * length}")) as server:
            failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")
        assert (("x" * length in str(failure)), len(str(failure)) < 4_000) == (whole, True)


# Limits


async def test_endless_body_is_cut_and_let_go() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with serving(endless) as server:
        text = await fetch(opened(server, max_bytes=100_000), f"http://127.0.0.1:{server.port}/")
        await asyncio.wait_for(server.gone.wait(), SECONDS)
    assert "(text/plain, 100,000 bytes, cut: the rest was not read)\n\nxxx" in text
    assert text.count("x") >= 100_000


@pytest.mark.parametrize(("size", "cut"), [(9, False), (10, False), (11, True)])
async def test_body_of_just_the_limit_is_whole(size: int, cut: bool) -> None:
    async with serving(answer(b"." * size)) as server:
        text = await fetch(opened(server, max_bytes=10), f"http://127.0.0.1:{server.port}/")
    assert ("cut: the rest was not read" in text) is cut
    assert text.endswith("\n\n" + "." * min(size, 10))


async def test_small_body_that_unpacks_to_a_huge_one_is_cut() -> None:
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packed.compress(bytes(1_000_000)) for _ in range(200)) + packed.flush()
    async with serving(answer(bomb, "Content-Encoding: gzip", type="text/x")) as server:
        text = await fetch(opened(server), f"http://127.0.0.1:{server.port}/")
    assert len(bomb) < 250_000
    assert "(text/x, 5,000,000 bytes, cut: the rest was not read)" in text


async def test_body_that_is_packed_twice_is_refused() -> None:
    body = gzip.compress(gzip.compress(b"x"))
    async with serving(answer(body, "Content-Encoding: gzip", "Content-Encoding: gzip")) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")
    assert (failure.type, "compressed more than once" in str(failure)) == ("connection_failed", True)


async def test_slow_drip_ends_by_the_time_limit_and_keeps_what_came() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"drip ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(drip) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/", timeout_seconds=1)
        await asyncio.wait_for(server.gone.wait(), SECONDS)
    assert (failure.type, "took longer than 1 seconds" in str(failure)) == ("timeout", True)
    assert failure.parts[0].text.startswith("drip drip")


async def test_time_limit_is_for_all_redirects_together() -> None:
    async with serving(redirect("/a"), redirect("/b"), hang) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/", timeout_seconds=1)
        await asyncio.wait_for(server.gone.wait(), SECONDS)
    assert (failure.type, failure.parts, len(server.requests)) == ("timeout", (), 3)


# Servers that misbehave


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("misbehaving", "parts"),
    [
        (reset, []),
        (b"", []),
        (b"SSH-2.0-OpenSSH_9.6\r\n", []),
        (b"\0\xff" * 1_000, []),
        (b"HTTP/1.1 abc\r\n\r\n", []),
        (HEAD + b"X: " + b"x" * 300_000 + b"\r\n\r\n", []),
        (HEAD + b"X: x\r\n" * 100_000 + b"\r\n", []),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", []),
        (HEAD + b"Content-Length: -1\r\n\r\n", []),
        (HEAD + b"Content-Length: 10\r\n\r\nshort", ["short"]),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", ["short"]),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", []),
        (answer(b"not gzip", "Content-Encoding: gzip"), []),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
async def test_broken_answer_is_a_failed_connection(misbehaving: bytes | Answering, parts: list[str]) -> None:
    async with serving(misbehaving) as server:
        failure = await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")
    assert (failure.type, [part.text for part in failure.parts]) == ("connection_failed", parts)
    assert f"http://127.0.0.1:{server.port}/ cannot be read: " in str(failure)


async def test_more_than_was_announced_is_not_read() -> None:
    async with serving(answer(b"hello") + b"HTTP/1.1 200 OK\r\n\r\nsmuggled") as server:
        assert (await fetch(opened(server), f"http://127.0.0.1:{server.port}/")).endswith("\n\nhello")


async def test_nobody_listening_is_a_failed_connection() -> None:
    async with serving(b"") as server:
        pass
    assert (await failure_of(opened(server), f"http://127.0.0.1:{server.port}/")).type == "connection_failed"


# Names


async def test_unknown_name_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, nowhere=[[]])
    failure = await failure_of(Fetch(), "http://nowhere.example/")
    assert (failure.type, str(failure)) == (
        "host_not_found",
        "http://nowhere.example/ cannot be reached: the host 'nowhere.example' cannot be found",
    )


async def test_S37_name_with_a_public_and_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answer(b"secret")) as server:
        resolving(monkeypatch, mixed=[["93.184.215.14", "127.0.0.1"]])
        failure = await failure_of(Fetch(), f"http://mixed.example:{server.port}/")
    assert (failure.type, server.requests) == ("address_refused", [])
    assert "'mixed.example' leads to an address that is not public" in str(failure)


async def test_S37_name_is_resolved_once_and_the_checked_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name turns to another address right after it was checked, where a server waits at the same port."""
    async with (
        serving(answer(b"open")) as server,
        serving(answer(b"secret"), host="127.0.0.9", port=server.port) as other,
    ):
        asked = resolving(monkeypatch, turning=[["127.0.0.1"], ["127.0.0.9"]])
        text = await fetch(opened(server), f"http://turning.example:{server.port}/")
    assert (text.endswith("\n\nopen"), other.requests, asked) == (True, [], ["turning.example"])
    assert f"host: turning.example:{server.port}" in server.requests[0].lower()


async def test_S37_name_that_turns_private_at_a_redirect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(redirect("/again")) as server:
        resolving(monkeypatch, turning=[["127.0.0.1"], ["127.0.0.9"]])
        failure = await failure_of(opened(server), f"http://turning.example:{server.port}/")
    assert (failure.type, len(server.requests)) == ("address_refused", 1)


async def test_next_address_is_tried_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answer(b"here")) as server:
        resolving(monkeypatch, two=[["127.0.0.9", "127.0.0.1"]])
        tool = Fetch(AddressRules(allow=("two.example",)))
        assert (await fetch(tool, f"http://two.example:{server.port}/")).endswith("\n\nhere")


async def test_ipv6_address_is_asked_by_its_name() -> None:
    try:
        async with serving(answer(b"six"), host="::1") as server:
            tool = Fetch(AddressRules(allow=(f"[::1]:{server.port}",)))
            assert (await fetch(tool, f"http://[::1]:{server.port}/")).endswith("\n\nsix")
    except OSError:
        pytest.skip("no IPv6 here")
    assert f"host: [::1]:{server.port}" in server.requests[0].lower()


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `shop.example` and 127.0.0.1 that only itself vouches for, with its key."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shop.example")])
    names = x509.SubjectAlternativeName([x509.DNSName("shop.example"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(names, critical=False)
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_build_tls_context", lambda: ssl.create_default_context(cafile=certificate))


async def test_certificate_nobody_vouches_for_is_refused(tls: ssl.SSLContext) -> None:
    async with serving(answer(b"secret"), tls=tls) as server:
        failure = await failure_of(opened(server), f"https://127.0.0.1:{server.port}/")
    assert (failure.type, server.requests) == ("tls_failed", [])
    assert "certificate verify failed" in str(failure)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("host", ["127.0.0.1", "shop.example", "shop.example."])
async def test_certificate_is_checked_for_the_name_in_the_url(
    tls: ssl.SSLContext, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(answer(b"welcome"), tls=tls) as server:
        resolving(monkeypatch, shop=[["127.0.0.1"]])
        assert (await fetch(opened(server), f"https://{host}:{server.port}/")).endswith("\n\nwelcome")


@pytest.mark.usefixtures("trusted")
async def test_certificate_for_another_name_is_refused(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answer(b"secret"), tls=tls) as server:
        resolving(monkeypatch, other=[["127.0.0.1"]])
        failure = await failure_of(opened(server), f"https://other.example:{server.port}/")
    assert (failure.type, server.requests) == ("tls_failed", [])


async def test_server_without_tls_is_no_https_server() -> None:
    async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"plain"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(speak_first, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        failure = await failure_of(Fetch(AddressRules(allow=("127.0.0.1",))), f"https://127.0.0.1:{port}/")
    assert failure.type == "tls_failed"


@pytest.mark.usefixtures("trusted")
async def test_redirect_from_https_to_http_is_not_followed(tls: ssl.SSLContext) -> None:
    async with (
        serving(answer(b"secret")) as plain,
        serving(redirect(f"http://127.0.0.1:{plain.port}/"), tls=tls) as server,
    ):
        failure = await failure_of(opened(plain, server), f"https://127.0.0.1:{server.port}/")
    assert (failure.type, plain.requests) == ("redirected_elsewhere", [])


@pytest.mark.usefixtures("trusted")
async def test_redirect_within_an_https_server_is_followed(tls: ssl.SSLContext) -> None:
    async with serving(redirect("/b"), answer(b"safe"), tls=tls) as server:
        assert (await fetch(opened(server), f"https://127.0.0.1:{server.port}/a")).endswith("\n\nsafe")


# Stopping


async def stop_after(event: asyncio.Event, running: asyncio.Task[str]) -> None:
    await asyncio.wait_for(event.wait(), SECONDS)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    await hang(reader, writer)


@pytest.mark.parametrize("answering", [hang, half])
async def test_stop_in_the_middle_closes_the_connection(answering: Answering) -> None:
    async with serving(answering) as server:
        running = asyncio.create_task(fetch(opened(server), f"http://127.0.0.1:{server.port}/"))
        await stop_after(server.asked, running)
        await asyncio.wait_for(server.gone.wait(), SECONDS)


async def test_stop_while_tls_begins_closes_the_connection() -> None:
    greeted, gone = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        greeted.set()
        await reader.read()
        gone.set()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        tool = Fetch(AddressRules(allow=("127.0.0.1",)))
        running = asyncio.create_task(fetch(tool, f"https://127.0.0.1:{port}/"))
        await stop_after(greeted, running)
        await asyncio.wait_for(gone.wait(), SECONDS)


# Before anything is fetched


@pytest.mark.parametrize(
    "url",
    [
        *(
            "example.com",
            "//example.com",
            "/x",
            "   ",
            "http:x",
            "http://",
            "http:///x",
            "http://:80/",
            "HTTP+UNIX://x/",
        ),
        *("file:///etc/passwd", "ftp://example.com/", "data:text/html,x", "javascript:alert(1)"),
        *("http://user@example.com/", "http://user:pw@example.com/", "http://:@example.com/", "http://a\\@b/"),
        *("http://example.com:0/", "http://example.com:65536/", "http://example.com:-1/", "http://example.com:x/"),
        *("http://a b/", "http://a%2eb/", "http://%31/", "http://a..b/", "http://[::1/", "http://[x]/"),
        *("http://[fe80::1%25eth0]/", "http://１２７.0.0.1/", "http://0177.0.0.1/", "http://ex\nample.com/"),
        *("http://a\u00ad.example/", "http://a\u200b.example/"),
    ],
)
def test_S6_what_is_no_url_for_us_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not a url|is not an http|names no host|names a port|user or a password"):
        build(Fetch(), url)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1.", "127.1", "2130706433", "0x7f.1", "0x7F000001", "0", "127。0。0。1", "10.0.0.1"),
        *("169.254.169.254", "100.64.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[64:ff9b::a00:1]", "[fe80::1]"),
        *("[2002:7f00:1::]", "[fd00:ec2::254]", "[FF02::1]", "127.0.0.1:8080"),
    ],
)
def test_S37_private_address_in_the_url_is_refused_at_once(host: str) -> None:
    with pytest.raises(ValueError, match=r"not public\. Private addresses are refused; `\[tools\.fetch\] allow`"):
        build(Fetch(), f"https://{host}/")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"url": ""},
        {"url": "http://x/" + "x" * 8_000},
        {"url": "http://x", "timeout_seconds": 0},
        {"url": "http://x", "timeout_seconds": 121},
        {"url": "http://x", "method": "POST"},
    ],
)
def test_S6_arguments_outside_the_schema_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Fetch.Parameters.model_validate(arguments)


async def test_S20_person_is_shown_the_url_as_it_will_be_asked_for() -> None:
    invocation = build(Fetch(), "https://Bücher.example:443/a b?c=ü")
    shown = await invocation.should_confirm()
    url = "https://xn--bcher-kva.example/a%20b?c=%C3%BC"
    assert shown is not None
    assert (shown.kind, shown.title, shown.urls) == ("info", f"Fetch {url}", (url,))


def test_S31_fetching_only_reads_and_runs_beside_others() -> None:
    assert (Fetch.effect, Fetch.name, Fetch.timeout_seconds) == (Effect.READ, "fetch", 150)
    assert build(Fetch(), "https://example.com/").is_concurrency_safe()
