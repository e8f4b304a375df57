"""The recorded calls of turns as policy subjects: from histories of a server, or exported as JSON.

A history holds the results of validation: the bound call where it was allowed or asked about, only the rule where it
was denied. The request of a denied call is found in the turn's input, the model's reply or the submitted batch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from holdfast.activities.gate.prepare_call import build_rule_arguments
from holdfast.activities.policy.compare import RecordedCall
from holdfast.activities.policy.conditions import may_send, may_take_in
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.subject import Subject, build_call_subject
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import ToolRef
from holdfast.domain.calls.verdicts import (
    Allow,
    Ask,
    BoundCall,
    Deny,
    ExecutionOutcome,
    Failed,
    Finished,
    NeedsApprovalAgain,
    Verdict,
)
from holdfast.domain.conversation.messages import ModelReply
from holdfast.domain.modes import DEFAULT_PERMITTED, Mode
from holdfast.domain.turn.activity_io import ValidateResult
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.domain.turn.update_bodies import AddCalls, ModeChange, SubmitBatch, SubmitResult
from holdfast.errors import BadInput
from holdfast.names import EXECUTE_ACTIVITY, MODEL_ACTIVITY, VALIDATE_ACTIVITY
from holdfast.util.text import shorten_text

FILE_LIMIT = 256 * 1024 * 1024
"""Bytes of an exported history."""
BATCHES = 100_000
"""Of one turn."""

T = TypeVar("T")


@dataclass(frozen=True)
class RecordedTurn:
    """The calls of one history."""

    id: str
    calls: tuple[RecordedCall, ...]
    unreadable: int = 0
    """How many payloads could not be decoded, and denied calls whose request is not in the history."""


def read_history(file: Path) -> WorkflowHistory:
    """An exported history, as `temporal workflow show --output json` writes it; BadInput for anything else."""
    name = repr(str(file))
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_LIMIT + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > FILE_LIMIT:
        raise BadInput(f"{name} is over {FILE_LIMIT // 1024**2} MB")
    try:
        stored = json.loads(data)
        started = stored["events"][0]["workflowExecutionStartedEventAttributes"]
        return WorkflowHistory.from_json(str(started.get("workflowId") or file.stem), stored)
    except Exception as error:  # whatever is wrong with it, down to what protobuf raises
        raise BadInput(f"{name} is not the history of a turn as JSON ({type(error).__name__})") from None


async def read_recorded_turn(
    history: WorkflowHistory, converter: DataConverter, workspace: Path, modes: Collection[Mode] = DEFAULT_PERMITTED
) -> RecordedTurn:
    """Every judged call, once for each set of arguments and mode; a mode that is not permitted becomes `default`."""
    reading = _HistoryReader(converter, modes)
    for event in history.events:
        await reading.take_event(event)
    return reading.build_turn(history.workflow_id, workspace)


class _JudgedCall(NamedTuple):
    """A verdict, and the state of its turn."""

    call: str
    verdict: Verdict
    mode: Mode
    tainted: bool


class _HistoryReader:
    """Collects calls and verdicts, event by event."""

    def __init__(self, converter: DataConverter, modes: Collection[Mode]) -> None:
        self._converter = converter
        self._modes = modes
        self._mode = Mode.DEFAULT
        self._tainted = False
        self._unreadable = 0
        self._scheduled: dict[int, tuple[str, str]] = {}
        self._submitted: dict[int, SubmitBatch] = {}
        self._batches: dict[str, tuple[CallRequest, ...]] = {}
        self._replies: list[list[CallRequest]] = []
        """Of models and callers, in the order in which their first calls came."""
        self._streams: dict[tuple[str, int], list[CallRequest]] = {}
        """Those of them that came call by call, by name and attempt."""
        self._judged: list[_JudgedCall] = []

    async def take_event(self, event: HistoryEvent) -> None:
        """Take in the next event."""
        kind = (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")
        about: Any = getattr(event, f"{kind}_event_attributes", None)
        if kind == "workflow_execution_started":
            await self._read_start(about.input.payloads)
        elif kind == "marker_recorded":
            await self._read_local_activity(about.details)
        elif kind == "activity_task_scheduled":
            self._scheduled[event.event_id] = (about.activity_type.name, about.activity_id)
        elif kind == "activity_task_completed":
            name, activity_id = self._scheduled.pop(about.scheduled_event_id, ("", ""))
            await self._read_completed(name, activity_id, about.result.payloads)
        elif kind == "workflow_execution_update_accepted":
            asked = about.accepted_request.input
            await self._read_message(asked.name, asked.args.payloads, event.event_id)
        elif kind == "workflow_execution_update_completed":
            await self._add_queued(about.accepted_event_id, about.outcome.success.payloads)
        elif kind == "workflow_execution_signaled":
            await self._read_message(about.signal_name, about.input.payloads, event.event_id)

    def build_turn(self, turn_id: str, workspace: Path) -> RecordedTurn:
        """All judged calls as policy subjects."""
        requests, tools = self._index_requests(), self._index_tools()
        found: dict[str, RecordedCall] = {}
        for one in self._judged:
            about = _RecordedCall.from_verdict(one.verdict, requests.get(one.call), tools)
            if about is None:
                self._unreadable += isinstance(one.verdict, Deny)
                continue
            subject = about.build_subject(workspace, tainted=one.tainted)
            recorded = RecordedCall(turn_id, one.call, about.title, subject, one.mode)
            found.setdefault(f"{one.call} {one.mode} {subject.model_dump_json()}", recorded)
        return RecordedTurn(turn_id, tuple(found.values()), self._unreadable)

    def _index_requests(self) -> dict[str, CallRequest]:
        """By call id. Replies got the numbers that no other batch has, one for each attempt that called."""
        numbers = (number for number in range(1, BATCHES) if f"b{number}" not in self._batches)
        replies = {f"b{number}": calls for number, calls in zip(numbers, self._replies, strict=False)}
        batches = {**self._batches, **replies}
        return {
            f"{batch}c{place}": request
            for batch, calls in batches.items()
            for place, request in enumerate(calls, start=1)
        }

    def _index_tools(self) -> dict[str, ToolRef]:
        """Tools by name, from allowed calls: the verdict of a denied call does not describe its tool."""
        bound = (one.verdict.bound for one in self._judged if isinstance(one.verdict, Allow | Ask))
        return {each.tool.name: each.tool for each in bound}

    async def _read_start(self, payloads: Iterable[Payload]) -> None:
        if input := await self._decode_payloads(payloads, TurnInput):
            self._mode = input.mode
            self._batches |= {f"b{number}": calls for number, calls in enumerate(input.batches, start=1)}

    async def _read_local_activity(self, details: Mapping[str, Any]) -> None:
        """A local activity is a marker, which holds its name beside its result."""
        try:
            name = json.loads(details["data"].payloads[0].data)["activity_type"]
        except (KeyError, IndexError, ValueError, TypeError):
            return
        if name == VALIDATE_ACTIVITY and "result" in details:
            await self._read_completed(name, "", details["result"].payloads)

    async def _read_completed(self, name: str, activity_id: str, payloads: Iterable[Payload]) -> None:
        if name == VALIDATE_ACTIVITY and (result := await self._decode_payloads(payloads, ValidateResult)):
            for call, verdict in result.verdicts.items():
                self._add_verdict(call, verdict)
        elif name == MODEL_ACTIVITY and (reply := await self._decode_payloads(payloads, ModelReply)) and reply.calls:
            self._add_reply(activity_id, reply.calls)
        elif name == EXECUTE_ACTIVITY and (
            outcome := await self._decode_payloads(payloads, cast(type[ExecutionOutcome], ExecutionOutcome))
        ):
            if isinstance(outcome, NeedsApprovalAgain):
                self._add_verdict(activity_id, outcome.verdict)
            self._tainted |= isinstance(outcome, Finished | Failed) and self._has_taken_in(activity_id)

    async def _read_message(self, name: str, payloads: Iterable[Payload], event_id: int) -> None:
        if name == "set_mode" and (change := await self._decode_payloads(payloads, ModeChange)):
            self._mode = change.mode
        elif name == "submit" and (batch := await self._decode_payloads(payloads, SubmitBatch)):
            self._submitted[event_id] = batch
        elif name == "add_calls" and (body := await self._decode_payloads(payloads, AddCalls)) and body.calls:
            calls = self._get_stream(body.stream, body.attempt)
            calls += body.calls[len(calls) - body.at :] if body.at <= len(calls) else ()  # or it was refused

    def _add_reply(self, activity_id: str, calls: tuple[CallRequest, ...]) -> None:
        """A whole reply; some or all of it may have come before, call by call."""
        step, _, attempt = activity_id.removeprefix("model-").partition("-")
        came = self._streams.get((f"step-{step}", int(attempt) if attempt.isdecimal() else 1))
        if came is None:
            self._replies.append(list(calls))
        else:
            came += calls[len(came) :]

    def _get_stream(self, name: str, attempt: int) -> list[CallRequest]:
        if (name, attempt) not in self._streams:
            self._streams[name, attempt] = []
            self._replies.append(self._streams[name, attempt])
        return self._streams[name, attempt]

    async def _add_queued(self, accepted: int, payloads: Iterable[Payload]) -> None:
        batch = self._submitted.pop(accepted, None)
        if batch and (answer := await self._decode_payloads(payloads, SubmitResult)):
            self._batches[answer.batch] = batch.calls

    def _add_verdict(self, call: str, verdict: Verdict) -> None:
        mode = self._mode if self._mode in self._modes else Mode.DEFAULT
        self._judged.append(_JudgedCall(call, verdict, mode, self._tainted))

    def _has_taken_in(self, call: str) -> bool:
        verdicts = [one.verdict for one in self._judged if one.call == call]
        about = _RecordedCall.from_verdict(verdicts[-1], None, {}) if verdicts else None
        return about is not None and about.has_taken_in()

    async def _decode_payloads(self, payloads: Iterable[Payload], kind: type[T]) -> T | None:
        try:
            [value] = await self._converter.decode(list(payloads), [kind])
        except Exception:  # a missing payload, another store, another format
            self._unreadable += 1
            return None
        return cast(T, value)


@dataclass(frozen=True)
class _RecordedCall:
    """What a history contains of one call."""

    name: str
    title: str
    arguments: Mapping[str, Any]
    tool: ToolRef | None = None
    bound: BoundCall | None = None
    asked: Confirmation | None = None

    @classmethod
    def from_verdict(
        cls, verdict: Verdict, request: CallRequest | None, tools: Mapping[str, ToolRef]
    ) -> _RecordedCall | None:
        """None for a rejected call, and for a denied one whose request is not known."""
        if isinstance(verdict, Allow | Ask):
            bound = verdict.bound
            asked = verdict.confirmation if isinstance(verdict, Ask) else None
            return cls(bound.tool.name, bound.title, build_rule_arguments(bound), bound.tool, bound, asked)
        if not isinstance(verdict, Deny) or request is None or not isinstance(request.arguments, dict):
            return None
        title = shorten_text(f"{request.tool} {json.dumps(request.arguments)}", 500)
        return cls(request.tool, title, request.arguments, tools.get(request.tool))

    def build_subject(self, workspace: Path, *, tainted: bool) -> Subject:
        """The subject as the gate built it; symbolic links are not resolved, since they may have changed."""
        known: dict[str, Any] = {"tainted": tainted}
        if self.tool:
            tool = self.tool
            known |= {"effect": tool.effect, "server": tool.server, "own_name": tool.own_name}
        if self.asked and self.asked.kind != "outcome_unknown":
            known["kind"] = self.asked.kind
        if self.asked and self.asked.command is not None:
            known["command"] = self.asked.command
        if self.asked and self.asked.urls:
            known["urls"] = self.asked.urls
        if self.bound and self.bound.basis:
            known["paths"] = tuple(self.bound.basis)
        subject = build_call_subject(self.name, self.arguments, workspace=workspace, **known)
        return complete_subject(subject, may_send(subject, open_world=self._is_open_world))

    def has_taken_in(self) -> bool:
        """Whether the call may have read content from outside."""
        return may_take_in(self.build_subject(Path("/"), tainted=False), open_world=self._is_open_world)

    @property
    def _is_open_world(self) -> bool:
        return self.tool is not None and self.tool.traits.open_world
