"""The base classes of all data in histories and messages. Frozen pydantic models, without behaviour.

`Data` is for what Holdfast writes itself: unknown fields are ignored, so that an older worker reads what a newer one
wrote. `StrictData` is for what people and programs send: unknown fields are errors, so a misspelt one is not ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

MAX_UNKNOWN_FIELDS = 2_000
"""The number of unknown fields up to which each one is reported."""

MAX_LISTED = 20_000
"""The number of problems up to which they are listed. Pydantic formats all or none: 300,000 take a second."""


class Data(BaseModel):
    """Frozen data that Holdfast writes itself: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)


class Variant(Data):
    """A member of a union that is discriminated by `kind`. Payloads always contain `kind`, though it is a default."""

    kind: str

    @model_serializer(mode="wrap")
    def _write_kind(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": self.kind, **write(self)}


class StrictData(BaseModel):
    """Frozen data from outside: unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_field_count(cls, value: Any) -> Any:
        """Refuse a flood of unknown fields: reporting each takes time, and a workflow task has two seconds."""
        if isinstance(value, dict) and len(value) > 2 * len(cls.model_fields) + MAX_UNKNOWN_FIELDS:
            raise ValueError(f"it has {len(value):,} fields, and only {len(cls.model_fields)} are known")
        return value


def max_items(most: int) -> BeforeValidator:
    """Build a validator that refuses a list from outside that is too long, before its items are validated.

    Reporting each invalid item takes time, and a workflow task has two seconds.
    """

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) > most:
            raise ValueError(f"it has {len(value):,} items, and the limit is {most:,}")
        return tuple(value) if isinstance(value, list) else value  # strict validation refuses a list for a tuple

    return BeforeValidator(check)


def describe_problems(error: ValidationError, whole: str = "value", most: int = 8) -> str:
    """Describe validation errors in one line that a person or a model can act on. `whole` is the name of the data."""
    if error.error_count() > MAX_LISTED:
        return f"{whole}: {error.error_count():,} errors"
    found = []
    for item in error.errors(include_url=False, include_context=False)[:most]:
        where = ".".join(str(step) for step in item["loc"]) or whole
        given = _shorten_value(item["input"])
        got = "" if item["type"] == "missing" else f", got {given[:80]}{'…' if len(given) > 80 else ''}"
        found.append(f"{where}: {item['msg']}{got}")
    return "; ".join(found)


def _shorten_value(value: object) -> str:
    """Format the beginning of a value, without formatting all of a large one."""
    if isinstance(value, str):
        return repr(value[:100])
    if isinstance(value, list | tuple | dict) and len(value) > 100:
        return f"{type(value).__name__} of {len(value):,}"
    return repr(value)


@dataclass(frozen=True)
class UnreadablePayload:
    """A payload that could not be read."""

    reason: str
    gone: bool = False
    """Its stored payload or its key is missing in this process: another worker may be able to read it."""
