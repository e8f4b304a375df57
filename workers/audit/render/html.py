"""A timeline as one page: self-contained, nothing is loaded, nothing runs. The drawing is SVG made here.

Whatever came from a model, a tool or a person is escaped, and the page forbids scripts to itself besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from html import escape
from typing import Any

from holdfast.util.text import escape_controls, shorten_text, strip_controls
from holdfast.workers.audit.render.svg import draw_timeline
from holdfast.workers.audit.timeline import phrases
from holdfast.workers.audit.timeline.phrases import format_seconds
from holdfast.workers.audit.timeline.timeline import CallStory, Timeline

TEXT_LIMIT = 200_000
"""Characters of a text that a page holds; it says how many there were."""
_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; --ask: #c90; --run: #36c; --bad: #c33; --good: #2a7; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; } h2 { margin-top: 2.5rem; } small, .dim { color: var(--dim); }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .2rem .6rem;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; } th { font-weight: 600; white-space: nowrap; }
td.time { white-space: nowrap; font-variant-numeric: tabular-nums; color: var(--dim); } td.kind { white-space: nowrap; }
pre { background: #8881; padding: .6rem; overflow: auto; max-height: 30rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.crash, .retry, .error, .failed { color: var(--bad); } .ask, .awaiting_approval { color: var(--ask); }
.success, .completed { color: var(--good); } tr.decision { font-weight: 600; }
.note { border-left: 4px solid var(--ask); padding-left: .8rem; }
.add { color: var(--good); } .del { color: var(--bad); }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
details > summary { cursor: pointer; }
@media print { pre { max-height: none; } details > * { display: block; } }
"""


def render_page(timeline: Timeline) -> str:
    """The whole page."""
    title = f"{timeline.kind} {timeline.id}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"{''.join(_render_section(timeline, 1))}</main></body></html>\n"
    )


def _render_section(timeline: Timeline, level: int) -> Iterator[str]:
    heading = min(level, 3)
    yield f'<section id="{_build_anchor(timeline.id)}"><h{heading}>{timeline.kind} {_escape(timeline.id)} '
    yield f'<small class="{_build_anchor(timeline.status)}">{_escape(timeline.status)}</small></h{heading}>'
    yield from (f'<p class="note">{_escape(note)}</p>' for note in timeline.notes)
    yield _render_table(phrases.list_facts(timeline, _format_moment, TEXT_LIMIT))
    yield draw_timeline(timeline)
    yield '<table class="entries"><thead><tr><th>time</th><th>call</th><th>what</th><th></th></tr></thead><tbody>'
    for entry in timeline.entries:
        link = f'<a href="#{_build_anchor(timeline.id, entry.call)}">{_escape(entry.call)}</a>' if entry.call else ""
        offset = format_seconds((entry.at - timeline.began).total_seconds())
        yield f'<tr class="{entry.kind}"><td class="time" title="{_format_moment(entry.at)}">+{offset}</td>'
        yield f"<td>{link}</td>"
        yield f'<td class="kind">{entry.kind}</td><td>{_escape(entry.words)}</td></tr>'
    yield "</tbody></table>"
    for call in timeline.calls:
        yield from _render_call(timeline, call)
    for turn in timeline.turns:
        yield from _render_section(turn, level + 1)
    yield "</section>"


def _render_call(timeline: Timeline, call: CallStory) -> Iterator[str]:
    yield f'<article id="{_build_anchor(timeline.id, call.id)}"><h3>{_escape(call.id)} {_escape(call.tool)} '
    yield f'<small class="{_build_anchor(call.status)}">{_escape(call.status.replace("_", " "))}</small></h3>'
    yield _render_table(phrases.list_call_facts(call, _format_moment))
    yield _render_details(
        "arguments", _format_json(call.requested if call.arguments is None else call.arguments), shut=False
    )
    if call.changes:
        yield f"<p>changed by {_escape(', '.join(call.changed_by) or 'validation')}</p>{_render_diff(call.changes)}"
    if isinstance(diff := call.shown.get("diff"), str):
        yield f"<details><summary>diff that was shown</summary>{_render_diff(diff)}</details>"
    if call.result:
        yield _render_details("result", shorten_text(strip_controls(call.result), TEXT_LIMIT))
    yield "</article>"


def _render_table(rows: Iterator[tuple[str, str]]) -> str:
    return (
        "<table>" + "".join(f"<tr><th>{name}</th><td>{_escape(value)}</td></tr>" for name, value in rows) + "</table>"
    )


def _render_details(name: str, text: str, *, shut: bool = True) -> str:
    return f"<details{'' if shut else ' open'}><summary>{name}</summary><pre>{escape(text)}</pre></details>"


def _render_diff(text: str) -> str:
    kinds = {"+": "add", "-": "del", "@": "dim"}
    lines = (f'<span class="{kinds.get(line[:1], "")}">{_escape(line)}</span>' for line in text.split("\n"))
    return "<pre>" + "\n".join(lines) + "</pre>"


def _format_json(value: Any) -> str:
    return escape_controls(json.dumps(value, ensure_ascii=False, indent=2))


def _escape(text: str) -> str:
    """Harmless: nothing hidden, nothing that is markup."""
    return escape(escape_controls(text))


def _build_anchor(*parts: str | None) -> str:
    """An anchor: letters, digits and what is plain in an id; everything else by its code."""
    joined = "/".join(part or "" for part in parts)
    return "".join(one if one.isascii() and (one.isalnum() or one in "-/~_") else f".{ord(one):x}." for one in joined)


def _format_moment(at: datetime | None) -> str:
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC") if at else ""
