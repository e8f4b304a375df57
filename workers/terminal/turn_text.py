"""The state or the result of a turn, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.domain.calls.call import Call, Status
from holdfast.domain.calls.scheduling import Schedule
from holdfast.domain.content import escape_name, format_tool_name
from holdfast.domain.context import HOME, Context
from holdfast.domain.modes import Confirming, Mode
from holdfast.domain.turn.approval_view import build_whole_approval
from holdfast.domain.turn.turn_io import BatchResult, TurnResult
from holdfast.domain.turn.turn_view import CallView, TurnView
from holdfast.workers.terminal import render
from holdfast.workers.terminal.approval_text import (
    QUESTION_KIND,
    describe_full_view,
    render_label,
    render_offers,
    render_question,
)
from holdfast.workers.terminal.render import (
    build_prose,
    build_responses,
    format_actor,
    format_call_count,
    format_line,
    quote_shell,
    render_rows,
    render_state,
)
from holdfast.workers.terminal.session_text import format_count
from holdfast.workers.terminal.turn_board import Row

_OUTCOME_WORDS = {
    "proceed_once": "approved",
    "proceed_always": "approved from now on",
    "proceed_always_tool": "approved with its tool from now on",
    "proceed_always_server": "approved with its server from now on",
    "respond": "answered",
    "cancel": "refused",
}
"""Decisions of people, in words."""
INTERRUPTIBLE = "interruptible: a new message stops the running calls"
BLOCKING = "not interruptible: a new message is read when the running calls have finished"


def render_turn(view: TurnView) -> Group:
    """The state of a turn."""
    head = Text("turn ")
    head.append(escape_name(view.id), "bold")
    head.append(": ")
    head.append_text(render_state(view.result.status if view.result else view.state))
    parts: list[RenderableType] = [head]
    if view.prompt:
        parts.append(Text(f"  {format_line(view.prompt)}", "dim"))
    parts += _render_circumstances(view)
    parts += _render_commands(view)
    if view.result:
        calls = view.batch.calls if view.batch else ()
        parts += render_result(view.result, {call.id: describe_decision(call) for call in calls})
        return Group(*parts)
    if view.batch:
        parts += [
            Text(f"batch {view.batch.id}", "dim"),
            render_rows(map(_build_row, view.batch.calls)),
            *_render_open_batch(view),
        ]
    if view.queued:
        parts.append(Text(f"queued: {', '.join(view.queued)}", "dim"))
    for item in view.approvals:
        parts += [
            Text(""),
            render_label(item),
            render_question(item, more=describe_full_view(item)),
            *render_offers(item),
        ]
    return Group(*parts)


def _render_open_batch(view: TurnView) -> Iterator[RenderableType]:
    """How an incomplete batch gets further calls or is completed."""
    batch = view.batch
    if batch is None or batch.complete:
        return
    if view.prompt is not None:
        yield Text("  the model still writes", "dim")
    else:
        which = quote_shell(batch.stream or "") + (f" --attempt {batch.attempt}" if batch.attempt > 1 else "")
        yield build_prose(
            f"  waits for more calls; to end it: holdfast turn add {quote_shell(view.id)} {which} --complete"
        )


def render_call(turn_id: str, whole: Call) -> Group:
    """Everything about one call, with its whole question if it asks one."""
    parts: list[RenderableType] = [render.render_call(whole)]
    if whole.status is Status.AWAITING_APPROVAL and whole.confirmation and whole.confirmation.kind == QUESTION_KIND:
        asked = build_whole_approval(turn_id, whole)
        parts += [Text(""), render_label(asked), render_question(asked, fields="all")]
    return Group(*parts)


def _render_circumstances(view: TurnView) -> Iterator[RenderableType]:
    """The properties of a turn that influence decisions: mode, tools, context, content from outside, grants."""
    if view.mode is not Mode.DEFAULT:
        yield Text(f"  mode {view.mode.value}", "yellow")
    if view.confirm is Confirming.ALWAYS:
        yield Text("  every call is asked about")
    if view.tools is not None:
        yield Text(f"  started with these tools: {format_line(', '.join(view.tools) or 'none', 2_000)}")
    if view.schedule is not Schedule.ALL_READY:
        yield Text(f"  schedule {view.schedule.value}", "dim")
    yield from _render_context(view.context)
    if not view.result and view.batch and any(call.status is Status.EXECUTING for call in view.batch.calls):
        yield Text(f"  {INTERRUPTIBLE if view.interruptible else BLOCKING}", "dim")
    if sources := view.outside or dict.fromkeys(view.tainted, 1):
        yield Text("  has read content from outside, by")
        yield from (
            Text(f"    {format_tool_name(tool)}{f', {calls:,} calls' if calls > 1 else ''}")
            for tool, calls in sources.items()
        )
    if view.grants and not view.result:
        yield Text(f"  {format_count(view.grants, 'grant')}: holdfast grants --turn {quote_shell(view.id)}", "dim")


def _render_commands(view: TurnView) -> Iterator[RenderableType]:
    """Background commands that still run."""
    for one in view.commands:
        before = "" if one.turn == view.id else f", of {format_line(one.turn, 200)}"
        yield Text(
            f"  runs in the background: {format_line(one.handle, 100)} (call {format_line(one.call, 20)}{before})",
            "cyan",
        )
        yield Text(f"    {format_line(one.title, 300)}")


def _render_context(context: Context) -> Iterator[RenderableType]:
    """The context of the next call, as far as a call has changed it."""
    if context.folder != HOME:
        yield Text(f"  commands run in {format_line(context.folder, 300)}")
    if context.environment:
        yield Text(f"  commands get {format_line(', '.join(sorted(context.environment)), 500)}")
    if context.tools is not None:
        yield Text(f"  only these tools: {format_line(', '.join(context.tools) or 'none', 2_000)}")


def describe_decision(call: CallView) -> str:
    """Who decided what about a call, and by which rule; empty while it is undecided."""
    changed = f"arguments changed by {format_line(' and '.join(call.changed_by), 300)}" if call.changed_by else ""
    return "; ".join(filter(None, (_describe_decider(call), changed)))


def _describe_decider(call: CallView) -> str:
    if not call.actor or not call.decided_by:
        return ""
    by, rule = format_actor(call.actor, call.decided_by), format_line(call.rule, 200)
    refused = call.error_type in ("denied", "refused", "expired")
    if call.actor == "runtime":
        return f"{'denied' if refused else 'let run'}, since nobody answered before the deadline (rule {rule})"
    if call.actor == "person":
        if (call.rule or "").startswith("grant "):  # nobody was asked about this call
            return f"{'refused' if refused else 'let run'} by {by} ({rule})"
        return f"{_OUTCOME_WORDS.get(call.outcome or '', 'let run')} by {by} (rule {rule})"
    return f"{'denied' if refused else 'let run'} by {by}"


def render_result(ended: TurnResult, decisions: Mapping[str, str] | None = None) -> list[RenderableType]:
    """How a turn ended: every response, with who decided where that is known, then the answer."""
    parts: list[RenderableType] = []
    if ended.reason:
        parts.append(build_prose(f"  {format_line(ended.reason, 1_000)}"))
    for batch in ended.batches:
        if batch.status == "discarded":
            parts.append(Text(_describe_discarded(batch), "dim"))
            continue
        parts.append(Text(f"batch {batch.id}: {batch.status}", "dim"))
        parts.append(build_responses(batch.responses, decisions or {}))
    if ended.text is not None:
        parts += [Text(""), build_prose(ended.text)]
    return parts


def _describe_discarded(batch: BatchResult) -> str:
    """How many calls a discarded batch had, and why it was discarded."""
    why = f": {format_line(batch.reason, 500)}" if batch.reason else ""
    return f"batch {batch.id}: discarded, {format_call_count(len(batch.responses))}{why}"


def _build_row(view: CallView) -> Row:
    return Row(
        call=view.id,
        batch="",
        place=view.place,
        of=view.of,
        tool=view.tool,
        status=view.status.value,
        title=view.title,
        display_name=view.display_name,
        decided=describe_decision(view),
        error=f"{view.error_type}: {view.error}" if view.error else None,
        stopping=bool(view.stopping) and not view.ended_at,
        started=view.started_at,
        ended=view.ended_at or (datetime.now(UTC) if view.started_at else None),
        tail=view.live_styled or view.live_output or "",
    )
