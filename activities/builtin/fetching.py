"""`fetch`: one document of the web, as text.

It only reads: GET, without cookies, credentials or a proxy, and from public addresses unless others are allowed. What
comes back is bounded in bytes, in time and in redirects, whatever the server does. A redirect to another host is not
followed but told: the policy judged the url that was asked for, and must judge that one too.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import httpcore2
import httpx2
from pydantic import Field

from holdfast.activities.files.media import SNIFFED, Kind, kind_of
from holdfast.activities.web.addresses import AddressRefused, AddressRules, HostNotFound, OpenConnections, is_host
from holdfast.activities.web.pages import to_text
from holdfast.approvals import Confirmation
from holdfast.content import BlobPart, Part, Result, TextPart, plain, said, shorten
from holdfast.tools import Effect, Interrupt, Invocation, Run, Strict, Tool, ToolFailure

REDIRECTS = 5
HEADERS = {"User-Agent": "holdfast", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
UNASKED = frozenset(["br", "zstd"])
"""What is unpacked as well where a library for it happens to be installed, and grows a millionfold in one layer."""
PORTS = {"http": 80, "https": 443}
TARGET_LIMIT = 3_000
"""Characters of a url to ask for instead: as many as an error's words can carry."""


class Fetch(Tool):
    """Reads a url."""

    name = "fetch"
    description = (
        "Fetch a public http or https url and return what it holds as text. Web pages are converted to readable text "
        "unless `raw` is set."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 150
    open_world = True
    edits = "url"

    class Parameters(Strict):
        """Arguments."""

        url: str = Field(description="The whole url, with http:// or https://", min_length=1, max_length=8_000)
        raw: bool = Field(default=False, description="Return the source of a web page instead of its text")
        timeout_seconds: float = Field(default=30, gt=0, le=120, description="Give up after this long")

    def __init__(self, rules: AddressRules = AddressRules(), max_bytes: int = 5_000_000) -> None:  # noqa: B008 - frozen
        self._rules = rules
        self._max_bytes = max_bytes

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a url that may be asked for."""
        try:
            url = _read_url(arguments.url.strip(), self._rules)
        except AddressRefused as error:
            raise ValueError(_refusal(error)) from error
        return _Fetching(url, arguments, self._rules, self._max_bytes)


@dataclass
class _Page:
    """What has come so far."""

    url: httpx2.URL
    trail: list[httpx2.URL] = field(default_factory=list)
    status: int = 0
    headers: httpx2.Headers = field(default_factory=httpx2.Headers)
    body: bytearray = field(default_factory=bytearray)
    cut: bool = False

    @property
    def kind(self) -> Kind:
        """What the body is."""
        return kind_of(bytes(self.body[:SNIFFED]), self.headers.get("content-type", ""))


class _Fetching(Invocation):
    def __init__(self, url: httpx2.URL, arguments: Fetch.Parameters, rules: AddressRules, max_bytes: int) -> None:
        self._url = url
        self._raw = arguments.raw
        self._seconds = arguments.timeout_seconds
        self._rules = rules
        self._max_bytes = max_bytes

    def describe(self) -> str:
        return f"Fetch {self._url}"

    def concurrency_safe(self) -> bool:
        return True

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(kind="info", title=self.describe(), urls=(str(self._url),), told=("url",))

    async def execute(self, run: Run) -> Result:
        page = _Page(self._url)
        try:
            async with asyncio.timeout(self._seconds):
                await self._load(page)
        except _EXPECTED as error:
            type, message = self._explained(error, page)
            raise ToolFailure(type, message, await self._parts(page)) from error
        parts = await self._parts(page)
        if page.status >= 400:
            reason = httpx2.codes.get_reason_phrase(page.status)
            raise ToolFailure("http_error", f"{_shown(page.url)} answered {page.status} {reason}".rstrip(), parts)
        return Result(parts=_headed(_heading(page), parts))

    async def _load(self, page: _Page) -> None:
        while location := await self._get(page):
            if len(page.trail) == REDIRECTS:
                message = f"{_shown(self._url)} leads on and on: {REDIRECTS} redirects were followed"
                raise ToolFailure("too_many_redirects", message)
            page.trail.append(page.url)
            page.url = _redirected(page.url, location, self._rules)

    async def _get(self, page: _Page) -> str | None:
        """Ask once. Where to go on, if the answer says so."""
        async with _answer(page.url, self._rules) as answer:
            page.status, page.headers = answer.status_code, answer.headers
            if answer.has_redirect_location:
                return answer.headers["location"]
            packed = answer.headers.get("content-encoding", "").strip().lower()
            if "," in packed:
                # One layer grows a thousandfold, a second one a millionfold: more than can be counted while it grows.
                raise ToolFailure("connection_failed", f"{_shown(page.url)} is compressed more than once")
            if packed in UNASKED:
                raise ToolFailure(
                    "connection_failed", f"{_shown(page.url)} is compressed in a way it was not asked for"
                )
            await self._read(answer, page)
        return None

    async def _read(self, answer: httpx2.Response, page: _Page) -> None:
        async with aclosing(answer.aiter_bytes()) as chunks:
            async for chunk in chunks:
                room = self._max_bytes - len(page.body)
                page.body += chunk[:room]
                if len(chunk) > room:
                    page.cut = True
                    return

    async def _parts(self, page: _Page) -> tuple[Part, ...]:
        # A large page takes seconds to convert, and the worker must go on beating.
        return await asyncio.to_thread(_read_body, page, self._raw)

    def _explained(self, error: Exception, page: _Page) -> tuple[str, str]:
        url = _shown(page.url)
        if isinstance(error, AddressRefused):
            return "address_refused", _refusal(error)
        if isinstance(error, HostNotFound):
            return "host_not_found", f"{url} cannot be reached: the host {error}"
        if isinstance(error, TimeoutError):
            return "timeout", f"{url} was given up: it took longer than {self._seconds:g} seconds"
        if problem := _tls_problem(error):
            return "tls_failed", f"{url} cannot be trusted: {said(problem)}"
        return "connection_failed", f"{url} cannot be read: {said(error)}"


_EXPECTED = (
    AddressRefused,
    HostNotFound,
    OSError,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpx2.DecodingError,
)


def _tls_problem(error: Exception) -> ssl.SSLError | None:
    """The TLS error behind an error; httpcore keeps it as an argument and drops it as a cause."""
    return next((cause for cause in (error, *error.args) if isinstance(cause, ssl.SSLError)), None)


def _refusal(error: AddressRefused) -> str:
    return (
        f"{error}. Private addresses are refused; `[tools.fetch] allow` in holdfast.toml lifts this for the hosts "
        "it names"
    )


def _read_url(text: str, rules: AddressRules) -> httpx2.URL:
    """A url that may be asked for; ValueError otherwise. The same reading is used for connecting."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ValueError(f"{shorten(text, 200)!r} is not a url: {error}") from error
    _check(url, rules)
    return url


def _check(url: httpx2.URL, rules: AddressRules) -> None:
    host = url.raw_host.decode("ascii")
    if url.scheme not in PORTS:
        raise ValueError(f"{_shown(url)!r} is not an http or https url")
    if url.userinfo:
        raise ValueError("a url must not hold a user or a password")
    if not is_host(host):
        raise ValueError(f"{_shown(url)!r} names no host that can be")
    port = PORTS[url.scheme] if url.port is None else url.port
    if not 0 < port < 65_536:
        raise ValueError(f"{_shown(url)!r} names a port that cannot be")
    rules.check_literal(host, port)


def _redirected(url: httpx2.URL, location: str, rules: AddressRules) -> httpx2.URL:
    """Where a redirect leads, if we may follow it."""
    try:
        target = url.join(location)
        _check(target, rules)
    except AddressRefused:
        raise
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolFailure("bad_redirect", f"{_shown(url)} leads to a url that is not followed: {error}") from error
    if not _is_same_place(url, target):
        told = f"{_shown(url)} leads elsewhere, and this is not followed. Fetch it if you need it: "
        raise ToolFailure("redirected_elsewhere", told + shorten(str(target), TARGET_LIMIT))
    return target


def _is_same_place(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Would whoever let the one be fetched mean the other as well? The same host and port, encrypted if it was."""
    encrypted = (url.scheme, target.scheme) == ("http", "https") and url.port is target.port is None
    same = (url.scheme, url.port) == (target.scheme, target.port)
    return url.raw_host == target.raw_host and (same or encrypted)


@asynccontextmanager
async def _answer(url: httpx2.URL, rules: AddressRules) -> AsyncIterator[httpx2.Response]:
    """Ask for a url over a connection of its own. No client: it would keep cookies and read the environment."""
    target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    headers = httpx2.Request("GET", url, headers=HEADERS).headers.raw
    name = {"sni_hostname": url.raw_host.decode("ascii").rstrip(".")}
    context = _trusted() if url.scheme == "https" else None
    async with (
        aclosing(OpenConnections(rules)) as connections,
        httpcore2.AsyncConnectionPool(context, network_backend=connections) as pool,
        pool.stream("GET", target, headers=headers, extensions=name) as answer,
    ):
        yield httpx2.Response(answer.status, headers=answer.headers, stream=_Stream(answer))


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._answer.stream, AsyncIterable)
        return aiter(self._answer.stream)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def _shown(url: httpx2.URL) -> str:
    return shorten(str(url), 500)


def _heading(page: _Page) -> str:
    cut = ", cut: the rest was not read" if page.cut else ""
    lines = [f"{page.status} {_shown(page.url)} ({page.kind.media_type}, {len(page.body):,} bytes{cut})"]
    if page.trail:
        lines.append("Redirected from " + " -> ".join(_shown(url) for url in page.trail))
    return "\n".join(lines)


def _headed(heading: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if parts and isinstance(parts[0], TextPart):
        return (TextPart(text=f"{heading}\n\n{parts[0].text}"), *parts[1:])
    return (TextPart(text=heading), *parts)


def _read_body(page: _Page, raw: bool) -> tuple[Part, ...]:
    if not page.body:
        return ()
    kind, body = page.kind, bytes(page.body)
    if not kind.is_text:
        return (BlobPart.of(body, kind.media_type),)
    text = body.decode(kind.charset, "replace")
    if raw:
        return (TextPart(text=text),)
    return (TextPart(text=plain(to_text(text, str(page.url)) if kind.is_html else text)),)
