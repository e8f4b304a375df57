"""A timeline for a terminal: what happened line by line, then each call with who allowed what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.content import named, plain, visible
from holdfast.workers import render
from holdfast.workers.audit import words
from holdfast.workers.audit.timeline import CallStory, Entry, Timeline
from holdfast.workers.audit.words import seconds
from holdfast.workers.columns import Columns, Line

LINES = 12
"""Of arguments and of a result, that are shown without --all."""
SHORT, LONG = 1_000, 1_000_000
"""Characters of a line, without --all and with it."""
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
    limit = LONG if every else SHORT
    for name, value in words.facts(told, _moment, limit):
        yield Text(f"  {name:10} {render.line(value, limit)}")
    yield from (Text(f"  note       {render.line(note, SHORT)}", "bold yellow") for note in told.notes)
    yield Text("")
    yield Columns([_line(entry, told, limit) for entry in told.entries])
    for call in told.calls:
        yield Text("")
        yield from _call(call, every)
    for turn in told.turns:
        yield Text("")
        yield from _parts(turn, every)


def _head(told: Timeline) -> Text:
    head = Text(f"{told.kind} {render.line(told.id, SHORT)}", "bold")
    head.append(": ")
    return head.append(render.line(told.status, 40), render.STYLES.get(told.status, "bold"))


def _line(entry: Entry, told: Timeline, limit: int) -> Line:
    offset = (entry.at - told.began).total_seconds()
    return Line(
        (
            Text(f"{_clock(entry.at)}  +{seconds(offset)}", "dim"),
            Text(render.line(entry.call, 40)),
            Text(entry.kind, STYLES.get(entry.kind, "")),
            Text(render.line(entry.words, limit)),
        )
    )


def _call(call: CallStory, every: bool) -> Iterator[RenderableType]:
    head = Text(f"call {render.line(call.id, 40)} ", "bold")
    head.append(f"{call.place}/{call.of} ")
    head.append(named(call.tool))
    head.append(" ")
    yield head.append_text(render.state(render.line(call.status, 40)))
    for name, value in words.call_facts(call, _clock):
        yield Text(f"  {name:9} {render.line(value, LONG if every else 2_000)}")
    yield Text("  arguments", "dim")
    yield _indented(_json(call.requested if call.arguments is None else call.arguments, every))
    if call.changes:
        yield Text(f"  changed by {render.line(', '.join(call.changed_by) or 'validation')}", "dim")
        yield _indented(render.diff(call.changes, None if every else 40))
    if isinstance(diff := call.shown.get("diff"), str):
        yield Text("  diff", "dim")
        yield _indented(render.diff(diff, None if every else 40))
    if call.result:
        yield Text("  result", "dim")
        yield _indented(Text(_cut(plain(call.result), every)))


def _cut(text: str, every: bool) -> str:
    lines = text.splitlines()
    if every or len(lines) <= LINES:
        return text
    return "\n".join([*lines[:LINES], f"… {len(lines) - LINES:,} more lines (--all shows them)"])


def _indented(text: Text) -> Text:
    return Text("\n").join(Text("    ").append_text(line) for line in text.split("\n", allow_blank=True))


def _json(value: Any, every: bool) -> Text:
    """What was run: nothing in it is hidden."""
    return Text(_cut(visible(json.dumps(value, ensure_ascii=False, indent=2)), every))


def _clock(at: datetime | None) -> str:
    return at.astimezone().strftime("%H:%M:%S.%f")[:12] if at else ""


def _moment(at: datetime | None) -> str:
    return render.local(at.isoformat(), zone=True) if at else ""
