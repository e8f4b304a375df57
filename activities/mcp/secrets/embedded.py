"""What of a value is secret by itself, where it is composed of several: an address with a password, `Password=…;`, a
document with a key in it. Pure.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

MIXED_LENGTH = 16
"""Characters, every tenth of them a digit, that are no word."""
LONG_LENGTH = 24
"""Letters and digits in a row that are no word."""
_SECRET_NAME = re.compile(
    r"(?i)auth|bearer|cookie|credential|dsn|key|pass|phrase|private|pwd|secret|session|signature|token|webhook"
    r"|(?:^|[_-])(?:pat|pin|pw|sas|sig)(?:$|[_-])"
)
_ASSIGNMENT = re.compile(r"([\w-]+)[\"']?\s*[=:](?!//)\s*[\"']?(?i:(?:bearer|token)\s+)?([^\s;&,\"'{}\[\]]+)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_USERINFO = re.compile(r"://([^\s:/?#@]*)(?::(?!\d+/)([^\s@]*))?@")
_BASIC = re.compile(r"(?i)\bbasic\s+([A-Za-z0-9+/_-]+)=*")


def is_secret_name(name: str) -> bool:
    """Does a name say that it is one of something secret?"""
    return _SECRET_NAME.search(name) is not None


def is_random_looking(word: str) -> bool:
    """Does it look as if nobody had thought of it, as a key does?"""
    return _is_random(word, MIXED_LENGTH)


def is_address(value: str) -> bool:
    """Is it an address, and is there nothing in it that nobody could guess?"""
    if not _ADDRESS.fullmatch(value) or not {"@", "?", "#"}.isdisjoint(value):
        return False
    return not any(_is_random(one, MIXED_LENGTH // 2) for one in _split_path(value))


def find_secret_parts(value: str) -> Iterator[str]:
    """What of it is secret by itself."""
    yield from find_address_secrets(value)
    document = _parse_document(value)
    yield from _list_secret_leaves(document)
    for name, one in _ASSIGNMENT.findall(value) if document is None else ():
        if is_secret_name(name):
            yield unquote(one)


def find_address_secrets(value: str) -> Iterator[str]:
    """Of each address: its password, or its user where that is all there is; what of its path nobody could guess."""
    for address in _ADDRESS.findall(value):
        if found := _USERINFO.search(address):
            user, password = found[1], found[2]
            if password is None or password != user:
                yield unquote(user if password is None else password)
        yield from (unquote(one) for one in _split_path(address) if _is_random(one, MIXED_LENGTH))


def find_basic_password(text: str) -> Iterator[str]:
    """The password in what HTTP calls basic authorization."""
    for digits in _BASIC.findall(text):
        try:
            data = urlsafe_b64decode(digits.translate({ord("+"): "-", ord("/"): "_"}) + "=" * (-len(digits) % 4))
            yield data.decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            continue


def _split_path(address: str) -> list[str]:
    try:
        return urlsplit(address).path.split("/")
    except ValueError:
        return []


def _is_random(word: str, shortest: int) -> bool:
    digits = sum(map(str.isdigit, word))
    mixed = not word.isdigit() and digits * 10 >= len(word) >= shortest
    return mixed or any(len(one) >= LONG_LENGTH for one in re.split(r"[^A-Za-z0-9]+", word))


def _parse_document(value: str) -> Any:
    """What it says as JSON, if it is an object or an array."""
    try:
        return json.loads(value) if value.startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def _list_secret_leaves(value: Any, *, secret: bool = False) -> Iterator[str]:
    """The texts in a document that are called secret."""
    if isinstance(value, str) and secret:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _list_secret_leaves(item, secret=secret)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _list_secret_leaves(item, secret=secret or is_secret_name(name))
