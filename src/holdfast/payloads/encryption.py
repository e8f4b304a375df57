"""Encrypting all that Temporal carries: a payload codec with AES-256-GCM (S45).

A payload is encrypted whole, with its own metadata, under a fresh nonce; the id of the key stands beside it, and is
authenticated with it. The codec runs before external storage, so what lies there is encrypted too.

Temporal retries a workflow task for ever that a codec fails, and anybody who may write to the namespace can send
anything. So what cannot be opened becomes a payload that nobody can read, as a missing file does: a forged signal is
dropped, a forged update refused, while a turn whose own input cannot be opened is tried again until it can. Only a
key of ours that this process lacks fails the task at once, whatever it came in: a worker that is behind with its keys
must not drop what others take. That it is ours is known by a mark that only a holder of another of our keys can make.

Why: docs/decisions/0018-encryption.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.errors import KeyMissing
from holdfast.payloads.file_store import MISSING
from holdfast.payloads.keyring import Key, Keyring
from holdfast.util.text import shorten_text

ENCRYPTED = b"binary/encrypted"
LOCKED = b"holdfast/locked"
"""The encoding of a payload in the place of one that cannot be opened; its data says why."""
CIPHER = b"AES-256-GCM"
KEY_ID = "encryption-key-id"
VOUCHED = "encryption-vouched"
LARGE = 1_000_000
"""Bytes that are worked on in a thread: the event loop has others to serve."""
_NONCE = 12
_TAG = 16
_MARK = 16
_LABEL = b"holdfast payload 1"

Work = Callable[[Payload], Payload]

logger = logging.getLogger(__name__)


class EncryptingCodec(PayloadCodec):
    """Writes with the first key of a ring, reads with all of them. Without keys it writes what it is given."""

    def __init__(self, keyring: Keyring) -> None:
        self._keys = {key.id: AESGCM(key.secret) for key in keyring.keys}
        self._marking = [_derive_mark_secret(key) for key in keyring.keys]
        self._ring = keyring
        self._refuses_plain = keyring.refuses_plain and bool(keyring.keys)
        self._metadata = _build_metadata(keyring)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt."""
        key = self._ring.active_key
        if key is None:
            return list(payloads)
        return [await _run_in_thread(payload, lambda one: self._encrypt(one, key)) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt. KeyMissing for what is written with a key of ours that is not here; nothing else is raised."""
        return [await _run_in_thread(payload, self._decrypt) for payload in payloads]

    def _encrypt(self, payload: Payload, key: Key) -> Payload:
        nonce = os.urandom(_NONCE)
        sealed = self._keys[key.id].encrypt(nonce, payload.SerializeToString(), _build_associated_data(key.id))
        data = nonce + sealed
        marks = b"".join(_compute_mark(secret, key.id, data) for secret in self._marking[1:])
        return Payload(metadata={**self._metadata, VOUCHED: marks} if marks else self._metadata, data=data)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == MISSING:
            return payload
        if payload.metadata.get("encoding") != ENCRYPTED:
            return (
                _build_locked("it is not encrypted, and the settings refuse that") if self._refuses_plain else payload
            )
        name = payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")
        cipher = self._keys.get(name)
        if cipher is None:
            return self._build_without_key(payload, name)
        nonce, sealed = payload.data[:_NONCE], payload.data[_NONCE:]
        if len(sealed) < _TAG:
            return _build_locked(f"it is not all of what the key {_format_name(name)} encrypted")
        try:
            return Payload.FromString(cipher.decrypt(nonce, sealed, _build_associated_data(name)))
        except (InvalidTag, DecodeError):
            return _build_locked(
                f"it is not what the key {_format_name(name)} encrypted: it was changed, or that key was another"
            )

    def _build_without_key(self, payload: Payload, name: str) -> Payload:
        named, keys = _format_name(name), _describe_keys(self._ring)
        what = f"it is encrypted with the key {named}, which this process does not have: {keys}"
        marks = b"" if name in self._ring.retired else payload.metadata.get(VOUCHED, b"")
        places = range(0, min(len(marks), 100 * _MARK), _MARK)
        ours = [_compute_mark(secret, name, payload.data) for secret in self._marking] if marks else []
        if any(hmac.compare_digest(marks[place : place + _MARK], mark) for place in places for mark in ours):
            logger.error("A payload cannot be read: %s", what)
            raise KeyMissing(what)
        return _build_locked(what)


async def _run_in_thread(payload: Payload, work: Work) -> Payload:
    return await asyncio.to_thread(work, payload) if len(payload.data) > LARGE else work(payload)


def find_key_id(payload: Payload) -> str | None:
    """The id of the key that a payload is encrypted with; None when it is not encrypted."""
    if payload.metadata.get("encoding") != ENCRYPTED:
        return None
    return payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")


def _build_metadata(ring: Keyring) -> Mapping[str, bytes]:
    if ring.active_key is None:
        return {}
    name = ring.active_key.id
    return {"encoding": ENCRYPTED, "encryption-cipher": CIPHER, KEY_ID: name.encode()}


def _derive_mark_secret(key: Key) -> bytes:
    """The secret that a key's marks are made with: what encrypts does nothing else."""
    return HKDFExpand(hashes.SHA256(), length=32, info=b"holdfast mark 1").derive(key.secret)


def _compute_mark(secret: bytes, name: str, data: bytes) -> bytes:
    """What a holder of one key says of what another encrypted: it is one of ours."""
    said = name.encode("utf-8", "replace") + b"\0" + hashlib.sha256(data).digest()
    return hmac.digest(secret, said, hashlib.sha256)[:_MARK]


def _build_associated_data(name: str) -> bytes:
    return b"\0".join((_LABEL, CIPHER, name.encode("utf-8", "replace")))


def _build_locked(why: str) -> Payload:
    logger.warning("A payload cannot be read: %s", why)
    return Payload(metadata={"encoding": LOCKED}, data=why.encode())


def _format_name(name: str) -> str:
    return repr(shorten_text(name, 40)) if name.isprintable() else "of no name that shows"


def _describe_keys(ring: Keyring) -> str:
    if ring.keys:
        return "add it to [encryption] in the settings of this process (`holdfast encryption check` tells what it has)"
    return (
        "no keys are in effect here. Name the settings file that has [encryption] with --config, or trust the one in "
        "this folder (`holdfast encryption check` tells what is in effect)"
    )
