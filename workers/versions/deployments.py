"""The versions of a deployment on the server, and making the first one current.

The server keeps a deployment in a workflow of its own and answers by querying it. While that workflow is busy, a server
that does not buffer queries (our embedded one) refuses with RESOURCE_EXHAUSTED, so requests are retried.

Why: docs/decisions/0028-worker-versions.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    DescribeWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.workers.lookup.task_queues import fetch_queue

T = TypeVar("T")

RPC_LIMIT = timedelta(seconds=5)
PATIENCE_SECONDS = 10.0
"""How long requests are retried while the server is busy."""
PAUSE_SECONDS = 0.1
COMING_PAUSE = 0.3
JOIN_SECONDS = 10.0
"""How long a new worker may take to poll all of its task queues."""


@dataclass(frozen=True)
class Version:
    """One version of the code."""

    build: str
    open: int = 0
    """Open workflows that are pinned to it."""
    workers: int = 0
    """Workers that poll now. 0 without counting if it has no open workflows and is not current."""


@dataclass(frozen=True)
class Deployment:
    """All versions, the newest first, and the workers without one."""

    name: str
    versions: tuple[Version, ...] = ()
    current: str | None = None
    ramping: str | None = None
    unversioned_workers: int = 0
    """Workers without a version that poll the task queue now."""
    unversioned_lately: bool = False
    """Whether one polled in the last minutes, as the server lists it: no clocks are compared."""

    def find_version(self, build: str | None) -> Version | None:
        """A version by its build."""
        return next((version for version in self.versions if version.build == build), None)


async def fetch_deployment(client: Client, name: str, task_queue: str, now: datetime | None = None) -> Deployment:
    """Describe a deployment; RPCError. One that no worker has ever named has no versions."""
    moment = now or datetime.now(UTC)
    described, queue = await asyncio.gather(_describe_deployment(client, name), fetch_queue(client, task_queue))
    info = described.worker_deployment_info if described else None
    routing = info.routing_config if info else None
    current = routing.current_deployment_version.build_id or None if routing else None
    builds = _list_builds(described)
    counts = await asyncio.gather(*(client.count_workflows(build_version_query(name, build)) for build in builds))
    return Deployment(
        name,
        versions=tuple(
            [
                Version(
                    build,
                    found.count,
                    await _count_workers(client, name, build, moment) if found.count or build == current else 0,
                )
                for build, found in zip(builds, counts, strict=True)
            ]
        ),
        current=current,
        ramping=routing.ramping_deployment_version.build_id or None if routing else None,
        unversioned_workers=len({poller.identity for poller in queue.list_alive(moment) if poller.build is None}),
        unversioned_lately=any(poller.build is None for poller in queue.pollers),
    )


def build_version_query(deployment: str, build: str) -> str:
    """The query for the open workflows of a version. The names are restricted to characters that need no quoting."""
    return f'TemporalWorkerDeploymentVersion = "{deployment}:{build}" AND ExecutionStatus = "Running"'


async def is_known(client: Client, deployment: str, build: str, *, wait: float = 0) -> bool:
    """Whether a worker of this version has ever polled. `wait`: how many seconds to wait for the first poll."""
    deadline = time.monotonic() + wait
    while build not in _list_builds(await _describe_deployment(client, deployment)):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(COMING_PAUSE)
    return True


async def claim_current(client: Client, deployment: str, build: str) -> str:
    """Make this version current if none is; the current version. Of two concurrent claims one wins.

    A worker polls for workflow tasks before it polls for activities, so a new version may lack task queues at first,
    and the server refuses. RPCError when it still refuses after JOIN_SECONDS.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        described = await _describe_deployment(client, deployment)
        routing = described.worker_deployment_info.routing_config if described else None
        if routing and routing.current_deployment_version.build_id:
            return str(routing.current_deployment_version.build_id)
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace,
            deployment_name=deployment,
            build_id=build,
            identity=client.identity,
            conflict_token=described.conflict_token if described else b"",
        )
        try:
            await client.workflow_service.set_worker_deployment_current_version(request, timeout=RPC_LIMIT)
        except RPCError:
            if time.monotonic() > deadline:
                raise
        else:
            return build
        await asyncio.sleep(COMING_PAUSE)


async def _describe_deployment(client: Client, deployment: str) -> DescribeWorkerDeploymentResponse | None:
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
    try:
        return await _retry_while_busy(
            lambda: client.workflow_service.describe_worker_deployment(request, timeout=RPC_LIMIT)
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


def _list_builds(described: DescribeWorkerDeploymentResponse | None) -> list[str]:
    found = described.worker_deployment_info.version_summaries if described else ()
    return [summary.deployment_version.build_id for summary in found]


async def _count_workers(client: Client, deployment: str, build: str, now: datetime) -> int:
    """Count the workers of a version on all of its task queues, not only on ours."""
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.namespace,
        deployment_version=WorkerDeploymentVersion(deployment_name=deployment, build_id=build),
    )
    found = await _retry_while_busy(
        lambda: client.workflow_service.describe_worker_deployment_version(request, timeout=RPC_LIMIT)
    )
    names = {one.name for one in found.worker_deployment_version_info.task_queue_infos}
    queues = await asyncio.gather(*(fetch_queue(client, name) for name in sorted(names)))
    alive = (poller for queue in queues for poller in queue.list_alive(now))
    return len({one.identity for one in alive if (one.deployment, one.build) == (deployment, build)})


async def _retry_while_busy(ask: Callable[[], Awaitable[T]]) -> T:
    """Retry while the server is busy with the same deployment; RPCError after PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                raise
        await asyncio.sleep(PAUSE_SECONDS)
