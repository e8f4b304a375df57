"""One log line for every request: its path, its token's name, its status. No query, header or token."""

from __future__ import annotations

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.util.text import escape_controls, shorten_text
from holdfast.workers.gateway.auth import TOKEN_KEY
from holdfast.workers.gateway.tokens import PREFIX, Token

PATH_LIMIT = 300
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]*")
_log = logging.getLogger(__name__)


class AccessLog:
    """Middleware that writes the line."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, then write the line."""
        began = time.monotonic()
        status = 0

        async def note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            if scope["type"] == "http":
                token: Token | None = scope.get(TOKEN_KEY)
                seconds = time.monotonic() - began
                who = token.name if token else "an unknown client"
                _log.info(
                    "%s %s %d by %s in %.3f s",
                    scope["method"],
                    _format_path(scope["path"]),
                    status or 500,
                    who,
                    seconds,
                )


def _format_path(path: str) -> str:
    """The path on one line, without a token that it may contain."""
    return shorten_text(escape_controls(_TOKEN.sub(f"{PREFIX}…", path)).replace("\n", "␊"), PATH_LIMIT)
