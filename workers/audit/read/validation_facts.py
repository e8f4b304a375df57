"""What validation said of itself in a run: by which rules, tools and hooks it judged, and whose word counted.

Read from the history alone, so it is known also of runs that today's code cannot follow.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio.converter import DataConverter

from holdfast.domain.approvals.approval import Approver
from holdfast.domain.calls.verdicts import Allow, Ask
from holdfast.domain.turn.activity_io import ValidateResult
from holdfast.workers.audit.read.stored_payloads import decode_payloads
from holdfast.workers.audit.read.workflow_runs import Run

VALIDATE_ACTIVITY = "holdfast.validate"


@dataclass(frozen=True)
class ValidationFacts:
    """Digests, in the order in which they came."""

    policy: tuple[str, ...] = ()
    catalogue: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    approvers: tuple[tuple[int, tuple[Approver, ...]], ...] = ()
    """Whose word counted, from which event on."""

    def approvers_at(self, event: int) -> tuple[Approver, ...]:
        """Whose word counted when this event was written."""
        before = [approvers for since, approvers in self.approvers if since < event]
        return before[-1] if before else self.approvers[0][1] if self.approvers else ()


async def read_validation_facts(run: Run, converter: DataConverter) -> ValidationFacts:
    """What the verdicts of a run were given by."""
    found = [each async for each in _read_results(run, converter)]
    results = [result for _, result in found]
    bound = [
        verdict.bound.tool.definition
        for result in results
        for verdict in result.verdicts.values()
        if isinstance(verdict, Allow | Ask)
    ]
    return ValidationFacts(
        policy=_drop_duplicates(result.policy for result in results),
        catalogue=_drop_duplicates(result.catalogue for result in results),
        hooks=_drop_duplicates(result.hooks for result in results),
        definitions=_drop_duplicates(bound),
        approvers=tuple((event, result.approvers) for event, result in found if result.approvers is not None),
    )


def _drop_duplicates(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, values)))


async def _read_results(run: Run, converter: DataConverter) -> AsyncIterator[tuple[int, ValidateResult]]:
    scheduled: set[int] = set()
    for event in run.events:
        if event.activity_task_scheduled_event_attributes.activity_type.name == VALIDATE_ACTIVITY:
            scheduled.add(event.event_id)
        details = event.marker_recorded_event_attributes.details
        done = event.activity_task_completed_event_attributes
        if _is_local_validation(details):
            payloads = list(details["result"].payloads)
        elif event.HasField("activity_task_completed_event_attributes") and done.scheduled_event_id in scheduled:
            payloads = list(done.result.payloads)
        else:
            continue
        for value in await decode_payloads(converter, payloads):
            try:
                yield event.event_id, ValidateResult.model_validate(value)
            except ValidationError:
                continue


def _is_local_validation(details: Any) -> bool:
    """A local activity is a marker, which holds its name beside its result."""
    try:
        said = json.loads(details["data"].payloads[0].data) if "data" in details else {}
    except (IndexError, ValueError):
        return False
    return "result" in details and isinstance(said, dict) and said.get("activity_type") == VALIDATE_ACTIVITY
