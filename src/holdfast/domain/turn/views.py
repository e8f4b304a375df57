"""What a viewer sees of a turn: everything, but every long value cut (S40).

The whole of a call is had by asking for that call. A view never holds more than a few kilobytes per call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, JsonValue

from holdfast.domain.approvals.approval import (
    ActorKind,
    ApprovalId,
    Confirmation,
    DecisionAction,
    Needs,
    Offer,
    ToolNotes,
)
from holdfast.domain.background_commands import BackgroundCommand
from holdfast.domain.base import Data
from holdfast.domain.calls.batch import Batch, may_interrupt
from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.content import Response, TextPart, format_tool_name
from holdfast.domain.context import Context
from holdfast.domain.conversation.messages import Usage
from holdfast.domain.forms.validation import list_fields
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.carryover import EarlierRun
from holdfast.domain.turn.turn_io import TurnResult
from holdfast.domain.turn.turn_state import TurnState
from holdfast.util.text import (
    count_changes,
    elide_middle,
    escape_controls,
    first_line,
    shorten_diff,
    shorten_text,
    strip_controls,
)

ARGUMENTS_LIMIT = 1_000
DETAIL_LIMIT = 4_000
OUTPUT_LIMIT = 1_000
BRIEF_LIMIT = 400
FORM_LIMIT = 1_000
OFFERS_SHOWN = 6
SOURCES_SHOWN = 20
SCOPE_LIMIT = 2_000
"""Characters of a scope; a longer one is had with its call."""
NAMES_SHOWN = 50
"""Above so many approvals, each is shown in brief."""
INBOX_ITEMS = 20
"""Approvals whose summary is kept in the memo; a turn with more is asked by query."""

ViewState = Literal["running", "thinking", "awaiting_approval", "idle", "stopping", "ended"]


class ApprovalView(Data):
    """One thing that waits for a person, as the inbox and a turn's view show it."""

    approval_id: str
    digest: str
    tool: str
    display_name: str = ""
    """What the tool is called for people: what its author says, else its name."""
    kind: str
    title: str
    command: str | None = None
    description: str | None = None
    """What the model says that the command is for: its words, and nothing that anybody has checked."""
    programs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    reason: str | None = None
    diff: str | None = None
    changes: str | None = None
    """How many lines the whole diff adds and removes: `+3 −450`."""
    path: str | None = None
    server: str | None = None
    about: ToolNotes | None = None
    """What is known of a server's tool; of its description, the first line."""
    urls: tuple[str, ...] = ()
    question: str | None = None
    options: tuple[str, ...] = ()
    other: bool = True
    form: dict[str, JsonValue] | None = None
    """The fields that a question asks for, as a JSON schema; a long one is had by call."""
    fields: int = 0
    """How many there are."""
    arguments: str = ""
    others: str = ""
    """The arguments that nothing else here tells, as JSON."""
    cut: bool = False
    """Something of it was too long to be shown here: the whole is had by call."""
    rule: str | None = None
    since: datetime | None = None
    offers: tuple[Offer, ...] = ()
    """Standing answers that may be given, the narrowest first."""
    edits: str | None = None
    """The argument whose text may be changed in an editor."""
    needs: Needs = Needs()
    approved_by: tuple[str, ...] = ()
    editing: str | None = None
    """Who has it open in an editor."""
    editing_until: datetime | None = None
    """When that no longer counts, should they never say that they are done."""
    problem: str | None = None
    """Why the last change of it was not taken."""
    changed_by: tuple[str, ...] = ()
    deadline: datetime | None = None
    on_deadline: str | None = None
    urgent: bool = False
    """The deadline is near."""


class CallView(Data):
    """One call, bounded."""

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
    """What was decided, whoever did: a person, by a grant too, the policy, a hook, or the runtime at a deadline."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_seconds: float | None = None
    """From its validation to its end, with all waiting."""
    execution_seconds: float | None = None
    """From its first beginning to its end; None of a call that never ran."""
    live_output: str | None = None
    live_styled: str | None = None
    """The same with the colours that it has, for viewers that can show them (`LiveOutput.styled`)."""
    pid: int | None = None
    attempts: int = 1
    """How often its tool was tried, where its failures pass by themselves; while it runs, with this attempt."""
    last_failure: str | None = None
    """While it runs: why the attempt before this one failed."""
    output: str | None = None
    """What the model reads."""
    display: str | None = None
    """What a person is shown instead, when it differs; of a call that did not run, the diff of what it would change."""
    changes: str | None = None
    """How many lines that diff adds and removes: `+3 −450`."""
    markdown: bool = False
    error_type: str | None = None
    error: str | None = None


class BatchView(Data):
    """One batch, bounded."""

    id: str
    calls: tuple[CallView, ...]
    stream: str | None = None
    """What its calls come from one by one."""
    attempt: int = 1
    complete: bool = True
    """Will no further call come?"""
    discarded: bool = False


class TurnView(Data):
    """One turn, bounded: the batch at work (or the last one), what waits, and how many calls are in which state."""

    id: str
    state: ViewState
    prompt: str | None = None
    step: int = 0
    schedule: Schedule = Schedule.ALL_READY
    interruptible: bool = True
    """Would a user's new message stop everything that runs now?"""
    context: Context = Context()
    """What the next call runs within."""
    mode: Mode = Mode.DEFAULT
    confirm: Confirming = Confirming.POLICY
    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that it was started with, the first of them; None for all."""
    grants: int = 0
    tainted: tuple[str, ...] = ()
    """The first calls that took in content from outside."""
    outside: dict[str, int] = Field(default_factory=dict)
    """The tools by which it did, and how many calls of each."""
    batch: BatchView | None = None
    batches_done: int = 0
    queued: tuple[str, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    commands: tuple[BackgroundCommand, ...] = ()
    """Background commands of it and of earlier turns of its session; without those that are known to have ended."""
    counts: dict[str, int] = Field(default_factory=dict)
    text: str | None = None
    last_event: int = 0
    usage: Usage = Usage()
    session: str | None = None
    runs: tuple[EarlierRun, ...] = ()
    """Of this turn, before the one that answers."""
    result: TurnResult | None = None
    """Filled by the client once the turn has ended, with every response cut."""


class InboxSummary(Data):
    """What the memo of a waiting turn carries, so that an inbox needs no worker."""

    approvals: tuple[ApprovalView, ...] = ()
    total: int = 0


class InboxView(Data):
    """What waits for people in all turns, the most urgent first."""

    approvals: tuple[ApprovalView, ...] = ()
    unread: dict[str, str] = Field(default_factory=dict)
    """The turns in which something may wait besides, and why it is not shown here."""


def build_approval_view(
    turn_id: str, call: Call, *, detail: int = DETAIL_LIMIT, since: datetime | None = None
) -> ApprovalView:
    """What a person is shown about one waiting call."""
    shown = call.confirmation or Confirmation(kind="info", title=call.tool)
    given = call.bound.arguments if call.bound else {}
    arguments, cut = _format_json(given, min(detail, ARGUMENTS_LIMIT))
    unshown = shown.select_unshown(given)
    others, others_cut = _format_json(unshown, detail) if unshown else ("", False)
    return ApprovalView(
        approval_id=str(ApprovalId(turn_id, call.id, call.revision)),
        digest=call.approval_digest or "",
        tool=format_tool_name(call.tool),
        display_name=_find_display_name(call),
        kind=shown.kind,
        title=_format_line(shown.title, 300),
        command=_elide_text(shown.command, detail),
        description=_format_line(" ".join((shown.description or "").split()), min(detail, 500)) or None,
        programs=tuple(_format_line(program, 100) for program in shown.programs[:20]),
        doubts=tuple(_format_line(doubt, 200) for doubt in shown.doubts[:10]),
        reason=_shorten_optional(shown.reason, 500),
        diff=None if shown.diff is None else escape_controls(shorten_diff(shown.diff, detail)),
        changes=None if shown.diff is None else count_changes(shown.diff.split("\n")),
        path=_shorten_optional(shown.path, 300),
        server=_shorten_optional(shown.server, 100),
        about=_shorten_notes(shown.about) if shown.about else None,
        urls=tuple(_format_line(url, 300) for url in shown.urls[:10]),
        question=_elide_prose(shown.question, detail),
        options=tuple(_format_line(option, 200) for option in shown.options[:20]),
        other=shown.other,
        form=shown.form if not _has_long_form(shown, detail) else None,
        fields=len(list_fields(shown.form)) if shown.form is not None else 0,
        arguments=arguments,
        others=others,
        cut=_has_long_form(shown, detail)
        or (cut and not shown.told)
        or others_cut
        or _has_longer(detail, shown.command, shown.description, shown.diff, shown.question),
        rule=_shorten_optional(call.rule, 300),
        since=since,
        offers=_select_offers(shown.offers) if detail > BRIEF_LIMIT else (),
        edits=shown.edits,
        needs=shown.needs,
        approved_by=tuple(_format_line(one.by or "somebody", 100) for one in call.approvals),
        editing=_format_line(call.editing.by, 100) if call.editing else None,
        editing_until=call.editing.until if call.editing else None,
        problem=_shorten_optional(call.problem, 500),
        changed_by=tuple(_format_line(name, 100) for name in call.changed_by[:10]),
        deadline=call.deadline_at,
        on_deadline=shown.deadline.default if shown.deadline else None,
        urgent=call.warned,
    )


def _shorten_notes(about: ToolNotes) -> ToolNotes:
    return ToolNotes(
        description=first_line(about.description),
        effect=_format_line(about.effect, 50),
        because=_format_line(about.because, 200),
        hints=tuple(_format_line(hint, 100) for hint in about.hints[:10]),
    )


def _has_long_form(shown: Confirmation, detail: int) -> bool:
    """Is its form too long for a list of many?"""
    return shown.form is not None and detail <= BRIEF_LIMIT and len(json.dumps(shown.form)) > FORM_LIMIT


def drop_stale_editors(now: datetime, approvals: Iterable[ApprovalView]) -> tuple[ApprovalView, ...]:
    """Approvals without editors that were opened too long ago to be believed."""
    gone = {"editing": None, "editing_until": None}
    return tuple(
        item.model_copy(update=gone) if item.editing_until and item.editing_until <= now else item for item in approvals
    )


def urgency_key(approval: ApprovalView) -> tuple[bool, float]:
    """The order of an inbox: what has its deadline near, the nearest first, then the newest (S41)."""
    if approval.urgent and approval.deadline:
        return False, approval.deadline.timestamp()
    return True, -(approval.since.timestamp() if approval.since else 0.0)


def build_call_view(
    call: Call, place: int, count: int, standing: Mapping[str, DecisionAction] = MappingProxyType({})
) -> CallView:
    """One call, bounded. `standing`: what was decided by each of the turn's grants."""
    response = call.response
    output = "\n".join(part.text for part in response.parts) if response else None
    return CallView(
        id=call.id,
        model_id=_shorten_optional(call.request.id, 100),
        place=place,
        of=count,
        tool=format_tool_name(call.tool),
        display_name=_find_display_name(call),
        status=call.status,
        title=_format_line(call.bound.title, 300) if call.bound else format_tool_name(call.tool),
        arguments=_format_json(call.bound.arguments if call.bound else call.request.arguments, ARGUMENTS_LIMIT)[0],
        rule=_shorten_optional(call.rule, 300),
        revision=call.revision,
        stopping=_shorten_optional(call.stopping, 300),
        decided_by=_format_deciders(call),
        actor=call.actor.kind if call.actor else None,
        grant=call.grant,
        changed_by=tuple(_format_line(name, 100) for name in call.changed_by[:10]),
        outcome=_find_action(call, standing),
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
        error_type=_format_line(call.error.type, 100) if call.error else None,
        error=_shorten_optional(call.error.message, OUTPUT_LIMIT) if call.error else None,
    )


def _format_deciders(call: Call) -> str | None:
    """Who decided; all of them, where it took several."""
    if call.actor and call.actor.kind == "person" and len(call.approvals) > 1:
        return _format_line(" and ".join(decision.by or "somebody" for decision in call.approvals), 300)
    return _format_line(call.actor.name, 100) if call.actor else None


def _find_action(call: Call, standing: Mapping[str, DecisionAction]) -> DecisionAction | None:
    """What was decided about it; None as long as nothing is, and of a call that could not be judged."""
    if call.decision:
        return call.decision.outcome
    if call.actor is None:
        return None
    if call.error and call.error.type in ("denied", "refused", "expired"):
        return DecisionAction.CANCEL
    return standing.get(call.grant, DecisionAction.PROCEED_ALWAYS) if call.grant else DecisionAction.PROCEED_ONCE


def _find_display_name(call: Call) -> str:
    shown = call.bound.tool.display_name if call.bound else None
    return _format_line(shown, 200) if shown else format_tool_name(call.tool)


def _count_seconds(length: timedelta | None) -> float | None:
    return length.total_seconds() if length is not None else None


def build_batch_view(batch: Batch, standing: Mapping[str, DecisionAction] = MappingProxyType({})) -> BatchView:
    """One batch, bounded."""
    of = len(batch.calls)
    return BatchView(
        id=batch.id,
        calls=tuple(build_call_view(call, place, of, standing) for place, call in enumerate(batch.calls, start=1)),
        stream=_shorten_optional(batch.stream, 200),
        attempt=batch.attempt,
        complete=batch.complete,
        discarded=batch.discarded,
    )


def build_turn_view(state: TurnState, since: Mapping[str, datetime]) -> TurnView:
    """One turn, bounded."""
    shown = state.queue.active or (state.queue.done[-1] if state.queue.done else None)
    waiting = state.queue.active.waiting_calls if state.queue.active else ()
    detail = DETAIL_LIMIT if len(waiting) <= NAMES_SHOWN else BRIEF_LIMIT
    standing = {grant.id: grant.decision.outcome for grant in state.decisions.grants.all_grants}
    outside = list(state.executions.outside.items())
    return TurnView(
        id=state.turn_id,
        state=_find_state(state, bool(waiting)),
        prompt=_shorten_optional(state.input.prompt, DETAIL_LIMIT),
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
        batch=build_batch_view(shown, standing) if shown else None,
        batches_done=len(state.queue.done),
        queued=tuple(batch.id for batch in state.queue.queued),
        approvals=tuple(
            build_approval_view(state.turn_id, call, detail=detail, since=since.get(call.id)) for call in waiting
        ),
        commands=tuple(one for one in state.executions.commands if one.running),
        counts=dict(state.queue.status_counts),
        text=_shorten_optional(state.conversation.text, DETAIL_LIMIT),
        last_event=state.log.last_number,
        usage=state.conversation.usage,
        session=state.input.session,
        runs=state.log.runs,
    )


def _shorten_context(context: Context) -> Context:
    """Bounded: names of tools and variables are not what one looks at first."""
    return Context(
        folder=_format_line(context.folder, 300),
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
    """How a turn ended, bounded: the whole of a response is had by its call."""
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


def build_inbox_summary(turn_id: str, waiting: tuple[Call, ...], since: Mapping[str, datetime]) -> InboxSummary:
    """What the memo carries about the calls that wait."""
    return InboxSummary(
        approvals=tuple(
            build_approval_view(turn_id, call, detail=BRIEF_LIMIT, since=since.get(call.id))
            for call in waiting[:INBOX_ITEMS]
        ),
        total=len(waiting),
    )


def _select_offers(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Those that are short enough to be shown; the whole call has all of them."""
    shown = (offer.model_copy(update={"covers": _format_line(offer.covers, 300)}) for offer in offers[:OFFERS_SHOWN])
    return tuple(offer for offer in shown if len(offer.scope.model_dump_json()) <= SCOPE_LIMIT)


def _elide_text(text: str | None, limit: int) -> str | None:
    return None if text is None else escape_controls(elide_middle(text, limit))


def _has_longer(limit: int, *texts: str | None) -> bool:
    return any(len(text or "") > limit for text in texts)


def _elide_prose(text: str | None, limit: int) -> str | None:
    """Text of several lines: only its line breaks stay what they are."""
    return None if text is None else "\n".join(escape_controls(row) for row in elide_middle(text, limit).split("\n"))


def _format_json(value: Any, limit: int) -> tuple[str, bool]:
    """JSON of about `limit` characters, and whether it was cut: long strings keep their ends."""
    trimmed = _trim_value(value, limit // 2)
    text = json.dumps(trimmed, ensure_ascii=False)
    return escape_controls(elide_middle(text, limit)), trimmed != value or len(text) > limit


def _trim_value(value: Any, limit: int) -> Any:
    """Cut long strings before they are serialised: a megabyte must not cost a megabyte for every look at it."""
    if isinstance(value, str):
        return elide_middle(value, limit)
    if isinstance(value, dict):
        return {shorten_text(str(key), 200): _trim_value(item, limit) for key, item in list(value.items())[:100]}
    if isinstance(value, list):
        return [_trim_value(item, limit) for item in value[:100]]
    return value


def _shorten_optional(text: str | None, limit: int) -> str | None:
    return None if text is None else escape_controls(shorten_text(text, limit))


def _format_line(text: str, limit: int) -> str:
    return escape_controls(shorten_text(text, limit))


_SHOWN_FIELDS = (
    "kind", "title", "command", "description", "programs", "doubts", "reason", "diff", "path", "server", "about",
    "urls", "question", "options", "other", "form", "offers", "edits", "needs",
)  # fmt: skip
"""What a view repeats of a confirmation, where that is not too long."""


def build_whole_approval(turn_id: str, call: Call) -> ApprovalView:
    """All of what a person is shown of a call, where a view is cut."""
    shown = call.confirmation or Confirmation(kind="info", title=call.tool)
    arguments = call.bound.arguments if call.bound else {}
    unshown = shown.select_unshown(arguments)
    whole = {name: getattr(shown, name) for name in _SHOWN_FIELDS}
    whole["arguments"] = json.dumps(arguments, ensure_ascii=False)
    whole["others"] = json.dumps(unshown, ensure_ascii=False) if unshown else ""
    return build_approval_view(turn_id, call).model_copy(update={**whole, "cut": False})
