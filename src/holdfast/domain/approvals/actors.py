"""Who decides: approvers with their keys and roles, and the actors that events name.

With a key configured for anybody, nothing unsigned counts. Names without keys give roles to those that a gateway
vouches for, or, where nobody has a key, to whoever says so.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.domain.base import Data, Message
from holdfast.domain.content import Text

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


ActorKind = Literal["person", "policy", "hook", "runtime"]


class Actor(Data):
    """Who decided about a call. `name` is a person's identity, a rule's or a hook's name, or what of the runtime."""

    kind: ActorKind
    name: Text

    def __str__(self) -> str:
        return self.name if self.kind == "person" else f"{self.kind}: {self.name}"
