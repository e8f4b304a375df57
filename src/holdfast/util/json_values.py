"""JSON values: one canonical encoding, digests over it, and checks on values from outside."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import JsonValue


def encode_canonical(value: Any) -> bytes:
    """JSON with sorted keys and no white space, as UTF-8. ValueError for NaN and infinity."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def digest_canonical(value: Any) -> str:
    """The SHA-256 of the canonical encoding, in hexadecimal. ValueError for NaN and infinity."""
    return hashlib.sha256(encode_canonical(value)).hexdigest()


MAX_DEPTH = 100
"""Levels of nesting. pydantic's parser gives up at 200, and the messages around a value take some of those."""


def is_json_value(value: JsonValue) -> bool:
    """Can it be encoded as strict JSON? Python's own parser also accepts `NaN` and lone surrogates."""
    if is_too_deep(value):
        return False
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError):
        return False
    return True


def is_too_deep(value: JsonValue) -> bool:
    """Is it nested deeper than `MAX_DEPTH` levels?"""
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        inside = (item for item in level if isinstance(item, dict | list))
        level = [part for item in inside for part in (item.values() if isinstance(item, dict) else item)]
    return True
