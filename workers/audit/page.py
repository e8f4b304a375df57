"""A timeline as one page: self-contained, nothing is loaded, nothing runs. The drawing is SVG made here.

Whatever came from a model, a tool or a person is escaped, and the page forbids scripts to itself besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from html import escape
from typing import Any

from holdfast.content import plain, shorten, visible
from holdfast.workers.audit import words
from holdfast.workers.audit.drawing import drawn
from holdfast.workers.audit.timeline import CallStory, Timeline
from holdfast.workers.audit.words import seconds

TEXT_LIMIT = 200_000
"""Characters of a text that a page holds; it says how many there were."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
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


def page(told: Timeline) -> str:
    """The whole page."""
    title = f"{told.kind} {told.id}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>"
        f"{''.join(_section(told, 1))}</main></body></html>\n"
    )


def _section(told: Timeline, level: int) -> Iterator[str]:
    heading = min(level, 3)
    yield f'<section id="{_name(told.id)}"><h{heading}>{told.kind} {_text(told.id)} '
    yield f'<small class="{_name(told.status)}">{_text(told.status)}</small></h{heading}>'
    yield from (f'<p class="note">{_text(note)}</p>' for note in told.notes)
    yield _table(words.facts(told, _moment, TEXT_LIMIT))
    yield drawn(told)
    yield '<table class="entries"><thead><tr><th>time</th><th>call</th><th>what</th><th></th></tr></thead><tbody>'
    for entry in told.entries:
        link = f'<a href="#{_name(told.id, entry.call)}">{_text(entry.call)}</a>' if entry.call else ""
        offset = seconds((entry.at - told.began).total_seconds())
        yield f'<tr class="{entry.kind}"><td class="time" title="{_moment(entry.at)}">+{offset}</td><td>{link}</td>'
        yield f'<td class="kind">{entry.kind}</td><td>{_text(entry.words)}</td></tr>'
    yield "</tbody></table>"
    for call in told.calls:
        yield from _call(told, call)
    for turn in told.turns:
        yield from _section(turn, level + 1)
    yield "</section>"


def _call(told: Timeline, call: CallStory) -> Iterator[str]:
    yield f'<article id="{_name(told.id, call.id)}"><h3>{_text(call.id)} {_text(call.tool)} '
    yield f'<small class="{_name(call.status)}">{_text(call.status.replace("_", " "))}</small></h3>'
    yield _table(words.call_facts(call, _moment))
    yield _folded("arguments", _json(call.requested if call.arguments is None else call.arguments), shut=False)
    if call.changes:
        yield f"<p>changed by {_text(', '.join(call.changed_by) or 'validation')}</p>{_diff(call.changes)}"
    if isinstance(diff := call.shown.get("diff"), str):
        yield f"<details><summary>diff that was shown</summary>{_diff(diff)}</details>"
    if call.result:
        yield _folded("result", shorten(plain(call.result), TEXT_LIMIT))
    yield "</article>"


def _table(rows: Iterator[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{name}</th><td>{_text(value)}</td></tr>" for name, value in rows) + "</table>"


def _folded(name: str, text: str, *, shut: bool = True) -> str:
    return f"<details{'' if shut else ' open'}><summary>{name}</summary><pre>{escape(text)}</pre></details>"


def _diff(text: str) -> str:
    kinds = {"+": "add", "-": "del", "@": "dim"}
    lines = (f'<span class="{kinds.get(line[:1], "")}">{_text(line)}</span>' for line in text.split("\n"))
    return "<pre>" + "\n".join(lines) + "</pre>"


def _json(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, indent=2))


def _text(text: str) -> str:
    """Harmless: nothing hidden, nothing that is markup."""
    return escape(visible(text))


def _name(*parts: str | None) -> str:
    """An anchor: letters, digits and what is plain in an id; everything else by its code."""
    joined = "/".join(part or "" for part in parts)
    return "".join(one if one.isascii() and (one.isalnum() or one in "-/~_") else f".{ord(one):x}." for one in joined)


def _moment(at: datetime | None) -> str:
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC") if at else ""
