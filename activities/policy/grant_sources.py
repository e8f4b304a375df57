"""The saved grants of a worker: those in the file of its host, and those in the ledger that hosts share."""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.rules import Rule, RuleEffect
from holdfast.activities.policy.saved_grants import SavedGrants, load_saved
from holdfast.activities.policy.shared_grants import SharedGrants, open_shared_grants
from holdfast.activities.policy.subject import Subject
from holdfast.config.settings import Settings
from holdfast.config.toml_document import format_problems
from holdfast.payloads.keyring import Keyring
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning
from holdfast.util.text import shorten_text

CHECK_SECONDS = 5.0
"""The time that a check waits for the database."""


class AllGrants:
    """The grants in the file of this host, and those that hosts share. A refusal of either comes first."""

    def __init__(self, own: SavedGrants, shared: SharedGrants) -> None:
        self.own = own
        self.shared = shared

    @property
    def may_miss_refusals(self) -> bool:
        """See `GrantSource`."""
        return self.own.may_miss_refusals or self.shared.may_miss_refusals

    @property
    def note(self) -> str | None:
        """See `GrantSource`."""
        return self.shared.note

    async def refresh(self) -> None:
        """See `GrantSource`."""
        await self.shared.refresh()

    async def disconnect(self) -> None:
        """Close the connection; the next use connects again."""
        await self.shared.disconnect()

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """See `GrantSource`."""
        found = [rule for one in (self.own, self.shared) if (rule := one.find_covering(call, now))]
        return min(found, key=lambda rule: rule.decision is not RuleEffect.DENY, default=None)


def open_saved_grants(settings: Settings, keyring: Keyring | None = None) -> SavedGrants | AllGrants:
    """All saved grants of a worker. BadInput as for `open_database`."""
    own, shared = SavedGrants(settings.grants_file), open_shared_grants(settings, keyring)
    return AllGrants(own, shared) if shared else own


async def check_saved_grants(settings: Settings) -> list[Finding]:
    """Check the saved grants of this host and those that hosts share. BadInput as for `open_database`."""
    saved = await asyncio.to_thread(load_saved, settings.grants_file)
    if saved.problems:
        do = "correct it, or move it away: no grant in it counts"
        return [report_problem(format_problems(settings.grants_file, saved.problems), do)]
    own, shared = len(saved.entries), open_shared_grants(settings, seconds=CHECK_SECONDS)
    if shared is None:
        return [report_ok(f"{own} saved grants count on this host")]
    await shared.refresh()
    await shared.disconnect()
    if shared.problem:
        says = f"saved grants in the shared ledger cannot be read: {shorten_text(shared.problem, 500)}"
        return [report_problem(says, "see to it: until then they allow nothing, and calls are asked about")]
    found = [report_ok(f"{len(shared.rules)} saved grants count on every host that shares the ledger")]
    do = "holdfast grants share"
    return found + ([report_warning(f"{own} in {settings.grants_file} count on this host only", do)] if own else [])
