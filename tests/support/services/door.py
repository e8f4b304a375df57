"""A door before a Temporal server, as Temporal Cloud has one: TLS, and then a client's certificate or an API key.

The server of our tests speaks neither, so this ends the TLS before it and passes the rest on. Of HTTP/2 it knows just
enough: a key is looked for in what a client sends, in the one way in which HPACK writes it, and who has the wrong one
is told so as gRPC tells it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.services.certificates import HOST, Pair

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REFUSAL = "Request unauthorized."
_HEADERS, _RESET, _SETTINGS = 1, 3, 4
_CANCEL = (8).to_bytes(4, "big")
_UNAUTHENTICATED, _PERMISSION_DENIED = "16", "7"
_CODES = {
    "0": "00000", "1": "00001", "2": "00010", "a": "00011", "c": "00100", "e": "00101", "i": "00110", "o": "00111",
    "s": "01000", "t": "01001", " ": "010100", ".": "010111", "/": "011000", "l": "101000", "m": "101001",
    "p": "101011", "r": "101100", "v": "1110111", "B": "1011101",
}  # fmt: skip
"""HPACK's Huffman code, as far as keys and names of services in our tests need it."""
KEY_LETTERS = "012aceiost"
"""What keys may be made of."""


class Door:
    """Where it is, and who came."""

    def __init__(self, behind: str, key: str | None) -> None:
        self._host, _, port = behind.rpartition(":")
        self._port = int(port)
        self._key = huffman(f"Bearer {key}") if key else None
        self.address = ""
        self.passed = 0
        self.refused = 0

    async def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            sent = await self._first(reader)
            if self._key and self._key not in sent:
                self.refused += 1
                await _refuse(sent, reader, writer)
                return
            self.passed += 1
            inside, outside = await asyncio.open_connection(self._host, self._port)
            outside.write(sent)
            await asyncio.gather(_pump(inside, writer), _pump(reader, outside))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _first(self, reader: asyncio.StreamReader) -> bytes:
        """Up to the end of the first request's headers, where a key is wanted."""
        if not self._key:
            return b""
        sent = await reader.readexactly(len(PREFACE))
        while True:
            kind, frame = await _frame(reader)
            sent += frame
            if kind == _HEADERS:
                return sent


def huffman(text: str) -> bytes:
    """As HPACK writes it."""
    bits = "".join(_CODES[letter] for letter in text)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readexactly(9)
    return head[3], head + await reader.readexactly(int.from_bytes(head[:3], "big"))


async def _refuse(sent: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request with gRPC's UNAUTHENTICATED."""
    writer.write(_made(_SETTINGS, 0, 0, b"") + _made(_SETTINGS, 1, 0, b""))
    stream = 1
    while True:
        writer.write(_refusal(stream, _UNAUTHENTICATED))
        await writer.drain()
        kind = -1
        while kind != _HEADERS:
            kind, frame = await _frame(reader)
        stream = _stream(frame)


def _refusal(stream: int, status: str) -> bytes:
    """The answer to a request that is refused."""
    said = {"content-type": "application/grpc", "grpc-status": status, "grpc-message": REFUSAL}
    fields = b"\x88" + b"".join(b"\0" + _text(name) + _text(value) for name, value in said.items())
    return _made(_HEADERS, 0x5, stream, fields)


def _stream(frame: bytes) -> int:
    return int.from_bytes(frame[5:9], "big")


def _made(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _text(value: str) -> bytes:
    return bytes((len(value),)) + value.encode()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.close()


@asynccontextmanager
async def door(
    behind: str, server: Pair, *, clients: Path | None = None, key: str | None = None
) -> AsyncIterator[Door]:
    """A door before the server at an address: for `clients` of that authority, for those with that `key`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.set_alpn_protocols(["h2"])
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    made = Door(behind, key)
    listening = await asyncio.start_server(made.come, HOST, 0, ssl=context)
    made.address = f"{HOST}:{listening.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        listening.close()


class _Guard:
    """One connection through which no request passes to a method whose path begins so, the first time it is asked."""

    def __init__(self, path: str) -> None:
        self._start = huffman(path)[:-1]  # its last bits belong to what follows
        self._refused: set[int] = set()

    async def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: str) -> None:
        host, _, port = behind.rpartition(":")
        inside, outside = await asyncio.open_connection(host, int(port))
        try:
            outside.write(await reader.readexactly(len(PREFACE)))
            await asyncio.gather(self._answer(inside, writer), self._ask(reader, outside, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            outside.close()

    async def _ask(
        self, reader: asyncio.StreamReader, outside: asyncio.StreamWriter, writer: asyncio.StreamWriter
    ) -> None:
        """Headers are passed on in any case, since both sides remember them, and the request is then taken back."""
        while True:
            kind, frame = await _frame(reader)
            stream = _stream(frame)
            if stream not in self._refused:
                outside.write(frame)
            if kind == _HEADERS and self._start in frame:
                self._refused.add(stream)
                outside.write(_made(_RESET, 0, stream, _CANCEL))
                writer.write(_refusal(stream, _PERMISSION_DENIED))
            await outside.drain()

    async def _answer(self, inside: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, frame = await _frame(inside)
            if _stream(frame) not in self._refused:
                writer.write(frame)
                await writer.drain()


@asynccontextmanager
async def guard(behind: str, path: str) -> AsyncIterator[str]:
    """The address of a door before the server at an address, where nobody has permission for methods below a path.

    A second request to the same method of one connection passes: it names the path by a number.
    """
    listening = await asyncio.start_server(lambda sent, answered: _Guard(path).come(sent, answered, behind), HOST, 0)
    try:
        yield f"{HOST}:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
