"""HTTP to a server, beneath the `mcp` package: what fails costs the request it happened to, and says what that means.

Left to itself a refused connection ends every other call on the same connection, and a broken one reads like an error
of the server's. Here each becomes an answer to its own request. Bodies are bounded, and taken only as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2
from mcp_types import JSONRPCError
from mcp_types.jsonrpc import jsonrpc_message_adapter

from holdfast.activities.mcp.authorizing import REFUSED, scope_lacking
from holdfast.activities.mcp.faults import Fault, marked
from holdfast.activities.mcp.resolving import Resolved
from holdfast.activities.mcp.stdio import MESSAGE_LIMIT
from holdfast.content import said

CONNECT_SECONDS = 10.0
WRITE_SECONDS = 30.0
ERROR_LIMIT = 65_536
"""Bytes of a body that goes with an error."""
_SESSION = "mcp-session-id"
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)


def http_client(resolved: Resolved, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """A client for one server. How long an answer may take is for its caller to say, and not limited here."""
    assert resolved.url, "a server that is reached"
    url = httpx2.URL(resolved.url)
    proxy = None if proxy_bypass(url.host) else getproxies().get(url.scheme)
    inner = httpx2.AsyncHTTPTransport(
        proxy=proxy, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    )
    return httpx2.AsyncClient(
        transport=Guarded(inner),
        headers={**resolved.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, write=WRITE_SECONDS, read=None, pool=CONNECT_SECONDS),
        auth=auth,
    )


class Guarded(httpx2.AsyncBaseTransport):
    """A transport on which requests fail one by one, and in words."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer; for a JSON-RPC request always one, if only that there is none."""
        message = _message(request)
        if (why := request.extensions.get(REFUSED)) is not None:
            return _unsent(message, why)
        if message is None:
            return await self._inner.handle_async_request(request)
        asked = message.get("id") if "method" in message else None
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            if asked is None:
                return httpx2.Response(202)  # nobody waits for an answer, and others still use the connection
            if isinstance(error, _UNSENT):
                return _made_up(asked, Fault.NOT_SENT, f"it cannot be reached: {_unreached(error)}")
            return _made_up(asked, Fault.LOST, f"the connection broke: {said(error)}")
        if asked is None or response.is_redirect:
            return response
        if response.status_code >= 400:
            return await _refused(asked, request, response)
        return await _taken(asked, response)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def _unreached(error: httpx2.TransportError) -> str:
    words = said(error)
    return f"{words} (does it speak http:// and not https://?)" if "WRONG_VERSION_NUMBER" in words else words


def _unsent(message: Mapping[str, Any] | None, why: str) -> httpx2.Response:
    """What answers a request that may not be sent."""
    response = httpx2.Response(401)
    asked = message.get("id") if message else None
    return response if asked is None else _made_up(asked, Fault.UNAUTHORIZED, why, response)


async def _taken(asked: object, response: httpx2.Response) -> httpx2.Response:
    """An answer as it is, whole; a stream of events goes on as it comes."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        await response.aclose()
        return _made_up(asked, Fault.UNREADABLE, "it sent an encoding that it was not asked for")
    kind = response.headers.get("content-type", "").lower()
    if kind.startswith("text/event-stream"):
        return response
    if response.status_code == 202 or not kind.startswith("application/json"):
        await response.aclose()
        return _made_up(asked, Fault.UNREADABLE, f"it took it and gave no answer (HTTP status {response.status_code})")
    try:
        body = await _body(response, MESSAGE_LIMIT)
    except httpx2.TransportError as error:
        return _made_up(asked, Fault.LOST, f"the connection broke: {said(error)}")
    if body is None:
        return _made_up(asked, Fault.UNREADABLE, f"it answered with over {MESSAGE_LIMIT:,} bytes")
    if not _answers(body, asked):
        return _made_up(asked, Fault.UNREADABLE, "what it answered is no answer to what it was asked")
    return _with_body(response, body)


async def _refused(asked: object, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """What an HTTP error means. A server's own words go on as they are, unless they are about our session."""
    try:
        body = await _body(response, ERROR_LIMIT) or b""
    except httpx2.TransportError:
        body = b""
    status, own = response.status_code, _error_in(body)
    nothing = " (nothing is there: is the path of its `url` right? Many servers are at /mcp)" if status == 404 else ""
    message = own.error.message if own else f"it answered with HTTP status {status}{nothing}"
    if status in (401, 403):
        wish = f"the scope {scope!r} in a token" if (scope := scope_lacking(response)) else "authorization"
        return _made_up(asked, Fault.UNAUTHORIZED, f"it wants {wish} (HTTP status {status})", response)
    if _SESSION in request.headers and (status == 404 or (status == 400 and "session" in message.lower())):
        return _made_up(asked, Fault.SESSION, message, response)
    if own:
        return _with_body(response, body)
    return _made_up(asked, Fault.REFUSED if status < 500 else Fault.LOST, message, response)


def _message(request: httpx2.Request) -> dict[str, Any] | None:
    """The JSON-RPC message that this carries; None for anything else."""
    if request.method != "POST" or not request.headers.get("content-type", "").startswith("application/json"):
        return None
    try:
        value = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    return value if isinstance(value, dict) and "jsonrpc" in value else None


def _made_up(asked: object, fault: Fault, message: str, response: httpx2.Response | None = None) -> httpx2.Response:
    """An answer in the place of one that did not come."""
    body = {"jsonrpc": "2.0", "id": asked, "error": marked(fault, message).model_dump(mode="json")}
    data = json.dumps(body).encode()
    if response is not None:
        return _with_body(response, data)
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=data)


def _with_body(response: httpx2.Response, body: bytes) -> httpx2.Response:
    """The same answer with this body: what authorization reads in it stays."""
    kept: Mapping[str, str] = {
        name: value
        for name, value in response.headers.items()
        if name.lower() not in ("content-length", "content-type", "transfer-encoding", "content-encoding")
    }
    return httpx2.Response(response.status_code, headers={**kept, "content-type": "application/json"}, content=body)


async def _body(response: httpx2.Response, limit: int) -> bytes | None:
    """All of a body; None when it is too long."""
    body = bytearray()
    try:
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > limit:
                return None
    finally:
        await response.aclose()
    return bytes(body)


def _answers(body: bytes, asked: object) -> bool:
    value: Any
    try:
        value = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except (ValueError, RecursionError):
        return False
    return str(getattr(value, "id", None)) == str(asked)


def _error_in(body: bytes) -> JSONRPCError | None:
    try:
        found = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, JSONRPCError) else None
