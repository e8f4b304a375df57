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
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, INTERNAL_ERROR, ErrorData
from pydantic import ValidationError

from holdfast.activities.mcp.transport.exchange import Exchange
from holdfast.errors import BadInput
from holdfast.util.secrets import UNCUT, Secrets
from holdfast.util.text import exception_text, shorten_text

_ERROR_MARK = uuid4().hex
"""Of this process."""
_WORDS_LIMIT = 2_000


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
        super().__init__(message)
        self.fault = fault

    def hide_secrets(self, secrets: Secrets) -> Failure:
        """The same in words for anybody: without secrets, and then cut."""
        return Failure(self.fault, shorten_text(secrets.hide(str(self)), _WORDS_LIMIT))


def build_fault_error(fault: Fault, message: str) -> ErrorData:
    """An error in the place of an answer, which we made up ourselves."""
    return ErrorData(code=INTERNAL_ERROR, message=message, data={"mark": _ERROR_MARK, "fault": fault.value})


def build_failure(error: MCPError, exchange: Exchange | None = None) -> Failure:
    """What an error of the `mcp` package means. What it made up for a connection that ended reads like a server's.

    Of a request that is known it is also known whether the server has answered, or can have got it.
    """
    data: Any = error.data
    if isinstance(data, dict) and data.get("mark") == _ERROR_MARK:
        return Failure(Fault(data["fault"]), error.message)
    if exchange and not exchange.answered and not exchange.begun:
        return Failure(Fault.NOT_SENT, "the connection ended before it was sent")
    ended = error.code == CONNECTION_CLOSED and error.message.startswith("Connection closed")
    if ended and not (exchange and exchange.answered):
        return Failure(Fault.LOST, "the connection ended before it answered")
    if error.code == HEADER_MISMATCH:
        return Failure(Fault.STALE, error.message)
    return Failure(Fault.TOLD, f"{error.message or 'no reason given'} (code {error.code})")


def describe_break(error: BaseException) -> str:
    """Why a connection broke, in the words of what broke first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return str(build_failure(error))
    if isinstance(error, ValidationError | RecursionError):
        return f"it does not speak the protocol: {describe_validation_error(error)}"
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"its command is not there, or the program that runs it: {str(error.filename)!r}"
    if isinstance(error, PermissionError):
        return f"its command may not be run: {str(error.filename)!r}"
    if isinstance(error, asyncio.CancelledError):
        return "the connection broke"
    return f"{type(error).__name__}: {exception_text(error, UNCUT)}"


def is_unauthorized(error: BaseException) -> bool:
    """Did it break because we may not?"""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    failure = build_failure(error) if isinstance(error, MCPError) else error
    return isinstance(failure, Failure) and failure.fault is Fault.UNAUTHORIZED


def describe_validation_error(error: ValidationError | RecursionError) -> str:
    """Where an answer is wrong; not the values, which are anybody's."""
    if isinstance(error, RecursionError):
        return "too many levels"
    found = [".".join(map(str, item["loc"])) + f": {item['msg']}" for item in error.errors(include_input=False)[:3]]
    return "; ".join(found)
