"""The client that the conformance suite tests: our servers and tools, without a turn around them.

    python mcp_conformance.py … URL

Lists what the server has, calls all of it, and closes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from holdfast.activities.mcp.servers import McpServers
from holdfast.activities.registry.registry import Registry
from holdfast.config.schema import McpServerSettings, McpSettings
from holdfast.testing import FakeRun

ARGUMENTS: dict[str, dict[str, Any]] = {"s__add_numbers": {"a": 5, "b": 3}}


async def main(url: str, folder: Path) -> None:
    servers = McpServers(McpSettings(servers={"s": McpServerSettings(url=url, trust=True)}), folder)
    registry = Registry()
    servers.fill_registry(registry)
    async with servers.keep_connected():
        [status] = servers.statuses
        assert status.protocol, status.problem
        for entry in registry.entries:
            given = entry.schema.check(ARGUMENTS.get(entry.declaration.name, {})).given
            result = await entry.tool.build(given, folder).execute(FakeRun(folder))
            print(result.parts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(sys.argv[-1], Path(made)))
