"""Encryption with AES-256-GCM: a payload codec for all that Temporal carries, and sealed text in databases (S45).

A payload is encrypted whole, with its own metadata, under a fresh nonce; the id of the key stands beside it and is
authenticated. The codec runs before external storage, so stored payloads are encrypted too.

Temporal retries a workflow task without end when a codec raises, and anybody who may write to the namespace can send
any payload. So a payload that cannot be decrypted becomes an `unreadable` placeholder, like one whose file is missing:
a forged signal is dropped, a forged update refused, and a turn whose own input cannot be decrypted retries until it
can. Only a key of ours that this process lacks fails the task at once, whatever message it came in: a worker with an
old configuration must not drop what others can read. A payload is known to be ours by a mark, which only a holder of
another of our keys can make.

Why: docs/decisions/0018-encryption.md.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.errors import BadInput, KeyMissing
from holdfast.payloads.file_store import MISSING
from holdfast.payloads.keyring import Key, Keyring
from holdfast.util.text import shorten_text

ENCRYPTED = b"binary/encrypted"
LOCKED = b"holdfast/locked"
"""The encoding of the placeholder for a payload that cannot be decrypted; its data is the reason."""
CIPHER = b"AES-256-GCM"
KEY_ID = "encryption-key-id"
VOUCHED = "encryption-vouched"
LARGE = 1_000_000
"""Bytes above which a payload is encrypted in a thread, so that the event loop stays free."""
SEALED = "holdfast-sealed-1:"
"""The prefix of every sealed text."""
_NONCE = 12
_TAG = 16
_MARK = 16
_PAYLOAD_LABEL = b"holdfast payload 1"
_ROW_LABEL = b"holdfast row 1"

logger = logging.getLogger(__name__)


class EncryptingCodec(PayloadCodec):
    """Encrypts with the first key of a ring, decrypts with all of them. Without keys, payloads pass unchanged."""

    def __init__(self, keyring: Keyring) -> None:
        self._active = keyring.active_key
        self._keys = {key.id: AESGCM(key.secret) for key in keyring.keys}
        self._mark_secrets = [_derive_mark_secret(key) for key in keyring.keys]
        self._retired = keyring.retired
        self._refuses_plain = keyring.refuses_plain and bool(keyring.keys)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads, encrypted."""
        key = self._active
        if key is None:
            return list(payloads)
        return [await _run_in_thread(payload, lambda one: self._encrypt(one, key)) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads, decrypted, or placeholders. Raises KeyMissing for a key of ours that is not here."""
        return [await _run_in_thread(payload, self._decrypt) for payload in payloads]

    def _encrypt(self, payload: Payload, key: Key) -> Payload:
        nonce = os.urandom(_NONCE)
        label = _build_associated_data(_PAYLOAD_LABEL, key.id)
        data = nonce + self._keys[key.id].encrypt(nonce, payload.SerializeToString(), label)
        marks = b"".join(_compute_mark(secret, key.id, data) for secret in self._mark_secrets[1:])
        metadata = {"encoding": ENCRYPTED, "encryption-cipher": CIPHER, KEY_ID: key.id.encode()}
        return Payload(metadata={**metadata, VOUCHED: marks} if marks else metadata, data=data)

    def _decrypt(self, payload: Payload) -> Payload:
        encoding = payload.metadata.get("encoding")
        if encoding == MISSING:
            return payload
        if encoding != ENCRYPTED:
            reason = "it is not encrypted, and the settings refuse that"
            return _build_locked(reason) if self._refuses_plain else payload
        name = find_key_id(payload) or ""
        cipher = self._keys.get(name)
        if cipher is None:
            return self._build_without_key(payload, name)
        nonce, sealed = payload.data[:_NONCE], payload.data[_NONCE:]
        if len(sealed) < _TAG:
            return _build_locked(f"it was encrypted with the key {_format_name(name)}, and is truncated")
        try:
            return Payload.FromString(cipher.decrypt(nonce, sealed, _build_associated_data(_PAYLOAD_LABEL, name)))
        except (InvalidTag, DecodeError):
            return _build_locked(
                f"it cannot be decrypted with the key {_format_name(name)}: it was changed, or that key was another"
            )

    def _build_without_key(self, payload: Payload, name: str) -> Payload:
        """A placeholder; KeyMissing when one of our keys has made a mark on the payload."""
        advice = _HAS_KEYS if self._keys else _HAS_NO_KEYS
        reason = f"it is encrypted with the key {_format_name(name)}, which this process does not have: {advice}"
        marks = b"" if name in self._retired else payload.metadata.get(VOUCHED, b"")
        places = range(0, min(len(marks), 100 * _MARK), _MARK)
        ours = [_compute_mark(secret, name, payload.data) for secret in self._mark_secrets] if marks else []
        if any(hmac.compare_digest(marks[place : place + _MARK], mark) for place in places for mark in ours):
            logger.error("A payload cannot be read: %s", reason)
            raise KeyMissing(reason)
        return _build_locked(reason)


class Seals:
    """Encrypts text for a shared database with the first key of a ring, and decrypts it with all of them.

    A sealed text is bound to the name of its row: copied to another row it cannot be opened. Restoring an old value of
    the same row is not detected. Without keys, text stays unchanged.
    """

    def __init__(self, keyring: Keyring) -> None:
        self._active = keyring.active_key
        self._keys = {key.id: AESGCM(key.secret) for key in keyring.keys}
        self._refuses_plain = keyring.refuses_plain and bool(keyring.keys)

    def seal(self, text: str, about: str) -> str:
        """Encrypt a text. `open` needs the same `about`."""
        key = self._active
        if key is None:
            return text
        nonce = os.urandom(_NONCE)
        data = nonce + self._keys[key.id].encrypt(nonce, text.encode(), _build_row_data(key.id, about))
        return f"{SEALED}{key.id}:{base64.b64encode(data).decode()}"

    def is_current(self, sealed: str) -> bool:
        """Is the text sealed with the present key, or plain if there is none?"""
        key = self._active
        return not sealed.startswith(SEALED) if key is None else sealed.startswith(f"{SEALED}{key.id}:")

    def open(self, sealed: str, about: str) -> str:
        """Decrypt a sealed text. BadInput with the reason when that is not possible."""
        if not sealed.startswith(SEALED):
            if self._refuses_plain:
                raise BadInput("it is not encrypted, and the settings refuse that")
            return sealed
        name, _, data = sealed.removeprefix(SEALED).rpartition(":")
        cipher, shown = self._keys.get(name), _format_name(name)
        if cipher is None:
            raise BadInput(f"it is encrypted with the key {shown}, which this process does not have")
        try:
            encrypted = base64.b64decode(data, validate=True)
            return cipher.decrypt(encrypted[:_NONCE], encrypted[_NONCE:], _build_row_data(name, about)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise BadInput(f"it cannot be decrypted with the key {shown}: it was changed, or moved") from None


def find_key_id(payload: Payload) -> str | None:
    """The id of the key that a payload is encrypted with; None when it is not encrypted."""
    if payload.metadata.get("encoding") != ENCRYPTED:
        return None
    return payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")


_HAS_KEYS = "add it to [encryption] in the settings of this process (`holdfast encryption check` lists what it has)"
_HAS_NO_KEYS = (
    "no keys are in effect here. Name the settings file that has [encryption] with --config, or trust the one in "
    "this folder (`holdfast encryption check` lists what is in effect)"
)


async def _run_in_thread(payload: Payload, work: Callable[[Payload], Payload]) -> Payload:
    return await asyncio.to_thread(work, payload) if len(payload.data) > LARGE else work(payload)


def _derive_mark_secret(key: Key) -> bytes:
    """The secret for the marks of a key: the key itself is used for encryption only."""
    return HKDFExpand(hashes.SHA256(), length=32, info=b"holdfast mark 1").derive(key.secret)


def _compute_mark(secret: bytes, name: str, data: bytes) -> bytes:
    """The mark by which the holder of one key confirms that a payload of another key is ours."""
    about = name.encode("utf-8", "replace") + b"\0" + hashlib.sha256(data).digest()
    return hmac.digest(secret, about, hashlib.sha256)[:_MARK]


def _build_associated_data(label: bytes, name: str) -> bytes:
    return b"\0".join((label, CIPHER, name.encode("utf-8", "replace")))


def _build_row_data(name: str, about: str) -> bytes:
    return b"\0".join((_build_associated_data(_ROW_LABEL, name), about.encode()))


def _build_locked(reason: str) -> Payload:
    logger.warning("A payload cannot be read: %s", reason)
    return Payload(metadata={"encoding": LOCKED}, data=reason.encode())


def _format_name(name: str) -> str:
    return repr(shorten_text(name, 40)) if name.isprintable() else "(an unprintable name)"
