"""What the ledger records of a call that must run once: its intent, and later its result. Frozen data."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from holdfast.domain.base import Data
from holdfast.util.text import shorten_text

NAME_LIMIT = 1_000
"""Characters of the names of a host and a tool: they are for people to read."""

Id = Annotated[str, Field(min_length=1, max_length=2_000)]


class EffectKey(Data):
    """Which effect: this call of this turn, with exactly these arguments, run for the first, the second … time."""

    turn: Id
    call: Id
    digest: Id
    """Of what was approved: tool, definition and arguments."""
    run: int = Field(default=1, ge=1, le=1_000_000)
    """Raised when a person says "run again", and with every answer that the call goes on with."""
    approval: str = Field(default="", max_length=200)
    """The decisions that let it run, where people did: another approval is another effect."""

    def __str__(self) -> str:
        return f"{self.turn}/{self.call}, run {self.run}"

    @property
    def id(self) -> str:
        """Its name in a database: as long for every key, and other for any other key."""
        parts = [self.turn, self.call, self.digest, self.run, *([self.approval] if self.approval else [])]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class LedgerEntry(Data):
    """One effect, as far as it is known."""

    key: EffectKey
    tool: str
    host: str
    """Where it was to run."""
    started_at: datetime
    """When the intent was recorded."""
    ended_at: datetime | None = None
    """When the result was."""
    result: str | None = None
    """What became of it, as JSON."""

    @property
    def state(self) -> Literal["intended", "done"]:
        """`intended`: it may have happened. `done`: it has, and the result is here."""
        return "intended" if self.result is None else "done"


class Spending(Data):
    """A decision of a person, and the one execution that it lets run."""

    decision: Id
    """Its digest."""
    execution: Id
    """The run of the turn's workflow, by the id that the server gave it; the call; and which run of that."""
    expires: datetime | None = None
    """When the decision counts no more, and need not be known any longer."""
    spent_at: datetime | None = None


def encode_intent(key: EffectKey, *, host: str, tool: str) -> str:
    """An intent as it is stored. In ASCII: names come from models and servers, and a database takes not every text."""
    names = {"tool": shorten_text(tool, NAME_LIMIT), "host": shorten_text(host, NAME_LIMIT)}
    return json.dumps({**key.model_dump(), **names})


def read_entry(intent: str, started_at: datetime, ended_at: datetime | None, result: str | None) -> LedgerEntry:
    """An entry as it was stored; ValueError when that is no entry."""
    said = json.loads(intent)
    if not isinstance(said, dict) or (ended_at is None) != (result is None):
        raise ValueError("not an entry")
    body = {"key": said, "tool": said.get("tool"), "host": said.get("host"), "started_at": started_at}
    return LedgerEntry.model_validate({**body, "ended_at": ended_at, "result": result})
