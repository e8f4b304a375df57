"""In the place of what could not be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unreadable:
    """A value that could not be read."""

    reason: str
    gone: bool = False
    """Nothing is wrong with what was sent, as far as anybody here knows: its file, or its key, is not here."""
