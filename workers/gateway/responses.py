"""What the endpoint answers: JSON, and for everything that goes wrong a status, a code for programs and a sentence.

Nothing of our inside reaches a client: an error that nobody expected is a sentence here and a line in our log.
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
    404: "there is nothing here: see docs/reference/http.md for what there is",
    405: "this is not done with that method: see the header Allow",
}


class Problem(Exception):
    """A request that is not served, and why."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


class Json(Response):
    """One JSON document, in characters that do nothing to a terminal."""

    media_type = "application/json"

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
        super().__init__(text + "\n", status, {**_COMMON_HEADERS, **(headers or {})})


def build_problem(error: Exception) -> Problem:
    """What is said of an error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        status = error.status_code
        return Problem(status, _CODES.get(status, "http"), _MESSAGES.get(status, error.detail), error.headers)
    if not isinstance(error, HoldfastError):
        return Problem(500, "internal", "something went wrong inside: the log of the gateway says what")
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
    """The answer to a request that is not served."""
    found = build_problem(error)
    message = shorten_text(strip_controls(str(found)), MESSAGE_LIMIT)
    return Json({"error": {"code": found.code, "message": message}}, found.status, found.headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """As `told`, for Starlette."""
    return build_answer(error)
