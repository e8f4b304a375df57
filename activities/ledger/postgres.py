"""The ledger that hosts share: tables in a PostgreSQL database.

Every query can be repeated: an intent carries a random mark, which shows that an intent that was committed just before
the connection broke is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from holdfast.activities.ledger.ledger import (
    INTENT_FACTOR,
    EffectKey,
    LedgerEntry,
    Spending,
    check_age,
    check_recorded,
    check_result,
    encode_intent,
    read_entry,
)
from holdfast.activities.ledger.postgres_database import Connection, Database

SWEPT_AT_ONCE = 500
_FIND = "SELECT intent, mark, started_at, ended_at, result FROM holdfast_effects WHERE id = $1"


class PostgresLedger(Database):
    """A ledger in PostgreSQL. See `Ledger` for the contract."""

    @property
    def is_shared(self) -> bool:
        """True: all workers with this address share the entries."""
        return True

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """See `Ledger`."""
        row = await self.run_query(lambda connection: connection.fetchrow(_FIND, key.id))
        return self._read_entry(row) if row else None

    async def record_intent(self, key: EffectKey, *, host: str, tool: str) -> LedgerEntry | None:
        """See `Ledger`."""
        intent, mark = encode_intent(key, host=host, tool=tool), uuid4().hex

        async def insert_intent(connection: Connection) -> Any:
            insert = "INSERT INTO holdfast_effects (id, intent, mark) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
            while True:
                if await connection.execute(insert, key.id, intent, mark) == "INSERT 0 1":
                    return None
                if row := await connection.fetchrow(_FIND, key.id):  # else it was swept in between
                    return row

        row = await self.run_query(insert_intent)
        return None if row is None or row["mark"] == mark else self._read_entry(row)

    async def record_result(self, key: EffectKey, result: str) -> None:
        """See `Ledger`."""
        check_result(result)

        async def update_result(connection: Connection) -> str | None:
            update = """
                UPDATE holdfast_effects SET result = $2, ended_at = clock_timestamp()
                WHERE id = $1 AND ended_at IS NULL"""
            if await connection.execute(update, key.id, result) == "UPDATE 1":
                return result
            row = await connection.fetchrow(_FIND, key.id)
            return row["result"] if row else None

        check_recorded(key, await self.run_query(update_result), result)

    async def record_spendings(self, spendings: Sequence[Spending]) -> Spending | None:
        """See `Ledger`."""
        rows = [(each.decision, each.execution, each.expires) for each in spendings]
        rows.sort()  # in one order, so that two transactions with the same rows cannot deadlock
        insert = "INSERT INTO holdfast_decisions (id, execution, expires) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        select = "SELECT id, execution, spent_at FROM holdfast_decisions WHERE id = ANY($1)"
        wanted = {each.decision: each.execution for each in spendings}

        async def insert_spendings(connection: Connection) -> Spending | None:
            transaction = connection.transaction()
            await transaction.start()
            await connection.executemany(insert, rows)
            found = await connection.fetch(select, list(wanted))
            others = [row for row in found if row["execution"] != wanted[row["id"]]]
            await (transaction.rollback() if others else transaction.commit())
            return (
                Spending(decision=others[0]["id"], execution=others[0]["execution"], spent_at=others[0]["spent_at"])
                if others
                else None
            )

        return await self.run_query(insert_spendings)

    async def sweep(self, older_than: timedelta) -> int:
        """See `Ledger`. By the clock of the server, in small portions."""
        check_age(older_than)
        delete = """
            DELETE FROM holdfast_effects WHERE id IN (
              SELECT id FROM holdfast_effects
              WHERE ended_at < clock_timestamp() - $1::interval
                 OR (ended_at IS NULL AND started_at < clock_timestamp() - $2::interval)
              LIMIT $3 FOR UPDATE SKIP LOCKED
            )"""
        spent = """
            DELETE FROM holdfast_decisions WHERE id IN (
              SELECT id FROM holdfast_decisions WHERE expires < clock_timestamp() - $1::interval
              LIMIT $2 FOR UPDATE SKIP LOCKED
            )"""
        ages = (older_than, INTENT_FACTOR * older_than)
        return await self._delete_old(delete, *ages) + await self._delete_old(spent, older_than)

    async def _delete_old(self, delete: str, *ages: timedelta) -> int:
        """Delete old rows until there are none; their number."""
        swept = 0
        while True:
            done = await self.run_query(lambda connection: connection.execute(delete, *ages, SWEPT_AT_ONCE))
            some = int(done.removeprefix("DELETE "))
            swept += some
            if some < SWEPT_AT_ONCE:
                return swept

    def _read_entry(self, row: Any) -> LedgerEntry:
        try:
            return read_entry(row["intent"], row["started_at"], row["ended_at"], row["result"])
        except (ValueError, TypeError, RecursionError):
            raise self.build_unavailable("an entry in its tables is damaged. Restore them from a copy") from None
