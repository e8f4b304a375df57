"""`fetch`: one document of the web, as text.

It only reads: GET, without cookies, credentials or a proxy, and from public addresses unless others are allowed. The
response is bounded in bytes, in time and in redirects, whatever the server does. A redirect to another host is not
followed but reported: the policy judged the requested url, and must judge the new one too.
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

from holdfast.activities.files.media_types import SNIFF_BYTES, MediaKind, find_media_kind
from holdfast.activities.web.html_to_text import convert_to_text
from holdfast.activities.web.open_connections import HostNotFound, OpenConnections
from holdfast.config.address_rules import AddressRefused, AddressRules, is_host
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import BlobPart, Part, Result, TextPart
from holdfast.util.text import exception_text, shorten_text, strip_controls

MAX_REDIRECTS = 5
HEADERS = {"User-Agent": "holdfast", "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
UNASKED = frozenset(["br", "zstd"])
"""Encodings that the HTTP library unpacks if a package for them is installed, and that can grow a millionfold."""
PORTS = {"http": 80, "https": 443}
TARGET_LIMIT = 3_000
"""Characters of a redirect's target in an error message."""


class Fetch(Tool):
    """Fetches one document of the web, as text."""

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

    class Parameters(StrictParameters):
        """Arguments."""

        url: str = Field(description="The whole url, with http:// or https://", min_length=1, max_length=8_000)
        raw: bool = Field(default=False, description="Return the source of a web page instead of its text")
        timeout_seconds: float = Field(default=30, gt=0, le=120, description="Give up after this long")

    def __init__(self, rules: AddressRules = AddressRules(), max_bytes: int = 5_000_000) -> None:  # noqa: B008 - frozen
        self._rules = rules
        self._max_bytes = max_bytes

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a url. ValueError when it is invalid or the address rules refuse it."""
        try:
            url = _parse_url(arguments.url.strip(), self._rules)
        except AddressRefused as error:
            raise ValueError(_describe_refusal(error)) from error
        return _FetchInvocation(url, arguments, self._rules, self._max_bytes)


@dataclass
class _Page:
    """The part of a response that was received so far."""

    url: httpx2.URL
    trail: list[httpx2.URL] = field(default_factory=list)
    status: int = 0
    headers: httpx2.Headers = field(default_factory=httpx2.Headers)
    body: bytearray = field(default_factory=bytearray)
    cut: bool = False

    @property
    def kind(self) -> MediaKind:
        """The media type of the body."""
        return find_media_kind(bytes(self.body[:SNIFF_BYTES]), self.headers.get("content-type", ""))


class _FetchInvocation(Invocation):
    def __init__(self, url: httpx2.URL, arguments: Fetch.Parameters, rules: AddressRules, max_bytes: int) -> None:
        self._url = url
        self._raw = arguments.raw
        self._seconds = arguments.timeout_seconds
        self._rules = rules
        self._max_bytes = max_bytes

    def describe(self) -> str:
        return f"Fetch {self._url}"

    def is_concurrency_safe(self) -> bool:
        return True

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(kind="info", title=self.describe(), urls=(str(self._url),), told=("url",))

    async def execute(self, run: Run) -> Result:
        page = _Page(self._url)
        try:
            async with asyncio.timeout(self._seconds):
                await self._load_page(page)
        except _EXPECTED_ERRORS as error:
            type, message = self._explain_error(error, page)
            raise ToolFailure(type, message, await self._build_parts(page)) from error
        parts = await self._build_parts(page)
        if page.status >= 400:
            reason = httpx2.codes.get_reason_phrase(page.status)
            raise ToolFailure("http_error", f"{_format_url(page.url)} answered {page.status} {reason}".rstrip(), parts)
        return Result(parts=_add_heading(_format_heading(page), parts))

    async def _load_page(self, page: _Page) -> None:
        while location := await self._request_page(page):
            if len(page.trail) == MAX_REDIRECTS:
                message = f"{_format_url(self._url)} redirects more than {MAX_REDIRECTS} times"
                raise ToolFailure("too_many_redirects", message)
            page.trail.append(page.url)
            page.url = _resolve_redirect(page.url, location, self._rules)

    async def _request_page(self, page: _Page) -> str | None:
        """Send one request; the url that the answer redirects to, or None."""
        async with _open_answer(page.url, self._rules) as answer:
            page.status, page.headers = answer.status_code, answer.headers
            if answer.has_redirect_location:
                return answer.headers["location"]
            packed = answer.headers.get("content-encoding", "").strip().lower()
            if "," in packed:
                # One layer grows a thousandfold, a second one a millionfold: more than can be counted while it grows.
                raise ToolFailure("connection_failed", f"{_format_url(page.url)} is compressed more than once")
            if packed in UNASKED:
                raise ToolFailure(
                    "connection_failed", f"{_format_url(page.url)} is compressed in a way it was not asked for"
                )
            await self._read_answer(answer, page)
        return None

    async def _read_answer(self, answer: httpx2.Response, page: _Page) -> None:
        async with aclosing(answer.aiter_bytes()) as chunks:
            async for chunk in chunks:
                room = self._max_bytes - len(page.body)
                page.body += chunk[:room]
                if len(chunk) > room:
                    page.cut = True
                    return

    async def _build_parts(self, page: _Page) -> tuple[Part, ...]:
        # A large page takes seconds to convert, and the worker must go on beating.
        return await asyncio.to_thread(_read_body, page, self._raw)

    def _explain_error(self, error: Exception, page: _Page) -> tuple[str, str]:
        url = _format_url(page.url)
        if isinstance(error, AddressRefused):
            return "address_refused", _describe_refusal(error)
        if isinstance(error, HostNotFound):
            return "host_not_found", f"{url} cannot be reached: the host {error}"
        if isinstance(error, TimeoutError):
            return "timeout", f"{url} was given up: it took longer than {self._seconds:g} seconds"
        if problem := _find_tls_error(error):
            return "tls_failed", f"{url} cannot be trusted: {exception_text(problem)}"
        return "connection_failed", f"{url} cannot be read: {exception_text(error)}"


_EXPECTED_ERRORS = (
    AddressRefused,
    HostNotFound,
    OSError,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpx2.DecodingError,
)


def _find_tls_error(error: Exception) -> ssl.SSLError | None:
    """The TLS error behind an error: httpcore keeps it as an argument, and not as the cause."""
    return next((cause for cause in (error, *error.args) if isinstance(cause, ssl.SSLError)), None)


def _describe_refusal(error: AddressRefused) -> str:
    return (
        f"{error}. Private addresses are refused; `[tools.fetch] allow` in holdfast.toml lifts this for the hosts "
        "it names"
    )


def _parse_url(text: str, rules: AddressRules) -> httpx2.URL:
    """Parse a url that may be fetched; ValueError for any other. The connection uses the same parsed url."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ValueError(f"{shorten_text(text, 200)!r} is not a url: {error}") from error
    _check_url(url, rules)
    return url


def _check_url(url: httpx2.URL, rules: AddressRules) -> None:
    host = url.raw_host.decode("ascii")
    if url.scheme not in PORTS:
        raise ValueError(f"{_format_url(url)!r} is not an http or https url")
    if url.userinfo:
        raise ValueError("a url must not hold a user or a password")
    if not is_host(host):
        raise ValueError(f"{_format_url(url)!r} names no host that can be")
    port = PORTS[url.scheme] if url.port is None else url.port
    if not 0 < port < 65_536:
        raise ValueError(f"{_format_url(url)!r} names a port that cannot be")
    rules.check_literal(host, port)


def _resolve_redirect(url: httpx2.URL, location: str, rules: AddressRules) -> httpx2.URL:
    """The url that a redirect leads to; ToolFailure when it is not followed."""
    try:
        target = url.join(location)
        _check_url(target, rules)
    except AddressRefused:
        raise
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolFailure("bad_redirect", f"{_format_url(url)} leads to a url that is not followed: {error}") from error
    if not _is_same_place(url, target):
        note = f"{_format_url(url)} leads elsewhere, and this is not followed. Fetch it if you need it: "
        raise ToolFailure("redirected_elsewhere", note + shorten_text(str(target), TARGET_LIMIT))
    return target


def _is_same_place(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Does an approval of the one url cover the other? The same host and port, and encrypted if the first is."""
    encrypted = (url.scheme, target.scheme) == ("http", "https") and url.port is target.port is None
    same = (url.scheme, url.port) == (target.scheme, target.port)
    return url.raw_host == target.raw_host and (same or encrypted)


@asynccontextmanager
async def _open_answer(url: httpx2.URL, rules: AddressRules) -> AsyncIterator[httpx2.Response]:
    """Send a request over a connection of its own. No client: it would keep cookies and read the environment."""
    target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    headers = httpx2.Request("GET", url, headers=HEADERS).headers.raw
    name = {"sni_hostname": url.raw_host.decode("ascii").rstrip(".")}
    context = _build_tls_context() if url.scheme == "https" else None
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
def _build_tls_context() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def _format_url(url: httpx2.URL) -> str:
    return shorten_text(str(url), 500)


def _format_heading(page: _Page) -> str:
    cut = ", cut: the rest was not read" if page.cut else ""
    lines = [f"{page.status} {_format_url(page.url)} ({page.kind.media_type}, {len(page.body):,} bytes{cut})"]
    if page.trail:
        lines.append("Redirected from " + " -> ".join(_format_url(url) for url in page.trail))
    return "\n".join(lines)


def _add_heading(heading: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if parts and isinstance(parts[0], TextPart):
        return (TextPart(text=f"{heading}\n\n{parts[0].text}"), *parts[1:])
    return (TextPart(text=heading), *parts)


def _read_body(page: _Page, raw: bool) -> tuple[Part, ...]:
    if not page.body:
        return ()
    kind, body = page.kind, bytes(page.body)
    if not kind.is_text:
        return (BlobPart.from_bytes(body, kind.media_type),)
    text = body.decode(kind.charset, "replace")
    if raw:
        return (TextPart(text=text),)
    return (TextPart(text=strip_controls(convert_to_text(text, str(page.url)) if kind.is_html else text)),)
