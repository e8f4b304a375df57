"""Who comes in: only requests for us, with a token in the Authorization header; as many at once as we can serve.

Everything needs a token, paths that do not exist as well, and only a HEAD or GET of /health or /ready does not;
/health is not counted among the requests at once. A token is looked for in that one header: what is in a URL ends up in
logs and histories.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.workers.gateway.answers import Problem, build_answer
from holdfast.workers.gateway.hosts import HostNames
from holdfast.workers.tokens import Role, Token, TokenFile, TokensUnreadable, find_token

HEALTH_PATH, READY_PATH = "/health", "/ready"
TOKEN_KEY = "holdfast.token"
"""Where a request's token is kept."""
AT_ONCE = 64
SECONDS = 30.0
"""How long one request may take."""
_READ_METHODS = ("GET", "HEAD")
_log = logging.getLogger(__name__)


class Guard:
    """Middleware: lets requests through that may pass."""

    def __init__(self, app: ASGIApp, tokens: TokenFile, names: HostNames) -> None:
        self._app = app
        self._tokens = tokens
        self._names = names
        self._active = 0
        self._complaint = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or say why not."""
        if scope["type"] != "http":
            return
        try:
            self._admit_request(scope)
        except Problem as problem:
            await build_answer(problem)(scope, receive, send)
            return
        # A probe is nobody's request: whoever may not come in must not be able to take the places of those who may.
        counted = TOKEN_KEY in scope
        self._active += counted
        try:
            async with asyncio.timeout(SECONDS):
                await self._app(scope, receive, send)
        except TimeoutError:
            slow = Problem(503, "too_slow", f"this took over {SECONDS:g} seconds: look before you repeat it")
            await build_answer(slow)(scope, receive, send)
        finally:
            self._active -= counted

    def _admit_request(self, scope: Scope) -> None:
        """Problem unless the request may pass."""
        headers = Headers(scope=scope)
        self._names.check_host(headers.getlist("host"))
        self._names.check_origin(headers.getlist("origin"), headers["host"])
        _check_path(scope)
        if scope["path"] in (HEALTH_PATH, READY_PATH) and scope["method"] in _READ_METHODS:
            return
        token = self._get_token(headers.getlist("authorization"))
        if token.role is Role.VIEWER and scope["method"] not in _READ_METHODS:
            raise Problem(403, "viewer", f"the token {token.name!r} is for looking only")
        if self._active >= AT_ONCE:
            raise Problem(503, "busy", f"{AT_ONCE} requests are being served: try again", {"retry-after": "1"})
        scope[TOKEN_KEY] = token

    def _get_token(self, given: list[str]) -> Token:
        try:
            tokens = self._tokens.read_all()
        except TokensUnreadable as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("closed: %s", error)
            raise Problem(
                503, "closed", "the file of tokens cannot be read, so nobody comes in: `holdfast tokens list` says why"
            ) from None
        scheme, _, text = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
        token = find_token(tokens, text.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            hint = "send `Authorization: Bearer TOKEN` (`holdfast tokens create NAME` makes one); no URL is read for it"
            raise _build_unauthorized("unauthorized", f"no token that is known here: {hint}", error=bool(given))
        if token.is_expired(datetime.now(UTC)):
            raise _build_unauthorized(
                "token_expired", f"the token {token.name!r} has expired: revoke it and make another"
            )
        return token


def _check_path(scope: Scope) -> None:
    """What is not UTF-8 would be read as something else than was sent."""
    try:
        unquote(scope["raw_path"].decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "bad_path", "the path is not UTF-8 in percent-encoding") from None


def _build_unauthorized(code: str, message: str, *, error: bool = True) -> Problem:
    challenge = 'Bearer realm="holdfast"' + (', error="invalid_token"' if error else "")
    return Problem(401, code, message, {"www-authenticate": challenge})
