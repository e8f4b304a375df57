"""MCP servers: each is connected to as a worker here would, and closed again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.util.findings import Finding, ok, problem, warning
from holdfast.util.text import shorten_text
from holdfast.workers.doctor.check import Check, CheckContext

if TYPE_CHECKING:
    from holdfast.activities.mcp.server.lifecycle import ServerStatus
    from holdfast.config.settings import Settings

SERVERS_SECONDS = 20.0
ENDING_SECONDS = 10.0


async def _examine_servers(around: CheckContext) -> list[Finding]:
    from holdfast.activities.mcp.auth.bearer import LoginAuthorizer
    from holdfast.activities.mcp.auth.shared_logins import open_login_store
    from holdfast.activities.mcp.servers import McpServers
    from holdfast.activities.registry.registry import Registry

    settings = around.settings
    with tempfile.TemporaryDirectory() as folder:  # what they say now is not to be what is known of them
        logins = open_login_store(settings)
        servers = McpServers(settings.mcp, Path(folder), authorize=LoginAuthorizer(logins))
        if not servers.names and not servers.refusals:
            return [ok("none in the settings")]
        servers.fill_registry(Registry())
        try:
            statuses = await servers.fetch_statuses(SERVERS_SECONDS)
        finally:
            await logins.disconnect()
    refused = [
        problem(f"{one.source} is not used: {one.reason}", "correct it in the settings") for one in servers.refusals
    ]
    return [*refused, *_examine_leftovers(settings), *map(_judge_status, statuses)]


def _examine_leftovers(settings: Settings) -> list[Finding]:
    """Logins of the time before the ledger was shared."""
    from holdfast.activities.mcp.auth.login_store import list_logins

    names = list_logins(settings.mcp_logins_folder) if settings.ledger else []
    where = f"in {settings.mcp_logins_folder} are not used, since logins are in the shared ledger"
    do = "log in once more with holdfast mcp login, and remove these files"
    return [warning(f"the logins {shorten_text(', '.join(names), 200)} {where}", do)] if names else []


def _judge_status(status: ServerStatus) -> Finding:
    from holdfast.activities.mcp.server.lifecycle import ServerState

    look = f"holdfast mcp test {status.name}"
    if status.state is ServerState.CONNECTED and not status.problem:
        if status.left_out:
            return warning(f"{status.name}: {len(status.left_out)} of its tools are left out", look)
        return ok(f"{status.name} is connected, with {status.tools} tools")
    why = shorten_text(
        " ".join((status.problem or f"it was not ready within {SERVERS_SECONDS:g} seconds").split()), 500
    )
    if status.state is ServerState.UNAUTHORIZED:
        return problem(f"{status.name}: {why}", f"holdfast mcp login {status.name}")
    return problem(f"{status.name}: {why}", f"{look}; its calls wait for it, or fail")


CHECKS = (Check("mcp", _examine_servers, seconds=SERVERS_SECONDS + ENDING_SECONDS),)
