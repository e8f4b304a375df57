"""One run from both sides: the facts of its history, and what a replay of it shows.

What validation says of itself (rules, tools, hooks, approvers) is read from its recorded results, so it is known also
of runs that today's code cannot replay.
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
from holdfast.domain.turn.turn_state import TurnState
from holdfast.names import VALIDATE_ACTIVITY
from holdfast.workers.audit.read.history_facts import HistoryFacts
from holdfast.workers.audit.read.history_reader import read_facts
from holdfast.workers.audit.read.replay import ReplayedRun, replay_runs
from holdfast.workers.audit.read.stored_payloads import decode_payloads
from holdfast.workers.audit.read.workflow_runs import Run


@dataclass(frozen=True)
class ValidationFacts:
    """The digests that verdicts were given by, in order, and the approvers."""

    policy: tuple[str, ...] = ()
    catalogue: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    approvers: tuple[tuple[int, tuple[Approver, ...]], ...] = ()
    """The approvers, from which event on."""

    def approvers_at(self, event: int) -> tuple[Approver, ...]:
        """The approvers when this event was written."""
        before = [approvers for since, approvers in self.approvers if since < event]
        return before[-1] if before else self.approvers[0][1] if self.approvers else ()


async def read_validation_facts(run: Run, converter: DataConverter) -> ValidationFacts:
    """Read what the verdicts of a run were given by."""
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
    """Whether these are the details of validation's marker: a local activity records its name beside its result."""
    try:
        value = json.loads(details["data"].payloads[0].data) if "data" in details else {}
    except (IndexError, ValueError):
        return False
    return "result" in details and isinstance(value, dict) and value.get("activity_type") == VALIDATE_ACTIVITY


class ExaminedRun:
    """A run, the facts of its history, and its replay."""

    def __init__(self, run: Run, facts: HistoryFacts, replayed: ReplayedRun, validation: ValidationFacts) -> None:
        self.run = run
        self.facts = facts
        self.replayed = replayed
        self.validation = validation

    @property
    def turn(self) -> TurnState | None:
        """The state of the turn at the end of the run; None if today's code cannot replay it."""
        state = self.replayed.recording.state
        return state if isinstance(state, TurnState) and not self.break_reasons else None

    @property
    def break_reasons(self) -> list[str]:
        """Why today's code cannot replay it."""
        return [*self.replayed.lacking[:1]] + [
            f"{one.location}: {one.what}" for one in self.replayed.departures if one.breaks
        ]


async def examine_run(run: Run, converter: DataConverter) -> ExaminedRun:
    """Read the history of a run, and replay it."""
    [replayed] = await replay_runs([run], converter)
    return ExaminedRun(run, await read_facts(run, converter), replayed, await read_validation_facts(run, converter))
