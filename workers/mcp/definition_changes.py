"""Tools of MCP servers whose definition has changed since it was approved: found, shown, approved.

In a turn that asks nobody a changed tool is denied until a person has approved it here.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from holdfast.activities.mcp.auth.bearer import LoginAuthorizer
from holdfast.activities.mcp.auth.shared_logins import open_login_store
from holdfast.activities.mcp.server.definitions import Definition
from holdfast.activities.mcp.server.lifecycle import ServerState
from holdfast.activities.mcp.servers import McpServers
from holdfast.config.mcp_servers_file import load_configured
from holdfast.config.schema import McpSettings
from holdfast.config.settings import Settings
from holdfast.domain.base import Data
from holdfast.errors import BadInput
from holdfast.util.mcp_names import build_tool_name
from holdfast.util.suggestions import did_you_mean
from holdfast.workers.mcp.progress import connect_with_progress
from holdfast.workers.mcp.servers import get_server


class ChangedTool(Data):
    """A tool whose definition differs from its pin."""

    server: str
    tool: str
    """The server's name for it."""
    name: str
    """Our name for it, which models see."""
    change: str
    diff: str
    now: Definition

    def as_json(self) -> dict[str, object]:
        """The tool as JSON."""
        return self.model_dump(mode="json", exclude={"now"})


class ComparedTools(Data):
    """The changed tools, and the servers that could not be reached with the reason."""

    tools: tuple[ChangedTool, ...] = ()
    unseen: dict[str, str] = Field(default_factory=dict)


class ToolComparison:
    """Compares the tools of all configured servers, or of one, with their pins."""

    def __init__(self, settings: Settings, only: str | None = None) -> None:
        found = {only: get_server(settings, only)} if only else load_configured(settings.mcp)[0]
        self._authorizing = LoginAuthorizer(open_login_store(settings))
        self._servers = McpServers(McpSettings(servers=found), settings.mcp_tools_folder, authorize=self._authorizing)

    async def compare_tools(self, *, quietly: bool = False) -> ComparedTools:
        """Connect to the servers and compare."""
        try:
            statuses = await connect_with_progress(self._servers, quietly=quietly)
        finally:
            await self._authorizing.disconnect()
        unseen = {
            one.name: one.problem or "it does not answer" for one in statuses if one.state is not ServerState.CONNECTED
        }
        tools = tuple(
            ChangedTool(
                server=server,
                tool=now.name,
                name=build_tool_name(server, now.name),
                change=change.sentence,
                diff=change.diff,
                now=now,
            )
            for server, now, change in self._servers.list_changes()
            if server not in unseen
        )
        return ComparedTools(tools=tools, unseen=unseen)

    def accept_tools(self, tools: Sequence[ChangedTool]) -> None:
        """Pin these tools as approved."""
        for one in tools:
            self._servers.accept_tool(one.server, one.now)


def choose_tools(found: ComparedTools, names: Sequence[str]) -> list[ChangedTool]:
    """Return the changed tools with these names, of either kind; all when none is named. BadInput for an unknown
    name.
    """
    if not names:
        return list(found.tools)
    known = {name: one for one in found.tools for name in (one.tool, one.name)}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "`holdfast mcp changes` lists them."
            raise BadInput(f"no tool called {name!r} has changed. {hint}")
    return list({known[name].name: known[name] for name in names}.values())
