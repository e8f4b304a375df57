"""Running a worker: from a connected client to a clean end.

SIGTERM or SIGINT ends it: running calls get a few seconds to finish, or as many as the settings say, then they are
stopped and answered; calls that may be repeated are left to another worker. A second Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.workers.runtime.child_processes import adopt_orphans, end_orphans
from holdfast.workers.runtime.health import Health

DEFAULT_GRACE = timedelta(seconds=5)
"""How long running calls may take to finish when their worker ends, by default."""
STOPPING_SECONDS = 15.0
"""How long stopping and answering calls may take after that."""
PARENT_SECONDS = 0.2
READY_LINE = "worker ready"
"""The beginning of the line that says that the worker polls."""


async def run_worker(
    client: Client,
    settings: Settings,
    *,
    say: Callable[[str], None] = print,
    stop: asyncio.Event | None = None,
    health: Health | None = None,
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Poll until a signal or `stop` comes. The client's plugin provides workflows, activities and options.

    `drain` runs concurrently with the shutdown of the worker. HoldfastError when the worker fails.
    """
    worker = Worker(client, task_queue=settings.task_queue, graceful_shutdown_timeout=find_grace(settings))
    stopping = stop or stop_on_signals(stop_seconds(settings))
    running = asyncio.create_task(worker.run())
    waiting = asyncio.create_task(stopping.wait())
    while not worker.is_running and not running.done():  # noqa: ASYNC110 - it gives no notice
        await asyncio.sleep(0.01)
    if not running.done():
        if health:
            health.set_polling(client, lambda: worker.is_running)
        build = settings.deployment.build
        version = f", version {build!r} of {settings.deployment.name!r}" if build else ""
        queue = f"task queue {settings.task_queue!r}{version}"
        say(f"{READY_LINE}: {queue}, workspace {settings.workspace}, process {os.getpid()}")
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if health:
        health.set_ending()
    if not running.done():
        await asyncio.gather(worker.shutdown(), *([drain()] if drain else []))
    try:
        await running
    except (RuntimeError, RPCError) as error:
        raise HoldfastError(f"the worker ended: {error}") from error


def find_grace(settings: Settings) -> timedelta:
    """How long running calls may take to finish when the worker ends."""
    seconds = settings.worker.grace_seconds
    return DEFAULT_GRACE if seconds is None else timedelta(seconds=seconds)


def stop_seconds(settings: Settings) -> float:
    """How many seconds after the signal the process exits, even if something hangs."""
    return find_grace(settings).total_seconds() + STOPPING_SECONDS


async def leave_with_parent(parent: int) -> None:
    """End this process soon after its parent, which was `holdfast up` with the server.

    The processes of running calls are ended first. A graceful end would wait for the server, which is gone.
    """
    while os.getppid() == parent:  # noqa: ASYNC110 - the signal comes before the parent is quite gone
        await asyncio.sleep(PARENT_SECONDS)
    adopt_orphans()
    await end_orphans(known=())
    os._exit(1)


def stop_on_signals(seconds: float) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; `seconds` later, or at the next SIGINT, the process exits in any case.

    It does not exit at the next SIGTERM: when a parent dies, the kernel may send one for each of the parent's threads.
    """
    stop = asyncio.Event()

    def handle_signal(number: signal.Signals) -> None:
        if stop.is_set():
            if number is signal.SIGINT:
                os._exit(130)
            return
        stop.set()
        watchdog = threading.Timer(seconds, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, handle_signal, number)
    return stop
