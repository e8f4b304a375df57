"""Access to the gateway: tokens, host names and origins.

Every request needs a token, those for unknown paths as well, except HEAD or GET of /health and /ready, which do not
count among the concurrent requests either. The token is read from the Authorization header alone: a URL ends up in logs
and histories.

A web page can let a host name of its own resolve to this machine and so reach what listens here (DNS rebinding). The
browser then sends that name as the Host, which is refused. An IP address cannot be redirected like that, so a gateway
that listens on all addresses accepts any.

A page can also send requests to the right name of this machine. The browser then names the page's origin, and a foreign
origin is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.workers.gateway.responses import Problem, build_answer
from holdfast.workers.gateway.tokens import Role, Token, TokenFile, TokensUnreadable, find_token

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST_HEADER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\s]+))(?::[0-9]{1,5})?")


class HostNames:
    """The host names of one endpoint: loopback, the host it listens on, and further ones."""

    def __init__(self, host: str, extra: Iterable[str] = ()) -> None:
        self._known = LOOPBACK_NAMES | {_normalize_name(name) for name in (host, *extra)}
        self._any_address = _is_any_address(host)

    def check_host(self, hosts: list[str]) -> None:
        """Problem unless the only Host header is one of these names."""
        found = _HOST_HEADER.fullmatch(hosts[0]) if len(hosts) == 1 else None
        name = _normalize_name(found[1] or found[2]) if found else ""
        if name in self._known or (self._any_address and _parse_address(name)):
            return
        hint = "names of a proxy are set as `names` of [gateway] in the settings file"
        raise Problem(421, "wrong_host", f"the Host header names a host that this endpoint is not: {hint}")

    def check_origin(self, origins: list[str], host: str) -> None:
        """Problem when a page of another origin sends the request. Programs send no Origin header."""
        if any(origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}") for origin in origins):
            raise Problem(403, "foreign_origin", "the Origin header names a web page that is not served here")


def is_loopback(host: str) -> bool:
    """Whether this host is reached from this machine only."""
    address = _parse_address(host)
    return address.is_loopback if address else host.lower() == "localhost"


def _normalize_name(name: str) -> str:
    return name.lower().removesuffix(".")


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_any_address(host: str) -> bool:
    address = _parse_address(host)
    return address is not None and address.is_unspecified


HEALTH_PATH, READY_PATH = "/health", "/ready"
TOKEN_KEY = "holdfast.token"
"""The key of a request's token in its scope."""
AT_ONCE = 64
SECONDS = 30.0
"""The time limit of a request."""
_READ_METHODS = ("GET", "HEAD")
_log = logging.getLogger(__name__)


class Guard:
    """Middleware that admits requests."""

    def __init__(self, app: ASGIApp, tokens: TokenFile, names: HostNames) -> None:
        self._app = app
        self._tokens = tokens
        self._names = names
        self._active = 0
        self._complaint = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or answer why not."""
        if scope["type"] != "http":
            return
        try:
            self._admit_request(scope)
        except Problem as problem:
            await build_answer(problem)(scope, receive, send)
            return
        # Probes need no token, so they are not counted: else anybody could use up the concurrent requests.
        counted = TOKEN_KEY in scope
        self._active += counted
        try:
            async with asyncio.timeout(SECONDS):
                await self._app(scope, receive, send)
        except TimeoutError:
            slow = Problem(
                503, "too_slow", f"over {SECONDS:g} seconds: check what the request did before you repeat it"
            )
            await build_answer(slow)(scope, receive, send)
        finally:
            self._active -= counted

    def _admit_request(self, scope: Scope) -> None:
        """Problem unless the request is admitted."""
        headers = Headers(scope=scope)
        self._names.check_host(headers.getlist("host"))
        self._names.check_origin(headers.getlist("origin"), headers["host"])
        _check_path(scope)
        if scope["path"] in (HEALTH_PATH, READY_PATH) and scope["method"] in _READ_METHODS:
            return
        token = self._get_token(headers.getlist("authorization"))
        if token.role is Role.VIEWER and scope["method"] not in _READ_METHODS:
            raise Problem(403, "viewer", f"the token {token.name!r} is read-only")
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
                503, "closed", "the file of tokens cannot be read, so no token is accepted: see `holdfast tokens list`"
            ) from None
        scheme, _, text = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
        token = find_token(tokens, text.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            hint = "send `Authorization: Bearer TOKEN` (see `holdfast tokens create`); a URL is not read for it"
            raise _build_unauthorized("unauthorized", f"unknown or missing token: {hint}", error=bool(given))
        if token.is_expired(datetime.now(UTC)):
            raise _build_unauthorized(
                "token_expired", f"the token {token.name!r} has expired: revoke it and create another"
            )
        return token


def _check_path(scope: Scope) -> None:
    """A path that is not UTF-8 would be read as another one."""
    try:
        unquote(scope["raw_path"].decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise Problem(400, "bad_path", "the path is not UTF-8 in percent-encoding") from None


def _build_unauthorized(code: str, message: str, *, error: bool = True) -> Problem:
    challenge = 'Bearer realm="holdfast"' + (', error="invalid_token"' if error else "")
    return Problem(401, code, message, {"www-authenticate": challenge})
