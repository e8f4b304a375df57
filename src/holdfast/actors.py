"""Who decided: a person, the policy, a hook, or the runtime itself."""

from __future__ import annotations

from typing import Literal

from holdfast.content import Text
from holdfast.model import Data

ActorKind = Literal["person", "policy", "hook", "runtime"]


class Actor(Data):
    """Who decided about a call. `name` is a person's identity, a rule's or a hook's name, or what of the runtime."""

    kind: ActorKind
    name: Text

    def __str__(self) -> str:
        return self.name if self.kind == "person" else f"{self.kind}: {self.name}"
