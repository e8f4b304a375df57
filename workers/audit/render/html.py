"""A timeline as one self-contained HTML page, with a drawing in SVG: nothing is loaded, nothing runs.

Everything from models, tools and people is escaped, and the page's content security policy forbids scripts besides. The
drawing has a row for each call with its waits and runs, and marks for decisions and lost workers. A turn that waits for
a week has seconds of work in it, so stretches without a change are drawn shorter, and marked.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Any

from holdfast.util.text import escape_controls, shorten_text, strip_controls
from holdfast.workers.audit.timeline import phrases
from holdfast.workers.audit.timeline.phrases import format_seconds
from holdfast.workers.audit.timeline.timeline import CallStory, Timeline, TimelineEntry

TEXT_LIMIT = 200_000
"""Characters of a text on the page; a longer one is cut and says how long it was."""
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
    """Render the whole page."""
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
    """Escape markup and invisible characters."""
    return escape(escape_controls(text))


def _build_anchor(*parts: str | None) -> str:
    """An anchor of letters, digits and the usual characters of ids; others by their code point."""
    joined = "/".join(part or "" for part in parts)
    return "".join(one if one.isascii() and (one.isalnum() or one in "-/~_") else f".{ord(one):x}." for one in joined)


def _format_moment(at: datetime | None) -> str:
    return at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC") if at else ""


WIDTH = 1_000.0
LEFT = 170.0
ROW = 22.0
TOP = 26.0
MAX_ROWS = 500
"""Calls that are drawn."""
LONGEST_GAP = 8.0
"""The longest drawn stretch, as a multiple of the median."""


@dataclass(frozen=True)
class Scale:
    """Maps moments to positions: linear between two of `moments`, with long gaps shortened."""

    moments: tuple[float, ...]
    places: tuple[float, ...]
    cuts: tuple[int, ...] = ()
    """The shortened stretches, by the index of their first moment."""

    def locate(self, moment: datetime) -> float:
        """Return the position of a moment."""
        value = min(max(moment.timestamp(), self.moments[0]), self.moments[-1])
        before = max(0, bisect_left(self.moments, value) - 1)
        first, last = self.moments[before], self.moments[before + 1]
        start, end = self.places[before], self.places[before + 1]
        return start + (value - first) / (last - first) * (end - start)


def build_scale(moments: list[datetime], left: float = LEFT, right: float = WIDTH) -> Scale:
    """Build a scale for these moments."""
    values = sorted({moment.timestamp() for moment in moments})
    if len(values) < 2:
        first = values[0] if values else 0.0
        return Scale((first, first + 1), (left, right))
    lengths = [later - earlier for earlier, later in pairwise(values)]
    usual = sorted(lengths)[len(lengths) // 2]
    drawn_lengths = [min(length, LONGEST_GAP * usual) for length in lengths]
    total, place, places = sum(drawn_lengths), left, [left]
    for length in drawn_lengths:
        place += (right - left) * length / total
        places.append(min(place, right))
    cuts = tuple(number for number, length in enumerate(lengths) if length > LONGEST_GAP * usual)
    return Scale(tuple(values), tuple(places), cuts)


def draw_timeline(timeline: Timeline) -> str:
    """Draw the timeline; empty for one without calls."""
    calls = timeline.calls[:MAX_ROWS]
    if not calls:
        return ""
    end = timeline.ended or max(entry.at for entry in timeline.entries)
    scale = build_scale([timeline.began, end, *_list_moments(calls), *(entry.at for entry in _list_marks(timeline))])
    height = TOP + ROW * len(calls) + 24
    left_out = (
        f"<p>{len(timeline.calls) - MAX_ROWS:,} more calls are not drawn.</p>" if len(timeline.calls) > MAX_ROWS else ""
    )
    body = "".join([*_draw_cuts(scale, height), *_draw_rows(calls, scale, end), *_draw_marks(timeline, scale, height)])
    name = escape(
        escape_controls(f"Calls of {timeline.id} over time: waiting for people, running, decisions and crashes")
    )
    return (
        f'<svg viewBox="0 0 {WIDTH + 20:g} {height:g}" role="img" aria-label="{name}">{body}</svg>{left_out}{_LEGEND}'
    )


_LEGEND = (
    '<p class="dim">Yellow: waited for approval. Blue: ran. Grey: judged, or waited for other calls. '
    "Diamonds: decisions. Red lines: a worker was lost, or tried again. "
    "Dashed: a stretch that is drawn shorter than it was.</p>"
)


def _list_moments(calls: tuple[CallStory, ...]) -> Iterator[datetime]:
    for call in calls:
        yield from (at for at in (call.created, call.began, call.ended) if at)
        for asked in call.questions:
            yield from (at for at in (asked.at, asked.until) if at)


def _list_marks(timeline: Timeline) -> list[TimelineEntry]:
    return [entry for entry in timeline.entries if entry.kind in ("crash", "retry", "decision")]


def _draw_cuts(scale: Scale, height: float) -> Iterator[str]:
    for number in scale.cuts:
        middle = (scale.places[number] + scale.places[number + 1]) / 2
        length = format_seconds(scale.moments[number + 1] - scale.moments[number])
        yield (
            f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{TOP:g}" y2="{height - 20:g}" stroke="#888" '
            f'stroke-dasharray="3 3"/><text x="{middle:.1f}" y="14" text-anchor="middle">{length}</text>'
        )


def _draw_rows(calls: tuple[CallStory, ...], scale: Scale, end: datetime) -> Iterator[str]:
    for number, call in enumerate(calls):
        y = TOP + ROW * number
        words = escape(shorten_text(escape_controls(f"{call.id} {call.tool}"), 26))
        yield f'<text x="0" y="{y + 14:g}">{words}<title>{escape(escape_controls(call.title))}</title></text>'
        last = call.ended or end
        if call.created:
            yield _draw_bar(scale, call.created, last, y + 8, 4, "#8886", "judged, or waited for other calls")
        for asked in call.questions:
            yield _draw_bar(scale, asked.at, asked.until or end, y + 4, 12, "#d9a300", "waited for approval")
        for first, until in _list_runs(call, last):
            yield _draw_bar(scale, first, until, y + 4, 12, "#3b6fd4", f"ran: {call.status}")
        colour = {"success": "#2a9d6a", "error": "#cc3333", "cancelled": "#9b59b6"}.get(call.status, "#888")
        place = f'cx="{scale.locate(last):.1f}" cy="{y + 10:g}" r="4"'
        yield f'<circle {place} fill="{colour}"><title>{escape(escape_controls(call.status))}</title></circle>'


def _list_runs(call: CallStory, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The intervals in which a call ran. A command goes on while its worker is dead, so a repeated call ran from the
    start.

    The history names a worker when its attempt ends, and of several attempts only the last.
    """
    for one in call.attempts:
        began = one.began if one.number == 1 else None
        first = began or one.scheduled or one.began
        if first and one.how != "not taken up":
            yield first, one.ended or last
    if call.began and not call.attempts:
        yield call.began, last


def _draw_bar(scale: Scale, first: datetime, last: datetime, y: float, height: float, colour: str, words: str) -> str:
    x, until = scale.locate(first), scale.locate(last)
    length = format_seconds(max(0.0, (last - first).total_seconds()))
    return (
        f'<rect x="{x:.1f}" y="{y:g}" width="{max(1.0, until - x):.1f}" height="{height:g}" fill="{colour}">'
        f"<title>{escape(words)}, {length}</title></rect>"
    )


def _draw_marks(timeline: Timeline, scale: Scale, height: float) -> Iterator[str]:
    rows = {call.id: TOP + ROW * number + 10 for number, call in enumerate(timeline.calls[:MAX_ROWS])}
    for entry in _list_marks(timeline):
        x, words = scale.locate(entry.at), escape(escape_controls(entry.words))
        if entry.kind != "decision":
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:g}" y2="{height - 20:g}" stroke="#cc3333">'
                f"<title>{words}</title></line>"
            )
        elif (y := rows.get(entry.call or "")) is not None:
            yield (f'<path d="M{x:.1f} {y - 7:g} l6 7 l-6 7 l-6 -7 z" fill="#0e8a8a"><title>{words}</title></path>')
    for moment, anchor in ((timeline.began, "start"), (timeline.ended, "end")):
        if moment:
            clock = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            yield f'<text x="{scale.locate(moment):.1f}" y="{height - 4:g}" text-anchor="{anchor}">{clock}</text>'
