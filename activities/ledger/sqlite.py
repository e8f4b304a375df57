"""The ledger of one host: a SQLite file that all workers of the host open.

One connection for each process, in a thread of its own, so that a slow disk does not block the event loop. Every wait
is bounded: for locks of other processes by SQLite, for the disk and earlier queries by a time limit.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from holdfast.activities.ledger.ledger import (
    INTENT_FACTOR,
    EffectKey,
    LedgerEntry,
    LedgerUnavailable,
    Spending,
    check_age,
    check_recorded,
    check_result,
    encode_intent,
    read_entry,
)
from holdfast.activities.ledger.sqlite_file import build_damaged, build_unavailable, open_ledger_file

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""The time to wait for a lock of another process."""
ANSWER_SECONDS = 20.0
"""The time for a query, with all queries before it."""
SWEPT_AT_ONCE = 50
"""Entries that one transaction deletes: nobody else can write meanwhile."""
SWEEP_PAUSE = 0.02
"""Seconds between two of these transactions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_COLUMNS = "intent, started_at, ended_at, result"


class SqliteLedger:
    """A ledger in a SQLite file. See `Ledger` for the contract."""

    def __init__(
        self, file: Path, *, busy_seconds: float = BUSY_SECONDS, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._file = file
        self._busy_seconds = busy_seconds
        self._answer_seconds = answer_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-ledger")
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def is_shared(self) -> bool:
        """False: other hosts have files of their own."""
        return False

    async def check(self) -> None:
        """See `Ledger`."""
        await self._run_query(lambda connection: None)

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """See `Ledger`."""
        return await self._run_query(lambda connection: self._find_entry(connection, key))

    async def record_intent(self, key: EffectKey, *, host: str, tool: str) -> LedgerEntry | None:
        """See `Ledger`."""
        intent = encode_intent(key, host=host, tool=tool)

        def insert_intent(connection: sqlite3.Connection) -> LedgerEntry | None:
            with _open_transaction(connection):
                insert = "INSERT INTO effects (id, intent, started_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                done = connection.execute(insert, (key.id, intent, _read_clock()))
                return None if done.rowcount == 1 else self._find_entry(connection, key)

        return await self._run_query(insert_intent)

    async def record_result(self, key: EffectKey, result: str) -> None:
        """See `Ledger`."""
        check_result(result)

        def update_result(connection: sqlite3.Connection) -> str | None:
            with _open_transaction(connection):
                update = "UPDATE effects SET result = ?, ended_at = ? WHERE id = ? AND ended_at IS NULL"
                if connection.execute(update, (result, _read_clock(), key.id)).rowcount == 1:
                    return result
                entry = self._find_entry(connection, key)
                return entry.result if entry else None

        check_recorded(key, await self._run_query(update_result), result)

    async def record_spendings(self, spendings: Sequence[Spending]) -> Spending | None:
        """See `Ledger`."""

        def insert_spendings(connection: sqlite3.Connection) -> Spending | None:
            with _open_transaction(connection):
                fresh = []
                for spending in spendings:
                    found = connection.execute(
                        "SELECT execution, spent_at FROM decisions WHERE id = ?", (spending.decision,)
                    ).fetchone()
                    if found is None:
                        fresh.append(spending)
                    elif found[0] != spending.execution:
                        execution, spent_at = found
                        return Spending(
                            decision=spending.decision, execution=execution, spent_at=_from_microseconds(spent_at)
                        )
                rows = [
                    (
                        each.decision,
                        each.execution,
                        _read_clock(),
                        None if each.expires is None else _to_microseconds(each.expires),
                    )
                    for each in fresh
                ]
                connection.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?)", rows)
                return None

        return await self._run_query(insert_spendings)

    async def sweep(self, older_than: timedelta) -> int:
        """See `Ledger`. In small portions."""
        check_age(older_than)
        ended, begun = (_read_clock() - age // _MICROSECOND for age in (older_than, INTENT_FACTOR * older_than))

        def delete_some(connection: sqlite3.Connection) -> int:
            with _open_transaction(connection):
                delete = """
                    DELETE FROM effects WHERE id IN (
                      SELECT id FROM effects
                      WHERE ended_at < ? OR (ended_at IS NULL AND started_at < ?) LIMIT ?
                    )"""
                effects = connection.execute(delete, (ended, begun, SWEPT_AT_ONCE)).rowcount
                delete = "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions WHERE expires < ? LIMIT ?)"
                return effects + connection.execute(delete, (ended, SWEPT_AT_ONCE)).rowcount

        swept = 0
        while (some := await self._run_query(delete_some)) > 0:
            swept += some
            await asyncio.sleep(SWEEP_PAUSE)
        return swept

    async def disconnect(self) -> None:
        """Nothing: the file stays open."""

    async def close(self) -> None:
        """Close the file behind the queries so far. The last process removes SQLite's auxiliary files."""
        if self._closed:
            return
        self._closed = True
        with suppress(LedgerUnavailable):
            await self._run_in_thread(self._close_connection)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run_query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise LedgerUnavailable(f"the ledger {str(self._file)!r} was closed: open it again")
        return await self._run_in_thread(lambda: self._use_connection(work))

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise LedgerUnavailable(
                f"the ledger {str(self._file)!r} did not answer within {self._answer_seconds:g} seconds: "
                "its disk hangs, or is far too slow. Look at the disk, then try again"
            ) from None

    # In the thread

    def _use_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._open_connection())
        except (sqlite3.Error, OSError) as error:
            raise build_unavailable(self._file, error) from error

    def _open_connection(self) -> sqlite3.Connection:
        """The connection. LedgerUnavailable for a replaced file, which would say that nothing has begun."""
        if self._identity is not None and self._identity != self._read_identity():
            raise LedgerUnavailable(
                f"the ledger {str(self._file)!r} was removed or replaced while this worker ran. Put it back, "
                "or restart the worker: without it, calls that had begun may run a second time"
            )
        if self._connection is None:
            self._connection = open_ledger_file(self._file, self._busy_seconds)
            self._identity = self._read_identity()
        return self._connection

    def _read_identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._file)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            with suppress(sqlite3.Error):
                connection.close()

    def _find_entry(self, connection: sqlite3.Connection, key: EffectKey) -> LedgerEntry | None:
        row = connection.execute(f"SELECT {_COLUMNS} FROM effects WHERE id = ?", (key.id,)).fetchone()
        if row is None:
            return None
        intent, started_at, ended_at, result = row
        try:
            return read_entry(
                intent,
                _from_microseconds(started_at),
                None if ended_at is None else _from_microseconds(ended_at),
                result,
            )
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise build_damaged(self._file) from None


@contextmanager
def _open_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """An exclusive transaction for a block: all of it is on disk at the end, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def _read_clock() -> int:
    return _to_microseconds(datetime.now(UTC))


def _to_microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _from_microseconds(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND
