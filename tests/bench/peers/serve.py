"""What every subject of the comparison does alike: connect, poll one task queue, say `ready`, and end with its parent.

Runs in the environments of the peers too, so it imports nothing but the SDK.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

SLOTS = 100
"""Of each kind, for every subject: none of them is to wait for a slot of its own worker."""


async def serve(
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
    *,
    plugins: Sequence[Any] = (),
    **options: Any,
) -> None:
    """Work on the task queue that the command line names until standard input ends."""
    address, queue = sys.argv[2:4]
    client = await Client.connect(address, plugins=list(plugins))
    worker = Worker(
        client,
        task_queue=queue,
        workflows=list(workflows),
        activities=list(activities),
        max_concurrent_activities=SLOTS,
        max_concurrent_workflow_tasks=SLOTS,
        max_concurrent_local_activities=SLOTS,
        **options,
    )
    async with worker:
        await wait_for_parent()


async def wait_for_parent() -> None:
    """Say `ready`, and return when standard input ends."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
