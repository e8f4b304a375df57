"""A timeline for a terminal: what happened line by line, then each call with who allowed what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.content import named, plain
from holdfast.workers import render
from holdfast.workers.audit import words
from holdfast.workers.audit.timeline import CallStory, Entry, Timeline
from holdfast.workers.audit.words import seconds
from holdfast.workers.columns import Columns, Line

RESULT_LINES = 12
"""Lines of a result that are shown without --all."""
STYLES = {
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


def timeline(told: Timeline, *, every: bool = False) -> RenderableType:
    """A turn or a session, and the turns within it. `every`: results are not cut."""
    return Group(*_parts(told, every))


def _parts(told: Timeline, every: bool) -> Iterator[RenderableType]:
    yield _head(told)
    yield from (Text(f"  {name:10} {value}") for name, value in _facts(told))
    yield from (Text(f"  note       {render.line(note, 1_000)}", "bold yellow") for note in told.notes)
    yield Text("")
    yield Columns([_line(entry, told) for entry in told.entries])
    for call in told.calls:
        yield Text("")
        yield from _call(call, every)
    for turn in told.turns:
        yield Text("")
        yield from _parts(turn, every)


def _head(told: Timeline) -> Text:
    head = Text(f"{told.kind} ", "bold")
    head.append(render.line(told.id, 1_000), "bold")
    head.append(": ")
    return head.append(told.status, render.STYLES.get(told.status, "bold"))


def _facts(told: Timeline) -> Iterator[tuple[str, str]]:
    by = f"{told.requester or 'nobody named'} (from {told.started_by})"
    took = f", {seconds((told.ended - told.began).total_seconds())}" if told.ended else ""
    yield "started", f"{_moment(told.began)} by {render.line(by)}"
    yield "ended", f"{_moment(told.ended)}{took}" if told.ended else "not yet"
    if told.reason:
        yield "because", render.line(told.reason, 500)
    if told.model:
        yield "model", render.line(told.model)
    yield "mode", told.mode
    for run in told.runs:
        workers = ", ".join(run.workers) or "none"
        yield "run", render.line(f"{run.run}: {run.how}, {run.events:,} events, workers {workers}", 500)


def _line(entry: Entry, told: Timeline) -> Line:
    offset = (entry.at - told.began).total_seconds()
    return Line(
        (
            Text(f"{_clock(entry.at)}  +{seconds(offset)}", "dim"),
            Text(entry.call or ""),
            Text(entry.kind, STYLES.get(entry.kind, "")),
            Text(render.line(entry.words, 1_000)),
        )
    )


def _call(call: CallStory, every: bool) -> Iterator[RenderableType]:
    head = Text(f"call {call.id} ", "bold")
    head.append(f"{call.place}/{call.of} ")
    head.append(named(call.tool))
    head.append(" ")
    yield head.append_text(render.state(call.status))
    for name, value in _call_facts(call):
        yield Text(f"  {name:9} {render.line(value, 2_000)}")
    for question in call.questions:
        yield Text(f"  asked     {render.line(words.asked(question, _clock(question.at)))}")
    for said in call.decisions:
        style = "" if said.counted else "dim"
        yield Text(f"  decided   {_clock(said.at)} {render.line(words.decided(said), 2_000)}", style)
    for attempt in call.attempts:
        when = f"{_clock(attempt.began)} " if attempt.began else ""
        yield Text(f"  ran       {when}{render.line(words.ran(attempt), 1_000)}")
    yield Text("  arguments", "dim")
    yield _indented(_json(call.requested if call.arguments is None else call.arguments))
    if call.changes:
        yield Text(f"  changed by {render.line(', '.join(call.changed_by) or 'validation')}", "dim")
        yield _indented(render.diff(call.changes))
    if diff := call.shown.get("diff"):
        yield Text("  diff", "dim")
        yield _indented(render.diff(diff, None if every else 40))
    if call.result:
        yield Text("  result", "dim")
        yield _indented(Text(_cut(plain(call.result), every)))


def _call_facts(call: CallStory) -> Iterator[tuple[str, str]]:
    yield "what", f"{call.title or call.tool}{f' (server {call.server})' if call.server else ''}"
    if call.verdict:
        yield "verdict", words.verdict(call)
    if needed := words.needed(call):
        yield "needs", needed
    if call.decided_by:
        yield "by", f"{call.decided_by}{f', by grant {call.grant}' if call.grant else ''}"
    if call.digest:
        yield "digest", call.digest
    if call.error:
        yield "error", call.error
    for path in call.outputs:
        yield "whole", path


def _cut(text: str, every: bool) -> str:
    lines = text.splitlines()
    if every or len(lines) <= RESULT_LINES:
        return text
    return "\n".join([*lines[:RESULT_LINES], f"… {len(lines) - RESULT_LINES:,} more lines (--all shows them)"])


def _indented(text: Text) -> Text:
    return Text("\n").join(Text("    ").append_text(line) for line in text.split("\n", allow_blank=True))


def _json(value: Any) -> Text:
    return Text(plain(json.dumps(value, ensure_ascii=False, indent=2)))


def _clock(at: datetime) -> str:
    return at.astimezone().strftime("%H:%M:%S.%f")[:12]


def _moment(at: datetime | None) -> str:
    return render.local(at.isoformat(), zone=True) if at else ""
