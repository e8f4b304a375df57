"""Names of tools as far as they are known without starting a server, running a command or importing anybody's code.

For a shell that completes them: those that are built in, and those that servers of the settings had when they were last
met on this host. Tools of modules, packages and discovery commands are known only to who runs them.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.activities.mcp.approved import PinnedDefinitions
from holdfast.activities.mcp.definitions import is_wanted
from holdfast.activities.mcp.names import build_tool_name
from holdfast.activities.mcp.servers_file import load_configured
from holdfast.activities.policy.subjects import BUILT_IN
from holdfast.settings import Settings


def list_known_tools(settings: Settings) -> list[str]:
    """Their names, sorted."""
    return sorted({*BUILT_IN, *_list_server_tools(settings)} - set(settings.tools.disable))


def _list_server_tools(settings: Settings) -> Iterator[str]:
    for name, server in load_configured(settings.mcp)[0].items():
        definitions = PinnedDefinitions(settings.mcp_tools_folder, name).definitions
        yield from (build_tool_name(name, one.name) for one in definitions if is_wanted(one, server))
