"""Asking the worker of a running call for more of what it put out, and a host for its background commands: by a
Temporal activity without a workflow.

In a file of its own: whoever only watches imports nothing of what a worker needs.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from datetime import timedelta
from typing import cast
from uuid import uuid4

from temporalio.client import Client, ClientConfig

from holdfast.background import BackgroundCommand
from holdfast.work import BackgroundCommands, LiveOutput, RunningCall

ASK_SECONDS = timedelta(seconds=5)


async def fetch_output(client: Client, host: str, call: RunningCall) -> LiveOutput | None:
    """The last 100,000 characters of a running call; None when its worker does not answer or runs it no more."""
    with suppress(Exception):  # a server without activities of their own, a worker that has just ended
        found = await build_bare_client(client).execute_activity(
            "holdfast.output",
            call,
            id=f"holdfast-output-{uuid4().hex}",
            task_queue=host,
            result_type=LiveOutput,
            schedule_to_close_timeout=ASK_SECONDS,
        )
        return cast("LiveOutput | None", found)
    return None


async def still_running(
    client: Client, turn: str, commands: tuple[BackgroundCommand, ...]
) -> tuple[BackgroundCommand, ...]:
    """Those of a turn's background commands that still run, as their hosts say; all of a host that does not answer."""
    ended: set[str] = set()
    for host in {one.host for one in commands if one.host}:
        handles = tuple(one.handle for one in commands if one.host == host)
        with suppress(Exception):  # as above
            found = await build_bare_client(client).execute_activity(
                "holdfast.background",
                BackgroundCommands(turn=turn, handles=handles),
                id=f"holdfast-background-{uuid4().hex}",
                task_queue=host,
                result_type=list[str],
                schedule_to_close_timeout=ASK_SECONDS,
            )
            ended |= {*handles} - {*found}
    return tuple(one for one in commands if one.handle not in ended)


def build_bare_client(client: Client) -> Client:
    """The same connection and encoding, without our plugin and without files for what is long."""
    config: ClientConfig = client.config(active_config=True)
    config["plugins"] = []
    config["data_converter"] = dataclasses.replace(config["data_converter"], external_storage=None)
    return Client(**config)
