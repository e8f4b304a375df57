"""One way to write a JSON value as bytes, and the digest of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def encode_canonical(value: Any) -> bytes:
    """JSON with sorted keys and no white space. Raises ValueError for what JSON cannot say (NaN)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def digest_canonical(value: Any) -> str:
    """SHA-256 over that."""
    return hashlib.sha256(encode_canonical(value)).hexdigest()
