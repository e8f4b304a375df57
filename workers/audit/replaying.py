"""Replaying recorded runs with today's code: no server, and nothing is done or stored.

Temporal's own replayer says where today's code would send other commands. What it does not look at is compared here:
what activities would be given, and what the turn would end with.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import (
    Interceptor,
    Replayer,
    StartActivityInput,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from holdfast.content import shorten
from holdfast.session_state import SessionState
from holdfast.state import TurnState
from holdfast.workers.audit.facts import type_of
from holdfast.workers.audit.runs import Run
from holdfast.workers.audit.stored import decoded
from holdfast.workflows.session import SessionWorkflow
from holdfast.workflows.turn import TurnWorkflow

SECONDS = 120.0
"""One run may take so long: what is missing would be waited for in vain."""
WORDS = 600
"""Characters of what Temporal says of a difference."""


@dataclass(frozen=True)
class Departure:
    """Where today's code would take another path."""

    run: Run
    event: int | None
    """The event of the history that it would not lead to."""
    what: str
    breaks: bool = True
    """It would do something else; else it does the same, and says something else with it."""

    @property
    def where(self) -> str:
        """For people."""
        if self.event is None:
            return f"{self.run.name}, run {self.run.run}"
        kinds = [type_of(event) for event in self.run.events if event.event_id == self.event]
        return f"{self.run.name}, run {self.run.run}, event {self.event}{''.join(f' ({kind})' for kind in kinds)}"


@dataclass
class Replayed:
    """A run as today's code understands it."""

    run: Run
    state: TurnState | SessionState | None = None
    departures: list[Departure] = field(default_factory=list)
    given: list[tuple[str, Any]] = field(default_factory=list)
    """What activities would be given, by their ids."""
    result: Any = None
    """What it would end with."""


async def replay(runs: Iterable[Run], converter: DataConverter) -> list[Replayed]:
    """Replay every run. One that cannot be replayed says why, and those after it are replayed all the same."""
    return [await _replayed(run, converter) for run in runs]


async def _replayed(run: Run, converter: DataConverter) -> Replayed:
    found = Replayed(run)
    replayer = Replayer(
        workflows=[TurnWorkflow, SessionWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=converter,
        interceptors=[_Listening(found)],
        disable_safe_workflow_eviction=True,  # or the end of the replay would be a stop, in the state that is told
    )
    history = WorkflowHistory(run.workflow, list(run.events))
    try:
        async with asyncio.timeout(SECONDS):
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            failure: BaseException | None = result.replay_failure
    except TimeoutError:
        failure = TimeoutError(f"it was not done after {SECONDS:g} seconds")
    except Exception as error:
        failure = error
    if failure:
        found.departures.append(_departure(run, failure))
    else:
        found.departures += [
            Departure(run, event, what, breaks=False) for event, what in await _others(found, converter)
        ]
    return found


async def _others(found: Replayed, converter: DataConverter) -> list[tuple[int, str]]:
    """Where activities would be given something else, or the run would end with something else."""
    told: list[tuple[int, str]] = []
    given = defaultdict(list)
    for name, value in found.given:
        given[name].append(value)
    for event in found.run.events:
        scheduled = event.activity_task_scheduled_event_attributes
        ended = event.workflow_execution_completed_event_attributes
        if given[scheduled.activity_id]:
            value, payloads = given[scheduled.activity_id].pop(0), scheduled.input.payloads
            what = f"activity {scheduled.activity_id!r} ({scheduled.activity_type.name}) would be given"
        elif event.HasField("workflow_execution_completed_event_attributes"):
            value, payloads, what = found.result, ended.result.payloads, "it would end with"
        else:
            continue
        told += [(event.event_id, f"{what} {words}") for words in await _differing(value, payloads, converter)]
    return told


async def _differing(value: Any, payloads: Sequence[Payload], converter: DataConverter) -> list[str]:
    """What was said and would now be said otherwise. What nobody knew to say then is no difference."""
    [recorded] = await decoded(converter, payloads) or [None]
    now = json.loads(value.model_dump_json()) if isinstance(value, BaseModel) else value
    return [shorten(words, WORDS) for words in _unlike(recorded, now, "")]


def _unlike(then: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for name, value in then.items():
            yield from _unlike(value, now.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _unlike(one, other, f"{path}[{place}]")
    elif then != now:
        yield f"{path or 'something else'} = {shorten(repr(now), 200)}, and was {shorten(repr(then), 200)}"


_NUMBER = re.compile(r"\bid: (\d+)|event (?:id )?(\d+)", re.IGNORECASE)


def _departure(run: Run, failure: BaseException) -> Departure:
    words = " ".join(str(failure).split())
    number = _NUMBER.search(words)
    event = int(next(filter(None, number.groups()))) if number else None
    return Departure(run, event, shorten(words, WORDS))


class _Listening(Interceptor):
    """Keeps what a replayed workflow knows, and what it would have activities do."""

    def __init__(self, found: Replayed) -> None:
        self._found = found

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """One for each replay."""
        found = self._found

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
                if input.activity_id and len(input.args) == 1:
                    found.given.append((input.activity_id, input.args[0]))
                return super().start_activity(input)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

            async def execute_workflow(self, input: Any) -> Any:
                found.state = workflow.instance()._state
                found.result = await super().execute_workflow(input)
                return found.result

        return Inbound
