"""The view of a turn with its calls, for viewers, with long values shortened (S40).

The view of a call takes a few kilobytes at most; the query `call` returns its whole record.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from holdfast.domain.approvals.approval import ActorKind, DecisionAction
from holdfast.domain.background_commands import BackgroundCommand
from holdfast.domain.base import Data
from holdfast.domain.calls.batch import Batch, may_interrupt
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.events import shorten_line
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.content import Response, TextPart, format_tool_name
from holdfast.domain.context import Context
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.approval_view import (
    ARGUMENTS_LIMIT,
    BRIEF_LIMIT,
    DETAIL_LIMIT,
    ApprovalView,
    build_approval_view,
    find_display_name,
    format_json,
    shorten_optional,
)
from holdfast.domain.turn.carryover import EarlierRun
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.domain.turn.turn_state import TurnState
from holdfast.util.text import shorten_text, strip_controls

OUTPUT_LIMIT = 1_000
SOURCES_SHOWN = 20
NAMES_SHOWN = 50
"""With more approvals than this, each is shown in brief."""

ViewState = Literal["running", "thinking", "awaiting_approval", "idle", "stopping", "ended"]


class CallView(Data):
    """The view of one call."""

    id: str
    model_id: str | None = None
    place: int
    of: int
    tool: str
    display_name: str = ""
    status: Status
    title: str
    arguments: str
    rule: str | None = None
    revision: int = 0
    stopping: str | None = None
    decided_by: str | None = None
    actor: ActorKind | None = None
    grant: str | None = None
    changed_by: tuple[str, ...] = ()
    outcome: str | None = None
    """The decision about the call, by a person, a grant, the policy, a hook, or a deadline."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_seconds: float | None = None
    """The time from creation to end, waiting included."""
    execution_seconds: float | None = None
    """The time from start to end; None for a call that never started."""
    live_output: str | None = None
    live_styled: str | None = None
    """The live output with colours, for viewers that can show them (`LiveOutput.styled`)."""
    pid: int | None = None
    attempts: int = 1
    """The number of attempts of the tool, the running one included (`Retries`)."""
    last_failure: str | None = None
    """While it runs: why the attempt before this one failed."""
    output: str | None = None
    """The output that the model reads."""
    display: str | None = None
    """The text for people, if it differs from `output`. For a call that did not run, its diff."""
    changes: str | None = None
    """The number of lines that the diff adds and removes: `+3 −450`."""
    markdown: bool = False
    error_type: str | None = None
    error: str | None = None


class BatchView(Data):
    """The view of one batch."""

    id: str
    calls: tuple[CallView, ...]
    stream: str | None = None
    """The name of the stream that adds its calls one by one."""
    attempt: int = 1
    complete: bool = True
    """No further call will be added."""
    discarded: bool = False


class TurnView(Data):
    """The view of one turn: the active batch, or the last one, pending approvals, and the number of calls by status."""

    id: str
    state: ViewState
    prompt: str | None = None
    step: int = 0
    schedule: Schedule = Schedule.ALL_READY
    interruptible: bool = True
    """Would a user's new message stop everything that runs now?"""
    context: Context = Context()
    """The context of the next call (S47)."""
    mode: Mode = Mode.DEFAULT
    confirm: Confirming = Confirming.POLICY
    tools: tuple[str, ...] | None = None
    """The names and patterns of tools that the turn was started with, the first of them; None for all."""
    grants: int = 0
    tainted: tuple[str, ...] = ()
    """The titles of the first calls that took in content from outside."""
    outside: dict[str, int] = Field(default_factory=dict)
    """The number of calls that took in content from outside, by tool."""
    batch: BatchView | None = None
    batches_done: int = 0
    queued: tuple[str, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    commands: tuple[BackgroundCommand, ...] = ()
    """The background commands of the turn and of earlier turns of its session that may still run."""
    counts: dict[str, int] = Field(default_factory=dict)
    text: str | None = None
    last_event: int = 0
    usage: Usage = Usage()
    session: str | None = None
    runs: tuple[EarlierRun, ...] = ()
    """The earlier runs of this turn."""
    result: TurnResult | None = None
    """The result of a turn that has ended, with long responses shortened. The client fills it."""


def build_turn_view(state: TurnState, since: Mapping[str, datetime]) -> TurnView:
    """Build the view of a turn. `since` has the time since which each call awaits approval, by call id."""
    shown = state.queue.active or (state.queue.done[-1] if state.queue.done else None)
    waiting = state.queue.active.waiting_calls if state.queue.active else ()
    detail = DETAIL_LIMIT if len(waiting) <= NAMES_SHOWN else BRIEF_LIMIT
    granted = {grant.id: grant.decision.outcome for grant in state.decisions.grants.all_grants}
    outside = list(state.executions.outside.items())
    return TurnView(
        id=state.turn_id,
        state=_find_state(state, bool(waiting)),
        prompt=shorten_optional(state.input.prompt, DETAIL_LIMIT),
        step=state.conversation.steps,
        schedule=state.input.schedule,
        interruptible=all(may_interrupt(call) for call in shown.calls if call.is_running) if shown else True,
        context=_shorten_context(state.executions.context),
        mode=state.decisions.permitted_mode or state.decisions.mode,
        confirm=state.input.confirm,
        tools=None if state.input.tools is None else tuple(map(format_tool_name, state.input.tools[:SOURCES_SHOWN])),
        grants=len(state.decisions.grants.all_grants),
        tainted=tuple(dict.fromkeys(state.executions.tainted))[:10],
        outside={format_tool_name(tool): calls for tool, calls in outside[:SOURCES_SHOWN]},
        batch=build_batch_view(shown, granted) if shown else None,
        batches_done=len(state.queue.done),
        queued=tuple(batch.id for batch in state.queue.queued),
        approvals=tuple(
            build_approval_view(state.turn_id, call, detail=detail, since=since.get(call.id)) for call in waiting
        ),
        commands=tuple(one for one in state.executions.commands if one.running),
        counts=dict(state.queue.status_counts),
        text=shorten_optional(state.conversation.text, DETAIL_LIMIT),
        last_event=state.log.last_number,
        usage=state.conversation.usage,
        session=state.input.session,
        runs=state.log.runs,
    )


def build_batch_view(batch: Batch, granted: Mapping[str, DecisionAction] = MappingProxyType({})) -> BatchView:
    """Build the view of a batch. `granted` has the outcome of each of the turn's grants, by id."""
    count = len(batch.calls)
    return BatchView(
        id=batch.id,
        calls=tuple(build_call_view(call, place, count, granted) for place, call in enumerate(batch.calls, start=1)),
        stream=shorten_optional(batch.stream, 200),
        attempt=batch.attempt,
        complete=batch.complete,
        discarded=batch.discarded,
    )


def build_call_view(
    call: Call, place: int, count: int, granted: Mapping[str, DecisionAction] = MappingProxyType({})
) -> CallView:
    """Build the view of a call. `granted` has the outcome of each of the turn's grants, by id."""
    response = call.response
    output = "\n".join(part.text for part in response.parts) if response else None
    return CallView(
        id=call.id,
        model_id=shorten_optional(call.request.id, 100),
        place=place,
        of=count,
        tool=format_tool_name(call.tool),
        display_name=find_display_name(call),
        status=call.status,
        title=shorten_line(call.bound.title, 300) if call.bound else format_tool_name(call.tool),
        arguments=format_json(call.bound.arguments if call.bound else call.request.arguments, ARGUMENTS_LIMIT)[0],
        rule=shorten_optional(call.rule, 300),
        revision=call.revision,
        stopping=shorten_optional(call.stopping, 300),
        decided_by=_format_deciders(call),
        actor=call.actor.kind if call.actor else None,
        grant=call.grant,
        changed_by=tuple(shorten_line(name, 100) for name in call.changed_by[:10]),
        outcome=_find_action(call, granted),
        created_at=call.created_at,
        started_at=call.started_at,
        ended_at=call.ended_at,
        duration_seconds=_count_seconds(call.duration),
        execution_seconds=_count_seconds(call.execution_time),
        attempts=call.attempts,
        output=strip_controls(shorten_text(output, OUTPUT_LIMIT)) if output else None,
        display=strip_controls(shorten_text(response.display, OUTPUT_LIMIT)) if response and response.display else None,
        changes=response.changes if response else None,
        markdown=bool(call.bound and call.bound.tool.traits.markdown),
        error_type=shorten_line(call.error.type, 100) if call.error else None,
        error=shorten_optional(call.error.message, OUTPUT_LIMIT) if call.error else None,
    )


def _format_deciders(call: Call) -> str | None:
    """Return who decided; all of them if several approved."""
    if call.actor and call.actor.kind == "person" and len(call.approvals) > 1:
        return shorten_line(" and ".join(decision.by or "somebody" for decision in call.approvals), 300)
    return shorten_line(call.actor.name, 100) if call.actor else None


def _find_action(call: Call, granted: Mapping[str, DecisionAction]) -> DecisionAction | None:
    """Return the decision about a call; None while there is none, and for a call that could not be validated."""
    if call.decision:
        return call.decision.outcome
    if call.actor is None:
        return None
    if call.error and call.error.type in ("denied", "refused", "expired"):
        return DecisionAction.CANCEL
    return granted.get(call.grant, DecisionAction.PROCEED_ALWAYS) if call.grant else DecisionAction.PROCEED_ONCE


def _count_seconds(length: timedelta | None) -> float | None:
    return length.total_seconds() if length is not None else None


def _shorten_context(context: Context) -> Context:
    """Shorten the folder, and the lists of variables and tools."""
    return Context(
        folder=shorten_line(context.folder, 300),
        environment=dict(list(context.environment.items())[:SOURCES_SHOWN]),
        tools=None if context.tools is None else tuple(map(format_tool_name, context.tools[:SOURCES_SHOWN])),
    )


def _find_state(state: TurnState, waiting: bool) -> ViewState:
    if state.log.is_closed:
        return "ended"
    if state.queue.stop:
        return "stopping"
    if waiting:
        return "awaiting_approval"
    if state.queue.active or state.queue.queued:
        return "running"
    return "thinking" if state.input.model else "idle"


def shorten_result(result: TurnResult) -> TurnResult:
    """Shorten the responses of a result. The record of a call has the whole response."""
    batches = tuple(
        batch.model_copy(update={"responses": tuple(map(_shorten_response, batch.responses))})
        for batch in result.batches
    )
    text = shorten_text(result.text, DETAIL_LIMIT) if result.text else result.text
    return result.model_copy(update={"batches": batches, "text": text, "left": None})


def _shorten_response(response: Response) -> Response:
    output = "\n".join(part.text for part in response.parts)
    if len(output) <= OUTPUT_LIMIT and len(response.display or "") <= OUTPUT_LIMIT:
        return response
    display = shorten_text(response.display, OUTPUT_LIMIT) if response.display else None
    return response.model_copy(
        update={"parts": (TextPart(text=shorten_text(output, OUTPUT_LIMIT)),), "display": display}
    )
