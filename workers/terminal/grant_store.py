"""Saved grants, as the command line writes and lists them: in a file of this host, or in a shared ledger.

With a shared ledger new grants are saved there, for every host. The grants in this host's file stay in effect here,
until they are moved (`share_grants`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.activities.policy.rules import Rule
from holdfast.activities.policy.saved_grants import SavedGrants, find_saved, remove_grant, save_grant
from holdfast.activities.policy.shared_grants import CHANGE_SECONDS, SharedGrants, open_shared_grants
from holdfast.config.settings import Settings
from holdfast.domain.approvals.grants import Grant
from holdfast.errors import BadInput
from holdfast.util.text import strip_controls
from holdfast.workers.terminal.grant_text import describe_saved_grant

UNREADABLE_TEXT = "its content cannot be read"


@dataclass(frozen=True)
class SavedGrantList:
    """The saved grants."""

    own: tuple[Rule, ...] = ()
    """Those of this host's file."""
    shared: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    """Why not all of them are in effect."""


@dataclass(frozen=True)
class GrantStore:
    """The file and the ledger of saved grants. Only a process that can write to them saves grants, no message can."""

    file: Path
    shared: SharedGrants | None = None

    async def save(self, grant: Grant) -> str:
        """Save a grant; its name."""
        if self.shared:
            return await self.shared.save(grant)
        return await asyncio.to_thread(save_grant, self.file, grant)

    def describe_place(self, name: str) -> str:
        """Where a grant was saved, and for which hosts."""
        if self.shared:
            place = strip_controls(self.shared.location)
            return f"Saved as {name} in the ledger {place}, for every host that shares it."
        return f"Saved as {name} in {strip_controls(str(self.file))}, for this host only."

    def place_as_json(self, name: str) -> dict[str, Any]:
        """The same for programs."""
        if self.shared:
            return {"id": name, "ledger": self.shared.location, "shared": True}
        return {"id": name, "file": str(self.file), "shared": False}

    async def remove(self, name: str) -> str:
        """Remove a saved grant; returns what it covered. BadInput when no grant has this name."""
        own = find_saved(self.file, name) is not None or self.shared is None
        covered = [describe_saved_grant(await asyncio.to_thread(remove_grant, self.file, name))] if own else []
        if self.shared:
            try:
                rule = await self.shared.remove(name)
                covered.append(describe_saved_grant(rule) if rule else UNREADABLE_TEXT)
            except BadInput:
                if not covered:
                    raise
        return covered[0]

    async def list_grants(self) -> SavedGrantList:
        """All saved grants."""
        own = SavedGrants(self.file)
        rules, problems = own.rules, [own.problem]
        if self.shared is None:
            return SavedGrantList(rules, problems=tuple(filter(None, problems)))
        await self.shared.refresh()
        return SavedGrantList(rules, self.shared.rules, tuple(filter(None, [*problems, self.shared.problem])))

    async def share_grants(self) -> list[str]:
        """Move the grants of this host's file to the shared ledger; their names. BadInput without a shared ledger."""
        if self.shared is None:
            raise BadInput("the settings have no shared ledger (`ledger`), so grants cannot be shared")
        own = SavedGrants(self.file)
        rules = own.rules
        if own.problem:
            raise BadInput(own.problem)
        await self.shared.reseal_all()
        names = []
        for rule in rules:
            await self.shared.add(rule)
            await asyncio.to_thread(remove_grant, self.file, rule.name or "")
            names.append(rule.name or "")
        return names


@asynccontextmanager
async def open_grant_store(settings: Settings) -> AsyncIterator[GrantStore]:
    """Open the store until the end of the block. BadInput when the settings of the ledger are invalid."""
    shared = open_shared_grants(settings, seconds=CHANGE_SECONDS)
    try:
        yield GrantStore(settings.grants_file, shared)
    finally:
        if shared:
            await shared.disconnect()
