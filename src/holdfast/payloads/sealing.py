"""Text that is kept in a database of somebody else's: encrypted with the keys of the settings, where there are any.

AES-256-GCM under a fresh nonce. The id of the key stands beside the text, and is authenticated together with what the
text is about: a row that is copied to another name is not what was written there. What was kept before cannot be told
from what is kept now: whoever may write the database can put back an old row.
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import BadInput
from holdfast.payloads.keyring import Keyring
from holdfast.util.text import shorten_text

SEALED = "holdfast-sealed-1:"
"""What everything that is encrypted begins with."""
_NONCE = 12


class Seals:
    """Writes with the first key of a ring, reads with all of them. Without keys it writes what it is given."""

    def __init__(self, keyring: Keyring) -> None:
        self._ring = keyring
        self._keys = {key.id: AESGCM(key.secret) for key in keyring.keys}

    @property
    def closed(self) -> bool:
        """Is what is kept encrypted?"""
        return self._ring.active_key is not None

    def seal(self, text: str, about: str) -> str:
        """The text as it is kept; `about` is what it has to be opened as."""
        key = self._ring.active_key
        if key is None:
            return text
        nonce = os.urandom(_NONCE)
        data = nonce + self._keys[key.id].encrypt(nonce, text.encode(), _authenticated(key.id, about))
        return f"{SEALED}{key.id}:{base64.b64encode(data).decode()}"

    def is_current(self, kept: str) -> bool:
        """Is it as it would be written today?"""
        key = self._ring.active_key
        return not kept.startswith(SEALED) if key is None else kept.startswith(f"{SEALED}{key.id}:")

    def open(self, kept: str, about: str) -> str:
        """The text. BadInput with the reason when it cannot be had."""
        if not kept.startswith(SEALED):
            if self._ring.refuses_plain and self._ring.keys:
                raise BadInput("it is not encrypted, and the settings refuse that")
            return kept
        name, _, data = kept.removeprefix(SEALED).rpartition(":")
        cipher = self._keys.get(name)
        shown = repr(shorten_text(name, 40)) if name.isprintable() else "of no name that shows"
        if cipher is None:
            raise BadInput(f"it is encrypted with the key {shown}, which this process does not have")
        try:
            sealed = base64.b64decode(data, validate=True)
            return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _authenticated(name, about)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise BadInput(f"it is not what the key {shown} encrypted here: it was changed, or moved") from None


def _authenticated(key: str, about: str) -> bytes:
    return b"\0".join((b"holdfast row 1", b"AES-256-GCM", key.encode("utf-8", "replace"), about.encode()))
