"""Our worker, as an application makes one: validation, policy, digests, ledger and all."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Effect, HoldfastPlugin, Run, Settings
from holdfast.testing import FakeTool
from tests.bench.peers.serve import SLOTS, wait_for_parent


async def do_nothing(arguments: dict[str, Any], run: Run) -> str:
    """A tool that does nothing."""
    return "done"


TOOLS = (
    FakeTool("nothing", do_nothing, safe=True, effect=Effect.READ),
    FakeTool("once", do_nothing, safe=True, effect=Effect.ONCE),
    FakeTool("ask", do_nothing, asks=True, safe=True, effect=Effect.READ),
)


async def main() -> None:
    """Serve until standard input ends."""
    address, queue, folder = sys.argv[1:4]
    workspace = Path(folder) / "workspace"
    workspace.mkdir()
    settings = Settings(data=Path(folder) / "data", workspace=workspace, task_queue=queue)
    client = await Client.connect(address, plugins=[HoldfastPlugin(settings, tools=TOOLS)])
    async with Worker(client, task_queue=queue, max_concurrent_activities=SLOTS, max_concurrent_workflow_tasks=SLOTS):
        await wait_for_parent()


if __name__ == "__main__":
    asyncio.run(main())
