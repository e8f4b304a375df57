"""A worker's ledger whose process dies around it where that is planned; else it is the one in the file.

Where no small disk can be had, it is also the disk: full as long as a file says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from holdfast.activities.ledger.ledger import EffectKey, LedgerEntry, LedgerUnavailable, Spending
from holdfast.activities.ledger.sqlite import SqliteLedger
from tests.chaos.harness.deaths import Deaths
from tests.chaos.harness.plan import Point


def full_mark(folder: Path) -> Path:
    """The file that says that the disk of a ledger is full, where none can be filled."""
    return folder / "full"


class DeadlyLedger:
    """The ledger of one worker."""

    def __init__(self, folder: Path, deaths: Deaths) -> None:
        self._inner = SqliteLedger(folder / "ledger.db")
        self._full = full_mark(folder)
        self._deaths = deaths

    @property
    def is_shared(self) -> bool:
        """As the file is."""
        return self._inner.is_shared

    async def check(self) -> None:
        """Open the file."""
        await self._inner.check()

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """What is known of an effect."""
        return await self._inner.find(key)

    async def record_intent(self, key: EffectKey, *, host: str, tool: str) -> LedgerEntry | None:
        """Record an intent; a worker may die before, and after when it is its own."""
        self._deaths.come_to(_label(key), Point.BEFORE_INTENT)
        self._check_room()
        entry = await self._inner.record_intent(key, host=host, tool=tool)
        if entry is None:
            self._deaths.come_to(_label(key), Point.AFTER_INTENT)
        return entry

    async def record_result(self, key: EffectKey, result: str) -> None:
        """Record a result; a worker may die before."""
        self._deaths.come_to(_label(key), Point.AFTER_EFFECT)
        self._check_room()
        await self._inner.record_result(key, result)

    async def record_spendings(self, spendings: Sequence[Spending]) -> Spending | None:
        """Record which execution decisions let run."""
        self._check_room()
        return await self._inner.record_spendings(spendings)

    async def sweep(self, older_than: timedelta) -> int:
        """Forget what is old."""
        return await self._inner.sweep(older_than)

    async def disconnect(self) -> None:
        """As the other one."""
        await self._inner.disconnect()

    async def close(self) -> None:
        """Close the file."""
        await self._inner.close()

    def _check_room(self) -> None:
        if self._full.exists():
            raise LedgerUnavailable("the ledger cannot be used: its disk is full, or is said to be")


def _label(key: EffectKey) -> str:
    return f"{key.turn}-{key.call}"
