"""The task queues that a process polls beside the one that it shares with all workers.

One is the process's own: there it is asked for the output of its calls, by standalone activities, so no history grows;
the answers are small enough not to be stored outside. The other is the host's, shared by the workers on the same data
folder, now and after a crash: there run the calls that are bound to the host.
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
from holdfast.util.findings import Finding, report_ok


def build_process_queue(task_queue: str) -> str:
    """Build the name of a task queue that only this process polls."""
    return f"{task_queue}-process-{uuid4().hex}"


def build_host_queue(task_queue: str, file: Path) -> str:
    """Build the name of this host's task queue, from the id in a file of its data folder, which is created if
    missing.
    """
    with suppress(FileExistsError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_new(file, uuid4().hex)
    return f"{task_queue}-host-{read_host_name(file)}"


def read_host_name(file: Path) -> str:
    """Read the id of a host. BadInput when the file does not hold one."""
    name = file.read_text(errors="replace").strip()
    if not re.fullmatch("[0-9a-f]{32}", name):
        raise BadInput(f"{file} does not hold a host's name any more: remove it, once no command runs here")
    return name


def _write_new(file: Path, text: str) -> None:
    """Write the whole file, and only if there is none."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    try:
        os.link(draft, file)
    finally:
        draft.unlink()


class HostWorker:
    """The workers of a process for these two queues. They live while any worker of the process does."""

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
        """Start no more calls of the host; running ones get their grace. Their output is still answered."""
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
    """The options of the worker for calls of this host."""

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
    """A client on the same connection and codec, without our plugin."""
    config: ClientConfig = client.config(active_config=True)
    config["plugins"] = []
    return Client(**config)


def check_host(file: Path) -> Iterator[Finding]:
    """Find out which host the workers of a data folder are. BadInput when its file is damaged."""
    if file.exists():
        yield report_ok(f"workers with this data folder are host {read_host_name(file)}")
    else:
        yield report_ok("no worker has run here yet")
