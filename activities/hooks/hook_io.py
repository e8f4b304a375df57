"""The messages to hooks, and their answers.

The message about an invalid answer quotes none of its values: after a call they could hold what the hook withholds.

Why: docs/decisions/0030-hooks-only-tighten.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from holdfast.domain.base import Data, StrictData
from holdfast.domain.calls.tool import Effect
from holdfast.domain.content import Text
from holdfast.domain.modes import Mode
from holdfast.util.text import drop_surrogates, shorten_text, strip_controls

ANSWER_LIMIT = 1_000_000
"""Bytes of an answer."""
REASON_LIMIT = 1_000
PROBLEMS_SHOWN = 3


class HookFailure(Exception):
    """A hook gave no valid answer. The message is the end of the sentence "The hook failed: …"."""


def clean_text(text: str, limit: int = REASON_LIMIT) -> str:
    """Clean a text for people and models: without control characters, at most `limit` characters."""
    return shorten_text(strip_controls(drop_surrogates(text)).strip(), limit)


def _check_json(value: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise ValueError("hold what JSON cannot represent") from None
    return value


Reason = Annotated[str, AfterValidator(clean_text)]


class _HookAnswer(StrictData):
    model_config = ConfigDict(strict=True)

    reason: Reason | None = None
    stop_turn: bool = False
    """End the turn; before a call this denies it too."""


class BeforeAnswer(_HookAnswer):
    """The answer of a hook before a call. No answer allows a call."""

    decision: Literal["continue", "ask", "deny"] = "continue"
    arguments: Annotated[dict[str, JsonValue] | None, AfterValidator(_check_json)] = None
    """Arguments in place of those that were given: all of them."""


class AfterAnswer(_HookAnswer):
    """The answer of a hook after a call."""

    result: Text | None = None
    """The text that the model reads instead."""


A = TypeVar("A", BeforeAnswer, AfterAnswer)


def read_answer(printed: bytes, kind: type[A]) -> A:
    """The answer that a command printed; nothing printed changes nothing. HookFailure when it is invalid."""
    if not printed.strip():
        return kind()
    try:
        value = json.loads(
            printed.decode("utf-8-sig"), parse_constant=_refuse_constant, object_pairs_hook=_reject_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise HookFailure(f"it printed no JSON: {clean_text(str(error), 200)}") from None
    if value is None:
        raise HookFailure("it printed `null`: print an object, or nothing to change nothing")
    return convert_answer(value, kind)


def convert_answer(value: object, kind: type[A]) -> A:
    """The answer that a function returned; None changes nothing. HookFailure when it is invalid."""
    if value is None:
        return kind()
    if isinstance(value, dict):
        _refuse_nulls(value)
    elif not isinstance(value, kind):
        raise HookFailure(f"its answer is a {type(value).__name__}, and must be an object")
    try:
        answer = kind.model_validate(dict(value))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise HookFailure("; ".join(_describe_error(item, kind) for item in found[:PROBLEMS_SHOWN])) from None
    size = len(answer.model_dump_json().encode())
    if size > ANSWER_LIMIT:
        raise HookFailure(f"its answer takes {size:,} bytes; the limit is {ANSWER_LIMIT:,}")
    return answer


def _refuse_nulls(value: dict[Any, Any]) -> None:
    """A program that reads a key which is not there prints null: that must not mean "change nothing"."""
    for name, given in value.items():
        if given is None:
            raise HookFailure(f"`{_format_step(name)}` in its answer is null: leave it out to change nothing")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _describe_error(item: ErrorDetails, kind: type[A]) -> str:
    where = ".".join(_format_step(step) for step in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"`{where}` is no key of its answer, which may have {', '.join(kind.model_fields)}"
    return f"`{where}` in its answer is wrong: {item['msg'].removeprefix('Value error, ')}"


def _format_step(step: object) -> str:
    return clean_text(str(step), 100).replace("\n", " ")


class HookCall(Data):
    """The facts about a call that every hook gets."""

    turn_id: str
    call_id: str
    tool: str
    server: str | None = None
    effect: Effect
    arguments: dict[str, JsonValue]
    """The arguments with which the call would run, or ran."""
    mode: Mode = Mode.DEFAULT
    workspace: Path

    def encode(self) -> bytes:
        """The call as JSON, for a command. ValueError for arguments that JSON cannot represent."""
        fields = self.model_dump(mode="json") | {"workspace": drop_surrogates(str(self.workspace))}
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()


class BeforeTool(HookCall):
    """A call that has not run: a hook is asked when the call is validated, and again where it executes."""

    when: Literal["before"] = "before"
    phase: Literal["validate", "execute"]


class AfterTool(HookCall):
    """A call that has run, and what the model would read of its result."""

    when: Literal["after"] = "after"
    status: Literal["success", "error"]
    text: Text
    error_type: Text | None = None
