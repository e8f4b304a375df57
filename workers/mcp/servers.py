"""MCP servers for the command line: inspected, logged in, logged out. Workers are not involved."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from holdfast.activities.mcp.auth.bearer import LoginAuthorizer
from holdfast.activities.mcp.auth.login_store import Login, LoginStore, NotAuthorized
from holdfast.activities.mcp.auth.shared_logins import open_login_store
from holdfast.activities.mcp.resolve import ResolvedServer, resolve_server
from holdfast.activities.mcp.server.lifecycle import ServerStatus
from holdfast.activities.mcp.server_secrets import format_command
from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.mcp.tools.mcp_tool import McpTool
from holdfast.activities.mcp.tools.resource_tools import ReadingTool
from holdfast.activities.registry.registry import RegisteredTool, Registry
from holdfast.config.mcp_servers_file import ServerRefusal, load_configured, load_disabled
from holdfast.config.schema import McpOauthSettings, McpServerSettings, McpSettings
from holdfast.config.settings import Settings
from holdfast.domain.base import Data
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.secrets import Secret, Secrets
from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import shorten_text
from holdfast.workers.mcp.browser_login import open_browser
from holdfast.workers.mcp.progress import connect_with_progress

WORDS_LIMIT = 500
"""Characters of an error of an authorization server."""


class LoginStatus(Data):
    """The state of a login, without its secrets."""

    scope: str | None = None
    expires: str | None = None
    """The expiry of its token, which is renewed if possible."""
    renewable: bool = False
    problem: str | None = None


class SeenTool(Data):
    """A tool of a server."""

    name: str
    own_name: str
    """The server's name for it, which the settings use: `effects`, `include`, `exclude`."""
    effect: str
    asks: bool
    """A person is asked before it runs, where no rule says otherwise."""
    changed: bool
    """Its definition differs from the approved one, so a person is asked whatever a rule says."""


class SeenServer(Data):
    """The state of a server, its login and its tools."""

    status: ServerStatus
    login: LoginStatus | None = None
    tools: tuple[SeenTool, ...] = ()

    @property
    def effect_summary(self) -> str:
        """How many tools have which effect."""
        found = Counter(tool.effect for tool in self.tools)
        return ", ".join(f"{count} {effect}" for effect, count in sorted(found.items()))

    def as_json(self) -> dict[str, JsonValue]:
        """The server as JSON."""
        status: dict[str, Any] = self.status.model_dump(mode="json")
        tools = [tool.model_dump(mode="json") for tool in self.tools]
        return {**status, "tools": tools, "login": self.login.model_dump(mode="json") if self.login else None}


@dataclass(frozen=True)
class ServerOverview:
    """The servers, and the entries of the settings that are unusable."""

    servers: tuple[SeenServer, ...]
    refused: tuple[ServerRefusal, ...]


def list_server_names(settings: Settings) -> list[str]:
    """List the names of all configured servers."""
    return sorted(load_configured(settings.mcp)[0])


def get_server(settings: Settings, name: str) -> McpServerSettings:
    """Return the settings of a server. BadInput when there is none with this name, or it is unusable."""
    found, refused = load_configured(settings.mcp)
    if name in found:
        return found[name]
    for refusal in refused:
        if refusal.source.partition(" of ")[0] == f"MCP server {name}":
            raise BadInput(f"{refusal.source} is not used: {refusal.reason}")
    for file in settings.mcp.files:
        if name in load_disabled(file):
            raise BadInput(f"the MCP server {name!r} is switched off in {file} (`disabled`)")
    hint = did_you_mean(name, found) or "`holdfast mcp list` names them."
    raise BadInput(f"no MCP server is called {shorten_text(name, 80)!r}. {hint}")


async def look_at_servers(settings: Settings, only: str | None = None, *, quietly: bool = False) -> ServerOverview:
    """Connect to all servers, or to one, and return what they have."""
    found, refused = load_configured(settings.mcp)
    wanted = McpSettings(servers={only: get_server(settings, only)} if only else found)
    async with use_logins(settings) as logins:
        servers = McpServers(wanted, settings.mcp_tools_folder, authorize=LoginAuthorizer(logins))
        registry = Registry()
        servers.fill_registry(registry)
        statuses = await connect_with_progress(servers, quietly=quietly)
        seen = tuple([await _build_seen(status, registry, logins, wanted.servers[status.name]) for status in statuses])
    return ServerOverview(seen, () if only else tuple(refused))


async def _build_seen(
    status: ServerStatus, registry: Registry, logins: LoginStore, server: McpServerSettings
) -> SeenServer:
    tools = [entry for entry in registry.entries if entry.declaration.server == status.name]
    login = await find_login_status(logins, status.name) if server.url else None
    where = status.model_copy(update={"place": format_command(server, os.environ) or status.place})
    return SeenServer(status=where, login=login, tools=tuple(map(_build_seen_tool, tools)))


def _build_seen_tool(entry: RegisteredTool) -> SeenTool:
    tool, declared = entry.tool, entry.declaration
    assert isinstance(tool, McpTool | ReadingTool), "servers bring no others"
    changed = tool.build({}, Path()).describe_tool_change() is not None
    return SeenTool(
        name=declared.name,
        own_name=tool.definition.name if isinstance(tool, McpTool) else tool.kind,
        effect=declared.effect.value,
        asks=tool.asks_first or changed,
        changed=changed,
    )


@asynccontextmanager
async def use_logins(settings: Settings) -> AsyncIterator[LoginStore]:
    """Yield the store of logins, until the end of the block."""
    logins = open_login_store(settings)
    try:
        yield logins
    finally:
        await logins.disconnect()


async def find_login_status(logins: LoginStore, name: str) -> LoginStatus | None:
    """Return the state of a login; None without one."""
    try:
        login = await logins.read(name)
    except HoldfastError as error:
        return LoginStatus(problem=str(error))
    return _build_login_status(login) if login else None


def _build_login_status(login: Login) -> LoginStatus:
    return LoginStatus(
        scope=login.scope,
        expires=login.expires.isoformat(timespec="seconds") if login.expires else None,
        renewable=login.refresh_token is not None or login.grant == "client_credentials",
        problem=login.refused,
    )


async def log_in(
    settings: Settings, name: str, tell: Callable[[str], None], *, opens: bool, pastes: bool, seconds: float
) -> LoginStatus:
    """Log in to a server and store the login. NotAuthorized with the reason when it fails."""
    server = get_server(settings, name)
    resolved, oauth = _resolve_server(name, server), server.oauth or McpOauthSettings()
    from holdfast.activities.mcp.auth.oauth import LoginRequest, fetch_with_credentials, run_login

    async with use_logins(settings) as logins:
        before = None
        with suppress(NotAuthorized):
            before = await logins.read(name)
        asked = LoginRequest(resolved, oauth, before if before and before.url == resolved.url else None)
        try:
            if oauth.grant == "client_credentials":
                login = await fetch_with_credentials(asked)
            else:
                async with open_browser(
                    oauth.redirect_port, tell, opens=opens, pastes=pastes, seconds=seconds
                ) as person:
                    login = await run_login(asked, person)
        except NotAuthorized as error:
            words = shorten_text(resolved.secrets.hide(str(error)), WORDS_LIMIT)
            raise NotAuthorized(f"not logged in to {name!r}: {words}") from None
        async with logins.open_change(name) as change:
            await change.write(login)
    return _build_login_status(login)


def _resolve_server(name: str, server: McpServerSettings) -> ResolvedServer:
    """How a server is reached. BadInput when it has no login."""
    if server.url is None:
        raise BadInput(f"the MCP server {name!r} is started by a command: there is nothing to log in to")
    if any(header.lower() == "authorization" for header in server.headers):
        raise BadInput(f"the MCP server {name!r} has an Authorization header in the settings, so no login is used")
    try:
        return resolve_server(server, os.environ)
    except BadInput as error:
        raise BadInput(f"the MCP server {name!r} cannot be used: {error}") from None


async def log_out(settings: Settings, name: str) -> str | None:
    """Remove a login, and revoke it. None when there was none, else what became of the revocation."""
    async with use_logins(settings) as logins:
        if name not in await logins.list_names():
            if name not in list_server_names(settings):
                get_server(settings, name)
            return None
        login = None
        with suppress(NotAuthorized):
            login = await logins.read(name)
        if not await logins.remove(name):
            return None
    return (
        await _revoke_remotely(login, _find_client_secret(settings, name))
        if login
        else "the stored login could not be read, so its tokens were not revoked"
    )


async def _revoke_remotely(login: Login, client_secret: str | None) -> str:
    from holdfast.activities.mcp.auth.oauth import revoke_login

    try:
        await revoke_login(login, client_secret)
    except NotAuthorized as error:
        known = Secrets([*login.secrets, *([Secret("client secret", client_secret)] if client_secret else [])])
        return f"its tokens were not revoked: {shorten_text(known.hide(str(error)), WORDS_LIMIT)}"
    return "its tokens were revoked"


def _find_client_secret(settings: Settings, name: str) -> str | None:
    with suppress(HoldfastError):
        return resolve_server(get_server(settings, name), os.environ).client_secret
    return None
