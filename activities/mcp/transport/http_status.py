"""What an HTTP error means for the request that it answers. Pure.

A server's own words go on as they are. But only what the protocol has for it counts as a session that was forgotten,
and only a status that says so as a request that was turned away: a request that may have run is not sent again.
"""

from __future__ import annotations

import re

import httpx2
from mcp_types import ErrorData, JSONRPCError

from holdfast.activities.mcp.auth.bearer import find_missing_scope
from holdfast.activities.mcp.transport.faults import Fault, build_fault_error
from holdfast.activities.mcp.transport.jsonrpc import UnreadableMessage, read_message

_REFUSED_STATUSES = frozenset(
    [400, 402, 404, 405, 406, 410, 411, 413, 414, 415, 417, 421, 422, 426, 428, 429, 431, 451]
)
"""What is told before anything runs. Of a timeout or a conflict that cannot be said."""
_LOST_STATUS = 501
"""From here on statuses are of those between us and the server as often as of the server."""

_UNKNOWN_SESSION = re.compile(r"session|not initialized", re.IGNORECASE)
"""What servers of the common kinds say, with 400 and no id, of a session that they do not know."""


def explain_status(response: httpx2.Response, request_id: int | str | None, *, has_session: bool) -> ErrorData:
    """The error that a response stands for. `has_session`: the request named one."""
    status, own = response.status_code, _find_error(response.content)
    answers = own is not None and own.id is not None and str(own.id) == str(request_id)
    words = own.error.message if own else _describe_status(response)
    if status == 401 or (status == 403 and not answers):
        wish = f"the scope {scope!r} in a token" if (scope := find_missing_scope(response)) else "authorization"
        return build_fault_error(Fault.UNAUTHORIZED, f"it wants {wish} (HTTP status {status})")
    if has_session and not answers and (status == 404 or (status == 400 and _UNKNOWN_SESSION.search(words))):
        return build_fault_error(Fault.SESSION, words)
    if own and status < (_LOST_STATUS if answers else 500):
        return own.error
    turned_away = status in _REFUSED_STATUSES or response.is_redirect
    return build_fault_error(Fault.REFUSED if turned_away else Fault.LOST, words)


def _describe_status(response: httpx2.Response) -> str:
    status, place = response.status_code, response.next_request.url if response.next_request else None
    if place is not None:
        told = f"{place.scheme}://{place.host}{f':{place.port}' if place.port else ''}{place.path}"
        return f"it redirects to {told} (HTTP status {status}): if it is there, that is its `url`"
    nothing = " (nothing is there: is the path of its `url` right? Many servers are at /mcp)" if status == 404 else ""
    return f"it answered with HTTP status {status}{nothing}"


def _find_error(body: bytes) -> JSONRPCError | None:
    try:
        found = read_message(body)
    except UnreadableMessage:
        return None
    return found if isinstance(found, JSONRPCError) else None
