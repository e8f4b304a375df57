"""The base of all data that crosses a wire: frozen, and strict about names it does not know.

Not a place for behaviour. Two bases: `Data` for what we write ourselves (unknown fields are ignored, so that an
older worker reads what a newer one wrote), `Message` for what people and programs send us (unknown fields are
errors, so that a misspelt one is not silently dropped).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class Data(BaseModel):
    """Frozen data of our own."""

    model_config = ConfigDict(frozen=True)


class Message(BaseModel):
    """Frozen data from outside: a field we do not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def problems(error: ValidationError, whole: str = "value", most: int = 8) -> str:
    """What is wrong with some data (called `whole`), in one line that a person or a model can act on."""
    found = []
    for item in error.errors(include_url=False, include_context=False)[:most]:
        where = ".".join(str(step) for step in item["loc"]) or whole
        given = repr(item["input"])
        got = "" if item["type"] == "missing" else f", got {given[:80]}{'…' if len(given) > 80 else ''}"
        found.append(f"{where}: {item['msg']}{got}")
    return "; ".join(found)
