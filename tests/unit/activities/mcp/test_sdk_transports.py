"""The three defects of the `mcp` package's client transports for which Holdfast has transports of its own.

When one of these tests fails, the installed `mcp` no longer has that defect. When all three fail, the modules `stdio`
and `streamable_http` can be replaced by the package's: see `activities/mcp/transport/__init__.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

FIXED = "the installed mcp package no longer has this defect: see activities/mcp/transport/__init__.py"
SECONDS = 20


def test_the_stdio_client_has_no_limit_for_a_line() -> None:
    options = [*inspect.signature(stdio_client).parameters, *StdioServerParameters.model_fields]
    assert not [name for name in options if re.search("max|limit|size", name)], FIXED


async def test_the_http_client_does_not_tell_the_status_of_a_refusal() -> None:
    async with _serve(lambda request: (503, b"busy")) as url:
        told = await _ask(url)
    assert isinstance(told, MCPError), FIXED
    assert "503" not in f"{told} {told.data}", FIXED


async def test_the_http_client_reports_a_lost_request_like_a_cancellation() -> None:
    async with _serve(lambda request: _initialize(request) if request["method"] == "initialize" else None) as url:
        told = await _ask(url)
    assert isinstance(told, asyncio.CancelledError), FIXED


def _initialize(request: dict[str, Any]) -> tuple[int, bytes]:
    known = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    return 200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": known}).encode()


async def _ask(url: str) -> BaseException | None:
    """Connect and list tools; the exception that the caller sees. TimeoutError when it never sees one."""
    seen: BaseException | None = None
    async with asyncio.timeout(SECONDS) as clock:
        try:
            async with streamable_http_client(url) as streams, ClientSession(*streams) as session:
                try:
                    await session.initialize()
                    await session.list_tools()
                except BaseException as error:
                    seen = None if clock.expired() else error
                    raise
        except BaseException:
            if clock.expired():
                raise
    return seen


@asynccontextmanager
async def _serve(answer: Callable[[dict[str, Any]], tuple[int, bytes] | None]) -> AsyncIterator[str]:
    """An HTTP server that answers requests with a status and a body, or hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"(?i)content-length: (\d+)", head)
        body = json.loads(await reader.readexactly(int(length[1]))) if length else {}
        found = answer(body) if "id" in body else (202 if body else 405, b"")
        if found:
            lines = f"HTTP/1.1 {found[0]} X\r\ncontent-type: application/json\r\ncontent-length: {len(found[1])}\r\n"
            writer.write(f"{lines}connection: close\r\n\r\n".encode() + found[1])
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
