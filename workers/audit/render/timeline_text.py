"""A timeline for a terminal: the entries line by line, then each call with its decisions and attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.domain.content import format_tool_name
from holdfast.util.text import escape_controls, strip_controls
from holdfast.workers.audit.timeline import phrases
from holdfast.workers.audit.timeline.phrases import format_seconds
from holdfast.workers.audit.timeline.timeline import CallStory, Timeline, TimelineEntry
from holdfast.workers.terminal import render
from holdfast.workers.terminal.layout import PlainTable

MAX_LINES = 12
"""Lines of arguments and results that are shown without --all."""
SHORT_LIMIT, LONG_LIMIT = 1_000, 1_000_000
"""Characters of a line, without --all and with it."""
KIND_STYLES = {
    "ask": "bold yellow",
    "begin": "bold blue",
    "change": "yellow",
    "crash": "bold red",
    "decision": "bold cyan",
    "grant": "cyan",
    "message": "cyan",
    "mode": "cyan",
    "model": "",
    "prompt": "bold",
    "result": "bold",
    "retry": "red",
    "run": "dim",
    "start": "dim",
    "batch": "dim",
    "turn": "dim",
}


def render_timeline(timeline: Timeline, *, uncut: bool = False) -> RenderableType:
    """Render a turn or session and its child turns. `uncut`: arguments and results are not cut."""
    return Group(*_render_parts(timeline, uncut))


def _render_parts(timeline: Timeline, uncut: bool) -> Iterator[RenderableType]:
    yield _render_head(timeline)
    limit = LONG_LIMIT if uncut else SHORT_LIMIT
    facts = phrases.list_facts(timeline, _format_moment, limit)
    yield render.render_facts((name, render.format_line(value, limit)) for name, value in facts)
    yield render.render_facts(
        (("note", render.format_line(note, SHORT_LIMIT)) for note in timeline.notes), "bold yellow"
    )
    yield Text("")
    yield PlainTable([_build_row(entry, timeline, limit) for entry in timeline.entries])
    for call in timeline.calls:
        yield Text("")
        yield from _render_call(call, uncut)
    for turn in timeline.turns:
        yield Text("")
        yield from _render_parts(turn, uncut)


def _render_head(timeline: Timeline) -> Text:
    head = Text(f"{timeline.kind} {render.format_line(timeline.id, SHORT_LIMIT)}", "bold")
    head.append(": ")
    return head.append(render.format_line(timeline.status, 40), render.STATUS_STYLES.get(timeline.status, "bold"))


def _build_row(entry: TimelineEntry, timeline: Timeline, limit: int) -> tuple[Text, ...]:
    offset = (entry.at - timeline.began).total_seconds()
    return (
        Text(f"{_format_clock(entry.at)}  +{format_seconds(offset)}", "dim"),
        Text(render.format_line(entry.call, 40)),
        Text(entry.kind, KIND_STYLES.get(entry.kind, "")),
        Text(render.format_line(entry.words, limit)),
    )


def _render_call(call: CallStory, uncut: bool) -> Iterator[RenderableType]:
    head = Text(f"call {render.format_line(call.id, 40)} ", "bold")
    head.append(f"{call.place}/{call.of} ")
    head.append(format_tool_name(call.tool))
    head.append(" ")
    yield head.append_text(render.render_state(render.format_line(call.status, 40)))
    facts = phrases.list_call_facts(call, _format_clock)
    yield render.render_facts(
        (name, render.format_line(value, LONG_LIMIT if uncut else 2_000)) for name, value in facts
    )
    yield Text("  arguments", "dim")
    yield _indent_text(_format_json(call.requested if call.arguments is None else call.arguments, uncut))
    if call.changes:
        yield Text(f"  changed by {render.format_line(', '.join(call.changed_by) or 'validation')}", "dim")
        yield _indent_text(render.render_diff(call.changes, None if uncut else 40))
    if isinstance(diff := call.shown.get("diff"), str):
        yield Text("  diff", "dim")
        yield _indent_text(render.render_diff(diff, None if uncut else 40))
    if call.result:
        yield Text("  result", "dim")
        yield _indent_text(Text(_cut_text(strip_controls(call.result), uncut)))


def _cut_text(text: str, uncut: bool) -> str:
    lines = text.splitlines()
    if uncut or len(lines) <= MAX_LINES:
        return text
    return "\n".join([*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES:,} more lines (--all shows them)"])


def _indent_text(text: Text) -> Text:
    return Text("\n").join(Text("    ").append_text(line) for line in text.split("\n", allow_blank=True))


def _format_json(value: Any, uncut: bool) -> Text:
    """The arguments with every character visible."""
    return Text(_cut_text(escape_controls(json.dumps(value, ensure_ascii=False, indent=2)), uncut))


def _format_clock(at: datetime | None) -> str:
    return at.astimezone().strftime("%H:%M:%S.%f")[:12] if at else ""


def _format_moment(at: datetime | None) -> str:
    return render.format_local_time(at.isoformat(), zone=True) if at else ""
