"""Replaying recorded runs with today's code, without a server: nothing is executed or stored.

Temporal's replayer reports where today's code would send other commands. What it does not compare is compared here: the
inputs of activities and child turns, and the result.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
)

from holdfast.domain.base import UnreadablePayload
from holdfast.errors import KeyMissing
from holdfast.temporal_private import replay_within
from holdfast.util.text import shorten_text
from holdfast.workers.audit.read.history_facts import format_event_type
from holdfast.workers.audit.read.recorder import RecordingInterceptor, ReplayRecording
from holdfast.workers.audit.read.stored_payloads import (
    ReadOnlyStorage,
    Reference,
    decode_payloads,
    find_reference,
    is_missing,
)
from holdfast.workers.audit.read.workflow_runs import Run
from holdfast.workers.storage.referenced import list_payloads
from holdfast.workflows.session import SessionWorkflow
from holdfast.workflows.turn import TurnWorkflow

REPLAY_SECONDS = 120.0
"""The time limit of one run: a workflow that misses something would wait, or compute, for ever."""
TIMED_OUT = f"the replay did not end within {REPLAY_SECONDS:g} seconds"
WORDS_LIMIT = 600
"""Characters of a difference."""


@dataclass(frozen=True)
class Departure:
    """A place where today's code departs from the history."""

    run: Run
    first: int
    last: int
    """The events of which at least one differs from what today's code would do."""
    what: str
    breaks: bool = True
    """It would do something else; False if it does the same with other inputs or results."""

    @property
    def location(self) -> str:
        """The run and its events, for people."""
        kinds = [format_event_type(event) for event in self.run.events if event.event_id == self.first]
        events = f"event {self.first}" if self.first == self.last else f"events {self.first} to {self.last}"
        return f"{self.run.title}, run {self.run.run}, {events}{f', from {kinds[0]}' if kinds else ''}"


@dataclass
class ReplayedRun:
    """A run that was replayed."""

    run: Run
    departures: list[Departure] = field(default_factory=list)
    lacking: tuple[str, ...] = ()
    """Missing payloads or keys, because of which it cannot be replayed."""
    recording: ReplayRecording = field(default_factory=ReplayRecording)


async def replay_runs(runs: Iterable[Run], converter: DataConverter) -> list[ReplayedRun]:
    """Replay every run. A run that cannot be replayed says why, and the others are replayed all the same."""
    return [await _replay_run(run, converter) for run in runs]


async def _replay_run(run: Run, converter: DataConverter) -> ReplayedRun:
    found = ReplayedRun(run, lacking=await _find_missing(run, converter))
    if found.lacking:
        return found
    failure = await _find_failure(run.events, run.workflow, converter, found)
    if failure:
        found.departures.append(await _locate_departure(run, converter, failure))
    else:
        changes = await _find_changed_inputs(found, converter)
        found.departures += [Departure(run, event, event, what, breaks=False) for event, what in changes]
    return found


async def _find_missing(run: Run, converter: DataConverter) -> tuple[str, ...]:
    """The missing payloads that its events refer to, or its missing key."""
    storage = converter.external_storage
    found: dict[Reference, str] = {}
    for event in run.events:
        for payload in list_payloads(event):
            reference = find_reference(payload)
            if reference and reference not in found and isinstance(storage, ReadOnlyStorage):
                missing = is_missing(await storage.fetch(reference))
                found[reference] = f"payload {reference.name}, of event {event.event_id}, is missing" if missing else ""
    words = tuple(filter(None, found.values()))
    return words or tuple(filter(None, [await _explain_locked_input(run, converter)]))


async def _explain_locked_input(run: Run, converter: DataConverter) -> str | None:
    """Why its input cannot be decrypted, if so."""
    payloads = list(run.events[0].workflow_execution_started_event_attributes.input.payloads)
    try:
        [input] = await converter.decode(payloads)
    except KeyMissing as error:
        return str(error)
    except Exception:  # anything else is the turn's to report
        return None
    return input.reason if isinstance(input, UnreadablePayload) and input.gone else None


async def _find_failure(
    events: Sequence[HistoryEvent], workflow: str, converter: DataConverter, found: ReplayedRun
) -> str | None:
    """Why these events cannot be replayed, in Temporal's words; None if they can."""
    replayer = Replayer(
        workflows=[TurnWorkflow, SessionWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=converter,
        interceptors=[RecordingInterceptor(found.recording)],
        disable_safe_workflow_eviction=True,  # or the recorded state would be that of an evicted workflow
    )
    history = WorkflowHistory(workflow, list(events))
    try:
        result = await replay_within(replayer, history, REPLAY_SECONDS)
    except TimeoutError:
        return TIMED_OUT
    except Exception as error:
        return _extract_message(str(error))
    return _extract_message(str(result.replay_failure)) if result.replay_failure else None


def _extract_message(text: str) -> str:
    """The message of Temporal's core within its error."""
    words = " ".join(text.split())
    inner = _MESSAGE.search(words)
    return shorten_text(inner[1] if inner else words, WORDS_LIMIT)


_MESSAGE = re.compile(r'message: "((?:[^"\\]|\\.)+)"')


async def _locate_departure(run: Run, converter: DataConverter, why: str) -> Departure:
    """Find the first workflow task whose events cannot be replayed, by binary search."""
    ends = [*_list_task_ends(run.events), len(run.events)]
    low, high = (0, len(ends) - 1) if why != TIMED_OUT else (len(ends) - 1, len(ends) - 1)
    while low < high:
        middle = (low + high) // 2
        if await _find_failure(run.events[: ends[middle]], run.workflow, converter, ReplayedRun(run)):
            high = middle
        else:
            low = middle + 1
    start = ends[low - 1] if low else 0
    done = [event.event_id for event in run.events[start : ends[low]] if event.event_type == _TASK_COMPLETED]
    first = done[0] + 1 if done else run.events[start].event_id
    last = run.events[ends[low] - 1].event_id
    return Departure(run, min(first, last), last, why)


_TASK_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


def _list_task_ends(events: Sequence[HistoryEvent]) -> list[int]:
    """Where the events of a workflow task end and those of the next begin."""
    scheduled = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
    return [place for place, event in enumerate(events) if event.event_type == scheduled][1:]


async def _find_changed_inputs(found: ReplayedRun, converter: DataConverter) -> list[tuple[int, str]]:
    """Where activities or child turns would get another input, or the run another result."""
    changes: list[tuple[int, str]] = []
    given = defaultdict(list)
    for name, value in found.recording.given:
        given[name].append(value)
    for event in found.run.events:
        kind, name, payloads = _read_handed_payloads(event)
        if kind == "end":
            value, what = found.recording.result, "it would end with"
        elif kind and given[name]:
            value, what = given[name].pop(0), f"{kind} {name!r} would be given"
        else:
            continue
        changes += [
            (event.event_id, f"{what} {words}") for words in await _find_changed_values(value, payloads, converter)
        ]
    return changes


def _read_handed_payloads(event: HistoryEvent) -> tuple[str, str, Sequence[Payload]]:
    """What an event hands over: to an activity, a child turn or the caller; its id; the payloads."""
    if event.HasField("activity_task_scheduled_event_attributes"):
        scheduled = event.activity_task_scheduled_event_attributes
        return "activity", scheduled.activity_id, scheduled.input.payloads
    if event.HasField("start_child_workflow_execution_initiated_event_attributes"):
        child = event.start_child_workflow_execution_initiated_event_attributes
        return "turn", child.workflow_id, child.input.payloads
    if event.HasField("workflow_execution_continued_as_new_event_attributes"):
        return "end", "", event.workflow_execution_continued_as_new_event_attributes.input.payloads
    if event.HasField("workflow_execution_completed_event_attributes"):
        return "end", "", event.workflow_execution_completed_event_attributes.result.payloads
    return "", "", ()


async def _find_changed_values(value: Any, payloads: Sequence[Payload], converter: DataConverter) -> list[str]:
    """The values that would differ. A field that is new since then is no difference."""
    [recorded] = await decode_payloads(converter, payloads) or [None]
    now = json.loads(value.model_dump_json()) if isinstance(value, BaseModel) else value
    return [shorten_text(words, WORDS_LIMIT) for words in _compare_values(recorded, now, "")]


def _compare_values(then: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for name, value in then.items():
            yield from _compare_values(value, now.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _compare_values(one, other, f"{path}[{place}]")
    elif then != now:
        yield f"{path or 'something else'} = {shorten_text(repr(now), 200)}, and was {shorten_text(repr(then), 200)}"
