"""What every ledger can do, and the two ways in which it says no.

A ledger never waits without end, and never answers from anywhere but its database: when that cannot be had, the call
must not run, and `LedgerUnavailable` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.activities.ledger.entry import EffectKey, LedgerEntry, Spending
from holdfast.errors import HoldfastError

RESULT_LIMIT = 4 * 1024 * 1024
"""Bytes of one result. Whoever has a larger one cuts it first: only they know what may be left out."""
INTENT_FACTOR = 10
"""An intent without a result is a question that is still open, so it is kept this many times longer."""
LONGEST_AGE = timedelta(days=3_650)
"""The highest age to sweep by."""

logger = logging.getLogger(__name__)


class LedgerUnavailable(HoldfastError):
    """The ledger cannot be read or written now. The message says why, and what to do about it."""


class LedgerRefused(HoldfastError):
    """The ledger works, and does not take this: a result that is too large or no text, or one of no intent."""


class Ledger(Protocol):
    """A durable record of effects. Every method raises LedgerUnavailable when the database cannot be used."""

    @property
    def is_shared(self) -> bool:
        """Do workers on all hosts see the same entries? Then no entry means that nobody anywhere began."""

    async def check(self) -> None:
        """Open it if it is not open, so that a worker can tell at its start what is wrong."""

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """What is known of an effect."""

    async def record_intent(self, key: EffectKey, *, host: str, tool: str) -> LedgerEntry | None:
        """Record that the effect is about to begin. None: it is recorded, on disk, and yours alone to begin.

        Otherwise somebody was first, and this is their entry. Of any number of callers exactly one gets None.
        """

    async def record_result(self, key: EffectKey, result: str) -> None:
        """Record what became of it, as JSON. The first result stands: a second one changes nothing.

        LedgerRefused for a result over the limit, and for an effect that nobody intended.
        """

    async def record_spendings(self, spendings: Sequence[Spending]) -> Spending | None:
        """Record which execution these decisions let run. None: all are on disk, now or since an earlier attempt.

        Otherwise one of them has let another execution run: this is that record, and nothing was added.
        """

    async def sweep(self, older_than: timedelta) -> int:
        """Forget what ended longer ago than that, and what began ten times longer ago; how many those were.

        A decision that was spent is forgotten when it has expired as long ago. One that never expires never is.
        """

    async def disconnect(self) -> None:
        """Let go of connections that nobody uses now, until something is asked again."""

    async def close(self) -> None:
        """Let go of the database. Nothing can be asked afterwards."""


def check_result(result: str) -> None:
    """LedgerRefused for what no ledger keeps."""
    try:
        size = len(result.encode())
    except UnicodeEncodeError:
        raise LedgerRefused("the result is not text that can be stored: it holds half a character") from None
    if "\0" in result:
        raise LedgerRefused("the result is not JSON: it holds a NUL character")
    if size > RESULT_LIMIT:
        raise LedgerRefused(f"the result takes {size:,} bytes, and the ledger keeps {RESULT_LIMIT:,}: cut it first")


def check_kept(key: EffectKey, kept: str | None, result: str) -> None:
    """After a result was not written because an earlier one stands, or because there is no entry (None)."""
    if kept is None:
        raise LedgerRefused(f"no intent is recorded for {str(key)!r}, so its result is not: intend it first")
    if kept != result:
        logger.warning("The ledger keeps the first result of %s; a different one was not written", key)


def check_age(older_than: timedelta) -> None:
    """ValueError for an age that would forget what still matters, or that no calendar has."""
    if not timedelta(0) < older_than <= LONGEST_AGE:
        raise ValueError(f"entries are swept by an age of up to {LONGEST_AGE.days:,} days, not {older_than}")
