"""The bases of all data that crosses a wire: frozen, and strict about names they do not know.

Not a place for behaviour. Two bases: `Data` for what we write ourselves (unknown fields are ignored, so that an
older worker reads what a newer one wrote), `Message` for what people and programs send us (unknown fields are
errors, so that a misspelt one is not silently dropped).
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
"""Fields that a message may have beyond twice those that there are: a misspelt one is named, a flood of them is not."""

MAX_LISTED = 20_000
"""Problems that are told one by one. Pydantic makes words for all of them, or for none: 300,000 take a second."""


class Data(BaseModel):
    """Frozen data of our own."""

    model_config = ConfigDict(frozen=True)


class Variant(Data):
    """One of several shapes of data that are told apart by their `kind`, which payloads never leave out."""

    kind: str

    @model_serializer(mode="wrap")
    def _write_kind(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": self.kind, **write(self)}


class Message(BaseModel):
    """Frozen data from outside: a field we do not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_field_count(cls, value: Any) -> Any:
        """Each field too many costs time to say so, and a workflow task has two seconds."""
        if isinstance(value, dict) and len(value) > 2 * len(cls.model_fields) + MAX_UNKNOWN_FIELDS:
            raise ValueError(f"it has {len(value):,} fields, and there are {len(cls.model_fields)}")
        return value


def max_items(most: int) -> BeforeValidator:
    """For a list from outside: one that is too long is refused before each of its items is looked at.

    Each that is wrong costs time to say so, and a workflow task has little.
    """

    def check(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) > most:
            raise ValueError(f"it has {len(value):,} items, and takes {most:,} at most")
        return tuple(value) if isinstance(value, list) else value  # a strict check takes no list for a tuple

    return BeforeValidator(check)


def describe_problems(error: ValidationError, whole: str = "value", most: int = 8) -> str:
    """What is wrong with some data (called `whole`), in one line that a person or a model can act on."""
    if error.error_count() > MAX_LISTED:
        return f"{whole}: {error.error_count():,} things are wrong with it"
    found = []
    for item in error.errors(include_url=False, include_context=False)[:most]:
        where = ".".join(str(step) for step in item["loc"]) or whole
        given = _shorten_value(item["input"])
        got = "" if item["type"] == "missing" else f", got {given[:80]}{'…' if len(given) > 80 else ''}"
        found.append(f"{where}: {item['msg']}{got}")
    return "; ".join(found)


def _shorten_value(value: object) -> str:
    """A value's words, without making all of them where it is large."""
    if isinstance(value, str):
        return repr(value[:100])
    if isinstance(value, list | tuple | dict) and len(value) > 100:
        return f"{type(value).__name__} of {len(value):,}"
    return repr(value)


@dataclass(frozen=True)
class Unreadable:
    """A value that could not be read."""

    reason: str
    gone: bool = False
    """Nothing is wrong with what was sent, as far as anybody here knows: its file, or its key, is not here."""
