"""What a replay records: the state of the workflow, the inputs of its activities, and which decisions counted.

The same decision may be delivered often and counts once; only a replay tells which delivery that was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import ValidationError
from temporalio import workflow
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle, ChildWorkflowHandle

from holdfast.domain.approvals.approval import Decision
from holdfast.domain.session.session_state import SessionState
from holdfast.domain.turn.turn_state import TurnState
from holdfast.workers.audit.read.history_facts import Message

DECIDE = "decide"


@dataclass
class Deliveries:
    """Whether each delivery of a decision counted: updates by their id, signals by their order."""

    updates: dict[str, bool] = field(default_factory=dict)
    signals: list[bool] = field(default_factory=list)

    @contextmanager
    def watch_signal(self, state: object, body: Any) -> Iterator[None]:
        """Record whether a signal counts that is handled in the block."""
        self.signals.append(False)
        place = len(self.signals) - 1
        with self._watch_delivery(state, body) as counted:
            yield
        self.signals[place] = counted()

    @contextmanager
    def watch_update(self, state: object, id: str, body: Any) -> Iterator[None]:
        """Record whether an update counts that is handled in the block; one that fails does not."""
        self.updates[id] = False
        with self._watch_delivery(state, body) as counted:
            yield
        self.updates[id] = counted()

    @contextmanager
    def _watch_delivery(self, state: object, body: Any) -> Iterator[Any]:
        decision = _parse_decision(body)
        log = state.decisions if isinstance(state, TurnState) else None
        known = log is not None and decision is not None and log.has_decision(decision)

        def is_newly_counted() -> bool:
            return log is not None and decision is not None and not known and log.has_decision(decision)

        yield is_newly_counted

    def has_counted(self, message: Message, signals_before: int) -> bool:
        """Whether this message counted. `signals_before`: decisions by signal before it in the same run."""
        if message.how == "update":
            return self.updates.get(message.id, False)
        return signals_before < len(self.signals) and self.signals[signals_before]


def _parse_decision(body: Any) -> Decision | None:
    try:
        return Decision.model_validate(body)
    except ValidationError:
        return None


@dataclass
class ReplayRecording:
    """What a replayed workflow knew, and what it would do."""

    state: TurnState | SessionState | None = None
    given: list[tuple[str, Any]] = field(default_factory=list)
    """The inputs of activities and child turns, by their ids."""
    result: Any = None
    """What it would end with, or continue as new with."""
    deliveries: Deliveries = field(default_factory=Deliveries)


class RecordingInterceptor(Interceptor):
    """Records what a replayed workflow knows, and what it would have activities do."""

    def __init__(self, recording: ReplayRecording) -> None:
        self._recording = recording

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """The interceptor of a replay."""
        recording = self._recording

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
                recording.given += [(input.activity_id or "", each) for each in input.args]
                return super().start_activity(input)

            async def start_child_workflow(self, input: StartChildWorkflowInput) -> ChildWorkflowHandle[Any, Any]:
                recording.given += [(input.id, each) for each in input.args]
                return await super().start_child_workflow(input)

            def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
                recording.result = input.args[0]
                super().continue_as_new(input)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                recording.state = workflow.instance()._state
                recording.result = await super().execute_workflow(input)
                return recording.result

            async def handle_signal(self, input: HandleSignalInput) -> None:
                body = input.args[0] if input.signal == DECIDE and input.args else None
                watched = recording.deliveries.watch_signal(workflow.instance()._state, body)
                with watched if input.signal == DECIDE else nullcontext():
                    await super().handle_signal(input)

            async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
                if input.update != DECIDE:
                    return await super().handle_update_handler(input)
                with recording.deliveries.watch_update(workflow.instance()._state, input.id, input.args[0]):
                    return await super().handle_update_handler(input)

        return Inbound
