"""Queries of a running turn: with a bound on their time, and the tail of a running call.

While a workflow task is pending the server may hold a query back and attach it to the next one; a task with a local
activity that gets such a visitor is split in two, which writes three events that nobody would have written unasked. So
our embedded server holds nothing back: it refuses a query at the wrong moment (RESOURCE_EXHAUSTED), and we ask again a
few milliseconds later, where Temporal's own client would wait a second.

In a file of its own: whoever only watches imports nothing of what a worker needs.
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

T = TypeVar("T")

QUERY_SECONDS = 10.0
"""How long an answer may take."""
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
    """The answer of a turn's query; RPCError when none came in time."""
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
    """Did the turn's last workflow task fail? The server offers it again by itself; on a busy machine that may help."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and "Workflow Task in failed state" in error.message


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
