"""What an error of PostgreSQL or its driver means: whether it is worth asking again, and what to do about it."""

from __future__ import annotations

import ssl

import asyncpg  # type: ignore[import-untyped]

from holdfast.content import exception_text

DRIVER_ERRORS = (
    OSError,
    ValueError,  # an address that the driver cannot read
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Whatever may come of asking."""
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
    """May the same question be answered a moment later?"""
    return isinstance(error, _TEMPORARY_ERRORS) and not isinstance(error, _LASTING_ERRORS)


def describe_error(error: Exception) -> str:
    """Why there is no answer, what to do about it, and the words of the driver."""
    known = next((words for kind, words in _ACTIONS.items() if isinstance(error, kind)), None)
    name, text = type(error).__name__, exception_text(error, 300)
    told = f"{name}: {text}" if text and text != name else name
    return f"{known} ({told})" if known else f"{told}. Look at the server's log"
