"""The interface of every ledger, its records and its two errors.

An effect is one execution of a call that must run once. A ledger has bounded waits and answers from its database alone:
when that cannot be used, LedgerUnavailable is raised, and the call must not run.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal, Protocol

from pydantic import Field

from holdfast.domain.base import Data
from holdfast.errors import HoldfastError
from holdfast.util.text import shorten_text

NAME_LIMIT = 1_000
"""Characters of the names of a host and a tool, which are for people only."""

Id = Annotated[str, Field(min_length=1, max_length=2_000)]


class EffectKey(Data):
    """Identifies an effect: the run of a call of a turn, with these arguments."""

    turn: Id
    call: Id
    digest: Id
    """The digest of the approval, over tool, definition and arguments."""
    run: int = Field(default=1, ge=1, le=1_000_000)
    """Incremented when a person decides to run the call again, and when it resumes with an answer."""
    approval: str = Field(default="", max_length=200)
    """The decisions that approved it; empty without one. Another approval is another effect."""

    def __str__(self) -> str:
        return f"{self.turn}/{self.call}, run {self.run}"

    @property
    def id(self) -> str:
        """The primary key in a database: a hash over all fields."""
        parts = [self.turn, self.call, self.digest, self.run, *([self.approval] if self.approval else [])]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class LedgerEntry(Data):
    """The record of one effect."""

    key: EffectKey
    tool: str
    host: str
    """The host on which it was to run."""
    started_at: datetime
    """The time of the intent."""
    ended_at: datetime | None = None
    """The time of the result."""
    result: str | None = None
    """The outcome, as JSON."""

    @property
    def state(self) -> Literal["intended", "done"]:
        """`intended`: it may have taken effect. `done`: it has a result."""
        return "intended" if self.result is None else "done"


class Spending(Data):
    """A decision of a person, and the one execution that it approves."""

    decision: Id
    """The digest of the decision."""
    execution: Id
    """The run id of the turn's workflow, the call, and the number of its run."""
    expires: datetime | None = None
    """The expiry of the decision; the record is not needed afterwards."""
    spent_at: datetime | None = None


def encode_intent(key: EffectKey, *, host: str, tool: str) -> str:
    """The stored form of an intent. In ASCII: names come from models and servers, and a database rejects some texts."""
    names = {"tool": shorten_text(tool, NAME_LIMIT), "host": shorten_text(host, NAME_LIMIT)}
    return json.dumps({**key.model_dump(), **names})


def read_entry(intent: str, started_at: datetime, ended_at: datetime | None, result: str | None) -> LedgerEntry:
    """The entry in these stored fields. ValueError when they are damaged."""
    fields = json.loads(intent)
    if not isinstance(fields, dict) or (ended_at is None) != (result is None):
        raise ValueError("not an entry")
    body = {"key": fields, "tool": fields.get("tool"), "host": fields.get("host"), "started_at": started_at}
    return LedgerEntry.model_validate({**body, "ended_at": ended_at, "result": result})


RESULT_LIMIT = 4 * 1024 * 1024
"""Bytes of one result; the caller shortens a larger one."""
INTENT_FACTOR = 10
"""An intent without a result is kept this many times longer: its outcome is still open."""
LONGEST_AGE = timedelta(days=3_650)
"""The highest age for a sweep."""

logger = logging.getLogger(__name__)


class LedgerUnavailable(HoldfastError):
    """The ledger cannot be read or written now. The message says why and what to do."""


class LedgerRefused(HoldfastError):
    """The ledger works and rejects this: a result that is too large or no text, or one without an intent."""


class Ledger(Protocol):
    """A durable record of effects. Every method may raise LedgerUnavailable."""

    @property
    def is_shared(self) -> bool:
        """Do workers on all hosts share the entries? Then a missing entry means that no worker has begun the call."""

    async def check(self) -> None:
        """Connect to the database, so that a worker finds errors when it starts."""

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """Find the entry of an effect; None when no attempt has begun it."""

    async def record_intent(self, key: EffectKey, *, host: str, tool: str) -> LedgerEntry | None:
        """Commit that the effect is about to begin; None when the caller may begin it, else the entry of the attempt
        that was first. Of any number of callers, exactly one gets None.
        """

    async def record_result(self, key: EffectKey, result: str) -> None:
        """Commit the result, as JSON. The first one stands; a second call changes nothing.

        LedgerRefused for a result over the limit, and for an effect without an intent.
        """

    async def record_spendings(self, spendings: Sequence[Spending]) -> Spending | None:
        """Commit which execution these decisions approve; None when all are recorded, now or by an earlier attempt.

        Else the record of a decision that approved another execution; nothing was added then.
        """

    async def sweep(self, older_than: timedelta) -> int:
        """Delete entries that ended longer ago than that, or began ten times longer ago; their number.

        A spent decision is deleted when it expired that long ago; one without expiry never is.
        """

    async def disconnect(self) -> None:
        """Close idle connections. The next call connects again."""

    async def close(self) -> None:
        """Close the ledger; LedgerUnavailable for every later call. A second close does nothing."""


def check_result(result: str) -> None:
    """LedgerRefused for a result that is too large or cannot be stored."""
    try:
        size = len(result.encode())
    except UnicodeEncodeError:
        raise LedgerRefused("the result is not text that can be stored: it holds half a character") from None
    if "\0" in result:
        raise LedgerRefused("the result is not JSON: it holds a NUL character")
    if size > RESULT_LIMIT:
        raise LedgerRefused(f"the result takes {size:,} bytes, and the ledger keeps {RESULT_LIMIT:,}: cut it first")


def check_recorded(key: EffectKey, recorded: str | None, result: str) -> None:
    """Handle a result that was not written: LedgerRefused without an intent (None), else a warning if they differ."""
    if recorded is None:
        raise LedgerRefused(f"no intent is recorded for {str(key)!r}, so its result is not: intend it first")
    if recorded != result:
        logger.warning("The ledger keeps the first result of %s; a different one was not written", key)


def check_age(older_than: timedelta) -> None:
    """ValueError for an age outside of (0, LONGEST_AGE]."""
    if not timedelta(0) < older_than <= LONGEST_AGE:
        raise ValueError(f"entries are swept by an age of up to {LONGEST_AGE.days:,} days, not {older_than}")
