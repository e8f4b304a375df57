"""Durations as people write them: `90s`, `15m`, `1h30m`, `7d`."""

from __future__ import annotations

import re

UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
SHORTEST, LONGEST = 1, 365 * 86_400
_DURATION = re.compile("".join(f"(?:([0-9]{{1,9}}) ?{unit} ?)?" for unit in UNITS))
_UNIT_NAMES = {"d": "d", "h": "h", "m": "min", "s": "s"}


def parse_duration(text: str) -> int:
    """The seconds of a duration: whole numbers, the larger unit first. ValueError says what is expected."""
    found = _DURATION.fullmatch(text.strip())
    if not found or not any(found.groups()):
        raise ValueError("must be a duration such as 90s, 15m, 1h30m, 7d or 2w, the larger unit first")
    seconds = sum(int(number or 0) * size for number, size in zip(found.groups(), UNITS.values(), strict=True))
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError("must be at least a second and at most a year (365d)")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration for a person: `1 h 30 min`, `7 d`. Fractions of a second are dropped."""
    left = max(0, int(seconds))
    parts = []
    for unit, word in _UNIT_NAMES.items():
        number, left = divmod(left, UNITS[unit])
        parts += [f"{number} {word}"] if number else []
    return " ".join(parts) or "0 s"
