"""Logins at MCP servers: the tokens of an authorization server, and what is needed to renew them.

One file per server in the data folder, readable by its owner alone and replaced whole; for hosts that share a ledger a
row there (shared_logins.py). Never in a history. A token is sent only to the server that it was issued for: when the
address in the settings changes, the login is not used. A renewal holds a lock, so that the second of two workers finds
the token of the first.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from pydantic import AwareDatetime, Field, JsonValue, ValidationError

from holdfast.domain.base import Data
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.private_files import (
    UnfitFile,
    check_own_secret,
    lock_file,
    read_regular_file,
    replace_private,
)
from holdfast.util.secrets import Secret
from holdfast.util.text import shorten_text

EARLY_RENEWAL = timedelta(seconds=60)
"""How long before its expiry a token is renewed; at most the last tenth of its lifetime."""
LOCK_SECONDS = 60.0
"""How long to wait for another process that renews the same login."""
SIZE_LIMIT = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class NotAuthorized(HoldfastError):
    """Access to a server is denied; the message says what to do."""


class Login(Data):
    """A login at one server."""

    url: str
    """The server that it is for."""
    grant: Literal["authorization_code", "client_credentials"]
    client: dict[str, JsonValue] = Field(repr=False)
    """Our registration at the authorization server, without a secret of the settings."""
    issuer: dict[str, JsonValue] | None = None
    """The metadata of the authorization server."""
    resource: dict[str, JsonValue] | None = None
    """The metadata of the server about its authorization."""
    access_token: str = Field(repr=False)
    refresh_token: str | None = Field(default=None, repr=False)
    scope: str | None = None
    since: AwareDatetime
    expires: AwareDatetime | None = None
    """The expiry of the access token."""
    instead: bool = False
    """The token replaced one that the server had rejected."""
    refused: str | None = None
    """The reason why it was not renewed, and never will be."""
    wanted: str | None = None
    """Scopes that the server has required since: the next login asks for them too."""

    def is_fresh(self, now: datetime) -> bool:
        """Whether its token can be used without a renewal."""
        if self.refused or self.expires is None:
            return not self.refused
        return now < self.expires - min(EARLY_RENEWAL, (self.expires - self.since) / 10)

    @property
    def secrets(self) -> list[Secret]:
        """Its secrets."""
        found = {"access token": self.access_token, "refresh token": self.refresh_token}
        found["client secret"] = secret if isinstance(secret := self.client.get("client_secret"), str) else None
        return [Secret(name, value) for name, value in found.items() if value]


def format_login_command(name: str) -> str:
    """The command that logs in."""
    return f"`holdfast mcp login {name}`"


class LoginChange(Protocol):
    """A login that is being changed, by one process at a time."""

    async def read(self) -> Login | None:
        """Return the login; None without one. NotAuthorized when it is unusable."""

    async def write(self, login: Login) -> None:
        """Store it, whole or not at all. HoldfastError when it cannot be written."""


class LoginStore(Protocol):
    """A store of logins. Every method raises HoldfastError when the store cannot be used."""

    async def list_names(self) -> list[str]:
        """List the servers that have logins."""

    async def read_stamp(self, name: str) -> object | None:
        """Return a value that changes with the login; None without one."""

    async def read(self, name: str) -> Login | None:
        """Return the login, up to a second old; None without one. NotAuthorized when it is unusable."""

    def open_change(self, name: str) -> AbstractAsyncContextManager[LoginChange]:
        """Change a login, one process at a time. HoldfastError when another takes too long."""

    async def remove(self, name: str) -> bool:
        """Remove a login; False when there was none."""

    def copy_for_loop(self) -> LoginStore:
        """Return the same store for another event loop."""

    async def disconnect(self) -> None:
        """Close its connections, until it is used again."""


class LoginFiles:
    """The logins of one host: files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def list_names(self) -> list[str]:
        """List the servers that have files."""
        return list_logins(self._folder)

    async def read_stamp(self, name: str) -> object | None:
        """Return a value that changes with the file."""
        return LoginFile(self._folder, name).read_stamp()

    async def read(self, name: str) -> Login | None:
        """Read the file of a server."""
        return LoginFile(self._folder, name).read()

    @asynccontextmanager
    async def open_change(self, name: str) -> AsyncIterator[LoginChange]:
        """Hold the lock of the file."""
        file = LoginFile(self._folder, name)
        with file.hold_lock():
            yield _FileChange(file)

    async def remove(self, name: str) -> bool:
        """Remove the file of a server."""
        return LoginFile(self._folder, name).remove()

    def copy_for_loop(self) -> LoginFiles:
        """Return itself: files belong to no event loop."""
        return self

    async def disconnect(self) -> None:
        """Do nothing: nothing is open."""


class _FileChange:
    def __init__(self, file: LoginFile) -> None:
        self._file = file

    async def read(self) -> Login | None:
        return self._file.read()

    async def write(self, login: Login) -> None:
        self._file.write(login)


class LoginFile:
    """The file of the login at one server."""

    def __init__(self, folder: Path, name: str) -> None:
        """BadInput for an invalid server name."""
        self.name = check_server_name(name)
        self.file = folder / f"{name}.json"

    def read(self) -> Login | None:
        """Return the login; None without a file. NotAuthorized when it is unusable."""
        try:
            data = self._read_bytes()
            return None if data is None else Login.model_validate_json(data)
        except ValidationError:
            raise self._build_unfit("is damaged") from None

    def write(self, login: Login) -> None:
        """Replace the file. HoldfastError when it cannot be written."""
        replace_private(self.file, login.model_dump_json(indent=2, exclude_none=True).encode() + b"\n")

    def remove(self) -> bool:
        """Remove the file; False when there was none. Takes the lock."""
        if not self.file.parent.exists():
            return False
        with self.hold_lock():
            try:
                self.file.unlink()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise HoldfastError(f"{str(self.file)!r} cannot be removed: {error.strerror or error}") from None
            return True

    def read_stamp(self) -> tuple[int, int] | None:
        """Return a value that changes with the file; None without one."""
        try:
            status = self.file.stat(follow_symlinks=False)
        except OSError:
            return None
        return status.st_ctime_ns, status.st_ino

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the lock for the block. HoldfastError when another process takes too long."""
        with lock_file(self.file, LOCK_SECONDS):
            self.file.parent.chmod(0o700)
            yield

    def _read_bytes(self) -> bytes | None:
        """The content of the file. Never blocks."""
        try:
            return read_regular_file(self.file, SIZE_LIMIT, check_own_secret, follow=False)
        except FileNotFoundError:
            return None
        except UnfitFile as error:
            raise self._build_unfit(str(error)) from None

    def _build_unfit(self, why: str) -> NotAuthorized:
        return NotAuthorized(f"the login is not used: {str(self.file)!r} {why}")


def check_server_name(name: str) -> str:
    """Return the name of a server. BadInput when it is invalid."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"invalid server name {shorten_text(name, 80)!r}: use letters, digits, _ and -, at most 40")
    return name


def list_logins(folder: Path) -> list[str]:
    """List the servers that have files in this folder."""
    try:
        return sorted(one.stem for one in folder.glob("*.json") if _NAME.fullmatch(one.stem))
    except OSError:
        return []


def read_clock() -> datetime:
    """The current time, as logins record it."""
    return datetime.now(UTC)
