"""Where answers are kept for good, as the command line writes and lists them: a file of this host, or a shared ledger.

With a shared ledger new answers go there, and count on every host. What stands in this host's file goes on counting
here, until it is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.activities.policy.rules import Rule
from holdfast.activities.policy.saved import SavedGrants, find_saved, remove, save
from holdfast.activities.policy.shared import CHANGE_SECONDS, SharedGrants, open_shared
from holdfast.content import plain
from holdfast.errors import BadInput
from holdfast.grants import Grant
from holdfast.settings import Settings
from holdfast.workers.answers import saved_covers

UNREADABLE = "what it said cannot be read"


@dataclass(frozen=True)
class Listed:
    """The answers that are kept."""

    own: tuple[Rule, ...] = ()
    """Those of this host's file."""
    shared: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    """Why not all of them count."""


@dataclass(frozen=True)
class Keeper:
    """Who may write here keeps answers for good; no message to a turn does."""

    file: Path
    shared: SharedGrants | None = None

    async def save(self, grant: Grant) -> str:
        """Keep an answer; its name."""
        if self.shared:
            return await self.shared.save(grant)
        return await asyncio.to_thread(save, self.file, grant)

    def saved(self, name: str) -> str:
        """Where an answer was kept, and for whom it counts."""
        if self.shared:
            return f"Saved for good as {name} in the ledger {plain(self.shared.place)}, for every host that shares it."
        return f"Saved for good as {name} in {plain(str(self.file))}, for this host only."

    def body(self, name: str) -> dict[str, Any]:
        """The same for programs."""
        if self.shared:
            return {"id": name, "ledger": self.shared.place, "shared": True}
        return {"id": name, "file": str(self.file), "shared": False}

    async def remove(self, name: str) -> str:
        """Take an answer out, wherever it is kept; what it covered. BadInput when there is none of this name."""
        own = find_saved(self.file, name) is not None or self.shared is None
        covered = [saved_covers(await asyncio.to_thread(remove, self.file, name))] if own else []
        if self.shared:
            try:
                rule = await self.shared.remove(name)
                covered.append(saved_covers(rule) if rule else UNREADABLE)
            except BadInput:
                if not covered:
                    raise
        return covered[0]

    async def listed(self) -> Listed:
        """All that is kept."""
        own = SavedGrants(self.file)
        rules, problems = own.rules, [own.problem]
        if self.shared is None:
            return Listed(rules, problems=tuple(filter(None, problems)))
        await self.shared.look()
        return Listed(rules, self.shared.rules, tuple(filter(None, [*problems, self.shared.problem])))

    async def share(self) -> list[str]:
        """Move the answers of this host's file into the shared ledger; their names. BadInput where there is none."""
        if self.shared is None:
            raise BadInput("the settings name no ledger that hosts share (`ledger`): there is nowhere to share answers")
        own = SavedGrants(self.file)
        rules = own.rules
        if own.problem:
            raise BadInput(own.problem)
        await self.shared.seal_anew()
        names = []
        for rule in rules:
            await self.shared.add(rule)
            await asyncio.to_thread(remove, self.file, rule.name or "")
            names.append(rule.name or "")
        return names


@asynccontextmanager
async def kept(settings: Settings) -> AsyncIterator[Keeper]:
    """Until the end of the block. BadInput when the settings cannot be followed."""
    shared = open_shared(settings, seconds=CHANGE_SECONDS)
    try:
        yield Keeper(settings.granted, shared)
    finally:
        if shared:
            await shared.rest()
