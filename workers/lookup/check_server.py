"""The doctor's checks of the Temporal server: namespace, latency, search attributes and clock."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    PollActivityTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.plugin.search_attributes import ATTRIBUTES, format_add_commands, list_missing_attributes
from holdfast.util.durations import format_duration
from holdfast.util.findings import Finding, report_ok, report_problem, report_warning
from holdfast.workers.lookup.task_queues import RPC_LIMIT, fetch_queue

SLOW_SECONDS = 0.25
"""A slower answer is a warning: every step of a turn takes several."""
LATENCY_SAMPLES = 5
SHORT_RETENTION = timedelta(days=1)
"""A shorter retention is a warning; it is the default of Temporal's server."""
CLOCK_WARNING = timedelta(seconds=5)
CLOCK_PROBLEM = timedelta(minutes=1)
SEEN_SECONDS = 5.0


async def check_namespace(client: Client) -> list[Finding]:
    """Check the server's version, the namespace and its retention; RPCError."""
    system = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_LIMIT)
    where = f"Temporal {system.server_version} at {client.service_client.config.target_host}"
    name = client.namespace
    try:
        found = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=name), timeout=RPC_LIMIT
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        create = f"temporal operator namespace create --namespace {name}"
        return [report_problem(f"{where} has no namespace {name!r}", f"set TEMPORAL_NAMESPACE, or create it: {create}")]
    retention = found.config.workflow_execution_retention_ttl.ToTimedelta()
    says = f"{where}, namespace {name!r}, ended turns are kept for {format_duration(retention.total_seconds())}"
    if retention < SHORT_RETENTION:
        longer = f"temporal operator namespace update --namespace {name} --retention 30d"
        return [report_warning(says, f"keep them longer, so that you can inspect them: {longer}")]
    return [report_ok(says)]


async def check_latency(client: Client) -> list[Finding]:
    """Check how fast the server answers; RPCError."""
    times = []
    for _ in range(LATENCY_SAMPLES):
        began = time.monotonic()
        await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_LIMIT)
        times.append(time.monotonic() - began)
    usual = statistics.median(times)
    says = f"it answers in {usual * 1000:.0f} ms"
    if usual > SLOW_SECONDS:
        return [report_warning(says, "run workers closer to it: every step of a turn takes several requests")]
    return [report_ok(says)]


async def check_search_attributes(client: Client) -> list[Finding]:
    """Check that our search attributes exist. HoldfastError when one has another type."""
    missing = await list_missing_attributes(client)
    if not missing:
        return [report_ok(f"{', '.join(ATTRIBUTES)} are there")]
    says = f"missing in namespace {client.namespace!r}: {', '.join(missing)}"
    commands = format_add_commands(client.namespace, missing)
    return [report_problem(says, f"start a worker, which adds them if it is allowed to, or: {commands}")]


async def check_clock(client: Client, read_clock: Callable[[], datetime]) -> list[Finding]:
    """Check that this machine's clock agrees with the server's.

    The server records when a queue is polled: we poll a queue of our own and read that time. It lies between two times
    of ours, which bounds the difference. The server removes the unused queue.
    """
    least, most = await _measure_difference(client, read_clock)
    if least is None or most is None:
        return [report_warning("the server's time could not be read", "compare the clocks by hand: date")]
    nearest = timedelta(0) if least <= timedelta(0) <= most else min(least, most, key=abs)
    size = abs(nearest)
    if size < CLOCK_WARNING:
        return [report_ok("this machine's clock and the server's agree")]
    way = "behind" if nearest > timedelta(0) else "ahead of"
    says = f"this machine's clock is {format_duration(size.total_seconds())} {way} the server's"
    do = "synchronise both by NTP (timedatectl): deadlines, expiries of tokens and signed decisions depend on them"
    return [report_problem(says, do) if size >= CLOCK_PROBLEM else report_warning(says, do)]


async def _measure_difference(
    client: Client, read_clock: Callable[[], datetime]
) -> tuple[timedelta | None, timedelta | None]:
    me = f"holdfast-doctor-{uuid4().hex}"
    request = PollActivityTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=me), identity=me)
    before = read_clock()
    polling = asyncio.create_task(
        client.workflow_service.poll_activity_task_queue(request, timeout=timedelta(seconds=SEEN_SECONDS + 5))
    )
    try:
        async with asyncio.timeout(SEEN_SECONDS):
            while not polling.done():
                if noted := await _fetch_noted_time(client, me):
                    return noted - read_clock(), noted - before
                await asyncio.sleep(0.05)
        polling.result()
    except TimeoutError:
        pass
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    return None, None


async def _fetch_noted_time(client: Client, queue: str) -> datetime | None:
    found = await fetch_queue(client, queue, "activity")
    return next((poller.seen.astimezone(UTC) for poller in found.pollers if poller.identity == queue), None)
