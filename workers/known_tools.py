"""Names of tools as far as they are known without starting a server, running a command or importing anybody's code.

For a shell that completes them: those that are built in, and those that servers of the settings had when they were last
met on this host. Tools of modules, packages and discovery commands are known only to who runs them.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.activities.mcp.approved import Approved
from holdfast.activities.mcp.definitions import wanted
from holdfast.activities.mcp.names import tool_name
from holdfast.activities.mcp.servers_file import configured
from holdfast.activities.policy.subjects import BUILT_IN
from holdfast.settings import Settings


def known_tools(settings: Settings) -> list[str]:
    """Their names, sorted."""
    return sorted({*BUILT_IN, *_of_servers(settings)} - set(settings.tools.disable))


def _of_servers(settings: Settings) -> Iterator[str]:
    for name, server in configured(settings.mcp)[0].items():
        definitions = Approved(settings.mcp_known, name).definitions
        yield from (tool_name(name, one.name) for one in definitions if wanted(one, server))
