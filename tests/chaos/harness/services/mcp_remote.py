"""The MCP server that all workers reach over HTTP, with the official package and the newest protocol.

    python -m tests.chaos.harness.services.mcp_remote OUTSIDE PORT

It goes on when a worker dies, unless it is told to stop, and is itself killed now and then.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer

from tests.chaos.harness.services.mcp_acts import KEY, McpActs

server = MCPServer("chaos")


@server.tool()
async def append(label: str, seconds: float, ctx: Context) -> str:
    """Two lines in a file."""
    return await _act("append", label, seconds, ctx)


@server.tool()
async def keyed(label: str, seconds: float, ctx: Context) -> str:
    """Two lines in a file, once for each key."""
    return await _act("keyed", label, seconds, ctx)


async def _act(tool: str, label: str, seconds: float, ctx: Context) -> str:
    acts = McpActs(Path(sys.argv[1]))
    key = str(dict(ctx.request_context.meta or {})[KEY])
    with acts.at_work(label):
        if await anyio.to_thread.run_sync(acts.begin, tool, label, key):
            await anyio.sleep(seconds)
        return acts.finish(tool, label, key)


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
