"""Tables and prose for people, drawn by rich as wide as the terminal, without trailing blanks.

Names are not wrapped if the last column can be. If the output is not a terminal, no line is wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

UNBOUNDED_WIDTH = 1_000_000
"""The width of an output that is not a terminal."""
GAP = 2
MIN_WIDTH = 30
"""The minimal width of the last column, unless it needs less; if there is less room, the names are wrapped too."""
MIN_DETAIL = 20
"""The minimal width of a detail behind the name of a tool; if there is less room, it gets a line of its own."""


@dataclass(frozen=True)
class PlainTable:
    """Rows of cells in aligned columns. An empty column takes no room."""

    rows: Sequence[Sequence[RenderableType]]
    header: tuple[str, ...] = ()
    right: frozenset[int] = frozenset()
    """The columns that are aligned to the right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the table."""
        if self.rows or self.header:
            for line in console.render_lines(self._build_table(console, options), options, pad=False):
                yield from _strip_blanks(line)
                yield Segment.line()

    def _build_table(self, console: Console, options: ConsoleOptions) -> Table:
        names = self.header or ("",) * len(self.rows[0])
        columns = list(zip(names, *self.rows, strict=True))
        widths = [max(Measurement.get(console, options, cell).maximum for cell in column) for column in columns]
        shown = [place for place, width in enumerate(widths) if width]
        *sizes, last = [widths[place] for place in shown] or [0]
        fits = sum(sizes) + GAP * len(sizes) + min(last, MIN_WIDTH) <= options.max_width
        table = Table(
            box=None, show_header=bool(self.header), header_style="dim", pad_edge=False, padding=(0, GAP, 0, 0)
        )
        for place in shown:
            table.add_column(
                Text(names[place]),
                justify="right" if place in self.right else "left",
                no_wrap=fits and place != shown[-1],
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(row[place] for place in shown))
        return table


@dataclass(frozen=True)
class CallCell:
    """The whole name of a tool and, behind or below it, a text about the call in one line, shortened to the width."""

    name: str
    detail: Text
    below: Sequence[Text] = ()
    name_width: int = 0
    """The width of the longest name in the table, so that the details are aligned."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """The minimum is the width of the name, the maximum that of everything in one line."""
        name = max(cell_len(self.name), self.name_width)
        most = max([name + GAP + self.detail.cell_len, *(text.cell_len for text in self.below)])
        return Measurement(min(name, options.max_width), min(most, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the cell."""
        room = options.max_width
        for padding in (self.name_width, 0):
            name = Text(self.name.ljust(padding + len(self.name) - cell_len(self.name)))
            beside = room - name.cell_len - GAP
            if beside >= min(self.detail.cell_len, MIN_DETAIL):
                yield _cut(Text.assemble(name, " " * GAP, self.detail), room)
                break
        else:
            yield from (_cut(line, room) for line in Text(self.name).wrap(console, room, overflow="fold"))
            yield from [_cut(self.detail, room)] if self.detail else []
        yield from (_cut(text, room) for text in self.below)


@dataclass(frozen=True)
class Prose:
    """Text that is wrapped between words, with the indentation of each line kept."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The wrapped lines."""
        for line in self.text.split("\n"):
            words = line.lstrip(" ")
            indent = " " * (len(line) - len(words))
            room = max(1, options.max_width - len(indent))
            pieces = Text(words).wrap(console, room, overflow="fold", no_wrap=False) or [Text()]
            yield from (_cut(Text(indent).append_text(piece), options.max_width) for piece in pieces)


def _cut(text: Text, room: int) -> Text:
    """The text in one line, shortened with an ellipsis."""
    line = text.copy()
    line.truncate(max(1, room), overflow="ellipsis")
    line.rstrip()
    line.no_wrap, line.overflow = True, "ignore"
    return line


def _strip_blanks(line: Iterable[Segment]) -> list[Segment]:
    """A line of a table without trailing blanks."""
    segments = list(line)
    while segments and not segments[-1].text.strip(" "):
        segments.pop()
    if segments:
        last = segments.pop()
        segments.append(Segment(last.text.rstrip(" "), last.style))
    return segments
