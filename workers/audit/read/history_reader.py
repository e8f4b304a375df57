"""Reading a history: event by event, into `HistoryFacts`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TimeoutType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

from holdfast.names import MODEL_ACTIVITY
from holdfast.workers.audit.read.history_facts import (
    Attempt,
    AttemptEnding,
    ChildTurnEvent,
    HistoryFacts,
    Message,
    Reply,
    WorkerLoss,
    read_event_time,
)
from holdfast.workers.audit.read.stored_payloads import decode_payloads
from holdfast.workers.audit.read.workflow_runs import Run

_ORDINARY_CAUSES = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
)
"""Causes by which a task is repeated because something arrived meanwhile: nothing failed."""


async def read_facts(run: Run, converter: DataConverter) -> HistoryFacts:
    """Read the history of a run."""
    reading = _HistoryReader(converter)
    for event in run.events:
        await reading.take_event(event)
    return reading.facts


_ENDINGS = {
    "workflow_execution_completed": "completed",
    "workflow_execution_failed": "failed",
    "workflow_execution_timed_out": "timed out",
    "workflow_execution_terminated": "terminated",
    "workflow_execution_canceled": "cancelled",
    "workflow_execution_continued_as_new": "continued",
}
_ACTIVITY_ENDINGS: Mapping[str, AttemptEnding] = {
    "activity_task_completed": "completed",
    "activity_task_failed": "failed",
    "activity_task_timed_out": "timed out",
    "activity_task_canceled": "cancelled",
}


class _HistoryReader:
    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self.facts = HistoryFacts()
        self._accepted: dict[int, int] = {}
        """The index of each update among the messages, by the event that accepted it."""
        self._started: dict[int, str] = {}
        self._taken = datetime.min
        """When the current workflow task started."""

    async def take_event(self, event: HistoryEvent) -> None:
        """Take in the next event."""
        kind = (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")
        about: Any = getattr(event, f"{kind}_event_attributes", None)
        if kind in _ENDINGS:
            self.facts.ended, self.facts.how = read_event_time(event), _ENDINGS[kind]
            self.facts.status, self.facts.why = await self._read_ending(about, self.facts.how)
        elif kind.startswith("child_workflow_execution_"):
            how = kind.removeprefix("child_workflow_execution_").replace("_", " ").replace("canceled", "cancelled")
            turn = about.workflow_execution.workflow_id
            self.facts.child_turns.append(
                ChildTurnEvent(event.event_id, read_event_time(event), turn, *await self._read_ending(about, how))
            )
        elif kind in _ACTIVITY_ENDINGS:
            await self._end_attempt(event, about, _ACTIVITY_ENDINGS[kind])
        elif handler := getattr(self, f"_{kind}", None):
            await handler(event, about)

    async def _workflow_execution_started(self, event: HistoryEvent, about: Any) -> None:
        parent = about.parent_workflow_execution.workflow_id  # a child workflow has no identity
        self.facts.began, self.facts.identity = (
            read_event_time(event),
            about.identity or (parent and f"workflow {parent}"),
        )
        self.facts.input = await self._decode_first(about.input.payloads)

    async def _workflow_execution_signaled(self, event: HistoryEvent, about: Any) -> None:
        body = await self._decode_first(about.input.payloads)
        message = Message(event.event_id, read_event_time(event), "signal", about.signal_name, about.identity, body)
        self.facts.messages.append(message)

    async def _workflow_execution_update_accepted(self, event: HistoryEvent, about: Any) -> None:
        asked = about.accepted_request
        body = await self._decode_first(asked.input.args.payloads)
        self._accepted[event.event_id] = len(self.facts.messages)
        # The event is written at the end of the task that took it; the events of the turn have the time of that task.
        message = Message(
            event.event_id,
            self._taken,
            "update",
            asked.input.name,
            asked.meta.identity,
            body,
            id=asked.meta.update_id,
        )
        self.facts.messages.append(message)

    async def _workflow_execution_update_completed(self, event: HistoryEvent, about: Any) -> None:
        place = self._accepted.get(about.accepted_event_id)
        if place is None:
            return
        answer = await self._decode_first(about.outcome.success.payloads)
        refused = await self._describe_failure(about.outcome.failure) if about.outcome.HasField("failure") else None
        self.facts.messages[place] = replace(self.facts.messages[place], answer=answer, refused=refused)

    async def _activity_task_scheduled(self, event: HistoryEvent, about: Any) -> None:
        self.facts.attempts[event.event_id] = Attempt(
            event.event_id, about.activity_id, about.activity_type.name, read_event_time(event), about.task_queue.name
        )

    async def _activity_task_started(self, event: HistoryEvent, about: Any) -> None:
        if one := self.facts.attempts.get(about.scheduled_event_id):
            before = await self._describe_failure(about.last_failure) if about.attempt > 1 else None
            self.facts.attempts[one.event] = replace(
                one, number=about.attempt, worker=about.identity, started=read_event_time(event), before=before
            )

    async def _end_attempt(self, event: HistoryEvent, about: Any, how: AttemptEnding) -> None:
        if one := self.facts.attempts.get(about.scheduled_event_id):
            failure = getattr(about, "failure", None)
            why = await self._describe_failure(failure) if failure is not None and failure.ByteSize() else None
            self.facts.attempts[one.event] = replace(one, ended=read_event_time(event), how=how, why=why)
            if one.type == MODEL_ACTIVITY and how == "completed":
                body = await self._decode_first(about.result.payloads)
                self.facts.replies.append(
                    Reply(event.event_id, read_event_time(event), body if isinstance(body, dict) else {})
                )

    async def _workflow_task_started(self, event: HistoryEvent, about: Any) -> None:
        self._started[event.event_id], self._taken = about.identity, read_event_time(event)
        if about.identity and about.identity not in self.facts.workers:
            self.facts.workers.append(about.identity)

    async def _workflow_task_timed_out(self, event: HistoryEvent, about: Any) -> None:
        if about.timeout_type == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START:
            why = "the worker that had it in its cache did not take the task; another one did"
        else:
            why = "its worker took a task and did not finish it in time"
        self._record_loss(event, self._started.get(about.started_event_id), why)

    async def _workflow_task_failed(self, event: HistoryEvent, about: Any) -> None:
        if about.cause in _ORDINARY_CAUSES:
            return
        why = await self._describe_failure(about.failure)
        self._record_loss(event, about.identity, f"a task failed and was tried again{f': {why}' if why else ''}")

    def _record_loss(self, event: HistoryEvent, worker: str | None, why: str) -> None:
        self.facts.losses.append(WorkerLoss(event.event_id, read_event_time(event), worker or None, why))

    async def _read_ending(self, about: Any, how: str) -> tuple[str, str | None]:
        """How a workflow ended, and why, by its result if it has one."""
        result = getattr(about, "result", None)
        body = await self._decode_first(result.payloads) if result is not None else None
        fields = body if isinstance(body, dict) else {}
        why = (
            await self._describe_failure(getattr(about, "failure", None))
            or getattr(about, "reason", None)
            or fields.get("reason")
        )
        return str(fields.get("status") or how), str(why) if why else None

    async def _decode_first(self, payloads: Sequence[Payload]) -> Any:
        found = await decode_payloads(self._converter, list(payloads)[:1])
        return found[0] if found else None

    async def _describe_failure(self, failure: Failure | None) -> str | None:
        """A failure and its causes."""
        if failure is None or not failure.ByteSize():
            return None
        opened = Failure()
        opened.CopyFrom(failure)
        try:
            await self._converter.decode_failure(opened)
        except Exception:  # encrypted with a key that is missing here
            return "a failure that cannot be decrypted here"
        return ": ".join(dict.fromkeys(_list_causes(opened)))


def _list_causes(failure: Failure) -> Iterator[str]:
    while True:
        if failure.HasField("timeout_failure_info"):
            kind = TimeoutType.Name(failure.timeout_failure_info.timeout_type)
            yield f"{kind.removeprefix('TIMEOUT_TYPE_').replace('_', ' ').lower()} timeout"
        elif failure.message:
            yield failure.message
        if not failure.HasField("cause"):
            return
        failure = failure.cause
