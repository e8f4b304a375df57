"""Payloads outside the history that others have stored: are they to be found from here?"""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle

from holdfast.domain.base import Unreadable
from holdfast.domain.turn.turn_io import TURN_WORKFLOW
from holdfast.util.findings import Finding, report_ok, report_problem
from holdfast.workers.lookup.task_queues import build_queue_query

RECENT_TURNS = 20
"""Turns whose payloads are looked for, the newest."""


async def check_payloads(client: Client, task_queue: str) -> list[Finding]:
    """Look for those that recent turns began with; RPCError."""
    looked, lost = 0, []
    query = f'{build_queue_query(task_queue, running=False)} AND WorkflowType = "{TURN_WORKFLOW}"'
    async for turn in client.list_workflows(query, limit=RECENT_TURNS):
        handle = client.get_workflow_handle(turn.id, run_id=turn.run_id)
        outside = [one for one in await _fetch_start_payloads(handle) if one.external_payloads]
        looked += len(outside)
        for payload in outside:
            try:
                [found] = await client.data_converter.decode([payload])
            except Exception:
                found = Unreadable("it was not to be had")
            lost += [turn.id] if isinstance(found, Unreadable) else []
    if lost:
        says = f"{len(lost)} of {looked} payloads of recent turns are not to be found from here, as of {lost[0]!r}"
        return [report_problem(says, "let clients and workers see the same payloads/ (docs/how-to/operating.md)")]
    return [report_ok(f"{looked} payloads of recent turns were looked for and found" if looked else "none to look for")]


async def _fetch_start_payloads(handle: WorkflowHandle[Any, Any]) -> list[Payload]:
    async for event in handle.fetch_history_events(page_size=1):
        return list(event.workflow_execution_started_event_attributes.input.payloads)
    return []
