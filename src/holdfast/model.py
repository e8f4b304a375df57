"""The base of all data that crosses a wire: frozen, and strict about names it does not know.

Not a place for behaviour. Two bases: `Data` for what we write ourselves (unknown fields are ignored, so that an
older worker reads what a newer one wrote), `Message` for what people and programs send us (unknown fields are
errors, so that a misspelt one is not silently dropped).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Data(BaseModel):
    """Frozen data of our own."""

    model_config = ConfigDict(frozen=True)


class Message(BaseModel):
    """Frozen data from outside: a field we do not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
