"""The drawn timeline: a row for each call with its waits and runs, marks for decisions and crashes. SVG, no script.

A turn that waits for a week has seconds of work in it that nobody would see at one scale. So stretches in which nothing
changes are drawn short, and marked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

from holdfast.util.text import escape_controls, shorten_text
from holdfast.workers.audit.timeline.phrases import format_seconds
from holdfast.workers.audit.timeline.timeline import CallStory, Timeline, TimelineEntry

WIDTH = 1_000.0
LEFT = 170.0
ROW = 22.0
TOP = 26.0
MAX_ROWS = 500
"""Calls that are drawn; more would be no picture."""
LONGEST_GAP = 8.0
"""How many times the median stretch a stretch may be drawn."""


@dataclass(frozen=True)
class Scale:
    """Moments as places. Between two of `moments` it is even; long gaps are shortened."""

    moments: tuple[float, ...]
    places: tuple[float, ...]
    cuts: tuple[int, ...] = ()
    """Stretches that are drawn shorter than they were, by their first moment."""

    def locate(self, moment: datetime) -> float:
        """Where a moment is."""
        value = min(max(moment.timestamp(), self.moments[0]), self.moments[-1])
        before = max(0, bisect_left(self.moments, value) - 1)
        first, last = self.moments[before], self.moments[before + 1]
        start, end = self.places[before], self.places[before + 1]
        return start + (value - first) / (last - first) * (end - start)


def build_scale(moments: list[datetime], left: float = LEFT, right: float = WIDTH) -> Scale:
    """A scale over these moments."""
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
    """The picture; nothing for what has no calls."""
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
    '<p class="dim">Yellow: waited for somebody. Blue: ran. Grey: judged, or waited for others. Diamonds: decisions. '
    "Red lines: a worker was lost, or tried again. Dashed: a stretch that is drawn shorter than it was.</p>"
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
            yield _draw_bar(scale, call.created, last, y + 8, 4, "#8886", "judged, or waited for others")
        for asked in call.questions:
            yield _draw_bar(scale, asked.at, asked.until or end, y + 4, 12, "#d9a300", "waited for somebody")
        for first, until in _list_runs(call, last):
            yield _draw_bar(scale, first, until, y + 4, 12, "#3b6fd4", f"ran: {call.status}")
        colour = {"success": "#2a9d6a", "error": "#cc3333", "cancelled": "#9b59b6"}.get(call.status, "#888")
        place = f'cx="{scale.locate(last):.1f}" cy="{y + 10:g}" r="4"'
        yield f'<circle {place} fill="{colour}"><title>{escape(escape_controls(call.status))}</title></circle>'


def _list_runs(call: CallStory, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    """From when to when it ran. A command goes on while its worker is dead: what was tried again ran all the while.

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
