"""Asking one particular worker: each has a task queue of its own, beside the one it shares with the others.

What is asked there is a Temporal activity without a workflow, so no turn's history grows by it. Answers are small
enough to travel as they are: nothing of them is kept in a file.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
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


def host_worker(client: Client, live: LiveRuns) -> Worker:
    """The worker that answers what this process is asked."""
    return Worker(
        _bare(client),
        task_queue=live.host,
        activities=[live.output],
        max_concurrent_activities=5,
        max_concurrent_activity_task_polls=1,
        graceful_shutdown_timeout=timedelta(0),
    )


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
