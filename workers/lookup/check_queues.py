"""The doctor's checks of task queues: is there a worker for each, and does no task wait too long?"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.names import TURN_WORKFLOW
from holdfast.util.durations import format_duration
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning
from holdfast.workers.lookup.task_queues import build_queue_query, fetch_queue

OLD_BACKLOG = timedelta(minutes=1)
"""A task that waits for longer although there are workers is a warning."""
TURNS_LIMIT = 200
"""Open turns that are checked, the newest."""
CONCURRENT_QUERIES = 10


async def check_workers(client: Client, name: str, now: datetime) -> list[Finding]:
    """Check the workers and the backlog of the shared task queue; RPCError."""
    steps, calls = await asyncio.gather(fetch_queue(client, name), fetch_queue(client, name, "activity"))
    alive = {poller.identity for poller in steps.list_alive(now)}
    if not alive:
        newest = max((poller.seen for poller in steps.pollers), default=None)
        gone = f" (the last was seen at {newest:%Y-%m-%d %H:%M:%S} UTC)" if newest else ""
        do = "start one: holdfast worker (or set HOLDFAST_TASK_QUEUE here as it is set for your workers)"
        return [report_problem(f"no worker polls {name!r}{gone}: turns cannot go on", do)]
    do = "start more workers (of the current version, if they have versions), or raise limits.concurrent_calls"
    return [report_ok(f"{len(alive)} worker{'' if len(alive) == 1 else 's'} on {name!r}")] + [
        report_warning(
            f"about {queue.backlog:,} {kind} wait for a worker on {name!r}, the oldest for "
            f"{format_duration(queue.oldest.total_seconds())}",
            do,
        )
        for queue, kind in ((steps, "steps"), (calls, "calls"))
        if queue.oldest >= OLD_BACKLOG
    ]


async def check_hosts(client: Client, shared: str, now: datetime) -> list[Finding]:
    """Check the other task queues that calls of open turns wait in: of hosts, and of tools that name one; RPCError."""
    waiting = await _count_waiting(client, shared)
    queues = await asyncio.gather(*(fetch_queue(client, name, "activity") for name in waiting))
    deserted = [queue.name for queue in queues if not queue.list_alive(now)]
    if not deserted:
        return [
            report_ok(
                f"calls wait on {len(waiting)} queues of hosts, each polled" if waiting else "no call waits for a host"
            )
        ]
    return [_report_deserted(name, waiting[name], shared) for name in deserted]


def _report_deserted(name: str, count: int, shared: str) -> Finding:
    calls = f"{count:,} call{'s wait' if count > 1 else ' waits'}"
    if name.startswith(f"{shared}-host-"):
        do = "start a worker with that host's data folder; after six minutes the calls need approval, or run elsewhere"
        return report_problem(f"{calls} for the host {name.removeprefix(f'{shared}-host-')!r}, which has no worker", do)
    do = f"start one: HOLDFAST_TASK_QUEUE={name} holdfast worker"
    return report_problem(f"{calls} on the task queue {name!r}, which no worker polls", do)


async def _count_waiting(client: Client, shared: str) -> Counter[str]:
    """How many calls of open turns are scheduled on each queue and not started."""
    query = f'{build_queue_query(shared)} AND WorkflowType = "{TURN_WORKFLOW}"'
    ids = [turn.id async for turn in client.list_workflows(query, limit=TURNS_LIMIT)]
    room = asyncio.Semaphore(CONCURRENT_QUERIES)

    async def list_queues(id: str) -> list[str]:
        async with room:
            try:
                described = await client.get_workflow_handle(id).describe(rpc_timeout=timedelta(seconds=5))
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return []
                raise
        pending = described.raw_description.pending_activities
        offered = [one for one in pending if one.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED]
        return [one.activity_options.task_queue.name for one in offered]

    found = Counter(name for names in await asyncio.gather(*map(list_queues, ids)) for name in names)
    return Counter({name: count for name, count in found.items() if name and name != shared})
