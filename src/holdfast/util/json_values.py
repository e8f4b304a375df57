"""Values from outside: which of them can be written down as JSON, and read again."""

from __future__ import annotations

import json

from pydantic import JsonValue

MAX_DEPTH = 100
"""Levels of a value. pydantic's reader gives up at 200, and what we put around a value takes some of that."""


def is_json_value(value: JsonValue) -> bool:
    """Can JSON say it? Python also reads `NaN` and half a character as JSON."""
    if is_too_deep(value):
        return False
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError):
        return False
    return True


def is_too_deep(value: JsonValue) -> bool:
    """Is it nested more deeply than anybody could read again?"""
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        inside = (item for item in level if isinstance(item, dict | list))
        level = [part for item in inside for part in (item.values() if isinstance(item, dict) else item)]
    return True
