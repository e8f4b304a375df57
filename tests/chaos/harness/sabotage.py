"""Faults that the harness makes itself, to see whether it finds them: an effect doubled, one lost, one that hangs."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field

from holdfast.domain.base import Data

How = Literal["doubled", "lost", "hung"]


class Sabotage(Data):
    """What is to go wrong, by the label of the call."""

    calls: dict[str, How] = Field(default_factory=dict)

    async def times(self, label: str) -> int:
        """How often a call has its effect."""
        match self.calls.get(label):
            case "doubled":
                return 2
            case "lost":
                return 0
            case "hung":
                await asyncio.Event().wait()
        return 1
