"""Messages of the protocol from bytes, and as bytes: bounded before they are read, repaired where they can be.

What a message costs us depends on how many values it holds, more than on its bytes: a million empty ones would keep
everything else waiting for seconds. So they are counted first, and what holds too many is not read.
"""

from __future__ import annotations

import re

from mcp_types import JSONRPCMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic_core import from_json

from holdfast.activities.mcp.transport.faults import Failure, Fault

MESSAGE_LIMIT = 32_000_000
"""Bytes of one message."""
VALUES_LIMIT = 300_000
"""Values in one message."""
END_KEPT = 200
"""As much of either end of a message as tells whose answer it is."""
_ID = rb'"id"\s*:\s*"?(\d{1,15})"?\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_FIRST = re.compile(rb"^\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")
_REQUEST_START = re.compile(rb"\s*\{?\s*(?:" + _VERSION + rb',\s*)?"method"\s*:')
"""A request of the server's own: its method stands before anything long."""
_SURROGATE_PAIR = rb"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rb"\\(?:" + _SURROGATE_PAIR + rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class UnreadableMessage(Exception):
    """Bytes that are no message we can use, and why."""


def read_message(data: bytes) -> JSONRPCMessage:
    """The message that these bytes are. Unreadable, in words that repeat none of them, when they are none."""
    if has_too_many_values(data):
        raise UnreadableMessage(f"what it said holds over {VALUES_LIMIT:,} values")
    try:
        try:
            value = from_json(data)
        except ValueError:
            value = from_json(repair_bytes(data))
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, RecursionError):
        raise UnreadableMessage("what it said is no JSON-RPC message") from None


def encode_message(message: JSONRPCMessage) -> bytes:
    """The bytes of a message of ours. Failure when JSON cannot say it."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        raise Failure(Fault.REFUSED, "what it is to be told cannot be written as JSON") from None


def has_too_many_values(data: bytes, limit: int = VALUES_LIMIT) -> bool:
    """Does this hold more values than are read? What stands within strings does not count."""
    if _count_openings(data) <= limit:
        return False
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * (limit + 1):  # a name and a text for each value
        return True
    return _count_openings(b"".join(bare.split(b'"')[::2])) > limit


def _count_openings(data: bytes) -> int:
    """At least as many as there are values: each but the first follows one of these."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def repair_bytes(data: bytes) -> bytes:
    """The same with U+FFFD for what is no character: bytes of another encoding, and half of a pair (a cut emoji)."""
    return _ESCAPES.sub(
        lambda found: b"\\ufffd" if found["half"] else found[0], data.decode("utf-8", "replace").encode()
    )


def find_answered_id(data: bytes) -> int | None:
    """The request that unread bytes answer, as far as their two ends tell."""
    first, last = data[:END_KEPT], data[-END_KEPT:]
    if found := _ID_FIRST.search(first):
        return None if _REQUEST_START.match(first[found.end() :]) else int(found[1])
    found = _ID_LAST.search(last)
    return int(found[1]) if found and not _REQUEST_START.match(first) else None
