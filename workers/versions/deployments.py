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

from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.sessions import SESSION
from holdfast.turns import WORKFLOW
from holdfast.workers.polling import Poller, look_at, on_queue
from holdfast.workers.versions.fleet import Fleet, Open, Status, Version

T = TypeVar("T")

RPC_LIMIT = timedelta(seconds=5)
PATIENCE = 10.0
"""Seconds that the server may be busy with itself."""
PAUSE = 0.1
COMING_PAUSE = 0.3
JOIN_SECONDS = 10.0
"""That a worker may take from its first poll to its last."""
_MISSING = "missing active task queues"
"""How the server says it."""
_STATUSES: dict[int, Status] = {
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_CURRENT: "current",
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_RAMPING: "ramping",
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING: "draining",
    Statuses.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINED: "drained",
}
_SPREADING = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
_SILENT = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED}


async def fleet_of(client: Client, deployment: str, task_queue: str, now: datetime | None = None) -> Fleet:
    """How a deployment stands. One that no worker has ever named has no versions."""
    try:
        described, queue = await asyncio.gather(_described(client, deployment), look_at(client, task_queue))
        info = described.worker_deployment_info if described else WorkerDeploymentInfo()
        builds = [summary.deployment_version.build_id for summary in info.version_summaries]
        without, *counts = await asyncio.gather(
            _open(client, f"{on_queue(task_queue)} AND TemporalWorkerDeploymentVersion IS NULL"),
            *(_open(client, on_version(deployment, one)) for one in builds),
        )
    except RPCError as error:
        raise failed(error) from error
    moment = now or datetime.now(UTC)
    alive = queue.alive(moment)
    statuses = (_STATUSES.get(summary.status, "inactive") for summary in info.version_summaries)
    here = [
        Version(build, status, count, _workers(alive, deployment, build))
        for build, status, count in zip(builds, statuses, counts, strict=True)
    ]
    versions = [await _with_others(client, deployment, one, moment) if one.stuck else one for one in here]
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


def on_version(deployment: str, build: str) -> str:
    """The query for what is open on a version. Both names are such that they need no quoting."""
    return f'TemporalWorkerDeploymentVersion = "{deployment}:{build}" AND ExecutionStatus = "Running"'


async def unversioned_seen(client: Client, task_queue: str) -> bool:
    """Has a worker without a version polled lately, by the server's word alone: clocks may differ."""
    try:
        queue = await look_at(client, task_queue)
    except RPCError as error:
        raise failed(error) from error
    return any(poller.build is None for poller in queue.pollers)


async def known(client: Client, deployment: str, build: str, *, wait: float = 0) -> bool:
    """Has a worker of this version ever polled? `wait` is how many seconds it may still take to come."""
    deadline = time.monotonic() + wait
    while True:
        described = await _described(client, deployment)
        found = described.worker_deployment_info.version_summaries if described else ()
        if any(summary.deployment_version.build_id == build for summary in found):
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(COMING_PAUSE)


async def manned(client: Client, deployment: str, task_queue: str, build: str, *, wait: float = 0) -> Fleet:
    """The fleet, once a worker of this version polls, or `wait` seconds are over.

    The server knows a new version some moments before it tells of who polls for it.
    """
    deadline = time.monotonic() + wait
    while True:
        fleet = await fleet_of(client, deployment, task_queue)
        found = fleet.get(build)
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
            return await _set(client, request)
        except QueuesMissing:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(COMING_PAUSE)


async def claim(client: Client, deployment: str, build: str) -> str:
    """The current version: this one, if there was none before. Of two that claim at once one is late.

    HoldfastError when the server goes on refusing: it says "changed meanwhile" as it says other things.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        described = await _described(client, deployment)
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
            await _set(client, request)
        except (Conflict, QueuesMissing):
            if time.monotonic() > deadline:
                raise
        else:
            return build
        await asyncio.sleep(COMING_PAUSE)


class Conflict(HoldfastError):
    """Somebody else changed the deployment meanwhile."""


class QueuesMissing(HoldfastError):
    """A version has no workers on a task queue where the current one has some."""


async def _set(client: Client, request: SetWorkerDeploymentCurrentVersionRequest) -> str | None:
    try:
        done = await patiently(
            lambda: client.workflow_service.set_worker_deployment_current_version(request, timeout=RPC_LIMIT)
        )
    except RPCError as error:
        raise _refused(request, error) from error
    await _spread(client, request.deployment_name)
    return done.previous_deployment_version.build_id or None


async def _spread(client: Client, deployment: str) -> None:
    """Wait until every part of the server knows: before that some turns still begin on the version before."""
    deadline = time.monotonic() + PATIENCE
    while (described := await _described(client, deployment)) and time.monotonic() < deadline:
        if described.worker_deployment_info.routing_config_update_state != _SPREADING:
            return
        await asyncio.sleep(PAUSE)


def _refused(request: SetWorkerDeploymentCurrentVersionRequest, error: RPCError) -> HoldfastError:
    if error.status in _SILENT:
        return failed(error)
    says = f"version {request.build_id!r} of {request.deployment_name!r} was not made current: {error.message}"
    if _MISSING in error.message:
        return QueuesMissing(f"{says}. Start workers of it there, or say --force")
    if request.conflict_token and error.status is RPCStatusCode.FAILED_PRECONDITION:
        return Conflict(says)
    return HoldfastError(says)


def failed(error: RPCError) -> HoldfastError:
    """What the server's error is to people: silence, or a refusal."""
    if error.status in _SILENT:
        return ServerUnavailable(f"the Temporal server does not answer: {error.message}")
    return HoldfastError(f"the Temporal server refused: {error.message}")


async def _described(client: Client, deployment: str) -> DescribeWorkerDeploymentResponse | None:
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
    try:
        return await patiently(lambda: client.workflow_service.describe_worker_deployment(request, timeout=RPC_LIMIT))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise failed(error) from error


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the server is not busy with the same deployment; RPCError when that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                raise
        await asyncio.sleep(PAUSE)


async def _open(client: Client, query: str) -> Open:
    kinds = (
        f'WorkflowType = "{WORKFLOW}"',
        f'WorkflowType = "{SESSION}"',
        f'WorkflowType != "{WORKFLOW}" AND WorkflowType != "{SESSION}"',
    )
    found = await asyncio.gather(*(client.count_workflows(f"{query} AND {kind}") for kind in kinds))
    return Open(*(one.count for one in found))


async def _with_others(client: Client, deployment: str, version: Version, now: datetime) -> Version:
    """A version with its workers on all of its task queues: turns may begin on others than ours."""
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.namespace,
        deployment_version=WorkerDeploymentVersion(deployment_name=deployment, build_id=version.build),
    )
    try:
        found = await patiently(
            lambda: client.workflow_service.describe_worker_deployment_version(request, timeout=RPC_LIMIT)
        )
        names = {one.name for one in found.worker_deployment_version_info.task_queue_infos}
        queues = await asyncio.gather(*(look_at(client, name) for name in sorted(names)))
    except RPCError as error:
        raise failed(error) from error
    alive = tuple(poller for queue in queues for poller in queue.alive(now))
    return replace(version, workers=_workers(alive, deployment, version.build))


def _workers(alive: tuple[Poller, ...], deployment: str, build: str) -> int:
    return len({one.identity for one in alive if (one.deployment, one.build) == (deployment, build)})
