"""Metrics and spans of turns and sessions, reported by an interceptor of their workflows.

The only trace in a history is a header of activities and children with their parent span, and no event. Nothing is
reported while a history is replayed. An error here ends the reports of one run, and has no other effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.exceptions import FailureError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

with workflow.unsafe.imports_passed_through():
    from holdfast.domain.calls.events import Event
    from holdfast.domain.conversation.messages import Usage
    from holdfast.domain.session.session_state import SessionState
    from holdfast.domain.turn.turn_state import TurnState
    from holdfast.telemetry.activity import TRACE_HEADER, read_header, write_header
    from holdfast.telemetry.metrics import CountedKey, Measurement, measure_phase, measure_usage
    from holdfast.telemetry.phases import Phase, PhaseTracker
    from holdfast.telemetry.spans import (
        Span,
        SpanPlace,
        TurnFacts,
        build_session_span,
        build_turn_spans,
        derive_execution_place,
        derive_root_place,
        derive_step_place,
        parse_place,
    )

OBSERVER = "__holdfast_observer"
TEMPORAL_TRACER_HEADER = "_tracer-data"
"""The header of Temporal's own tracing with the span of the client that started the workflow."""


@dataclass(frozen=True)
class Observer:
    """Receives the reports of a worker's workflows, outside of the sandbox."""

    count: Callable[[CountedKey, Iterable[Measurement]], None]
    """Receives measurements under a key. Measurements that are reported twice under one key count once."""
    tell: Callable[[Iterable[Span]], None] | None
    """Receives spans; None without traces."""
    content: bool


class ObservedWorkflow(WorkflowInboundInterceptor):
    """Reports one run of a turn or a session."""

    def __init__(self, next: WorkflowInboundInterceptor) -> None:
        super().__init__(next)
        self._observer: Observer | None = workflow.extern_functions().get(OBSERVER, lambda: None)()
        self._parent: SpanPlace | None = None
        self.root: SpanPlace | None = None
        self._phases: PhaseTracker | None = None
        self._usage = Usage()
        self._ended: Counter[CountedKey] = Counter()
        """The number of times that each phase has ended in this run: a call may be executed twice."""
        self._broken = False

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """Add the parent span to the headers of everything that the workflow starts."""
        super().init(_ObservedOutbound(outbound, self))

    @property
    def has_traces(self) -> bool:
        """Are spans reported?"""
        return self._observer is not None and self._observer.tell is not None

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        """Report the run from its start to its end."""
        state = getattr(workflow.instance(), "observed_state", None)
        if self._observer is None or not isinstance(state, TurnState | SessionState):
            return await super().execute_workflow(input)
        info = workflow.info()
        self._parent = _read_parent_place(input.headers)
        self.root = derive_root_place(info.workflow_id, info.first_execution_run_id, self._parent)
        if isinstance(state, TurnState):
            self._watch_state(state)
        try:
            result = await super().execute_workflow(input)
        except workflow.ContinueAsNewError:
            self._report_end(state)
            raise
        except FailureError:
            self._report_end(state, failure="failed")
            raise
        self._report_end(state)
        return result

    def find_next_root(self) -> SpanPlace | None:
        """The parent span of the next run."""
        return self._parent

    def find_activity_place(self, activity: str, args: Any) -> SpanPlace | None:
        """The parent span of an activity: that of its call or step, else that of the turn."""
        input = args[0] if args else None
        return self.find_call_place(getattr(input, "call_id", None)) or self._find_step_place(
            getattr(input, "step", None)
        )

    def find_call_place(self, call: object) -> SpanPlace | None:
        """The span of a call's execution; None when it is not executing."""
        if self.root is None or self._phases is None or not isinstance(call, str):
            return None
        return derive_execution_place(self.root, call, self._phases.find_execution_start(call))

    def _find_step_place(self, step: object) -> SpanPlace | None:
        return derive_step_place(self.root, step) if self.root and isinstance(step, int) else self.root

    def _watch_state(self, state: TurnState) -> None:
        self._phases = PhaseTracker(state.began_at, state.queue.find_event_call)
        self._usage = state.conversation.usage
        for event in state.log.events:
            self._take_event(state, event)
        state.log.watcher = lambda event: self._take_event(state, event)

    def _take_event(self, state: TurnState, event: Event) -> None:
        """Report the phases that end with an event. A replay only tracks which phases are open."""
        if self._phases is None or self._broken:
            return
        try:
            for phase in self._phases.apply_event(event):
                self._count_phase(phase)
            before, self._usage = self._usage, state.conversation.usage
            if found := list(measure_usage(before, self._usage)):
                self._count_once(("tokens", self._usage.input_tokens, self._usage.output_tokens), found)
        except Exception as error:  # no report may fail a turn
            self._give_up(error)

    def _report_end(self, state: TurnState | SessionState, failure: str = "") -> None:
        """Report the end of the run."""
        if self._broken or workflow.unsafe.is_replaying():
            return
        try:
            self._build_spans(state, failure)
        except Exception as error:
            self._give_up(error)

    def _build_spans(self, state: TurnState | SessionState, failure: str) -> None:
        assert self._observer, "only an observed run reports"
        info = workflow.info()
        if failure and isinstance(state, TurnState):
            self._count_phase(Phase("turn", info.start_time, workflow.now(), failure))
        if self._observer.tell is None or self.root is None:
            return
        if isinstance(state, TurnState):
            self._observer.tell(build_turn_spans(self._build_facts(state, self.root, failure)))
        else:
            later = info.run_id if info.run_id != info.first_execution_run_id else ""
            about = (self.root, info.workflow_id, info.start_time, workflow.now())
            self._observer.tell([build_session_span(*about, turns=state.turns, later=later)])

    def _build_facts(self, state: TurnState, root: SpanPlace, failure: str) -> TurnFacts:
        input = state.input
        session = derive_root_place(input.session, input.session_run) if input.session and input.session_run else None
        return TurnFacts(
            turn_id=state.turn_id,
            root=root,
            events=tuple(state.log.events),
            call_of=state.queue.find_event_call,
            began_at=state.began_at,
            ended_at=workflow.now(),
            parent=self._parent,
            session=session,
            session_id=input.session or "",
            depth=input.depth,
            model=input.model.model_names[state.conversation.model] if input.model else "",
            input_tokens=state.conversation.usage.input_tokens,
            output_tokens=state.conversation.usage.output_tokens,
            failure=failure,
            content=bool(self._observer and self._observer.content),
        )

    def _count_phase(self, phase: Phase) -> None:
        """Report a phase under the key of its subject, not of its event: in a retried task event numbers may differ."""
        if found := list(measure_phase(phase)):
            what = (phase.kind, phase.batch, phase.call, phase.revision, phase.step)
            self._ended[what] += 1
            self._count_once((*what, self._ended[what]), found)

    def _count_once(self, what: CountedKey, found: list[Measurement]) -> None:
        if self._observer and not workflow.unsafe.is_replaying():
            self._observer.count((workflow.info().run_id, *what), found)

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        workflow.logger.warning("Metrics and spans of this run end here: %s", type(error).__name__)


class _ObservedOutbound(WorkflowOutboundInterceptor):
    """Adds the parent span to the headers of activities and children."""

    def __init__(self, next: WorkflowOutboundInterceptor, watching: ObservedWorkflow) -> None:
        super().__init__(next)
        self._watching = watching

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        """Regular activities only: a local one ends with its workflow task, and is reported with the turn."""
        self._mark_headers(input, self._watching.find_activity_place(input.activity, input.args))
        return super().start_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        """A delegated turn is within its call. A turn of a session has a trace of its own."""
        call = input.id.rpartition("~")[2].partition("-")[0]
        self._mark_headers(input, self._watching.find_call_place(call))
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        """The next run is in the same trace."""
        self._mark_headers(input, self._watching.find_next_root())
        super().continue_as_new(input)

    def _mark_headers(
        self, input: StartActivityInput | StartChildWorkflowInput | ContinueAsNewInput, at: SpanPlace | None
    ) -> None:
        if at and self._watching.has_traces:
            input.headers = write_header(input.headers, at)


def _read_parent_place(headers: Any) -> SpanPlace | None:
    """Read the parent span of the workflow, from our header or from that of Temporal's own tracing."""
    if TRACE_HEADER in headers:
        return read_header(headers)
    found = _decode_payload(headers[TEMPORAL_TRACER_HEADER]) if TEMPORAL_TRACER_HEADER in headers else None
    return parse_place(found.get("traceparent")) if isinstance(found, dict) else None


def _decode_payload(payload: Payload) -> Any:
    try:
        return PayloadConverter.default.from_payload(payload)
    except Exception:  # anybody may send headers
        return None
