"""The newest turns on a server, with their states."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast.client.client import Holdfast
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.errors import ServerUnavailable
from holdfast.names import STATE_ATTRIBUTE, TURN_WORKFLOW

CONCURRENT_QUERIES = 20
OUTCOME_SECONDS = 3.0
"""For the outcomes of all listed turns together; a turn whose outcome is not known by then has just ended."""


async def fetch_turns(holdfast: Holdfast, limit: int) -> list[dict[str, Any]]:
    """The newest turns, each with the state the server knows it by."""
    try:
        found = [
            item async for item in holdfast.client.list_workflows(f"WorkflowType = '{TURN_WORKFLOW}'", limit=limit)
        ]
    except RPCError as error:
        raise ServerUnavailable(f"the turns cannot be listed: {error.message}") from error
    outcomes = await _fetch_outcomes(
        holdfast, [item for item in found if item.status is WorkflowExecutionStatus.COMPLETED]
    )
    return [
        {
            "id": item.id,
            "state": outcomes.get(item.id) or _format_state(item),
            "started": item.start_time.isoformat(timespec="seconds"),
            "ended": item.close_time.isoformat(timespec="seconds") if item.close_time else None,
        }
        for item in found
    ]


def _format_state(item: WorkflowExecution) -> str:
    """The state of a turn as the server lists it."""
    if item.status is WorkflowExecutionStatus.RUNNING:
        return item.typed_search_attributes.get(STATE_ATTRIBUTE) or "running"
    status = item.status.name.lower() if item.status else "unknown"
    return "ended" if status == "completed" else status


async def _fetch_outcomes(holdfast: Holdfast, ended: list[WorkflowExecution]) -> dict[str, str]:
    """How turns ended, by id; without those whose result is not there within OUTCOME_SECONDS."""
    found: dict[str, str] = {}
    room = asyncio.Semaphore(CONCURRENT_QUERIES)

    async def fetch_outcome(item: WorkflowExecution) -> None:
        handle = holdfast.client.get_workflow_handle(item.id, run_id=item.run_id, result_type=TurnResult)
        async with room:
            found[item.id] = (await handle.result()).status

    with suppress(TimeoutError):
        async with asyncio.timeout(OUTCOME_SECONDS):
            await asyncio.gather(*map(fetch_outcome, ended), return_exceptions=True)
    return found
