"""MCP servers as the command line sees them: looked at, logged in to, logged out of. What workers do is theirs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from holdfast.activities.catalogue.registry import Entry, Registry
from holdfast.activities.mcp.authorizing import Authorizing
from holdfast.activities.mcp.logins import Login, Logins, NotAuthorized
from holdfast.activities.mcp.places import place_of
from holdfast.activities.mcp.reading import ReadingTool
from holdfast.activities.mcp.resolving import Resolved, resolve
from holdfast.activities.mcp.secrets import Secret, Secrets
from holdfast.activities.mcp.servers import Servers
from holdfast.activities.mcp.servers_file import Refusal, configured, disabled
from holdfast.activities.mcp.shared_logins import open_logins
from holdfast.activities.mcp.status import ServerStatus
from holdfast.activities.mcp.tool import McpTool
from holdfast.configuration import McpOauthSettings, McpServerSettings, McpSettings
from holdfast.content import shorten
from holdfast.errors import BadInput, HoldfastError
from holdfast.model import Data
from holdfast.settings import Settings
from holdfast.suggestions import did_you_mean
from holdfast.workers.awaited import looked
from holdfast.workers.browsing import browser

WORDS_LIMIT = 500
"""Characters of what somebody else says went wrong."""


class LoginStatus(Data):
    """What is known of a login, without what is secret about it."""

    scope: str | None = None
    expires: str | None = None
    """Of its token, which is renewed where it can be."""
    renewable: bool = False
    problem: str | None = None


class SeenTool(Data):
    """A tool of a server."""

    name: str
    own_name: str
    """As the server calls it, and the settings: `effects`, `include`, `exclude`."""
    effect: str
    asks: bool
    """Is somebody asked before it runs, where no rule says otherwise?"""
    changed: bool
    """Is it not what was let through before? Then somebody is asked, whatever a rule says."""


class Seen(Data):
    """A server that was looked at."""

    status: ServerStatus
    login: LoginStatus | None = None
    tools: tuple[SeenTool, ...] = ()

    @property
    def effects(self) -> str:
        """How many tools do what when repeated."""
        found = Counter(tool.effect for tool in self.tools)
        return ", ".join(f"{count} {effect}" for effect, count in sorted(found.items()))

    def described(self) -> dict[str, JsonValue]:
        """The same as JSON."""
        told: dict[str, Any] = self.status.model_dump(mode="json")
        tools = [tool.model_dump(mode="json") for tool in self.tools]
        return {**told, "tools": tools, "login": self.login.model_dump(mode="json") if self.login else None}


@dataclass(frozen=True)
class Looked:
    """All servers that were looked at, and what is none."""

    servers: tuple[Seen, ...]
    refused: tuple[Refusal, ...]


def names(settings: Settings) -> list[str]:
    """Of all servers of the settings."""
    return sorted(configured(settings.mcp)[0])


def server_called(settings: Settings, name: str) -> McpServerSettings:
    """The settings of one server; BadInput when there is none of this name, or it cannot be used."""
    found, refused = configured(settings.mcp)
    if name in found:
        return found[name]
    for refusal in refused:
        if refusal.source.partition(" of ")[0] == f"MCP server {name}":
            raise BadInput(f"{refusal.source} is not used: {refusal.reason}")
    for file in settings.mcp.files:
        if name in disabled(file):
            raise BadInput(f"the MCP server {name!r} is switched off in {file} (`disabled`)")
    hint = did_you_mean(name, found) or "`holdfast mcp list` names them."
    raise BadInput(f"no MCP server is called {shorten(name, 80)!r}. {hint}")


async def look(settings: Settings, only: str | None = None, *, quietly: bool = False) -> Looked:
    """Connect to the servers, or to one of them, and hear what they have."""
    found, refused = configured(settings.mcp)
    wanted = McpSettings(servers={only: server_called(settings, only)} if only else found)
    async with logins_of(settings) as logins:
        servers = Servers(wanted, settings.mcp_known, authorize=Authorizing(logins))
        registry = Registry()
        servers.fill(registry)
        statuses = await looked(servers, quietly=quietly)
        seen = tuple([await _seen(status, registry, logins, wanted.servers[status.name]) for status in statuses])
    return Looked(seen, () if only else tuple(refused))


async def _seen(status: ServerStatus, registry: Registry, logins: Logins, server: McpServerSettings) -> Seen:
    tools = [entry for entry in registry.entries if entry.declaration.server == status.name]
    login = await login_status(logins, status.name) if server.url else None
    where = status.model_copy(update={"place": place_of(server, os.environ) or status.place})
    return Seen(status=where, login=login, tools=tuple(map(_seen_tool, tools)))


def _seen_tool(entry: Entry) -> SeenTool:
    tool, declared = entry.tool, entry.declaration
    assert isinstance(tool, McpTool | ReadingTool), "servers bring no others"
    changed = tool.build({}, Path()).changed() is not None
    return SeenTool(
        name=declared.name,
        own_name=tool.definition.name if isinstance(tool, McpTool) else tool.kind,
        effect=declared.effect.value,
        asks=tool.asks_first or changed,
        changed=changed,
    )


@asynccontextmanager
async def logins_of(settings: Settings) -> AsyncIterator[Logins]:
    """Where logins are kept, until the end of the block."""
    logins = open_logins(settings)
    try:
        yield logins
    finally:
        await logins.rest()


async def login_status(logins: Logins, name: str) -> LoginStatus | None:
    """What is known of a login, if there is one."""
    try:
        login = await logins.read(name)
    except HoldfastError as error:
        return LoginStatus(problem=str(error))
    return _status_of(login) if login else None


def _status_of(login: Login) -> LoginStatus:
    return LoginStatus(
        scope=login.scope,
        expires=login.expires.isoformat(timespec="seconds") if login.expires else None,
        renewable=login.refresh_token is not None or login.grant == "client_credentials",
        problem=login.refused,
    )


async def log_in(
    settings: Settings, name: str, tell: Callable[[str], None], *, opens: bool, pastes: bool, seconds: float
) -> LoginStatus:
    """Log in to a server, and keep that. NotAuthorized with the reason when nothing came of it."""
    server = server_called(settings, name)
    resolved, oauth = _reached(name, server), server.oauth or McpOauthSettings()
    from holdfast.activities.mcp.oauth import Asked, logged_in, with_credentials  # it brings the mcp package along

    async with logins_of(settings) as logins:
        before = None
        with suppress(NotAuthorized):
            before = await logins.read(name)
        asked = Asked(resolved, oauth, before if before and before.url == resolved.url else None)
        try:
            if oauth.grant == "client_credentials":
                login = await with_credentials(asked)
            else:
                async with browser(oauth.redirect_port, tell, opens=opens, pastes=pastes, seconds=seconds) as person:
                    login = await logged_in(asked, person)
        except NotAuthorized as error:
            words = shorten(resolved.secrets.hide(str(error)), WORDS_LIMIT)
            raise NotAuthorized(f"not logged in to {name!r}: {words}") from None
        async with logins.changing(name) as change:
            await change.write(login)
    return _status_of(login)


def _reached(name: str, server: McpServerSettings) -> Resolved:
    """How a server is reached that one can log in to; BadInput when it is none."""
    if server.url is None:
        raise BadInput(f"the MCP server {name!r} is started by a command: there is nothing to log in to")
    if any(header.lower() == "authorization" for header in server.headers):
        raise BadInput(f"the MCP server {name!r} has an Authorization header in the settings, so no login is used")
    try:
        return resolve(server, os.environ)
    except BadInput as error:
        raise BadInput(f"the MCP server {name!r} cannot be used: {error}") from None


async def log_out(settings: Settings, name: str) -> str | None:
    """Forget a login, here and at the authorization server. None when there was none, else what became of it there."""
    async with logins_of(settings) as logins:
        if name not in await logins.names():
            if name not in names(settings):
                server_called(settings, name)
            return None
        login = None
        with suppress(NotAuthorized):
            login = await logins.read(name)
        if not await logins.remove(name):
            return None
    return await _told_there(login, _secret(settings, name)) if login else "what was kept could not be read"


async def _told_there(login: Login, client_secret: str | None) -> str:
    from holdfast.activities.mcp.revoking import revoke

    try:
        await revoke(login, client_secret)
    except NotAuthorized as error:
        known = Secrets([*login.secrets, *([Secret("client secret", client_secret)] if client_secret else [])])
        return f"its tokens were not revoked: {shorten(known.hide(str(error)), WORDS_LIMIT)}"
    return "its tokens were revoked"


def _secret(settings: Settings, name: str) -> str | None:
    with suppress(HoldfastError):
        return resolve(server_called(settings, name), os.environ).client_secret
    return None
