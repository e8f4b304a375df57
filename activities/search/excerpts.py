"""The lines of a file around its matches, as text: numbered, long ones cut around the match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.activities.search.ripgrep import Hit

MAX_WIDTH = 500
"""Characters of a line that are shown."""
BEFORE_MATCH = 100
"""Bytes that are shown before the match when a line is cut."""


@dataclass(frozen=True)
class _LinePlace:
    start: int
    column: int | None = None
    """The offset at which the match begins, in bytes; None when the line is only context."""


def build_excerpts(path: str, data: bytes, hits: Sequence[Hit], context: int) -> Iterator[list[str]]:
    """Groups of lines that follow each other: `path:line:text` for a match, `path-line-text` for its context."""
    places = {hit.line: _LinePlace(hit.offset, hit.column - 1) for hit in hits}
    for hit in hits:
        for number, start in (*_list_before(data, hit, context), *_list_after(data, hit, context)):
            places.setdefault(number, _LinePlace(start))
    group: list[str] = []
    for number in sorted(places):
        if group and context and number - 1 not in places:
            yield group
            group = []
        group.append(_format_line(path, number, data, places[number]))
    yield group


def _list_before(data: bytes, hit: Hit, context: int) -> Iterator[tuple[int, int]]:
    start = hit.offset
    for number in range(hit.line - 1, max(0, hit.line - 1 - context), -1):
        start = data.rfind(b"\n", 0, max(0, start - 1)) + 1
        yield number, start


def _list_after(data: bytes, hit: Hit, context: int) -> Iterator[tuple[int, int]]:
    start = hit.offset
    for number in range(hit.line + 1, hit.line + 1 + context):
        start = _find_line_end(data, start) + 1
        if start >= len(data):
            return
        yield number, start


def _find_line_end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return end if end >= 0 else len(data)


def _format_line(path: str, number: int, data: bytes, place: _LinePlace) -> str:
    mark = "-" if place.column is None else ":"
    return f"{path}{mark}{number}{mark}{_cut_line(data, place)}"


def _cut_line(data: bytes, place: _LinePlace) -> str:
    """The line; when it is too long, the part of it that holds the beginning of the match."""
    end = _find_line_end(data, place.start)
    most = 4 * (MAX_WIDTH + 1)  # no character takes more bytes
    text = data[place.start : min(end, place.start + most)].decode("utf-8", "replace").removesuffix("\r")
    if end - place.start <= most and len(text) <= MAX_WIDTH:
        return text
    begin = _find_character_start(
        data, max(place.start, min(place.start + (place.column or 0), end) - BEFORE_MATCH), place.start
    )
    rest = data[begin : min(end, begin + most)].decode("utf-8", "replace").removesuffix("\r")
    return ("…" if begin > place.start else "") + rest[:MAX_WIDTH] + ("…" if len(rest) > MAX_WIDTH else "")


def _find_character_start(data: bytes, begin: int, least: int) -> int:
    """The offset at which the character around `begin` begins."""
    for earlier in range(begin, max(least, begin - 3) - 1, -1):
        if data[earlier] & 0xC0 != 0x80:
            return earlier
    return begin
