"""Columns for people, as wide as the terminal: names stay whole, and one column gives way to them.

It is wrapped or cut where it stands, or has lines of its own when there is no room beside the others. Those are broken
between two columns before one of them is. No line ends in blanks; where nobody looks (a pipe) nothing is broken at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

WIDE = 1_000
"""Columns when nobody looks: lines are not to be broken for a pipe."""
GAP = 2
INDENT = 4
LEAST = 30
"""Columns that the one that gives way has at least beside the others, unless it needs fewer."""


@dataclass(frozen=True)
class Line:
    """What stands side by side, and what stands below that, each cut where the terminal ends."""

    cells: tuple[Text, ...]
    below: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Columns:
    """Lines with their cells one below the other. The last column gives way."""

    lines: Sequence[Line]
    header: tuple[str, ...] = ()
    cuts: bool = False
    """What has no room is cut, and not wrapped."""
    right: frozenset[int] = field(default=frozenset())
    """Columns that end one below the other."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line."""
        if self.lines or self.header:
            yield from _Laid(self, console, options.max_width).all()


@dataclass(frozen=True)
class Prose:
    """Text that is broken between words, each line of it as far from the edge as it began."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line."""
        for line in self.text.split("\n"):
            indent = len(line) - len(line.lstrip(" "))
            room = options.max_width - indent
            pieces = (
                [Text(line[indent:])] if options.max_width >= WIDE else _wrapped(console, Text(line[indent:]), room)
            )
            for piece in pieces:
                yield _unbroken(Text(" " * indent).append_text(piece))


class _Laid:
    """Columns on a terminal of some width."""

    def __init__(self, columns: Columns, console: Console, width: int) -> None:
        self._columns = columns
        self._console = console
        self._width = width
        self._head = Line(tuple(Text(name, "dim") for name in columns.header))
        self._lines = [*([self._head] if columns.header else []), *columns.lines]
        *self._widths, last = (
            max(map(_length, column)) for column in zip(*(line.cells for line in self._lines), strict=True)
        )
        self._start = sum(size + GAP for size in self._widths if size)
        self._beside = width >= WIDE or width - self._start >= min(last, LEAST)

    def all(self) -> Iterator[Text]:
        """Every line, the header first."""
        for line in self._lines:
            for text in self._side_by_side(line) if self._beside else self._one_below(line):
                yield _unbroken(text)

    def _side_by_side(self, line: Line) -> Iterator[Text]:
        first, *more = self._fitted(line.cells[-1], self._width - self._start)
        yield self._joined(line).append_text(first)
        for text in (*more, *(self._cut(below, self._width - self._start) for below in line.below)):
            yield Text(" " * self._start).append_text(text)

    def _one_below(self, line: Line) -> Iterator[Text]:
        """The last cell on lines of its own; the others on as many as they need."""
        room = self._width - INDENT
        yield from self._flowing(line)
        own = self._fitted(line.cells[-1], room) if line.cells[-1] and line is not self._head else []
        for text in (*own, *(self._cut(below, room) for below in line.below)):
            yield Text(" " * INDENT).append_text(text)

    def _joined(self, line: Line) -> Text:
        text = Text()
        for cell in self._padded(line):
            text.append_text(cell)
        return text

    def _flowing(self, line: Line) -> Iterator[Text]:
        """All cells but the last; one that has no room begins another line, and is broken only if it fits on none."""
        text = Text()
        for cell, bare in zip(self._padded(line), line.cells, strict=False):
            if text and _length(text) + _length(bare) > self._width:
                yield text
                text = Text(" " * INDENT)
            if _length(text) + _length(bare) > self._width:
                *full, cell = _wrapped(self._console, bare, self._width - INDENT)
                yield from (Text(" " * INDENT).append_text(piece) for piece in full)
                text, cell = Text(" " * INDENT), Text.assemble(cell, " " * GAP)
            text.append_text(cell)
        yield text

    def _padded(self, line: Line) -> Iterator[Text]:
        for number, (cell, size) in enumerate(zip(line.cells, self._widths, strict=False)):
            blank = Text(" " * (size - _length(cell)))
            gap = Text(" " * GAP if size else "")
            yield Text.assemble(*((blank, cell) if number in self._columns.right else (cell, blank)), gap)

    def _fitted(self, cell: Text, room: int) -> list[Text]:
        if self._width >= WIDE:
            return [cell.copy()]
        return [self._cut(cell, room)] if self._columns.cuts else _wrapped(self._console, cell, room)

    def _cut(self, text: Text, room: int) -> Text:
        text = text.copy()
        if self._width < WIDE:
            text.truncate(max(1, room), overflow="ellipsis")
        return text


def _unbroken(text: Text) -> Text:
    """A line as it is."""
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _wrapped(console: Console, text: Text, room: int) -> list[Text]:
    return list(text.wrap(console, max(1, room), overflow="fold", no_wrap=False)) or [Text()]


def _length(text: Text) -> int:
    return cell_len(text.plain)
