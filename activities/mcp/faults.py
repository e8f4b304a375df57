"""What can go wrong between us and a server, told apart by what it means for the call.

The `mcp` package has one exception for what a server says and for what its transports make up. Ours carry a mark that
no server knows, so that a call that never left is not taken for one whose end nobody knows.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any
from uuid import uuid4

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, INTERNAL_ERROR, PARSE_ERROR, ErrorData
from pydantic import ValidationError

from holdfast.content import said, shorten
from holdfast.errors import BadInput

_MARK = uuid4().hex
"""Of this process."""
_WORDS = 2_000


class Fault(StrEnum):
    """How an exchange failed."""

    NOT_SENT = "not_sent"
    """The server never got it."""
    SESSION = "session"
    """The server does not know our session any more, and did nothing."""
    UNAUTHORIZED = "unauthorized"
    """We may not, and it did nothing."""
    REFUSED = "refused"
    """It was turned away before anything ran."""
    STALE = "stale"
    """What we know of the tool is out of date, and it did nothing."""
    TOLD = "told"
    """The server answered with an error."""
    UNREADABLE = "unreadable"
    """It answered, and the answer cannot be read."""
    LOST = "lost"
    """Nobody knows: the connection ended before the answer."""


class Failure(Exception):
    """An exchange that failed."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(shorten(message, _WORDS))
        self.fault = fault


def marked(fault: Fault, message: str) -> ErrorData:
    """An error in the place of an answer, which we made up ourselves."""
    return ErrorData(code=INTERNAL_ERROR, message=message, data={"mark": _MARK, "fault": fault.value})


def failure_of(error: MCPError) -> Failure:
    """What an error of the `mcp` package means. What it made up for a connection that ended reads like a server's."""
    data: Any = error.data
    if isinstance(data, dict) and data.get("mark") == _MARK:
        return Failure(Fault(data["fault"]), error.message)
    if error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream failed"):
        return Failure(Fault.UNREADABLE, error.message)
    if error.code == CONNECTION_CLOSED and error.message.startswith(("Connection closed", "SSE stream ended")):
        return Failure(Fault.LOST, "the connection ended before it answered")
    if error.code == PARSE_ERROR and error.message.startswith("Failed to parse"):
        return Failure(Fault.UNREADABLE, "what it answered is not JSON-RPC")
    if error.code == HEADER_MISMATCH:
        return Failure(Fault.STALE, error.message)
    return Failure(Fault.TOLD, f"{error.message or 'no reason given'} (code {error.code})")


def words_of(error: BaseException) -> str:
    """Why a connection broke, in the words of what broke first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return str(failure_of(error))
    if isinstance(error, ValidationError | RecursionError):
        return f"it does not speak the protocol: {problems_of(error)}"
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"its command is not there, or the program that runs it: {str(error.filename)!r}"
    if isinstance(error, PermissionError):
        return f"its command may not be run: {str(error.filename)!r}"
    if isinstance(error, asyncio.CancelledError):
        return "the connection broke"
    return f"{type(error).__name__}: {said(error)}"


def unauthorized(error: BaseException) -> bool:
    """Did it break because we may not?"""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    failure = failure_of(error) if isinstance(error, MCPError) else error
    return isinstance(failure, Failure) and failure.fault is Fault.UNAUTHORIZED


def problems_of(error: ValidationError | RecursionError) -> str:
    """Where an answer is wrong; not the values, which are anybody's."""
    if isinstance(error, RecursionError):
        return "too many levels"
    found = [".".join(map(str, item["loc"])) + f": {item['msg']}" for item in error.errors(include_input=False)[:3]]
    return shorten("; ".join(found), 500)
