"""The lines of a file around its matches, as text: numbered, long ones cut around the match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.activities.search.matching import Hit

WIDTH = 500
"""Characters of a line that are shown."""
BEFORE = 100
"""Bytes that are shown before the match when a line is cut."""


@dataclass(frozen=True)
class _Place:
    start: int
    column: int | None = None
    """Where the match begins, in bytes; None when the line is only context."""


def excerpts(path: str, data: bytes, hits: Sequence[Hit], context: int) -> Iterator[list[str]]:
    """Groups of lines that follow each other: `path:line:text` for a match, `path-line-text` for its context."""
    places = {hit.line: _Place(hit.offset, hit.column - 1) for hit in hits}
    for hit in hits:
        for number, start in (*_before(data, hit, context), *_after(data, hit, context)):
            places.setdefault(number, _Place(start))
    group: list[str] = []
    for number in sorted(places):
        if group and context and number - 1 not in places:
            yield group
            group = []
        group.append(_line(path, number, data, places[number]))
    yield group


def _before(data: bytes, hit: Hit, context: int) -> Iterator[tuple[int, int]]:
    start = hit.offset
    for number in range(hit.line - 1, max(0, hit.line - 1 - context), -1):
        start = data.rfind(b"\n", 0, max(0, start - 1)) + 1
        yield number, start


def _after(data: bytes, hit: Hit, context: int) -> Iterator[tuple[int, int]]:
    start = hit.offset
    for number in range(hit.line + 1, hit.line + 1 + context):
        start = _end(data, start) + 1
        if start >= len(data):
            return
        yield number, start


def _end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return end if end >= 0 else len(data)


def _line(path: str, number: int, data: bytes, place: _Place) -> str:
    mark = "-" if place.column is None else ":"
    return f"{path}{mark}{number}{mark}{_cut(data, place)}"


def _cut(data: bytes, place: _Place) -> str:
    """The line; when it is too long, the part of it that holds the beginning of the match."""
    end = _end(data, place.start)
    most = 4 * (WIDTH + 1)  # no character takes more bytes
    text = data[place.start : min(end, place.start + most)].decode("utf-8", "replace").removesuffix("\r")
    if end - place.start <= most and len(text) <= WIDTH:
        return text
    begin = _whole(data, max(place.start, min(place.start + (place.column or 0), end) - BEFORE), place.start)
    rest = data[begin : min(end, begin + most)].decode("utf-8", "replace").removesuffix("\r")
    return ("…" if begin > place.start else "") + rest[:WIDTH] + ("…" if len(rest) > WIDTH else "")


def _whole(data: bytes, begin: int, least: int) -> int:
    """Where the character that `begin` is in begins."""
    for earlier in range(begin, max(least, begin - 3) - 1, -1):
        if data[earlier] & 0xC0 != 0x80:
            return earlier
    return begin
