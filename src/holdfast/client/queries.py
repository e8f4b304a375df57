"""Queries of a running turn, with a bounded time, and requests to the worker that runs a call.

While a workflow task is pending the server may hold a query back and attach it to the next task; a task that has a
local activity and such a query is split in two, which writes three more events. The embedded server therefore holds no
query back (`history.MaxBufferedQueryCount=0`): it refuses one at the wrong moment with RESOURCE_EXHAUSTED, and the
query is repeated here after some milliseconds, where Temporal's own client would wait a second.

This module imports nothing that only a worker needs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar, cast
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.client import Client, ClientConfig, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.domain.background_commands import BackgroundCommand
from holdfast.domain.turn.activity_io import BackgroundCommands, LiveOutput, RunningCall
from holdfast.names import BACKGROUND_ACTIVITY, OUTPUT_ACTIVITY

T = TypeVar("T")

QUERY_SECONDS = 10.0
"""The default time limit of a query."""
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.02


async def query_turn(
    client: Client,
    turn_id: str,
    query: str,
    *args: Any,
    result_type: type[T],
    run_id: str | None = None,
    seconds: float = QUERY_SECONDS,
) -> T:
    """Query a workflow and return the decoded answer.

    Raises RPCError when no answer came within `seconds`, WorkflowQueryFailedError when the workflow refused the query.
    """
    request = QueryWorkflowRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=turn_id, run_id=run_id or "")
    )
    request.query.query_type = query
    if args:
        request.query.query_args.payloads.extend(await client.data_converter.encode(args))
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while True:
        limit = timedelta(seconds=max(0.05, deadline - time.monotonic()))
        try:
            response = await client.workflow_service.query_workflow(request, retry=False, timeout=limit)
            [answer] = await client.data_converter.decode(response.query_result.payloads, [result_type])
            return cast(T, answer)
        except RPCError as error:
            again = error.status is RPCStatusCode.RESOURCE_EXHAUSTED or _is_being_retried(error)
            if not again or time.monotonic() + pause > deadline:
                if error.status is RPCStatusCode.INVALID_ARGUMENT:
                    raise WorkflowQueryFailedError(error.message) from error
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(LONGEST_PAUSE, pause * 1.5)


def _is_being_retried(error: RPCError) -> bool:
    """Has the last workflow task failed? The server retries it, so the query may succeed later."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and "Workflow Task in failed state" in error.message


ASK_SECONDS = timedelta(seconds=5)


async def fetch_output(client: Client, host: str, call: RunningCall) -> LiveOutput | None:
    """Ask the worker that runs a call for the last 100,000 characters of its output.

    None when the worker does not answer or does not run the call any more.
    """
    with suppress(Exception):  # a server without standalone activities, or a worker that has just ended
        found = await build_bare_client(client).execute_activity(
            OUTPUT_ACTIVITY,
            call,
            id=f"holdfast-output-{uuid4().hex}",
            task_queue=host,
            result_type=LiveOutput,
            schedule_to_close_timeout=ASK_SECONDS,
        )
        return cast("LiveOutput | None", found)
    return None


async def filter_running_commands(
    client: Client, turn: str, commands: tuple[BackgroundCommand, ...]
) -> tuple[BackgroundCommand, ...]:
    """Keep those background commands that still run, as their hosts say. A host that does not answer keeps all of its
    own.
    """
    ended: set[str] = set()
    for host in {one.host for one in commands if one.host}:
        handles = tuple(one.handle for one in commands if one.host == host)
        with suppress(Exception):  # as above
            found = await build_bare_client(client).execute_activity(
                BACKGROUND_ACTIVITY,
                BackgroundCommands(turn=turn, handles=handles),
                id=f"holdfast-background-{uuid4().hex}",
                task_queue=host,
                result_type=list[str],
                schedule_to_close_timeout=ASK_SECONDS,
            )
            ended |= {*handles} - {*found}
    return tuple(one for one in commands if one.handle not in ended)


def build_bare_client(client: Client) -> Client:
    """A client on the same connection and codec, without our plugin and without external storage."""
    config: ClientConfig = client.config(active_config=True)
    config["plugins"] = []
    config["data_converter"] = dataclasses.replace(config["data_converter"], external_storage=None)
    return Client(**config)
