"""Bodies of requests: how much is read of them, and what becomes of one that nobody wants.

A client that still sends while we answer and hang up may never see the answer. So the rest is read and thrown away
first, within bounds, and then the connection ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.workers.gateway.responses import Problem

BODY_LIMIT = 2_000_000
"""Bytes of a body."""
DISCARD_LIMIT = 10_000_000
"""Bytes that are read in vain."""
SECONDS = 3.0

Message = MutableMapping[str, Any]


class BodyLimit:
    """Middleware: bounds what is read of a body, and leaves nothing of it behind an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request with its body watched."""
        if scope["type"] == "http":
            body = _Body(Headers(scope=scope), receive, send)
            await self._app(scope, body.receive, body.send)


class _Body:
    def __init__(self, headers: Headers, receive: Receive, send: Send) -> None:
        self._headers = headers
        self._receive = receive
        self._send = send
        self._size = 0
        self._over = not ("transfer-encoding" in headers or headers.get("content-length", "0") != "0")

    async def receive(self) -> Message:
        """The next part; Problem when that makes it too much."""
        declared = self._headers.get("content-length", "0")
        if len(declared) > 12 or int(declared) > BODY_LIMIT:
            raise _build_too_large()
        message = await self._receive_next()
        if self._size > BODY_LIMIT:
            raise _build_too_large()
        return message

    async def send(self, message: Message) -> None:
        """Before an answer begins, what is left of the body is done with."""
        if message["type"] == "http.response.start" and not self._over:
            await self._discard_rest()
            message.setdefault("headers", [])
            MutableHeaders(scope=message)["connection"] = "close"
        await self._send(message)

    async def _receive_next(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self._over = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def _discard_rest(self) -> None:
        if self._size == 0 and self._headers.get("expect", "").lower() == "100-continue":
            return  # it is not sent unless we ask for it
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while not self._over and self._size < DISCARD_LIMIT:
                    await self._receive_next()


def _build_too_large() -> Problem:
    return Problem(413, "too_large", f"a body has at most {BODY_LIMIT // 1_000_000} MB")
