"""Asking a turn: Temporal's query, with patience of our own.

While a workflow task is pending the server may hold a query back and attach it to the next one; a task with a local
activity that gets such a visitor is split in two, which writes three events that nobody would have written unasked. So
our embedded server holds nothing back: it refuses a query at the wrong moment (RESOURCE_EXHAUSTED), and we ask again a
few milliseconds later, where Temporal's own client would wait a second.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from typing import Any, TypeVar, cast

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

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
