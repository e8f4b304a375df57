"""Other workers on the same task queue: do they have the same tools, rules and hooks?

Temporal hands a task to any worker of its queue. Where two of them differ, a call is judged by one and runs on the
other, or finds no tool of its name, as chance has it. So every worker marks its identity with a digest of what it has,
and looks at the marks of those that poll beside it: at its start and once a minute. What it finds is logged, and told
to calls whose tool it does not have.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

LOOK_EVERY = timedelta(minutes=1)
ALIVE_WITHIN = timedelta(seconds=75)
"""Since its last poll, which takes a minute at most. The server lists a poller for five minutes after its last poll."""
_MARK = re.compile(r" tools:([0-9a-f]{8})$")
_LOGGER = logging.getLogger(__name__)


class Neighbours:
    """The workers that poll one task queue beside ours and differ from it."""

    def __init__(self, task_queue: str, digest: str) -> None:
        self._task_queue = task_queue
        self._digest = digest[:8]
        self.different: tuple[str, ...] = ()
        """Their identities, as of the last look."""

    def mark_identity(self, identity: str) -> str:
        """The identity of our worker: the given one, with the digest of its tools, rules and hooks."""
        return f"{_MARK.sub('', identity)} tools:{self._digest}"

    def explain_missing_tool(self) -> str:
        """For a call whose tool is not here: who may have it. Empty when nobody else is known."""
        if not self.different:
            return ""
        return (
            f"Workers with other tools, rules or hooks poll the task queue {self._task_queue!r} too "
            f"({', '.join(self.different[:3])}): give them a task queue of their own."
        )

    async def watch(self, client: Client) -> None:
        """Look at the queue again and again until cancelled, and log what changes. A server that does not say is asked
        again later."""
        while True:
            try:
                found = await self._find_different(client)
            except RPCError:
                found = self.different
            if new := set(found) - set(self.different):
                self.different = found
                _LOGGER.warning(
                    "Worker %s has other tools, rules or hooks than this one, and polls the same task queue %r: a call "
                    "may land on either. Give each its own task queue, or start `holdfast up --no-worker`.",
                    ", ".join(sorted(new)),
                    self._task_queue,
                )
            self.different = found
            await asyncio.sleep(LOOK_EVERY.total_seconds())

    async def _find_different(self, client: Client) -> tuple[str, ...]:
        """The identities of those that differ. Workers without a mark are none of ours; of other versions, replaced."""
        answer = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=self._task_queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            ),
            timeout=timedelta(seconds=5),
        )
        now = datetime.now(UTC)
        alive = {
            poller.identity
            for poller in answer.pollers
            if now - poller.last_access_time.ToDatetime(UTC) < ALIVE_WITHIN and not poller.deployment_options.build_id
        }
        marks = {
            identity: found[1] for identity in alive if (found := _MARK.search(identity)) and not _is_gone(identity)
        }
        return tuple(sorted(identity for identity, mark in marks.items() if mark != self._digest))


def _is_gone(identity: str) -> bool:
    """Is it a process of this host that has ended? The server still lists a worker that was just replaced."""
    found = re.match(rf"(\d+)@{re.escape(socket.gethostname())} ", identity)
    return found is not None and not os.path.exists(f"/proc/{found[1]}") and os.path.exists("/proc/self")
