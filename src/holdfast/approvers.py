"""Approvers: the people whose word counts, by name, with the key that signs it and the roles they hold (S22).

With a key configured for anybody, nothing unsigned counts. Names without keys give roles to those that a gateway
vouches for, or, where nobody has a key, to whoever says so.
"""

from __future__ import annotations

from pydantic import Field

from holdfast.model import Message

ANYONE = "*"
"""The name of the approver that the key of a data folder belongs to. Nobody in a settings file can be called this."""


class Approver(Message):
    """Somebody who may decide."""

    name: str = Field(min_length=1, max_length=200)
    key: str | None = Field(default=None, max_length=200)
    """Ed25519, the public half: `ed25519:` and 32 bytes in base64."""
    roles: tuple[str, ...] = ()
    vouches: bool = False
    """Its key signs what others say: the decision's `by` is then whom it vouches for. For a gateway."""

    @property
    def is_for_anyone(self) -> bool:
        """Does it vouch in any name, listed or not? Only the key of a data folder does (see `owner_key`)."""
        return self.name == ANYONE
