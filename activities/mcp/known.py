"""What is known of a server's tool without connecting to it: from the settings, and from what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from holdfast.activities.mcp.approved import PinnedDefinitions
from holdfast.activities.mcp.definitions import Definition, find_effect, is_destructive, is_open_world
from holdfast.activities.mcp.names import build_prefix, build_tool_name
from holdfast.activities.mcp.servers_file import load_configured
from holdfast.configuration import McpSettings
from holdfast.tools import Effect


class KnownTool(NamedTuple):
    """A tool, as a worker here would take it."""

    server: str
    name: str
    own_name: str
    effect: Effect
    open_world: bool
    destructive: bool
    met: bool
    """Its server was connected here before, and had it."""


def find_known_tool(name: str, settings: McpSettings, folder: Path, server: str | None = None) -> KnownTool | None:
    """The tool that goes by this name, ours for it or, with its server, the server's own. None when none can."""
    servers, _ = load_configured(settings)
    for called, one in servers.items():
        if called != server and not (server is None and name.startswith(build_prefix(called))):
            continue
        own = {build_tool_name(called, kept.name): kept for kept in PinnedDefinitions(folder, called).definitions}
        wanted = name if name.startswith(build_prefix(called)) else build_tool_name(called, name)
        known = own.get(wanted)
        met = known or Definition(name=wanted.removeprefix(build_prefix(called)))
        traits = (find_effect(met, one), is_open_world(met, one), is_destructive(met, one))
        return KnownTool(called, wanted, met.name, *traits, known is not None)
    return None
