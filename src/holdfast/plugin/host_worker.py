"""The task queues that a process polls beside the one it shares with all workers.

One is its own: there it is asked what its calls put out, by a Temporal activity without a workflow, so no turn's
history grows by it. Answers are small enough to travel as they are. The other is its host's, shared by the workers that
have the same data folder, now and after a crash: there run the calls that live on the host.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from temporalio.client import Client, ClientConfig
from temporalio.worker import Worker

from holdfast.activities.execution.live_run import LiveRuns
from holdfast.client.queries import build_bare_client
from holdfast.errors import BadInput
from holdfast.util.findings import Finding, ok


def build_process_queue(task_queue: str) -> str:
    """A task queue that only this process polls."""
    return f"{task_queue}-process-{uuid4().hex}"


def build_host_queue(task_queue: str, file: Path) -> str:
    """The task queue of this host, by the name that is kept in a file of its data folder."""
    with suppress(FileExistsError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_new(file, uuid4().hex)
    return f"{task_queue}-host-{read_host_name(file)}"


def read_host_name(file: Path) -> str:
    """The name that a file holds; BadInput when it does not."""
    name = file.read_text(errors="replace").strip()
    if not re.fullmatch("[0-9a-f]{32}", name):
        raise BadInput(f"{file} does not hold a host's name any more: remove it, once no command runs here")
    return name


def _write_new(file: Path, text: str) -> None:
    """Whole or not at all, and only if there is none."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    try:
        os.link(draft, file)
    finally:
        draft.unlink()


class HostWorker:
    """The workers of a process for its own queue and its host's. They live while any worker of the process does."""

    def __init__(self, live: LiveRuns) -> None:
        self._live = live
        self._users = 0
        self._workers: list[Worker] = []
        self._running: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def poll_queues(self, client: Client, options: HostOptions) -> AsyncIterator[None]:
        """Poll both queues at least until the end of the block."""
        self._users += 1
        if not self._workers:
            self._workers = [self._build_output_worker(client), _build_execution_worker(client, options)]
            self._running = [asyncio.create_task(worker.run()) for worker in self._workers]
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await self._stop_workers()

    async def drain(self) -> None:
        """Take up no more calls that live here; those that run get their grace. What they put out is still told."""
        await asyncio.gather(*(worker.shutdown() for worker in self._workers[1:]))

    def _build_output_worker(self, client: Client) -> Worker:
        return Worker(
            build_bare_client(client),
            task_queue=self._live.host_queue,
            activities=[self._live.find_output],
            max_concurrent_activities=5,
            max_concurrent_activity_task_polls=1,
            graceful_shutdown_timeout=timedelta(0),
        )

    async def _stop_workers(self) -> None:
        workers, running = self._workers, self._running
        self._workers, self._running = [], []
        with suppress(Exception):  # what they were asked is not worth failing for
            await asyncio.gather(*(worker.shutdown() for worker in workers))
            await asyncio.gather(*running)


class HostOptions(NamedTuple):
    """How calls that live on a host are run."""

    queue: str
    activities: Sequence[Callable[..., Any]]
    concurrent: int
    throttle: timedelta
    grace: timedelta


def _build_execution_worker(client: Client, options: HostOptions) -> Worker:
    return Worker(
        _build_plain_client(client),
        task_queue=options.queue,
        activities=options.activities,
        max_concurrent_activities=options.concurrent,
        max_heartbeat_throttle_interval=options.throttle,
        default_heartbeat_throttle_interval=options.throttle,
        graceful_shutdown_timeout=options.grace,
    )


def _build_plain_client(client: Client) -> Client:
    """The same connection and encoding, without our plugin."""
    config: ClientConfig = client.config(active_config=True)
    config["plugins"] = []
    return Client(**config)


def check_host(file: Path) -> Iterator[Finding]:
    """Which host the workers of a data folder are, by its file; BadInput when that is damaged."""
    if file.exists():
        yield ok(f"workers with this data folder are host {read_host_name(file)}")
    else:
        yield ok("no worker has run here yet")
