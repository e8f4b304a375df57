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

from holdfast.content import shorten, visible
from holdfast.workers.audit.timeline import CallStory, Entry, Timeline
from holdfast.workers.audit.words import seconds

WIDTH = 1_000.0
LEFT = 170.0
ROW = 22.0
TOP = 26.0
ROWS = 500
"""Calls that are drawn; more would be no picture."""
LONGEST = 8.0
"""How many times the median stretch a stretch may be drawn."""


@dataclass(frozen=True)
class Scale:
    """Moments as places. Between two of `moments` it is even; long gaps are shortened."""

    moments: tuple[float, ...]
    places: tuple[float, ...]
    cuts: tuple[int, ...] = ()
    """Stretches that are drawn shorter than they were, by their first moment."""

    def at(self, moment: datetime) -> float:
        """Where a moment is."""
        value = min(max(moment.timestamp(), self.moments[0]), self.moments[-1])
        before = max(0, bisect_left(self.moments, value) - 1)
        first, last = self.moments[before], self.moments[before + 1]
        start, end = self.places[before], self.places[before + 1]
        return start + (value - first) / (last - first) * (end - start)


def scale_of(moments: list[datetime], left: float = LEFT, right: float = WIDTH) -> Scale:
    """A scale over these moments."""
    values = sorted({moment.timestamp() for moment in moments})
    if len(values) < 2:
        first = values[0] if values else 0.0
        return Scale((first, first + 1), (left, right))
    lengths = [later - earlier for earlier, later in pairwise(values)]
    usual = sorted(lengths)[len(lengths) // 2]
    drawn_lengths = [min(length, LONGEST * usual) for length in lengths]
    total, place, places = sum(drawn_lengths), left, [left]
    for length in drawn_lengths:
        place += (right - left) * length / total
        places.append(min(place, right))
    cuts = tuple(number for number, length in enumerate(lengths) if length > LONGEST * usual)
    return Scale(tuple(values), tuple(places), cuts)


def drawn(told: Timeline) -> str:
    """The picture; nothing for what has no calls."""
    calls = told.calls[:ROWS]
    if not calls:
        return ""
    end = told.ended or max(entry.at for entry in told.entries)
    scale = scale_of([told.began, end, *_moments(calls), *(entry.at for entry in _marks(told))])
    height = TOP + ROW * len(calls) + 24
    left_out = f"<p>{len(told.calls) - ROWS:,} more calls are not drawn.</p>" if len(told.calls) > ROWS else ""
    body = "".join([*_cuts(scale, height), *_rows(calls, scale, end), *_marked(told, scale, height)])
    name = escape(visible(f"Calls of {told.id} over time: waiting for people, running, decisions and crashes"))
    return f'<svg viewBox="0 0 {WIDTH + 20:g} {height:g}" role="img" aria-label="{name}">{body}</svg>{left_out}{_KEY}'


_KEY = (
    '<p class="dim">Yellow: waited for somebody. Blue: ran. Grey: judged, or waited for others. Diamonds: decisions. '
    "Red lines: a worker was lost, or tried again. Dashed: a stretch that is drawn shorter than it was.</p>"
)


def _moments(calls: tuple[CallStory, ...]) -> Iterator[datetime]:
    for call in calls:
        yield from (at for at in (call.created, call.began, call.ended) if at)
        for asked in call.questions:
            yield from (at for at in (asked.at, asked.until) if at)


def _marks(told: Timeline) -> list[Entry]:
    return [entry for entry in told.entries if entry.kind in ("crash", "retry", "decision")]


def _cuts(scale: Scale, height: float) -> Iterator[str]:
    for number in scale.cuts:
        middle = (scale.places[number] + scale.places[number + 1]) / 2
        length = seconds(scale.moments[number + 1] - scale.moments[number])
        yield (
            f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{TOP:g}" y2="{height - 20:g}" stroke="#888" '
            f'stroke-dasharray="3 3"/><text x="{middle:.1f}" y="14" text-anchor="middle">{length}</text>'
        )


def _rows(calls: tuple[CallStory, ...], scale: Scale, end: datetime) -> Iterator[str]:
    for number, call in enumerate(calls):
        y = TOP + ROW * number
        words = escape(shorten(visible(f"{call.id} {call.tool}"), 26))
        yield f'<text x="0" y="{y + 14:g}">{words}<title>{escape(visible(call.title))}</title></text>'
        last = call.ended or end
        if call.created:
            yield _bar(scale, call.created, last, y + 8, 4, "#8886", "judged, or waited for others")
        for asked in call.questions:
            yield _bar(scale, asked.at, asked.until or end, y + 4, 12, "#d9a300", "waited for somebody")
        for first, until in _runs(call, last):
            yield _bar(scale, first, until, y + 4, 12, "#3b6fd4", f"ran: {call.status}")
        colour = {"success": "#2a9d6a", "error": "#cc3333", "cancelled": "#9b59b6"}.get(call.status, "#888")
        place = f'cx="{scale.at(last):.1f}" cy="{y + 10:g}" r="4"'
        yield f'<circle {place} fill="{colour}"><title>{escape(visible(call.status))}</title></circle>'


def _runs(call: CallStory, last: datetime) -> Iterator[tuple[datetime, datetime]]:
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


def _bar(scale: Scale, first: datetime, last: datetime, y: float, height: float, colour: str, words: str) -> str:
    x, until = scale.at(first), scale.at(last)
    length = seconds(max(0.0, (last - first).total_seconds()))
    return (
        f'<rect x="{x:.1f}" y="{y:g}" width="{max(1.0, until - x):.1f}" height="{height:g}" fill="{colour}">'
        f"<title>{escape(words)}, {length}</title></rect>"
    )


def _marked(told: Timeline, scale: Scale, height: float) -> Iterator[str]:
    rows = {call.id: TOP + ROW * number + 10 for number, call in enumerate(told.calls[:ROWS])}
    for entry in _marks(told):
        x, words = scale.at(entry.at), escape(visible(entry.words))
        if entry.kind != "decision":
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:g}" y2="{height - 20:g}" stroke="#cc3333">'
                f"<title>{words}</title></line>"
            )
        elif (y := rows.get(entry.call or "")) is not None:
            yield (f'<path d="M{x:.1f} {y - 7:g} l6 7 l-6 7 l-6 -7 z" fill="#0e8a8a"><title>{words}</title></path>')
    for moment, anchor in ((told.began, "start"), (told.ended, "end")):
        if moment:
            clock = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            yield f'<text x="{scale.at(moment):.1f}" y="{height - 4:g}" text-anchor="{anchor}">{clock}</text>'
