"""What a check of something found: how bad it is, one sentence, and what to do about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    says: str
    do: str | None = None
    """What would help; every warning and problem has it."""


def report_ok(says: str) -> Finding:
    """It is as it should be."""
    return Finding("ok", says)


def report_warning(says: str, do: str) -> Finding:
    """It works, and somebody should look at it."""
    return Finding("warning", says, do)


def report_problem(says: str, do: str) -> Finding:
    """It does not work."""
    return Finding("problem", says, do)
