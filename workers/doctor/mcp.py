"""MCP servers: each is connected to as a worker here would, and closed again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.content import shorten
from holdfast.workers.doctor.checks import Check, Surroundings
from holdfast.workers.doctor.findings import Finding, ok, problem, warning

if TYPE_CHECKING:
    from holdfast.activities.mcp.status import ServerStatus
    from holdfast.settings import Settings

SECONDS = 20.0
ENDING_SECONDS = 10.0


async def _servers(around: Surroundings) -> list[Finding]:
    from holdfast.activities.catalogue.registry import Registry
    from holdfast.activities.mcp.authorizing import Authorizing
    from holdfast.activities.mcp.servers import Servers
    from holdfast.activities.mcp.shared_logins import open_logins

    settings = around.settings
    with tempfile.TemporaryDirectory() as folder:  # what they say now is not to be what is known of them
        logins = open_logins(settings)
        servers = Servers(settings.mcp, Path(folder), authorize=Authorizing(logins))
        if not servers.names and not servers.refused:
            return [ok("none in the settings")]
        servers.fill(Registry())
        try:
            statuses = await servers.look(SECONDS)
        finally:
            await logins.rest()
    refused = [
        problem(f"{one.source} is not used: {one.reason}", "correct it in the settings") for one in servers.refused
    ]
    return [*refused, *_left_over(settings), *map(_judged, statuses)]


def _left_over(settings: Settings) -> list[Finding]:
    """Logins of the time before the ledger was shared."""
    from holdfast.activities.mcp.logins import known_logins

    names = known_logins(settings.mcp_logins) if settings.ledger else []
    where = f"in {settings.mcp_logins} are not used, since logins are in the shared ledger"
    do = "log in once more with holdfast mcp login, and remove these files"
    return [warning(f"the logins {shorten(', '.join(names), 200)} {where}", do)] if names else []


def _judged(status: ServerStatus) -> Finding:
    from holdfast.activities.mcp.status import State

    look = f"holdfast mcp test {status.name}"
    if status.state is State.CONNECTED and not status.problem:
        if status.left_out:
            return warning(f"{status.name}: {len(status.left_out)} of its tools are left out", look)
        return ok(f"{status.name} is connected, with {status.tools} tools")
    why = shorten(" ".join((status.problem or f"it was not ready within {SECONDS:g} seconds").split()), 500)
    if status.state is State.UNAUTHORIZED:
        return problem(f"{status.name}: {why}", f"holdfast mcp login {status.name}")
    return problem(f"{status.name}: {why}", f"{look}; its calls wait for it, or fail")


CHECKS = (Check("mcp", _servers, seconds=SECONDS + ENDING_SECONDS),)
