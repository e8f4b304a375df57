"""Finds other workers on the same task queue that have other tools, rules or hooks.

Temporal gives a task to any worker of its queue. If two of them differ, a call is judged by one and runs on the other,
or does not find its tool, by chance. So every worker adds a digest of what it has to its identity, and compares the
identities of the others at its start and once a minute. Differences are logged, and mentioned to calls whose tool is
missing.
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

CHECK_INTERVAL = timedelta(minutes=1)
MAX_POLL_AGE = timedelta(seconds=75)
"""The age up to which a poll shows a live worker. A poll lasts up to a minute; the server lists it for five."""
_MARK = re.compile(r" tools:([0-9a-f]{8})$")
_LOGGER = logging.getLogger(__name__)


class Neighbours:
    """The workers on one task queue that differ from ours."""

    def __init__(self, task_queue: str, digest: str) -> None:
        self._task_queue = task_queue
        self._digest = digest[:8]
        self.different: tuple[str, ...] = ()
        """Their identities, as of the last check."""

    def mark_identity(self, identity: str) -> str:
        """Add the digest of tools, rules and hooks to the identity of our worker."""
        return f"{_MARK.sub('', identity)} tools:{self._digest}"

    def explain_missing_tool(self) -> str:
        """Explain who may have a tool that is missing here; empty when no other worker is known."""
        if not self.different:
            return ""
        return (
            f"Workers with other tools, rules or hooks poll the task queue {self._task_queue!r} too "
            f"({', '.join(self.different[:3])}): give them a task queue of their own."
        )

    async def watch(self, client: Client) -> None:
        """Check the queue every minute until cancelled, and log changes."""
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
            await asyncio.sleep(CHECK_INTERVAL.total_seconds())

    async def _find_different(self, client: Client) -> tuple[str, ...]:
        """Return the identities that differ. Workers without a mark are not Holdfast's, and those of other versions are
        being replaced: both are left out.
        """
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
            if now - poller.last_access_time.ToDatetime(UTC) < MAX_POLL_AGE and not poller.deployment_options.build_id
        }
        marks = {
            identity: found[1] for identity in alive if (found := _MARK.search(identity)) and not _is_gone(identity)
        }
        return tuple(sorted(identity for identity, mark in marks.items() if mark != self._digest))


def _is_gone(identity: str) -> bool:
    """Was it a process of this host that has ended? The server still lists a worker that was just replaced."""
    found = re.match(rf"(\d+)@{re.escape(socket.gethostname())} ", identity)
    return found is not None and not os.path.exists(f"/proc/{found[1]}") and os.path.exists("/proc/self")
