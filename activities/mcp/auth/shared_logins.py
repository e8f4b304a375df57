"""Logins that hosts share: rows of the ledger's database, for every worker that uses it.

A change holds its row by a mark that expires. So a renewal keeps no connection open, and a broken connection loses no
tokens: nobody else may request any until the mark has expired, and only its holder can write. The second of several
workers finds the token of the first.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import ValidationError

from holdfast.activities.ledger.ledger import LedgerUnavailable
from holdfast.activities.ledger.sealed_table import SealedTable
from holdfast.activities.mcp.auth.login_store import (
    LOCK_SECONDS,
    SIZE_LIMIT,
    Login,
    LoginChange,
    LoginFiles,
    LoginStore,
    NotAuthorized,
    check_server_name,
)
from holdfast.config.settings import Settings
from holdfast.errors import BadInput, HoldfastError
from holdfast.payloads.encryption import Seals
from holdfast.payloads.keyring import Keyring, load_keyring
from holdfast.util.text import escape_controls, shorten_text

if TYPE_CHECKING:
    from holdfast.activities.ledger.postgres_database import Connection

FRESH_SECONDS = 1.0
"""How long a row that was read is used without reading it again."""
ANSWER_SECONDS = 5.0
"""How long a request waits for the database."""
CHANGE_SECONDS = 45.0
"""How long writing new tokens is tried: they would be lost otherwise."""
HOLD_TIME = timedelta(seconds=90)
"""How long a dead worker holds a login. Longer than requesting a token and writing it may take."""
_POLL_SECONDS = 0.1
_TAKE = """
    INSERT INTO holdfast_logins AS known (name, holder, held_until) VALUES ($1, $2, clock_timestamp() + $3::interval)
    ON CONFLICT (name) DO UPDATE SET holder = $2, held_until = clock_timestamp() + $3::interval
    WHERE known.holder IS NULL OR known.holder = $2 OR known.held_until IS NULL OR known.held_until < clock_timestamp()
    RETURNING left(known.login, $4) AS login"""
_WRITE = """
    UPDATE holdfast_logins SET login = $3, held_until = clock_timestamp() + $4::interval
    WHERE name = $1 AND holder = $2"""
_FREE = "UPDATE holdfast_logins SET holder = NULL, held_until = NULL WHERE name = $1 AND holder = $2"
_EMPTY = "DELETE FROM holdfast_logins WHERE name = $1 AND holder = $2 AND login IS NULL"
_REMOVE = "DELETE FROM holdfast_logins WHERE name = $1 AND holder = $2"
_FIND = "SELECT left(login, $2) FROM holdfast_logins WHERE name = $1"
_NAMES = "SELECT name FROM holdfast_logins WHERE login IS NOT NULL ORDER BY name"


class SharedLogins:
    """The logins in the database that the setting `ledger` names. It connects when it is first used."""

    def __init__(self, table: SealedTable) -> None:
        self._table = table
        self._seen: dict[str, tuple[float, str | HoldfastError | None]] = {}
        """Until when each row that was read may be used, and its content or the error of reading it."""

    async def list_names(self) -> list[str]:
        """List the servers that have rows."""
        found = await self._table.read(lambda connection: connection.fetch(_NAMES))
        return [row["name"] for row in found]

    async def read_stamp(self, name: str) -> object | None:
        """Return a value that changes with the row."""
        sealed = await self._read_cached(check_server_name(name))
        return None if sealed is None else hashlib.sha256(sealed.encode("utf-8", "replace")).hexdigest()

    async def read(self, name: str) -> Login | None:
        """Read the row of a server."""
        return self.unseal_login(name, await self._read_cached(check_server_name(name)))

    @asynccontextmanager
    async def open_change(self, name: str) -> AsyncIterator[LoginChange]:
        """Hold the row for the block."""
        holder = uuid4().hex
        sealed = await self._take_row(check_server_name(name), holder)
        try:
            yield _RowChange(self, name, holder, sealed)
        finally:
            with suppress(LedgerUnavailable):  # the mark expires
                await self._table.write(lambda connection: connection.execute(_EMPTY, name, holder))
                await self._table.write(lambda connection: connection.execute(_FREE, name, holder))
            self._seen.pop(name, None)

    async def remove(self, name: str) -> bool:
        """Remove the row of a server."""
        holder = uuid4().hex
        sealed = await self._take_row(check_server_name(name), holder)
        await self._table.write(lambda connection: connection.execute(_REMOVE, name, holder))
        self._seen.pop(name, None)
        return sealed is not None

    async def write(self, name: str, holder: str, login: Login) -> None:
        """Write a login that is held. HoldfastError when it is held no longer."""
        sealed = self._table.seal(name, login.model_dump_json(exclude_none=True))

        async def update_row(connection: Connection) -> str:
            done: str = await connection.execute(_WRITE, name, holder, sealed, HOLD_TIME)
            return done

        if await self._table.write(update_row) != "UPDATE 1":
            raise HoldfastError(f"the login at {name!r} was changed by another process: try again")

    def copy_for_loop(self) -> SharedLogins:
        """Return the same store on connections of another event loop."""
        return SharedLogins(self._table.copy_for_loop())

    async def disconnect(self) -> None:
        """Close the connections."""
        await self._table.disconnect()

    async def _read_cached(self, name: str) -> str | None:
        until, sealed = self._seen.get(name, (0.0, None))
        if time.monotonic() >= until:
            sealed = await self._fetch_row(name)
            self._seen[name] = (time.monotonic() + FRESH_SECONDS, sealed)
        if isinstance(sealed, HoldfastError):
            raise type(sealed)(str(sealed))
        return sealed

    async def _fetch_row(self, name: str) -> str | HoldfastError | None:
        async def select_row(connection: Connection) -> Any:
            return await connection.fetchval(_FIND, name, SIZE_LIMIT + 1)

        try:
            found: str | None = await self._table.read(select_row)
            return found
        except HoldfastError as error:
            return error

    async def _take_row(self, name: str, holder: str) -> str | None:
        """Hold the row and return its content. HoldfastError when another process holds it too long."""

        async def take_row(connection: Connection) -> Any:
            return await connection.fetchrow(_TAKE, name, holder, HOLD_TIME, SIZE_LIMIT + 1)

        deadline = time.monotonic() + LOCK_SECONDS
        while (row := await self._table.write(take_row)) is None:
            if time.monotonic() > deadline:
                raise HoldfastError(f"another process is changing the login at {name!r}: try again")
            await asyncio.sleep(_POLL_SECONDS)
        found: str | None = row["login"]
        return found

    def unseal_login(self, name: str, sealed: str | None) -> Login | None:
        """Decrypt the login of a row. NotAuthorized when it is unusable."""
        if sealed is None:
            return None
        try:
            return Login.model_validate_json(self._table.unseal(name, sealed))
        except ValidationError:
            why = "it is damaged"
        except BadInput as error:
            why = shorten_text(escape_controls(str(error)), 500)
        place = escape_controls(self._table.location)
        raise NotAuthorized(f"the login is not used: of its row {name!r} in {place}, {why}") from None


class _RowChange:
    """A row that is held."""

    def __init__(self, logins: SharedLogins, name: str, holder: str, sealed: str | None) -> None:
        self._logins = logins
        self._name = name
        self._holder = holder
        self._sealed = sealed

    async def read(self) -> Login | None:
        return self._logins.unseal_login(self._name, self._sealed)

    async def write(self, login: Login) -> None:
        await self._logins.write(self._name, self._holder, login)


def open_login_store(settings: Settings, keyring: Keyring | None = None) -> LoginStore:
    """Open the store of logins that the settings say."""
    if settings.ledger is None:
        return LoginFiles(settings.mcp_logins_folder)
    seals = Seals(keyring or load_keyring(settings))
    limits = {"read_seconds": ANSWER_SECONDS, "write_seconds": CHANGE_SECONDS}
    return SharedLogins(SealedTable(settings.ledger, seals, "login", row_limit=SIZE_LIMIT, **limits))
