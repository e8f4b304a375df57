"""How many turns there are that have not ended: asked of the server, from time to time.

A worker knows only the turns that it has in its cache, and a turn that waits for a week is in nobody's. The server's
visibility knows all of them, some moments late. Every worker asks for itself and all say the same: take the greatest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.measuring import LIVE_TURNS, WAITING_TURNS
from holdfast.turns import TURN_WORKFLOW

EVERY_SECONDS = 15.0
"""Two small queries each time."""
RPC_TIMEOUT = timedelta(seconds=5)


async def keep_counting(client: Client, task_queue: str, show: Callable[[str, int], None]) -> None:
    """Until it is cancelled. What cannot be asked for stays as it was."""
    live = f"WorkflowType = '{TURN_WORKFLOW}' AND ExecutionStatus = 'Running' AND TaskQueue = {_quote_text(task_queue)}"
    asked = {LIVE_TURNS: live, WAITING_TURNS: f"{live} AND HoldfastState = 'awaiting_approval'"}
    while True:
        for name, query in asked.items():
            try:
                show(name, (await client.count_workflows(query, rpc_timeout=RPC_TIMEOUT)).count)
            except (RPCError, RuntimeError):
                continue
        await asyncio.sleep(EVERY_SECONDS)


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
