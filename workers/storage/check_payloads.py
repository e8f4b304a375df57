"""The doctor's check of stored payloads: can this process read those that other processes have stored?"""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle

from holdfast.domain.base import UnreadablePayload
from holdfast.names import TURN_WORKFLOW
from holdfast.util.findings import Finding, report_ok, report_problem
from holdfast.workers.lookup.task_queues import build_queue_query

RECENT_TURNS = 20
"""Turns whose payloads are read, the newest."""


async def check_payloads(client: Client, task_queue: str) -> list[Finding]:
    """Read the stored payloads of the inputs of recent turns; RPCError."""
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
                found = UnreadablePayload("it could not be read")
            lost += [turn.id] if isinstance(found, UnreadablePayload) else []
    if lost:
        says = f"{len(lost)} of {looked} payloads of recent turns cannot be read here, for example of turn {lost[0]!r}"
        return [report_problem(says, "let clients and workers use the same payloads/ (docs/how-to/operating.md)")]
    return [report_ok(f"read {looked} payloads of recent turns" if looked else "recent turns have no stored payloads")]


async def _fetch_start_payloads(handle: WorkflowHandle[Any, Any]) -> list[Payload]:
    async for event in handle.fetch_history_events(page_size=1):
        return list(event.workflow_execution_started_event_attributes.input.payloads)
    return []
