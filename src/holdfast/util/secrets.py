"""Removes secrets from what servers, providers and drivers say (S45).

A secret is a named value: `[NAME]` takes its place wherever it occurs as it is, escaped as in JSON, percent-encoded as
in a URL, or in base64, alone or as a part of something longer. Other encodings are not recognised: a server that wants
to disclose a value can always find one. Text is redacted before it is cut, since a part of a secret is not recognised.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

UNCUT = sys.maxsize
"""The limit for a text that is redacted and cut afterwards."""
ADDED_LIMIT = 20
"""The number of added secrets that are remembered, the newest: tokens are renewed again and again."""
SHORTEST_TOKEN = 8
SHORTEST_ENCODED = 6
"""Characters of an encoded secret that is looked for: a shorter one would be found in other words."""
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_URLSAFE = str.maketrans("+/", "-_")


class Secret(NamedTuple):
    """A value that is removed, and the name that takes its place."""

    name: str
    value: str


class _Spelling(NamedTuple):
    """One encoding of a secret."""

    text: str
    name: str


class Secrets:
    """The secrets of one server."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._given = tuple(secrets)
        self._added: tuple[Secret, ...] = ()
        self._spellings = _list_spellings(self._given)

    def add(self, secrets: Iterable[Secret]) -> None:
        """Add secrets that were not known before: the tokens of a login. The last 20 are remembered."""
        known = {secret.value for secret in (*self._given, *self._added)}
        new = tuple(one for one in secrets if len(one.value) >= SHORTEST_TOKEN and one.value not in known)
        if new:
            self._added = (*self._added, *new)[-ADDED_LIMIT:]
            self._spellings = _list_spellings((*self._given, *self._added))

    def hide(self, text: str) -> str:
        """Return the text with names in the place of secrets."""
        return _replace_spellings(text, self._spellings)

    def hide_value(self, value: JsonValue) -> JsonValue:
        """Return the value with names in the place of secrets, in every text, number and key of it."""
        if not self._spellings:
            return value
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (ValueError, RecursionError):  # an integer of over 4,300 digits
            return _replace_in_value(value, self._spellings)
        found = [one for one in self._spellings if json.dumps(one.text, ensure_ascii=False)[1:-1] in text]
        return _replace_in_value(value, found) if found else value

    def hide_bytes(self, data: bytes) -> bytes:
        """Return the bytes with names in the place of secrets."""
        for spelling in self._spellings:
            data = data.replace(spelling.text.encode("utf-8", "surrogateescape"), f"[{spelling.name}]".encode())
        return data


def _replace_spellings(text: str, spellings: Sequence[_Spelling]) -> str:
    for spelling in spellings:
        if spelling.text in text:
            text = text.replace(spelling.text, f"[{spelling.name}]")
    return text


def _replace_in_value(value: JsonValue, spellings: Sequence[_Spelling]) -> JsonValue:
    if isinstance(value, str):
        return _replace_spellings(value, spellings)
    if isinstance(value, list):
        return [_replace_in_value(item, spellings) for item in value]
    if isinstance(value, dict):
        return {_replace_spellings(key, spellings): _replace_in_value(item, spellings) for key, item in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return next((f"[{one.name}]" for one in spellings if _equals_number(one.text, value)), value)
    return value


def _equals_number(text: str, value: float) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 100 and int(text) == value


def _list_spellings(secrets: Iterable[Secret]) -> list[_Spelling]:
    """Every encoding of every secret once, the longest first, so that none is replaced within a longer one."""
    found: dict[str, _Spelling] = {}
    for secret in secrets:
        value = secret.value.strip()
        for text in _spell_value(value):
            if text == value or len(text) >= SHORTEST_ENCODED:
                found.setdefault(text, _Spelling(text, secret.name))
    found.pop("", None)
    return sorted(found.values(), key=lambda spelling: len(spelling.text), reverse=True)


def _spell_value(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for safe in ("", "/"):
        quoted = quote(value, safe=safe, errors="surrogateescape")
        yield quoted
        yield _PERCENT.sub(lambda found: found[0].lower(), quoted)
    yield quote_plus(value, errors="surrogateescape")
    for digits in _encode_base64(value.encode("utf-8", "surrogateescape")):
        yield digits
        yield digits.translate(_URLSAFE)


def _encode_base64(data: bytes) -> Iterator[str]:
    """The digits that stand for these bytes alone, in each of the three positions that they can have in base64."""
    for shift, first in enumerate((0, 2, 3)):
        whole_digits = 8 * (shift + len(data)) // 6
        yield b64encode(bytes(shift) + data).decode()[first:whole_digits]
