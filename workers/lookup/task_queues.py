"""The pollers and the backlog of a task queue, as the server describes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

ALIVE_PERIOD = timedelta(seconds=75)
"""How long after its last poll a poller counts as alive: a poll lasts a minute; the server lists it for five more."""
RPC_LIMIT = timedelta(seconds=5)
QueueKind = Literal["workflow", "activity"]
_KINDS = {
    "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}


@dataclass(frozen=True)
class Poller:
    """A process that polls, or polled in the last minutes."""

    identity: str
    seen: datetime
    deployment: str | None = None
    build: str | None = None
    """None for a worker without a version."""


@dataclass(frozen=True)
class Queue:
    """A task queue as the server describes it."""

    name: str
    pollers: tuple[Poller, ...]
    backlog: int
    """About how many tasks wait."""
    oldest: timedelta
    """How long the oldest task has waited."""

    def list_alive(self, now: datetime) -> tuple[Poller, ...]:
        """The pollers that polled within ALIVE_PERIOD. If this clock is behind, every poller counts as alive."""
        return tuple(poller for poller in self.pollers if now - poller.seen < ALIVE_PERIOD)


async def fetch_queue(client: Client, name: str, kind: QueueKind = "workflow") -> Queue:
    """Describe a task queue; RPCError when the server refuses."""
    found = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=name),
            task_queue_type=_KINDS[kind],
            report_stats=True,
        ),
        timeout=RPC_LIMIT,
    )
    stats = found.stats
    return Queue(
        name=name,
        pollers=tuple(map(_build_poller, found.pollers)),
        backlog=stats.approximate_backlog_count,
        oldest=timedelta(seconds=stats.approximate_backlog_age.ToNanoseconds() / 1e9),
    )


def build_queue_query(name: str, *, running: bool = True) -> str:
    """The query for workflows that started on a task queue; with `running`, only the open ones."""
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'TaskQueue = "{quoted}"' + (' AND ExecutionStatus = "Running"' if running else "")


def _build_poller(found: PollerInfo) -> Poller:
    options = found.deployment_options
    return Poller(
        identity=found.identity,
        seen=found.last_access_time.ToDatetime(UTC),
        deployment=options.deployment_name or None,
        build=options.build_id if options.deployment_name else None,
    )
