"""Tools of MCP servers that have changed since they were last let through: found, shown, accepted.

For turns in which nobody can be asked: there a changed tool is denied until somebody has looked.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from holdfast.activities.mcp.authorizing import Authorizing
from holdfast.activities.mcp.definitions import Definition
from holdfast.activities.mcp.names import tool_name
from holdfast.activities.mcp.servers import Servers
from holdfast.activities.mcp.servers_file import configured
from holdfast.activities.mcp.shared_logins import open_logins
from holdfast.activities.mcp.status import State
from holdfast.configuration import McpSettings
from holdfast.errors import BadInput
from holdfast.model import Data
from holdfast.settings import Settings
from holdfast.suggestions import did_you_mean
from holdfast.workers.awaited import looked
from holdfast.workers.mcp_servers import server_called


class ChangedTool(Data):
    """A tool that is not as it was."""

    server: str
    tool: str
    """As the server calls it."""
    name: str
    """As models know it."""
    change: str
    diff: str
    now: Definition

    def described(self) -> dict[str, object]:
        """As JSON."""
        return self.model_dump(mode="json", exclude={"now"})


class Compared(Data):
    """What was found, and which servers could not be looked at."""

    tools: tuple[ChangedTool, ...] = ()
    unseen: dict[str, str] = Field(default_factory=dict)


class Comparison:
    """The servers of the settings, or one of them, beside what is known of their tools."""

    def __init__(self, settings: Settings, only: str | None = None) -> None:
        found = {only: server_called(settings, only)} if only else configured(settings.mcp)[0]
        self._authorizing = Authorizing(open_logins(settings))
        self._servers = Servers(McpSettings(servers=found), settings.mcp_known, authorize=self._authorizing)

    async def look(self, *, quietly: bool = False) -> Compared:
        """Connect, and compare."""
        try:
            statuses = await looked(self._servers, quietly=quietly)
        finally:
            await self._authorizing.rest()
        unseen = {one.name: one.problem or "it does not answer" for one in statuses if one.state is not State.CONNECTED}
        tools = tuple(
            ChangedTool(
                server=server,
                tool=now.name,
                name=tool_name(server, now.name),
                change=change.sentence,
                diff=change.diff,
                now=now,
            )
            for server, now, change in self._servers.changes()
            if server not in unseen
        )
        return Compared(tools=tools, unseen=unseen)

    def accept(self, tools: Sequence[ChangedTool]) -> None:
        """Let these through as they are now."""
        for one in tools:
            self._servers.accept(one.server, one.now)


def chosen(found: Compared, names: Sequence[str]) -> list[ChangedTool]:
    """The changed tools that are called so, by either name; all of them when none is named. BadInput for another."""
    if not names:
        return list(found.tools)
    known = {name: one for one in found.tools for name in (one.tool, one.name)}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "`holdfast mcp changes` lists them."
            raise BadInput(f"no tool called {name!r} has changed. {hint}")
    return list({known[name].name: known[name] for name in names}.values())
