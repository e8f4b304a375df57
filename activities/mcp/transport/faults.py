"""The ways in which a request to a server fails, classified by what they mean for a call.

The `mcp` package has one exception for what a server answers and for what its transports make up. Errors that are made
up here carry a mark that no server knows, so that a request that was never sent is not taken for a lost one.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any
from uuid import uuid4

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, INTERNAL_ERROR, ErrorData
from pydantic import ValidationError

from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.errors import BadInput
from holdfast.util.secrets import UNCUT, Secrets
from holdfast.util.text import exception_text, shorten_text

_ERROR_MARK = uuid4().hex
"""Random for each process."""
_WORDS_LIMIT = 2_000


class Fault(StrEnum):
    """How an exchange failed."""

    NOT_SENT = "not_sent"
    """The server never received it."""
    SESSION = "session"
    """The server does not know the session any more, and did nothing."""
    UNAUTHORIZED = "unauthorized"
    """Access was denied, and the server did nothing."""
    REFUSED = "refused"
    """It was turned away before anything ran."""
    STALE = "stale"
    """The definition of the tool is out of date, and the server did nothing."""
    ERROR = "error"
    """The server answered with an error."""
    UNREADABLE = "unreadable"
    """The server answered, and the answer cannot be read."""
    LOST = "lost"
    """The connection ended before the answer: it may have run."""


class Failure(Exception):
    """An exchange that failed."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault

    def hide_secrets(self, secrets: Secrets) -> Failure:
        """Return the same failure without secrets, and then cut."""
        return Failure(self.fault, shorten_text(secrets.hide(str(self)), _WORDS_LIMIT))


def build_fault_error(fault: Fault, message: str) -> ErrorData:
    """Build an error that takes the place of an answer."""
    return ErrorData(code=INTERNAL_ERROR, message=message, data={"mark": _ERROR_MARK, "fault": fault.value})


def build_failure(error: MCPError, exchange: Exchange | None = None) -> Failure:
    """Classify an error of the `mcp` package.

    It reports a connection that ended like an error of the server; the `exchange` tells the two apart.
    """
    data: Any = error.data
    if isinstance(data, dict) and data.get("mark") == _ERROR_MARK:
        return Failure(Fault(data["fault"]), error.message)
    if exchange and not exchange.answered and not exchange.was_sent:
        return Failure(Fault.NOT_SENT, "the connection ended before it was sent")
    ended = error.code == CONNECTION_CLOSED and error.message.startswith("Connection closed")
    if ended and not (exchange and exchange.answered):
        return Failure(Fault.LOST, "the connection ended before it answered")
    if error.code == HEADER_MISMATCH:
        return Failure(Fault.STALE, error.message)
    return Failure(Fault.ERROR, f"{error.message or 'no reason given'} (code {error.code})")


def describe_break(error: BaseException) -> str:
    """Describe why a connection broke, by the first exception of the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return str(build_failure(error))
    if isinstance(error, ValidationError | RecursionError):
        return f"it does not follow the protocol: {describe_validation_error(error)}"
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"its command, or the program that runs it, does not exist: {str(error.filename)!r}"
    if isinstance(error, PermissionError):
        return f"its command is not executable: {str(error.filename)!r}"
    if isinstance(error, asyncio.CancelledError):
        return "the connection broke"
    return f"{type(error).__name__}: {exception_text(error, UNCUT)}"


def is_unauthorized(error: BaseException) -> bool:
    """Whether a connection broke because access was denied."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    failure = build_failure(error) if isinstance(error, MCPError) else error
    return isinstance(failure, Failure) and failure.fault is Fault.UNAUTHORIZED


def describe_validation_error(error: ValidationError | RecursionError) -> str:
    """Say where an answer is invalid, without repeating its values."""
    if isinstance(error, RecursionError):
        return "too many levels"
    found = [".".join(map(str, item["loc"])) + f": {item['msg']}" for item in error.errors(include_input=False)[:3]]
    return "; ".join(found)
