"""A decision as it is sent over HTTP: parsed strictly, so that nothing counts that was not meant.

The actor is the owner of the token, never the body's. The digest is the body's: it says what was looked at.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pydantic import AwareDatetime, Field, JsonValue, ValidationError, field_validator
from starlette.requests import ClientDisconnect, Request

from holdfast.domain.approvals.approval import Lasting, Scope
from holdfast.domain.base import StrictData, describe_problems
from holdfast.util.text import shorten_text, strip_controls
from holdfast.workers.gateway.responses import Problem

_FORBIDDEN_FIELDS = ("by", "at", "signer", "signature")


class DecisionBody(StrictData):
    """The body: the fields of a `Decision` without its address and its sender."""

    outcome: str = Field(max_length=100)
    digest: str = Field(min_length=1, max_length=200)
    decision_id: str | None = Field(default=None, min_length=1, max_length=200)
    note: str | None = Field(default=None, max_length=20_000)
    content: str | None = Field(default=None, max_length=1_000_000)
    stop_turn: bool = False
    arguments: dict[str, JsonValue] | None = None
    scope: Scope | None = None
    remember: bool = False
    uses: int | None = Field(default=None, ge=1, le=1_000_000)
    lasting: Lasting = "session"
    expires: AwareDatetime | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """The answer to a form may be given as the object that it is."""
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value

    @property
    def details(self) -> dict[str, Any]:
        """The fields that were given, without the outcome, the digest and the id."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"outcome", "digest", "decision_id"}}


async def read_decision(request: Request) -> DecisionBody:
    """Read the body of a request. Problem when it is not JSON or not a decision."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "not_json", "send JSON as it is, with the header `Content-Type: application/json`")
    try:
        return parse_decision(await request.body())
    except ClientDisconnect:
        raise Problem(400, "incomplete", "the body ended too early") from None


def parse_decision(data: bytes) -> DecisionBody:
    """Parse a decision from bytes. Problem when it is not JSON or not a decision."""
    value = _parse_object(data)
    theirs = [name for name in _FORBIDDEN_FIELDS if name in value]
    if theirs:
        raise _build_bad_input(f"`{theirs[0]}` cannot be set: a decision is in the name of your token, at this moment")
    try:
        return DecisionBody.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise _build_bad_input(f"invalid decision: {describe_problems(error, 'decision')}") from None


def _parse_object(data: bytes) -> dict[str, Any]:
    """One JSON object that every parser reads alike."""
    try:
        value = json.loads(
            data.decode(),
            parse_constant=_refuse_number,
            parse_float=_parse_finite,
            object_pairs_hook=_reject_duplicates,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise _build_bad_input(f"the body is not UTF-8 text: byte {error.start} cannot be read", "not_json") from None
    except UnicodeEncodeError:
        raise _build_bad_input(
            "the body holds half a character: a \\ud800–\\udfff escape without its partner"
        ) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _build_bad_input(f"the body is not JSON: {error.msg} at {where}", "not_json") from None
    except RecursionError:
        raise _build_bad_input("the body is nested too deeply") from None
    except ValueError as error:
        raise _build_bad_input(f"the body cannot be read: {shorten_text(strip_controls(str(error)), 200)}") from None
    if not isinstance(value, dict):
        raise _build_bad_input("the body must be an object, with `outcome` and `digest`")
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values with one name some parsers take the first, others the last."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has a name twice")
    return made


def _parse_finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a number that JSON has")


def _build_bad_input(message: str, code: str = "bad_input") -> Problem:
    return Problem(400, code, message)
