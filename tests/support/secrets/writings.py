"""The ways in which a secret may be written down, and whether a text tells one in any of them."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus, unquote, unquote_plus


def pem(data: bytes) -> str:
    """A key as it is kept in files."""
    digits = base64.b64encode(data).decode()
    lines = [digits[at : at + 64] for at in range(0, len(digits), 64)]
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])


def text64(data: bytes) -> str:
    """In base64."""
    return base64.b64encode(data).decode()


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in JSON": json.dumps,
    "in JSON with every letter": lambda value: json.dumps(value, ensure_ascii=False),
    "in an address": quote,
    "in an address, all of it": lambda value: quote(value, safe=""),
    "in an address, small": lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
    "in a form": quote_plus,
    "in base64": lambda value: text64(value.encode()),
    "in base64 for addresses": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "in base64 without its end": lambda value: text64(value.encode()).rstrip("="),
    "in base64 after one byte": lambda value: text64(b"\xff" + value.encode() + b"more"),
    "in base64 after two": lambda value: text64(b":;" + value.encode() + b"m"),
    "in base64 after three": lambda value: text64(b"abc" + value.encode() + b"mo"),
    "as basic authorization": lambda value: f"Basic {text64(b'user:' + value.encode())}",
}
"""Those in which a secret is recognised."""


def tells(text: str, *values: str) -> list[str]:
    """What a text tells of values, however one reads it, if it is more than a few characters."""
    readings = [text, unquote(unquote(text)), unquote_plus(text), html.unescape(text), text.replace("\\", "")]
    readings += [_decoded(text), _decoded(unquote(text))]
    found = []
    for value in values:
        most = min(8, len(value))
        pieces = (value[at : at + most] for at in range(len(value) - most + 1))
        found += [piece for piece in pieces if any(piece in one for one in readings)]
    return found


def _decoded(text: str) -> str:
    """All that could be base64 in a text."""
    return "\n".join(_all_decoded(re.sub(r"\s|\\+n", "", text).translate({45: 43, 95: 47})))


def _all_decoded(text: str) -> Iterator[str]:
    for run in re.findall(r"[A-Za-z0-9+/]{8,}", text):
        for first in range(4):
            whole = run[first : len(run) - (len(run) - first) % 4]
            yield base64.b64decode(whole).decode("utf-8", "replace")
