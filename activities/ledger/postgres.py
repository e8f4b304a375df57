"""The ledger of many hosts: tables in a PostgreSQL database that all workers reach.

A few connections for each process. One on which anything fails is thrown away, and the question asked again on a new
one until the time is over: so a server that restarts is waited for. Every question can be asked twice; an intent
carries a mark, by which the one that was recorded just before the connection broke is known to be our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]

from holdfast.activities.ledger.addresses import shown, without_passwords
from holdfast.activities.ledger.entries import EffectKey, Entry, Spending, entry_of, intent_text
from holdfast.activities.ledger.postgres_words import FAILURES, passes, reason
from holdfast.activities.ledger.protocol import (
    INTENT_FACTOR,
    LedgerUnavailable,
    check_age,
    check_kept,
    check_result,
)

T = TypeVar("T")
Connection = Any
"""The driver brings no types along."""
Work = Callable[[Connection], Awaitable[T]]

CONNECTIONS = 4
ATTEMPT_SECONDS = 8.0
"""How long one question may take on one connection."""
ANSWER_SECONDS = 20.0
"""How long any answer may take, with waiting for a connection and asking again."""
RETRY_SECONDS = 0.1
SWEPT_AT_ONCE = 500
VERSION = 1
SCHEMA = """
CREATE TABLE holdfast_ledger (version integer NOT NULL);
CREATE TABLE holdfast_effects (
  id text PRIMARY KEY,
  intent text NOT NULL,
  mark text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at timestamptz,
  result text
);
CREATE INDEX holdfast_effects_by_age ON holdfast_effects (ended_at, started_at);
"""
LATER = """
CREATE TABLE holdfast_decisions (
  id text PRIMARY KEY,
  execution text NOT NULL,
  spent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires timestamptz
);
CREATE INDEX holdfast_decisions_by_age ON holdfast_decisions (expires);
"""
"""Made where tables of the same version lack it."""
_LOCK = int.from_bytes(b"holdfast", "big")
"""Of those who make the tables: one at a time."""
_FIND = "SELECT intent, mark, started_at, ended_at, result FROM holdfast_effects WHERE id = $1"


class PostgresLedger:
    """Tables in the first schema of the user's search path."""

    def __init__(
        self, address: str, *, attempt_seconds: float = ATTEMPT_SECONDS, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._address = address
        self._attempt_seconds = attempt_seconds
        self._answer_seconds = answer_seconds
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []
        self._closed = self._ready = False

    @property
    def shared(self) -> bool:
        """Every worker with this address sees the same entries."""
        return True

    async def check(self) -> None:
        """Connect, and make the tables if there are none."""
        await self._ask(lambda connection: connection.execute("SELECT 1"))

    async def find(self, key: EffectKey) -> Entry | None:
        """What is known of an effect."""
        row = await self._ask(lambda connection: connection.fetchrow(_FIND, key.id))
        return self._entry(row) if row else None

    async def intend(self, key: EffectKey, *, host: str, tool: str) -> Entry | None:
        """Record an intent; None when it is ours, else the entry of whoever was first."""
        intent, mark = intent_text(key, host=host, tool=tool), uuid4().hex

        async def work(connection: Connection) -> Any:
            insert = "INSERT INTO holdfast_effects (id, intent, mark) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
            while True:
                if await connection.execute(insert, key.id, intent, mark) == "INSERT 0 1":
                    return None
                if row := await connection.fetchrow(_FIND, key.id):  # else it was swept in between
                    return row

        row = await self._ask(work)
        return None if row is None or row["mark"] == mark else self._entry(row)

    async def finish(self, key: EffectKey, result: str) -> None:
        """Record a result, if there is none yet."""
        check_result(result)

        async def work(connection: Connection) -> str | None:
            update = """
                UPDATE holdfast_effects SET result = $2, ended_at = clock_timestamp()
                WHERE id = $1 AND ended_at IS NULL"""
            if await connection.execute(update, key.id, result) == "UPDATE 1":
                return result
            row = await connection.fetchrow(_FIND, key.id)
            return row["result"] if row else None

        check_kept(key, await self._ask(work), result)

    async def spend(self, spendings: Sequence[Spending]) -> Spending | None:
        """Record which execution decisions let run; the record of another, if one of them did before."""
        rows = [(each.decision, each.execution, each.expires) for each in spendings]
        rows.sort()  # two that spend the same two wait for each other in one order only
        insert = "INSERT INTO holdfast_decisions (id, execution, expires) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        select = "SELECT id, execution, spent_at FROM holdfast_decisions WHERE id = ANY($1)"
        wanted = {each.decision: each.execution for each in spendings}

        async def work(connection: Connection) -> Spending | None:
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

        return await self._ask(work)

    async def sweep(self, older_than: timedelta) -> int:
        """Forget what is old by the server's clock, a little at a time."""
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
        return await self._delete(delete, *ages) + await self._delete(spent, older_than)

    async def _delete(self, delete: str, *ages: timedelta) -> int:
        """Delete rows by their age until there are none; how many there were."""
        swept = 0
        while True:
            done = await self._ask(lambda connection: connection.execute(delete, *ages, SWEPT_AT_ONCE))
            some = int(done.removeprefix("DELETE "))
            swept += some
            if some < SWEPT_AT_ONCE:
                return swept

    async def close(self) -> None:
        """Close the connections that nobody uses; the others close when they are given back."""
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            with suppress(*FAILURES):
                await connection.close(timeout=self._attempt_seconds)

    async def _ask(self, work: Work[T]) -> T:
        """An answer, on as many connections as it takes, within the time."""
        if self._closed:
            raise self._unavailable("it was closed. Open it again")
        last: Exception | None = None
        try:
            async with asyncio.timeout(self._answer_seconds):
                while True:
                    try:
                        return await self._attempt(work)
                    except Exception as error:
                        if not passes(error):
                            raise
                        last = error
                    self._drop_idle()  # what broke one has most likely broken the others
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            why = f": {reason(last)}" if last else ""
            raise self._unavailable(f"no answer within {self._answer_seconds:g} seconds{why}") from None
        except FAILURES as error:
            raise self._unavailable(reason(error)) from None  # what it was made of may hold the password

    async def _attempt(self, work: Work[T]) -> T:
        async with self._slots:
            connection = await self._connection()
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    if not self._ready:
                        await self._ensure_schema(connection)
                    found = await work(connection)
            except BaseException:
                connection.terminate()
                raise
            if self._closed:
                connection.terminate()
            else:
                self._idle.append(connection)
            return found

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        milliseconds = int(self._attempt_seconds * 1_000)
        return await asyncpg.connect(
            self._address,
            timeout=self._attempt_seconds,
            command_timeout=self._attempt_seconds,
            server_settings={
                "application_name": "holdfast ledger",
                "default_transaction_isolation": "read committed",
                "statement_timeout": str(milliseconds),
                "lock_timeout": str(milliseconds),
                "synchronous_commit": "on",  # whatever the server's own setting: an intent is on disk, or is none
            },
        )

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    async def _ensure_schema(self, connection: Connection) -> None:
        """The tables, made by the first of all workers."""
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if await connection.fetchval("SELECT to_regclass('holdfast_ledger')") is None:
                await connection.execute(SCHEMA)
                await connection.execute("INSERT INTO holdfast_ledger VALUES ($1)", VERSION)
            if await connection.fetchval("SELECT to_regclass('holdfast_decisions')") is None:
                await connection.execute(LATER)
            version = await connection.fetchval("SELECT max(version) FROM holdfast_ledger")
        if version != VERSION:
            raise self._unavailable("a newer Holdfast made its tables. Run that one here, or use another database")
        self._ready = True

    def _entry(self, row: Any) -> Entry:
        try:
            return entry_of(row["intent"], row["started_at"], row["ended_at"], row["result"])
        except (ValueError, TypeError, RecursionError):
            raise self._unavailable("an entry in its tables is damaged. Restore them from a copy") from None

    def _unavailable(self, why: str) -> LedgerUnavailable:
        why = without_passwords(why, self._address)
        return LedgerUnavailable(f"the ledger {shown(self._address)!r} cannot be used: {why}")
