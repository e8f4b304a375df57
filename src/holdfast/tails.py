"""Asking the worker of a running call for more of what it put out, by a Temporal activity without a workflow.

In a file of its own: whoever only watches imports nothing of what a worker needs.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from datetime import timedelta
from typing import cast
from uuid import uuid4

from temporalio.client import Client, ClientConfig

from holdfast.work import LiveOutput, RunningCall

ASK_SECONDS = timedelta(seconds=5)


async def ask_output(client: Client, host: str, call: RunningCall) -> LiveOutput | None:
    """The last 100,000 characters of a running call; None when its worker does not answer or runs it no more."""
    with suppress(Exception):  # a server without activities of their own, a worker that has just ended
        found = await bare(client).execute_activity(
            "holdfast.output",
            call,
            id=f"holdfast-output-{uuid4().hex}",
            task_queue=host,
            result_type=LiveOutput,
            schedule_to_close_timeout=ASK_SECONDS,
        )
        return cast("LiveOutput | None", found)
    return None


def bare(client: Client) -> Client:
    """The same connection and encoding, without our plugin and without files for what is long."""
    config: ClientConfig = client.config(active_config=True)
    config["plugins"] = []
    config["data_converter"] = dataclasses.replace(config["data_converter"], external_storage=None)
    return Client(**config)
