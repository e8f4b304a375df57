"""The answers of the endpoint: JSON, and for every error a status, a code for programs and a sentence.

An unexpected error is a general sentence in the answer and a line in the log: no internals reach a client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import (
    BadInput,
    HoldfastError,
    NoWorker,
    PayloadUnreadable,
    Refused,
    ServerUnavailable,
    StoreUnavailable,
    TurnNotFound,
)
from holdfast.util.text import shorten_text, strip_controls

MESSAGE_LIMIT = 2_000
_COMMON_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_CODES = {404: "not_found", 405: "method_not_allowed"}
_MESSAGES = {
    404: "unknown path: see docs/reference/http.md",
    405: "the method is not allowed here: see the header Allow",
}


class Problem(Exception):
    """A request that is not served, and why."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


class Json(Response):
    """A JSON document in ASCII, so that no character affects a terminal."""

    media_type = "application/json"

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
        super().__init__(text + "\n", status, {**_COMMON_HEADERS, **(headers or {})})


def build_problem(error: Exception) -> Problem:
    """Build the problem that an error is answered with."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        status = error.status_code
        return Problem(status, _CODES.get(status, "http"), _MESSAGES.get(status, error.detail), error.headers)
    if not isinstance(error, HoldfastError):
        return Problem(500, "internal", "internal error: see the log of the gateway")
    return Problem(*_classify_error(error), str(error))


def _classify_error(error: HoldfastError) -> tuple[int, str]:
    if isinstance(error, Refused):
        return 409, error.code
    if isinstance(error, TurnNotFound):
        return 404, "turn_not_found"
    if isinstance(error, BadInput):
        return 400, "bad_input"
    if isinstance(error, ServerUnavailable):
        return 503, "server_unavailable"
    if isinstance(error, NoWorker):
        return 503, "no_worker"
    if isinstance(error, StoreUnavailable):
        return 503, "store_unavailable"
    if isinstance(error, PayloadUnreadable):
        return 502, "payload_unreadable"
    return 502, "server_refused"


def build_answer(error: Exception) -> Json:
    """Build the answer for an error."""
    found = build_problem(error)
    message = shorten_text(strip_controls(str(found)), MESSAGE_LIMIT)
    return Json({"error": {"code": found.code, "message": message}}, found.status, found.headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an error, as Starlette calls it."""
    return build_answer(error)
