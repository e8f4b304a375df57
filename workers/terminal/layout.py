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

UNBOUNDED_WIDTH = 1_000
"""Columns when nobody looks: lines are not to be broken for a pipe."""
GAP = 2
INDENT = 4
MIN_WIDTH = 30
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
            yield from _ColumnLayout(self, console, options.max_width).render_lines()


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
                [Text(line[indent:])]
                if options.max_width >= UNBOUNDED_WIDTH
                else _wrap_text(console, Text(line[indent:]), room)
            )
            for piece in pieces:
                yield _forbid_wrapping(Text(" " * indent).append_text(piece))


class _ColumnLayout:
    """Columns on a terminal of some width."""

    def __init__(self, columns: Columns, console: Console, width: int) -> None:
        self._columns = columns
        self._console = console
        self._width = width
        self._head = Line(tuple(Text(name, "dim") for name in columns.header))
        self._lines = [*([self._head] if columns.header else []), *columns.lines]
        *self._widths, last = (
            max(map(_measure_text, column)) for column in zip(*(line.cells for line in self._lines), strict=True)
        )
        self._start = sum(size + GAP for size in self._widths if size)
        self._beside = width >= UNBOUNDED_WIDTH or width - self._start >= min(last, MIN_WIDTH)

    def render_lines(self) -> Iterator[Text]:
        """Every line, the header first."""
        for line in self._lines:
            for text in self._place_beside(line) if self._beside else self._place_below(line):
                yield _forbid_wrapping(text)

    def _place_beside(self, line: Line) -> Iterator[Text]:
        first, *more = self._fit_cell(line.cells[-1], self._width - self._start)
        yield self._join_cells(line).append_text(first)
        for text in (*more, *(self._cut_text(below, self._width - self._start) for below in line.below)):
            yield Text(" " * self._start).append_text(text)

    def _place_below(self, line: Line) -> Iterator[Text]:
        """The last cell on lines of its own; the others on as many as they need."""
        room = self._width - INDENT
        yield from self._flow_cells(line)
        own = self._fit_cell(line.cells[-1], room) if line.cells[-1] and line is not self._head else []
        for text in (*own, *(self._cut_text(below, room) for below in line.below)):
            yield Text(" " * INDENT).append_text(text)

    def _join_cells(self, line: Line) -> Text:
        text = Text()
        for cell in self._pad_cells(line):
            text.append_text(cell)
        return text

    def _flow_cells(self, line: Line) -> Iterator[Text]:
        """All cells but the last; one that has no room begins another line, and is broken only if it fits on none."""
        text = Text()
        for cell, bare in zip(self._pad_cells(line), line.cells, strict=False):
            if text and _measure_text(text) + _measure_text(bare) > self._width:
                yield text
                text = Text(" " * INDENT)
            if _measure_text(text) + _measure_text(bare) > self._width:
                *full, cell = _wrap_text(self._console, bare, self._width - INDENT)
                yield from (Text(" " * INDENT).append_text(piece) for piece in full)
                text, cell = Text(" " * INDENT), Text.assemble(cell, " " * GAP)
            text.append_text(cell)
        yield text

    def _pad_cells(self, line: Line) -> Iterator[Text]:
        for number, (cell, size) in enumerate(zip(line.cells, self._widths, strict=False)):
            blank = Text(" " * (size - _measure_text(cell)))
            gap = Text(" " * GAP if size else "")
            yield Text.assemble(*((blank, cell) if number in self._columns.right else (cell, blank)), gap)

    def _fit_cell(self, cell: Text, room: int) -> list[Text]:
        if self._width >= UNBOUNDED_WIDTH:
            return [cell.copy()]
        return [self._cut_text(cell, room)] if self._columns.cuts else _wrap_text(self._console, cell, room)

    def _cut_text(self, text: Text, room: int) -> Text:
        text = text.copy()
        if self._width < UNBOUNDED_WIDTH:
            text.truncate(max(1, room), overflow="ellipsis")
        return text


def _forbid_wrapping(text: Text) -> Text:
    """A line as it is."""
    text.rstrip()
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _wrap_text(console: Console, text: Text, room: int) -> list[Text]:
    return list(text.wrap(console, max(1, room), overflow="fold", no_wrap=False)) or [Text()]


def _measure_text(text: Text) -> int:
    return cell_len(text.plain)
