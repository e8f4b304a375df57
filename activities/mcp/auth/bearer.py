"""Authorizes a worker's requests to MCP servers: with the token of a login, renewed when it expires.

A worker never asks a person: without a valid login requests are not sent, and calls fail with what to do. A renewal
runs to its end in a thread of its own, whatever is stopped meanwhile: half a renewal would lose the login.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

import httpx2

from holdfast.activities.mcp.auth.login_store import (
    Login,
    LoginChange,
    LoginStore,
    NotAuthorized,
    format_login_command,
    read_clock,
)
from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.config.schema import McpOauthSettings, McpServerSettings
from holdfast.errors import HoldfastError
from holdfast.util.secrets import Secrets
from holdfast.util.text import shorten_text, strip_controls

REFUSED_KEY = "holdfast.refused"
"""The key in a request's extensions of the error for which it must not be sent."""
RETRY_SECONDS = 30.0
"""How long a token is kept that replaced a rejected one, even if it is rejected too."""
_SCOPE = re.compile(r'\bscope="([\x21\x23-\x5b\x5d-\x7e ]{1,500})"')
_INSUFFICIENT_SCOPE = re.compile(r'\berror="?insufficient_scope\b')


class Authorizer(Protocol):
    """Authorizes requests to a server, beyond the headers of its settings."""

    def __call__(self, name: str, settings: McpServerSettings, resolved: ResolvedServer) -> httpx2.Auth | None:
        """Return the authorization for this server; None if it needs none."""

    async def read_stamp(self, name: str) -> object:
        """Return a value that changes when the login changes."""


class LoginAuthorizer:
    """Authorizes requests with the logins of a store."""

    def __init__(self, logins: LoginStore) -> None:
        self._logins = logins
        self._tokens: dict[str, ServerTokens] = {}

    def __call__(self, name: str, settings: McpServerSettings, resolved: ResolvedServer) -> httpx2.Auth | None:
        """Return the authorization for this server; None if its settings have one, or for a local server."""
        if resolved.url is None or _has_authorization(resolved.headers):
            return None
        tokens = self._tokens.get(name)
        if tokens is None or tokens.resolved is not resolved:
            tokens = ServerTokens(self._logins, name, settings.oauth or McpOauthSettings(), resolved)
            self._tokens[name] = tokens
        return BearerAuth(tokens)

    async def read_stamp(self, name: str) -> object:
        """Return a value that changes with the login, or with the error of reading it."""
        try:
            return await self._logins.read_stamp(name)
        except HoldfastError as error:
            return type(error)

    async def disconnect(self) -> None:
        """Close the connections of the store, until it is used again."""
        await self._logins.disconnect()


def describe_remedy(name: str, settings: McpServerSettings) -> str:
    """Describe what can be done when access to a server is denied."""
    if _has_authorization(settings.headers):
        return "check its Authorization header in the settings, and the variables that it refers to"
    if settings.oauth and settings.oauth.grant == "client_credentials":
        return "check `oauth` in its settings, and the variables that it refers to"
    return f"log in with {format_login_command(name)}"


def find_missing_scope(response: httpx2.Response) -> str | None:
    """Return the scopes that a server misses in a token, if it says so."""
    asked = response.headers.get("www-authenticate", "")
    found = _SCOPE.search(asked) if response.status_code == 403 and _INSUFFICIENT_SCOPE.search(asked) else None
    return found[1] if found else None


class BearerAuth(httpx2.Auth):
    """Sends the token of a login. A rejected token is renewed once."""

    def __init__(self, tokens: ServerTokens) -> None:
        self._tokens = tokens

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request, and once more with a new token if it was rejected."""
        token = await self._set_token(request)
        response = yield request
        if token and response.status_code == 401:
            await self._set_token(request, rejected=token)
            response = yield request
        if token and (scope := find_missing_scope(response)):
            with suppress(HoldfastError):  # the caller reports the scope in any case
                await self._tokens.note_scope(scope)

    async def prepare_token(self) -> None:
        """Renew the token in advance if necessary. Errors are left to the request."""
        with suppress(HoldfastError):
            await self._tokens.get_token()

    async def _set_token(self, request: httpx2.Request, rejected: str | None = None) -> str | None:
        """Set the token of the request, and return it. When there should be one and is none, the request is marked."""
        request.headers.pop("Authorization", None)
        try:
            token = await self._tokens.get_token(rejected)
        except HoldfastError as error:
            request.extensions = {**request.extensions, REFUSED_KEY: error}
            return None
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return token


class ServerTokens:
    """The tokens for one server."""

    def __init__(self, logins: LoginStore, name: str, oauth: McpOauthSettings, resolved: ResolvedServer) -> None:
        self._logins = logins
        self._name = name
        self._oauth = oauth
        self.resolved = resolved
        self._thread = ThreadPoolExecutor(1, "holdfast-mcp-tokens")
        """A thread of its own: an authorization server that hangs delays nobody else."""
        self._seen: object = None
        self._login: Login | None = None
        self._renewing: asyncio.Future[Login] | None = None

    async def get_token(self, rejected: str | None = None) -> str | None:
        """Return a valid token other than the `rejected` one; None without a login. HoldfastError when it cannot be
        renewed.
        """
        login = await self._read_login()
        if login is None and not self._is_unattended:
            return None
        if login is None or login.access_token == rejected or not login.is_fresh(read_clock()):
            login = await self._renew_once(rejected)
        return login.access_token

    async def note_scope(self, scope: str) -> None:
        """Remember a scope that the server requires; the next login asks for it."""
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: asyncio.run(self._note_wanted(scope)))

    @property
    def _is_unattended(self) -> bool:
        """Whether tokens are requested with client credentials, without a person."""
        return self._oauth.grant == "client_credentials"

    async def _read_login(self) -> Login | None:
        """Read the login, if it has changed."""
        seen = await self._logins.read_stamp(self._name)
        if seen is None or seen != self._seen:
            self._login = self._check_login(await self._logins.read(self._name))
            self._seen = seen
            self.resolved.secrets.add(self._login.secrets if self._login else ())
        return self._login

    async def _renew_once(self, rejected: str | None) -> Login:
        """Renew the login once for all who wait for it. Cancelling them does not cancel the renewal."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: asyncio.run(self._renew_in_thread(rejected))
            )
            self._renewing.add_done_callback(lambda task: task.cancelled() or task.exception())
        login = await asyncio.shield(self._renewing)
        self.resolved.secrets.add(login.secrets)
        return login

    async def _renew_in_thread(self, rejected: str | None) -> Login:
        """Renew the login, unless another process just has. Runs in an event loop of its own."""
        logins = self._logins.copy_for_loop()
        try:
            async with logins.open_change(self._name) as change:
                return await self._renew_login(change, rejected)
        finally:
            await logins.disconnect()

    async def _renew_login(self, change: LoginChange, rejected: str | None) -> Login:
        login = self._check_login(await change.read())
        if login and login.access_token != rejected and login.is_fresh(read_clock()):
            return login
        if login is None and not self._is_unattended:
            raise NotAuthorized("there is no login")
        if login and rejected and login.instead and (read_clock() - login.since).total_seconds() < RETRY_SECONDS:
            raise NotAuthorized("it rejects the token that was just issued for it")
        if login:
            await change.write(login)  # a token that could not be stored must not be requested
        try:
            renewed = await self._request_login(login)
        except NotAuthorized as error:
            raise await self._build_not_renewed(change, login, error) from None
        renewed = renewed.model_copy(update={"instead": rejected is not None})
        await change.write(renewed)
        return renewed

    async def _request_login(self, login: Login | None) -> Login:
        from holdfast.activities.mcp.auth import oauth  # imports the mcp package

        asked = oauth.LoginRequest(self.resolved, self._oauth, login)
        if login is None or self._is_unattended:
            return await oauth.fetch_with_credentials(asked)
        if not login.refresh_token:
            raise NotAuthorized("its token has expired and cannot be renewed")
        return await oauth.refresh_login(login, asked)

    async def _build_not_renewed(self, change: LoginChange, login: Login | None, error: NotAuthorized) -> NotAuthorized:
        """The error of a failed renewal. A denied login is not tried again: some servers take that for theft."""
        from holdfast.activities.mcp.auth.login_errors import Denied

        known = Secrets(login.secrets if login else ())
        words = shorten_text(strip_controls(known.hide(self.resolved.secrets.hide(str(error)))), 500)
        if login and not self._is_unattended and isinstance(error, Denied):
            await change.write(login.model_copy(update={"refused": words}))
        return NotAuthorized(f"there is no token for it: {words}")

    def _check_login(self, login: Login | None) -> Login | None:
        """Return the login if it is valid for this server. NotAuthorized otherwise."""
        if login is None or (
            self._is_unattended and (login.grant, login.url) != (self._oauth.grant, self.resolved.url)
        ):
            return None
        if login.url != self.resolved.url or login.grant != self._oauth.grant:
            raise NotAuthorized("the login is for another address or grant than the settings have now")
        if login.refused:
            raise NotAuthorized(f"the login was not renewed: {login.refused}")
        return login

    async def _note_wanted(self, scope: str) -> None:
        logins = self._logins.copy_for_loop()
        try:
            async with logins.open_change(self._name) as change:
                login = await change.read()
                known = f"{login.wanted or ''} {login.scope or ''}".split() if login else []
                new = [one for one in scope.split() if one not in known]
                if login and new:
                    wanted = " ".join([*(login.wanted or "").split(), *new])
                    await change.write(login.model_copy(update={"wanted": wanted}))
        finally:
            await logins.disconnect()


def _has_authorization(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)
