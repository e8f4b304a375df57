"""A table of the database that hosts share: rows of text by name, each encrypted for its name where there are keys.

Reading and writing have connections and time limits of their own: a reader gives up soon, and a change is tried for
longer. A row that was copied to another name cannot be opened (see `Seals`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from holdfast.activities.ledger.open import open_database
from holdfast.errors import BadInput
from holdfast.payloads.encryption import Seals

if TYPE_CHECKING:
    from holdfast.activities.ledger.postgres_database import Database, Work

T = TypeVar("T")


class SealedTable:
    """The rows of one kind. Connects at the first query, which raises BadInput as `open_database` does."""

    def __init__(
        self, setting: str, seals: Seals, kind: str, *, row_limit: int, read_seconds: float, write_seconds: float
    ) -> None:
        """`setting` is the setting `ledger`, `kind` names a row in its seal, `row_limit` counts characters."""
        self._setting = setting
        self._seals = seals
        self._kind = kind
        self._row_limit = row_limit
        self._read_seconds = read_seconds
        self._write_seconds = write_seconds

    def check_setting(self) -> None:
        """Raise BadInput for an invalid setting or a missing driver. Connects to nothing."""
        _ = self._readers

    @property
    def location(self) -> str:
        """The address of the database without its password, for people."""
        return self._readers.location

    async def read(self, work: Work[T]) -> T:
        """Run a query that changes nothing. LedgerUnavailable when it fails or takes too long."""
        return await self._readers.run_query(work)

    async def write(self, work: Work[T]) -> T:
        """Run a query that changes rows. LedgerUnavailable when it fails or takes too long."""
        return await self._writers.run_query(work)

    def seal(self, name: str, text: str) -> str:
        """Return the text as the row of this name holds it."""
        return self._seals.seal(text, f"{self._kind} {name}")

    def unseal(self, name: str, sealed: str) -> str:
        """Return the text of a row. BadInput with the reason when it is too long or cannot be decrypted."""
        if len(sealed) > self._row_limit:
            raise BadInput(f"it is over {self._row_limit:,} characters")
        return self._seals.open(sealed, f"{self._kind} {name}")

    def is_current(self, sealed: str) -> bool:
        """Is a row encrypted with the present key?"""
        return self._seals.is_current(sealed)

    def copy_for_loop(self) -> SealedTable:
        """Return the same table on connections of another event loop."""
        limits = {"read_seconds": self._read_seconds, "write_seconds": self._write_seconds}
        return SealedTable(self._setting, self._seals, self._kind, row_limit=self._row_limit, **limits)

    async def disconnect(self) -> None:
        """Close the connections. The next query connects again."""
        for database in ("_readers", "_writers"):
            if database in self.__dict__:
                await self.__dict__[database].disconnect()

    @cached_property
    def _readers(self) -> Database:
        return open_database(self._setting, answer_seconds=self._read_seconds)

    @cached_property
    def _writers(self) -> Database:
        return open_database(self._setting, answer_seconds=self._write_seconds)
