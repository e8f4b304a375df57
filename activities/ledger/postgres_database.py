"""A PostgreSQL database that hosts share: connections, tables, and errors with advice.

A few connections for each process. One on which a query fails is dropped, and the query repeated on a new one until the
time is over, so that a restart of the server is survived. So every query must be repeatable.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]

from holdfast.activities.ledger.ledger import LedgerUnavailable
from holdfast.config.ledger_address import format_address, hide_passwords
from holdfast.util.text import exception_text

DRIVER_ERRORS = (
    OSError,
    ValueError,  # an address that the driver cannot read
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""All errors of a query."""
_TEMPORARY_ERRORS = (
    OSError,  # no such host, nobody listens, no answer in time
    asyncpg.InterfaceError,  # the connection is closed
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server stops, starts, or cancels what takes too long
    asyncpg.TransactionRollbackError,
    asyncpg.TooManyConnectionsError,
    asyncpg.LockNotAvailableError,
    asyncpg.InternalClientError,  # the connection broke at a bad moment, or a failover is not over yet
)
_LASTING_ERRORS = (
    asyncpg.ClientConfigurationError,
    asyncpg.UnsupportedClientFeatureError,
    ssl.SSLCertVerificationError,
)
_ACTIONS: dict[type[Exception], str] = {
    asyncpg.InvalidAuthorizationSpecificationError: "it does not let this user in. Look at the user and the password",
    asyncpg.InvalidCatalogNameError: "it has no such database. Look at the address, or create the database",
    asyncpg.InsufficientPrivilegeError: "this user may not use its tables, or make them. GRANT it that",
    asyncpg.InvalidSchemaNameError: "this user has no schema for its tables. Create one, or GRANT it CREATE on one",
    asyncpg.UndefinedTableError: (
        "its tables are gone. Restore them, or restart the workers to begin anew: calls that had begun may then run "
        "a second time"
    ),
    asyncpg.ReadOnlySQLTransactionError: "it only reads: a replica? Give the address of the primary",
    asyncpg.DiskFullError: "its disk is full. Free some space on the server",
    asyncpg.TooManyConnectionsError: "it takes no more connections. Raise max_connections, or run fewer workers",
    ssl.SSLCertVerificationError: "its certificate is not trusted. Look at sslmode and sslrootcert in the address",
    asyncpg.ClientConfigurationError: "its address cannot be used. Look at the options in it",
    TimeoutError: "the server does not answer. Look whether it runs and can be reached",
    OSError: "the server cannot be reached. Look whether it runs, and at the host and the port",
}


def is_temporary(error: Exception) -> bool:
    """May the same query succeed a moment later?"""
    return isinstance(error, _TEMPORARY_ERRORS) and not isinstance(error, _LASTING_ERRORS)


def describe_error(error: Exception) -> str:
    """Explain why a query failed and what to do, with the message of the driver."""
    known = next((words for kind, words in _ACTIONS.items() if isinstance(error, kind)), None)
    name, text = type(error).__name__, exception_text(error, 300)
    message = f"{name}: {text}" if text and text != name else name
    return f"{known} ({message})" if known else f"{message}. Look at the server's log"


T = TypeVar("T")
Connection = Any
"""asyncpg has no type annotations."""
Work = Callable[[Connection], Awaitable[T]]

MAX_CONNECTIONS = 4
ATTEMPT_SECONDS = 8.0
"""The time for one attempt on one connection."""
ANSWER_SECONDS = 20.0
"""The time for a query, with waiting for a connection and further attempts."""
RETRY_SECONDS = 0.1
SCHEMA_VERSION = 1
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
LATER_TABLES = {
    "holdfast_decisions": """
CREATE TABLE holdfast_decisions (
  id text PRIMARY KEY,
  execution text NOT NULL,
  spent_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires timestamptz
);
CREATE INDEX holdfast_decisions_by_age ON holdfast_decisions (expires);
""",
    "holdfast_grants": """
CREATE TABLE holdfast_grants (
  name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_-]{1,100}$'),
  rule text NOT NULL,
  saved_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
""",
    "holdfast_logins": """
CREATE TABLE holdfast_logins (
  name text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_-]{1,40}$'),
  login text,
  holder text,
  held_until timestamptz
);
""",
}
"""Created where a database of the same version lacks them."""
_LOCK = int.from_bytes(b"holdfast", "big")
"""The advisory lock for creating the tables."""


class Database:
    """Tables in the first schema of the user's search path. Connects at the first query."""

    def __init__(
        self,
        address: str,
        *,
        attempt_seconds: float = ATTEMPT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._address = address
        self._attempt_seconds = attempt_seconds
        self._answer_seconds = answer_seconds
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []
        self._closed = self._ready = False

    @property
    def location(self) -> str:
        """The address without its password, for people."""
        return format_address(self._address)

    async def check(self) -> None:
        """Connect, and create missing tables. LedgerUnavailable when that fails."""
        await self.run_query(lambda connection: connection.execute("SELECT 1"))

    async def close(self) -> None:
        """Close idle connections now, and the others when their query ends. Later queries raise LedgerUnavailable."""
        self._closed = True
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close idle connections. The next query connects again."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=self._attempt_seconds)

    async def run_query(self, work: Work[T]) -> T:
        """Run `work` with a connection, repeating it after temporary errors. LedgerUnavailable when it fails."""
        if self._closed:
            raise self.build_unavailable("it was closed. Open it again")
        last: Exception | None = None
        try:
            async with asyncio.timeout(self._answer_seconds):
                while True:
                    try:
                        return await self._try_once(work)
                    except Exception as error:
                        if not is_temporary(error):
                            raise
                        last = error
                    self._drop_idle()  # most likely the others are broken too
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            why = f": {describe_error(last)}" if last else ""
            raise self.build_unavailable(f"no answer within {self._answer_seconds:g} seconds{why}") from None
        except DRIVER_ERRORS as error:
            raise self.build_unavailable(describe_error(error)) from None  # the original error may hold the password

    async def _try_once(self, work: Work[T]) -> T:
        async with self._slots:
            connection = await self._get_connection()
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

    async def _get_connection(self) -> Connection:
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
                "synchronous_commit": "on",  # whatever the default of the server: an intent must be on disk
            },
        )

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    async def _ensure_schema(self, connection: Connection) -> None:
        """Create the tables unless another worker did."""
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            if await connection.fetchval("SELECT to_regclass('holdfast_ledger')") is None:
                await connection.execute(SCHEMA)
                await connection.execute("INSERT INTO holdfast_ledger VALUES ($1)", SCHEMA_VERSION)
            for table, statement in LATER_TABLES.items():
                if await connection.fetchval("SELECT to_regclass($1)", table) is None:
                    await connection.execute(statement)
            version = await connection.fetchval("SELECT max(version) FROM holdfast_ledger")
        if version != SCHEMA_VERSION:
            raise self.build_unavailable("a newer Holdfast made its tables. Run that one here, or use another database")
        self._ready = True

    def build_unavailable(self, why: str) -> LedgerUnavailable:
        """A LedgerUnavailable with this reason, without the password."""
        why = hide_passwords(why, self._address)
        return LedgerUnavailable(f"the ledger {self.location!r} cannot be used: {why}")
