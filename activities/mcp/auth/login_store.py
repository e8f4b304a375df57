"""Logins at MCP servers: what an authorization server gave us for one, and what is needed to have it renewed.

One file per server below the data folder, for its owner alone, replaced whole, and in no history; where hosts share a
ledger, a row there (shared_logins.py). Tokens are sent to the server that they are for and to nobody else: where a
server's address has changed since, its login does not count. Whoever renews one holds its lock, so that of two workers
the second finds what the first was given.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from pydantic import AwareDatetime, Field, JsonValue, ValidationError

from holdfast.domain.base import Data
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.files import hold_lock, write_whole
from holdfast.util.secrets import Secret
from holdfast.util.text import shorten_text

EARLY_RENEWAL = timedelta(seconds=60)
"""So long before its end a token is renewed, or in the last tenth of its time."""
LOCK_SECONDS = 60.0
"""How long somebody else may take who renews the same."""
SIZE_LIMIT = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class NotAuthorized(HoldfastError):
    """A server that we may not use as things are. The words say what to do."""


class Login(Data):
    """A login at one server."""

    url: str
    """The server that it is for."""
    grant: Literal["authorization_code", "client_credentials"]
    client: dict[str, JsonValue] = Field(repr=False)
    """As whom we are known to the authorization server. A secret of the settings is not in it."""
    issuer: dict[str, JsonValue] | None = None
    """What the authorization server says of itself."""
    resource: dict[str, JsonValue] | None = None
    """What the server says of its authorization."""
    access_token: str = Field(repr=False)
    refresh_token: str | None = Field(default=None, repr=False)
    scope: str | None = None
    since: AwareDatetime
    expires: AwareDatetime | None = None
    """Of the access token."""
    instead: bool = False
    """The server had not taken the token before this one."""
    refused: str | None = None
    """Why it was not renewed, and never will be."""
    wanted: str | None = None
    """Scopes that the server has asked for since: the next login asks for them too."""

    def is_fresh(self, now: datetime) -> bool:
        """May it be used as it is?"""
        if self.refused or self.expires is None:
            return not self.refused
        return now < self.expires - min(EARLY_RENEWAL, (self.expires - self.since) / 10)

    @property
    def secrets(self) -> list[Secret]:
        """What nobody is told."""
        found = {"access token": self.access_token, "refresh token": self.refresh_token}
        found["client secret"] = secret if isinstance(secret := self.client.get("client_secret"), str) else None
        return [Secret(name, value) for name, value in found.items() if value]


def format_login_command(name: str) -> str:
    """What makes a login."""
    return f"`holdfast mcp login {name}`"


class LoginChange(Protocol):
    """A login that is being changed: by nobody else, of all processes."""

    async def read(self) -> Login | None:
        """The login; None when there is none, NotAuthorized when it cannot be gone by."""

    async def write(self, login: Login) -> None:
        """Keep it, all of it or nothing. HoldfastError when that cannot be done."""


class LoginStore(Protocol):
    """Where logins are kept. Every method raises HoldfastError when that cannot be had."""

    @property
    def is_shared(self) -> bool:
        """Are they those of all hosts?"""

    async def list_names(self) -> list[str]:
        """The servers that there are logins at."""

    async def read_stamp(self, name: str) -> object | None:
        """Another one whenever the login is another; None when there is none."""

    async def read(self, name: str) -> Login | None:
        """The login, as of a second ago; None when there is none, NotAuthorized when it cannot be gone by."""

    def open_change(self, name: str) -> AbstractAsyncContextManager[LoginChange]:
        """One at a time, of all processes. HoldfastError when somebody else takes too long."""

    async def remove(self, name: str) -> bool:
        """Forget it, when nobody changes it; False when there was none."""

    def copy_for_loop(self) -> LoginStore:
        """The same for another event loop."""

    async def disconnect(self) -> None:
        """Let go of what is open, until it is needed again."""


class LoginFiles:
    """Logins of one host: files of a folder."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def list_names(self) -> list[str]:
        """The servers that there are logins at."""
        return list_logins(self._folder)

    async def read_stamp(self, name: str) -> object | None:
        """Another one whenever the file is another."""
        return LoginFile(self._folder, name).read_stamp()

    async def read(self, name: str) -> Login | None:
        """The login of a file."""
        return LoginFile(self._folder, name).read()

    @asynccontextmanager
    async def open_change(self, name: str) -> AsyncIterator[LoginChange]:
        """With its lock held."""
        file = LoginFile(self._folder, name)
        with file.hold_lock():
            yield _FileChange(file)

    async def remove(self, name: str) -> bool:
        """Forget it."""
        return LoginFile(self._folder, name).remove()

    def copy_for_loop(self) -> LoginFiles:
        """Itself: files know no event loops."""
        return self

    async def disconnect(self) -> None:
        """Nothing: nothing is open."""


class _FileChange:
    def __init__(self, file: LoginFile) -> None:
        self._file = file

    async def read(self) -> Login | None:
        return self._file.read()

    async def write(self, login: Login) -> None:
        self._file.write(login)


class LoginFile:
    """The login at one server, if there is one."""

    def __init__(self, folder: Path, name: str) -> None:
        """BadInput when no server can be called so."""
        self.name = check_server_name(name)
        self.file = folder / f"{name}.json"

    def read(self) -> Login | None:
        """The login; None when there is none, NotAuthorized when it cannot be gone by."""
        try:
            data = self._read_bytes()
            return None if data is None else Login.model_validate_json(data)
        except ValidationError:
            raise self._build_unfit("is damaged") from None

    def write(self, login: Login) -> None:
        """Keep it, all of it or nothing. HoldfastError when that cannot be done."""
        try:
            write_whole(self.file, login.model_dump_json(indent=2, exclude_none=True).encode() + b"\n")
        except OSError as error:
            raise self._build_write_error(error) from None

    def remove(self) -> bool:
        """Forget it; False when there was none. Takes the lock."""
        if not self.file.parent.exists():
            return False
        with self.hold_lock():
            try:
                self.file.unlink()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise self._build_write_error(error) from None
            return True

    def read_stamp(self) -> tuple[int, int] | None:
        """Is another one whenever the file is."""
        try:
            status = self.file.stat(follow_symlinks=False)
        except OSError:
            return None
        return status.st_ctime_ns, status.st_ino

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """One at a time, of all processes. HoldfastError when somebody else takes too long."""
        with ExitStack() as held:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self.file.parent.chmod(0o700)
                busy = f"somebody else is changing the login at {self.name!r}: try again"
                held.enter_context(hold_lock(self.file, LOCK_SECONDS, busy))
            except OSError as error:
                raise self._build_write_error(error) from None
            yield

    def _read_bytes(self) -> bytes | None:
        """What is in the file. Never waits."""
        try:
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if problem := _explain_exposure(os.fstat(descriptor)):
                    raise self._build_unfit(problem)
                data = os.read(descriptor, SIZE_LIMIT + 1)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._build_unfit(f"cannot be read: {error.strerror or error}") from None
        if len(data) > SIZE_LIMIT:
            raise self._build_unfit("is damaged")
        return data

    def _build_unfit(self, why: str) -> NotAuthorized:
        return NotAuthorized(f"the login is not used: {str(self.file)!r} {why}")

    def _build_write_error(self, error: OSError) -> HoldfastError:
        return HoldfastError(f"{str(self.file)!r} cannot be written: {error.strerror or error}")


def check_server_name(name: str) -> str:
    """The name of a server; BadInput when none can be called so."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"no server can be called {shorten_text(name, 80)!r}: letters, digits, _ and -, at most 40")
    return name


def list_logins(folder: Path) -> list[str]:
    """The servers that there are logins at."""
    try:
        return sorted(one.stem for one in folder.glob("*.json") if _NAME.fullmatch(one.stem))
    except OSError:
        return []


def read_clock() -> datetime:
    """As logins count time."""
    return datetime.now(UTC)


def _explain_exposure(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid != os.geteuid():
        return "belongs to somebody else"
    if status.st_mode & 0o077:
        return "may be read or written by others, so its tokens may be known to them"
    return None
