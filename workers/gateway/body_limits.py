"""Request bodies: how much is read, and how an unread rest is handled.

A client that still sends while we answer and close may never see the answer. So the rest is read and dropped first,
within bounds, and then the connection is closed.
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
"""Bytes that are read and dropped."""
SECONDS = 3.0

Message = MutableMapping[str, Any]


class BodyLimit:
    """Middleware that bounds the body and drops its rest before an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request with a bounded body."""
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
        """Receive the next part. Problem when the body is too large."""
        declared = self._headers.get("content-length", "0")
        if len(declared) > 12 or int(declared) > BODY_LIMIT:
            raise _build_too_large()
        message = await self._receive_next()
        if self._size > BODY_LIMIT:
            raise _build_too_large()
        return message

    async def send(self, message: Message) -> None:
        """Drop the rest of the body before an answer begins."""
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
            return  # the client waits for 100 Continue and has sent nothing
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while not self._over and self._size < DISCARD_LIMIT:
                    await self._receive_next()


def _build_too_large() -> Problem:
    return Problem(413, "too_large", f"a body has at most {BODY_LIMIT // 1_000_000} MB")
