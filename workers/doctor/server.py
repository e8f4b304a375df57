"""The Temporal server: is it there, how fast, has it our namespace and search attributes, does its clock agree."""

from __future__ import annotations

import asyncio
import statistics
import time
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

from holdfast.durations import told
from holdfast.errors import HoldfastError
from holdfast.search_attributes import ATTRIBUTES, how_to_add, missing_attributes
from holdfast.workers.doctor.checks import Check, Surroundings, unanswered
from holdfast.workers.doctor.findings import Finding, ok, problem, warning
from holdfast.workers.polling import RPC_LIMIT, look_at

SLOW = 0.25
"""Seconds to an answer: every step of a turn takes several."""
ASKS = 5
SHORT = timedelta(days=1)
"""For which ended turns are kept at least, by the stock server too."""
CLOCK_WARNING = timedelta(seconds=5)
CLOCK_PROBLEM = timedelta(minutes=1)
SEEN_SECONDS = 5.0


async def namespace(client: Client) -> list[Finding]:
    """Which server it is, and whether it has the namespace."""
    system = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_LIMIT)
    where = f"Temporal {system.server_version} at {client.service_client.config.target_host}"
    name = client.namespace
    try:
        found = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=name), timeout=RPC_LIMIT
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            return [unanswered(error, f"namespace {name!r} of {where}")]
        create = f"temporal operator namespace create --namespace {name}"
        return [problem(f"{where} has no namespace {name!r}", f"set TEMPORAL_NAMESPACE, or make it: {create}")]
    kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
    says = f"{where}, namespace {name!r}, ended turns are kept for {told(kept.total_seconds())}"
    if kept < SHORT:
        longer = f"temporal operator namespace update --namespace {name} --retention 30d"
        return [warning(says, f"keep them for longer, to be able to look at them: {longer}")]
    return [ok(says)]


async def _latency(around: Surroundings) -> list[Finding]:
    times = []
    for _ in range(ASKS):
        began = time.monotonic()
        await around.client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC_LIMIT)
        times.append(time.monotonic() - began)
    usual = statistics.median(times)
    says = f"it answers in {usual * 1000:.0f} ms"
    if usual > SLOW:
        return [warning(says, "run workers nearer to it: every step of a turn takes several answers")]
    return [ok(says)]


async def _attributes(around: Surroundings) -> list[Finding]:
    client = around.client
    try:
        missing = await missing_attributes(client)
    except HoldfastError as error:
        other = "use another namespace, or remove them there and let a worker add them: turns could not be started"
        return [problem(str(error), other)]
    if not missing:
        return [ok(f"{', '.join(ATTRIBUTES)} are there")]
    says = f"missing in namespace {client.namespace!r}: {', '.join(missing)}"
    return [problem(says, f"start a worker, which adds them where it may, or: {how_to_add(client.namespace, missing)}")]


async def _clocks(around: Surroundings) -> list[Finding]:
    """The server notes when it is polled: we poll a queue of our own, and look at what it noted.

    Its time lies between two of ours, so nothing is guessed. The queue is gone by itself.
    """
    least, most = await _difference(around)
    if least is None or most is None:
        return [warning("the server did not say what time it has", "compare the clocks by hand: date")]
    nearest = timedelta(0) if least <= timedelta(0) <= most else min(least, most, key=abs)
    size = abs(nearest)
    if size < CLOCK_WARNING:
        return [ok("this machine's clock and the server's agree")]
    way = "behind" if nearest > timedelta(0) else "ahead of"
    says = f"this machine's clock is {told(size.total_seconds())} {way} the server's"
    do = "have both set by NTP (timedatectl): deadlines, expiries of tokens and signed decisions go by them"
    return [problem(says, do) if size >= CLOCK_PROBLEM else warning(says, do)]


async def _difference(around: Surroundings) -> tuple[timedelta | None, timedelta | None]:
    client, me = around.client, f"holdfast-doctor-{uuid4().hex}"
    request = PollActivityTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=me), identity=me)
    before = around.now()
    polling = asyncio.create_task(
        client.workflow_service.poll_activity_task_queue(request, timeout=timedelta(seconds=SEEN_SECONDS + 5))
    )
    try:
        async with asyncio.timeout(SEEN_SECONDS):
            while not polling.done():
                if noted := await _noted(client, me):
                    return noted - around.now(), noted - before
                await asyncio.sleep(0.05)
        polling.result()
    except TimeoutError:
        pass
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    return None, None


async def _noted(client: Client, queue: str) -> datetime | None:
    found = await look_at(client, queue, "activity")
    return next((poller.seen.astimezone(UTC) for poller in found.pollers if poller.identity == queue), None)


CHECKS = (
    Check("latency", _latency, remote=True),
    Check("search attributes", _attributes, remote=True),
    Check("clocks", _clocks, remote=True),
)
