"""Findings of checks: a level, a sentence, and what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    level: Level
    says: str
    do: str | None = None
    """What to do about it; every warning and problem has it."""


def report_ok(says: str) -> Finding:
    """Return a finding without a problem."""
    return Finding("ok", says)


def report_warning(says: str, do: str) -> Finding:
    """Return a finding that somebody should look at, though everything works."""
    return Finding("warning", says, do)


def report_problem(says: str, do: str) -> Finding:
    """Return a finding of something that does not work."""
    return Finding("problem", says, do)
