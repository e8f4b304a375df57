"""Asking the server about the versions of a deployment, and telling it which one is current.

The server keeps a deployment in a workflow of its own, and answers by querying that. Where queries are not held back
(as our embedded server has it) it refuses at the wrong moment, and is asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from temporalio.api.deployment.v1 import WorkerDeploymentInfo, WorkerDeploymentVersion
from temporalio.api.enums.v1 import RoutingConfigUpdateState
from temporalio.api.enums.v1 import WorkerDeploymentVersionStatus as Statuses
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    DescribeWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.session.session_io import SESSION_WORKFLOW
from holdfast.domain.turn.turn_io import TURN_WORKFLOW
from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.workers.lookup.task_queues import Poller, build_queue_query, fetch_queue
from holdfast.workers.versions.fleet import Fleet, OpenCounts, Status, Version

T = TypeVar("T")

RPC_LIMIT = timedelta(seconds=5)
PATIENCE_SECONDS = 10.0
"""Seconds that the server may be busy with itself."""
PAUSE_SECONDS = 0.1
COMING_PAUSE = 0.3
JOIN_SECONDS = 10.0
"""That a worker may take from its first poll to its last."""
_MISSING_QUEUES = "missing active task queues"
"""How the server says it."""
_STATUSES: dict[int, Status] = {
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_CURRENT: "current",
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_RAMPING: "ramping",
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING: "draining",
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINED: "drained",
}
_SPREAD_IN_PROGRESS = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
_SILENT_STATUSES = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED}


async def fetch_fleet(client: Client, deployment: str, task_queue: str, now: datetime | None = None) -> Fleet:
    """How a deployment stands. One that no worker has ever named has no versions."""
    try:
        described, queue = await asyncio.gather(
            _describe_deployment(client, deployment), fetch_queue(client, task_queue)
        )
        info = described.worker_deployment_info if described else WorkerDeploymentInfo()
        builds = [summary.deployment_version.build_id for summary in info.version_summaries]
        without, *counts = await asyncio.gather(
            _count_open(client, f"{build_queue_query(task_queue)} AND TemporalWorkerDeploymentVersion IS NULL"),
            *(_count_open(client, build_version_query(deployment, one)) for one in builds),
        )
    except RPCError as error:
        raise translate_error(error) from error
    moment = now or datetime.now(UTC)
    alive = queue.list_alive(moment)
    statuses = (_STATUSES.get(summary.status, "inactive") for summary in info.version_summaries)
    here = [
        Version(build, status, count, _count_workers(alive, deployment, build))
        for build, status, count in zip(builds, statuses, counts, strict=True)
    ]
    versions = [await _add_other_workers(client, deployment, one, moment) if one.is_stuck else one for one in here]
    routing = info.routing_config
    return Fleet(
        deployment=deployment,
        task_queue=task_queue,
        versions=tuple(versions),
        current=routing.current_deployment_version.build_id or None,
        ramping=routing.ramping_deployment_version.build_id or None,
        percentage=routing.ramping_version_percentage,
        unversioned=without,
        unversioned_workers=len({poller.identity for poller in alive if poller.build is None}),
    )


def build_version_query(deployment: str, build: str) -> str:
    """The query for what is open on a version. Both names are such that they need no quoting."""
    return f'TemporalWorkerDeploymentVersion = "{deployment}:{build}" AND ExecutionStatus = "Running"'


async def has_unversioned_workers(client: Client, task_queue: str) -> bool:
    """Has a worker without a version polled lately, by the server's word alone: clocks may differ."""
    try:
        queue = await fetch_queue(client, task_queue)
    except RPCError as error:
        raise translate_error(error) from error
    return any(poller.build is None for poller in queue.pollers)


async def is_known(client: Client, deployment: str, build: str, *, wait: float = 0) -> bool:
    """Has a worker of this version ever polled? `wait` is how many seconds it may still take to come."""
    deadline = time.monotonic() + wait
    while True:
        described = await _describe_deployment(client, deployment)
        found = described.worker_deployment_info.version_summaries if described else ()
        if any(summary.deployment_version.build_id == build for summary in found):
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(COMING_PAUSE)


async def wait_for_worker(client: Client, deployment: str, task_queue: str, build: str, *, wait: float = 0) -> Fleet:
    """The fleet, once a worker of this version polls, or `wait` seconds are over.

    The server knows a new version some moments before it tells of who polls for it.
    """
    deadline = time.monotonic() + wait
    while True:
        fleet = await fetch_fleet(client, deployment, task_queue)
        found = fleet.find_version(build)
        if (found and found.workers) or time.monotonic() >= deadline:
            return fleet
        await asyncio.sleep(COMING_PAUSE)


async def set_current(
    client: Client, deployment: str, build: str, *, force: bool = False, wait: float = JOIN_SECONDS
) -> str | None:
    """Let everything new begin on a version; the one before. HoldfastError says why that cannot be.

    A worker polls for steps before it polls for calls, so a version that is new may lack task queues for a moment;
    `wait` is how many seconds that may last. With `force` it may lack them.
    """
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace,
        deployment_name=deployment,
        build_id=build,
        identity=client.identity,
        ignore_missing_task_queues=force,
    )
    deadline = time.monotonic() + max(wait, JOIN_SECONDS)
    while True:
        try:
            return await _send_current(client, request)
        except QueuesMissing:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(COMING_PAUSE)


async def claim_current(client: Client, deployment: str, build: str) -> str:
    """The current version: this one, if there was none before. Of two that claim at once one is late.

    HoldfastError when the server goes on refusing: it says "changed meanwhile" as it says other things.
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
            await _send_current(client, request)
        except (DeploymentConflict, QueuesMissing):
            if time.monotonic() > deadline:
                raise
        else:
            return build
        await asyncio.sleep(COMING_PAUSE)


class DeploymentConflict(HoldfastError):
    """Somebody else changed the deployment meanwhile."""


class QueuesMissing(HoldfastError):
    """A version has no workers on a task queue where the current one has some."""


async def _send_current(client: Client, request: SetWorkerDeploymentCurrentVersionRequest) -> str | None:
    try:
        done = await retry_while_busy(
            lambda: client.workflow_service.set_worker_deployment_current_version(request, timeout=RPC_LIMIT)
        )
    except RPCError as error:
        raise _build_refusal(request, error) from error
    await _wait_until_spread(client, request.deployment_name)
    return done.previous_deployment_version.build_id or None


async def _wait_until_spread(client: Client, deployment: str) -> None:
    """Wait until every part of the server knows: before that some turns still begin on the version before."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (described := await _describe_deployment(client, deployment)) and time.monotonic() < deadline:
        if described.worker_deployment_info.routing_config_update_state != _SPREAD_IN_PROGRESS:
            return
        await asyncio.sleep(PAUSE_SECONDS)


def _build_refusal(request: SetWorkerDeploymentCurrentVersionRequest, error: RPCError) -> HoldfastError:
    if error.status in _SILENT_STATUSES:
        return translate_error(error)
    says = f"version {request.build_id!r} of {request.deployment_name!r} was not made current: {error.message}"
    if _MISSING_QUEUES in error.message:
        return QueuesMissing(f"{says}. Start workers of it there, or say --force")
    if request.conflict_token and error.status is RPCStatusCode.FAILED_PRECONDITION:
        return DeploymentConflict(says)
    return HoldfastError(says)


def translate_error(error: RPCError) -> HoldfastError:
    """What the server's error is to people: silence, or a refusal."""
    if error.status in _SILENT_STATUSES:
        return ServerUnavailable(f"the Temporal server does not answer: {error.message}")
    return HoldfastError(f"the Temporal server refused: {error.message}")


async def _describe_deployment(client: Client, deployment: str) -> DescribeWorkerDeploymentResponse | None:
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
    try:
        return await retry_while_busy(
            lambda: client.workflow_service.describe_worker_deployment(request, timeout=RPC_LIMIT)
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise translate_error(error) from error


async def retry_while_busy(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the server is not busy with the same deployment; RPCError when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def _count_open(client: Client, query: str) -> OpenCounts:
    kinds = (
        f'WorkflowType = "{TURN_WORKFLOW}"',
        f'WorkflowType = "{SESSION_WORKFLOW}"',
        f'WorkflowType != "{TURN_WORKFLOW}" AND WorkflowType != "{SESSION_WORKFLOW}"',
    )
    found = await asyncio.gather(*(client.count_workflows(f"{query} AND {kind}") for kind in kinds))
    return OpenCounts(*(one.count for one in found))


async def _add_other_workers(client: Client, deployment: str, version: Version, now: datetime) -> Version:
    """A version with its workers on all of its task queues: turns may begin on others than ours."""
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.namespace,
        deployment_version=WorkerDeploymentVersion(deployment_name=deployment, build_id=version.build),
    )
    try:
        found = await retry_while_busy(
            lambda: client.workflow_service.describe_worker_deployment_version(request, timeout=RPC_LIMIT)
        )
        names = {one.name for one in found.worker_deployment_version_info.task_queue_infos}
        queues = await asyncio.gather(*(fetch_queue(client, name) for name in sorted(names)))
    except RPCError as error:
        raise translate_error(error) from error
    alive = tuple(poller for queue in queues for poller in queue.list_alive(now))
    return replace(version, workers=_count_workers(alive, deployment, version.build))


def _count_workers(alive: tuple[Poller, ...], deployment: str, build: str) -> int:
    return len({one.identity for one in alive if (one.deployment, one.build) == (deployment, build)})
