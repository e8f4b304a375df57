"""A login in a browser: a person opens an address, and the browser is redirected to a port of this machine.

The answer counts only with the `state` of this login: any web page can call a port of this machine. When the browser
runs on another machine, its final address can be pasted instead.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from html import escape
from threading import Thread
from urllib.parse import parse_qsl, urlsplit

from holdfast.activities.mcp.auth.login_store import NotAuthorized
from holdfast.errors import BadInput

CALLBACK_PATH = "/callback"
HEAD_LIMIT = 65_536
"""Bytes of a request."""
READ_SECONDS = 10.0
_DONE_TEXT = "Holdfast has the answer. You can close this page, and go back to the terminal."
_UNKNOWN_TEXT = "This is not the answer to the login that Holdfast waits for."
_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n"
)


class Browser:
    """A person who logs in. `tell` shows them a message."""

    def __init__(self, tell: Callable[[str], None], *, opens: bool, pastes: bool, seconds: float) -> None:
        self.redirect_uri = ""
        self._tell = tell
        self._opens = opens
        self._pastes = pastes
        self._seconds = seconds
        self._state: str | None = None
        self._answered: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    async def ask(self, url: str) -> Mapping[str, str]:
        """Let the person open this address; return the parameters that the browser came back with."""
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state")
        self._tell(f"To log in, open this address in a browser:\n\n  {url}\n")
        if self._opens:
            Thread(
                target=_open_url, args=(url,), daemon=True
            ).start()  # some browsers only come back when they are closed
        if self._pastes:
            self._tell("If that browser is on another machine, paste here the address that it ends at.")
        try:
            async with asyncio.timeout(self._seconds):
                with _read_pasted(self._take_address if self._pastes else None):
                    return await self._answered
        except TimeoutError:
            raise NotAuthorized(f"no answer came from the browser within {self._seconds:g} seconds") from None

    def _take_address(self, address: str) -> None:
        """Take an address that was pasted."""
        fits = False
        with suppress(ValueError):
            fits = self._take_query(urlsplit(address).query)
        if address and not fits:
            self._tell("This is not the final address of the browser, which contains the `state` of this login.")

    def _take_query(self, query: str) -> bool:
        """Take the parameters if they answer this login; whether they do."""
        found = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=100))
        if self._state is None or found.get("state") != self._state or not found.keys() & {"code", "error"}:
            return False
        if not self._answered.done():
            self._answered.set_result(found)
        return True

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer_request(head.partition(b"\r\n")[0].decode("latin-1").split(" ")))
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            writer.close()

    def _answer_request(self, words: list[str]) -> bytes:
        target = urlsplit(words[1]) if len(words) == 3 else None
        if target is None or words[0] != "GET" or target.path != CALLBACK_PATH:
            return _build_response("404 Not Found", "There is nothing here.")
        if self._take_query(target.query):
            return _build_response("200 OK", _DONE_TEXT)
        self._tell("Ignored a request of a browser that does not answer this login.")
        return _build_response("400 Bad Request", _UNKNOWN_TEXT)


@asynccontextmanager
async def open_browser(
    port: int, tell: Callable[[str], None], *, opens: bool, pastes: bool, seconds: float
) -> AsyncIterator[Browser]:
    """Yield a person who logs in, until the end of the block. BadInput when the port cannot be listened on."""
    person = Browser(tell, opens=opens, pastes=pastes, seconds=seconds)
    try:
        server = await asyncio.start_server(person.handle_connection, "127.0.0.1", port, limit=HEAD_LIMIT)
    except OSError as error:
        raise BadInput(f"cannot listen on port {port} for the browser's answer: {error.strerror}") from None
    async with server:
        person.redirect_uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"
        yield person


def has_browser() -> bool:
    """Whether a browser can be opened that leaves this terminal alone."""
    return bool(os.environ.get("BROWSER") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or (
        sys.platform in ("darwin", "win32")
    )


def _open_url(url: str) -> None:
    with suppress(Exception):  # the address has been printed
        webbrowser.open(url)


@contextmanager
def _read_pasted(take: Callable[[str], None] | None) -> Iterator[None]:
    """Pass lines of standard input to `take` during the block."""
    loop = asyncio.get_running_loop()

    def read_lines() -> None:
        data = b""
        with suppress(OSError):
            data = os.read(0, HEAD_LIMIT)
        if data and take:
            take(data.decode("utf-8", "replace").strip())
        else:
            loop.remove_reader(0)

    if take:
        with suppress(OSError, ValueError):
            loop.add_reader(0, read_lines)
    try:
        yield
    finally:
        loop.remove_reader(0)


def _build_response(status: str, words: str) -> bytes:
    body = f"<!doctype html><title>Holdfast</title><p>{escape(words)}</p>\n".encode()
    return f"HTTP/1.1 {status}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body
