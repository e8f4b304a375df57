"""Asking one particular worker: each has a task queue of its own, beside the one it shares with the others.

What is asked there is a Temporal activity without a workflow, so no turn's history grows by it. Answers are small
enough to travel as they are: nothing of them is kept in a file.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import cast
from uuid import uuid4

from temporalio.client import Client, ClientConfig
from temporalio.worker import Worker

from holdfast.activities.live import LiveRuns
from holdfast.turns import LiveOutput, RunningCall

ASK_SECONDS = timedelta(seconds=5)


def host_queue(task_queue: str) -> str:
    """A task queue that only this process polls."""
    return f"{task_queue}-host-{uuid4().hex}"


class Host:
    """The worker that answers what this process is asked. It lives while any worker of the process does."""

    def __init__(self, live: LiveRuns) -> None:
        self._live = live
        self._users = 0
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used_by(self, client: Client) -> AsyncIterator[None]:
        """Answer at least until the end of the block."""
        self._users += 1
        if self._worker is None:
            self._worker = self._made(client)
            self._running = asyncio.create_task(self._worker.run())
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await self._end()

    def _made(self, client: Client) -> Worker:
        return Worker(
            _bare(client),
            task_queue=self._live.host,
            activities=[self._live.output],
            max_concurrent_activities=5,
            max_concurrent_activity_task_polls=1,
            graceful_shutdown_timeout=timedelta(0),
        )

    async def _end(self) -> None:
        worker, running = self._worker, self._running
        self._worker = self._running = None
        if worker and running:
            with suppress(Exception):  # what it was asked is not worth failing for
                await worker.shutdown()
                await running


async def ask_output(client: Client, host: str, call: RunningCall) -> LiveOutput | None:
    """The last 100,000 characters of a running call; None when its worker does not answer or runs it no more."""
    with suppress(Exception):  # a server without activities of their own, a worker that has just ended
        found = await _bare(client).execute_activity(
            "holdfast.output",
            call,
            id=f"holdfast-output-{uuid4().hex}",
            task_queue=host,
            result_type=LiveOutput,
            schedule_to_close_timeout=ASK_SECONDS,
        )
        return cast("LiveOutput | None", found)
    return None


def _bare(client: Client) -> Client:
    """The same connection and encoding, without our plugin and without files for what is long."""
    config: ClientConfig = client.config(active_config=True)
    config["plugins"] = []
    config["data_converter"] = dataclasses.replace(config["data_converter"], external_storage=None)
    return Client(**config)
