"""`grep`: lines of the workspace's files that match a regular expression.

Files are chosen and opened here, by the same walk as everywhere, and handed to ripgrep as descriptors; what it finds is
read and written out here. So no link leads it astray.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Literal

from pydantic import Field

from holdfast.activities.builtin.glob import list_walk_notes, resolve_searchable
from holdfast.activities.files.walk import Walk, WalkEntry, format_path
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.search.excerpts import build_excerpts
from holdfast.activities.search.ripgrep import Hit, Matcher, Query, run_search
from holdfast.activities.search.text_files import FILE_LIMIT, TextFiles, read_descriptor
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import Result, TextPart
from holdfast.util.globs import PathPattern

TEXT_LIMIT = 1_000_000
"""Characters of a result."""


class Grep(Tool):
    """Finds lines of files by a regular expression."""

    name = "grep"
    description = (
        "Search the text files of the workspace for a regular expression, line by line. What git ignores is left out, "
        "and so are binary and very large files. There is no look-around and there are no back-references."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 60

    class Parameters(StrictParameters):
        """Arguments."""

        pattern: str = Field(description="Regular expression, for one line at a time", min_length=1, max_length=5_000)
        path: str = Field(default=".", description="File or folder to search, relative to the workspace", min_length=1)
        glob: str | None = Field(
            default=None,
            description="Only files that match this, such as *.py or src/**/*.{ts,tsx}, as seen from `path`",
            min_length=1,
            max_length=1_000,
        )
        ignore_case: bool = Field(default=False, description="Take upper and lower case for the same")
        literal: bool = Field(default=False, description="Search for the pattern as plain text")
        context: int = Field(default=0, ge=0, le=20, description="Lines to show before and after each match")
        output: Literal["lines", "files", "count"] = Field(
            default="lines", description="lines: path:line:text; files: paths only; count: path:matching lines"
        )
        limit: int = Field(default=200, ge=1, le=5_000, description="Most matches (or files) to show")
        include_ignored: bool = Field(default=False, description="Also search what git ignores")

    def __init__(self, ripgrep: str | None = None) -> None:
        """`ripgrep` is the program; the installed one when left out."""
        self._ripgrep = ripgrep

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a file or folder inside the workspace. ValueError when the pattern is for more than one line."""
        if any(character in arguments.pattern for character in "\0\n"):
            raise ValueError("the pattern is for one line: it holds no line break and no NUL character")
        glob = PathPattern(arguments.glob.removeprefix("./"), anywhere=True) if arguments.glob else None
        room = Workspace(workspace)
        place = resolve_searchable(room, arguments.path)
        return _GrepInvocation(arguments, room, place, glob, self._ripgrep)


class _GrepInvocation(Invocation):
    def __init__(
        self,
        arguments: Grep.Parameters,
        workspace: Workspace,
        place: str,
        glob: PathPattern | None,
        ripgrep: str | None,
    ) -> None:
        self._arguments = arguments
        self._workspace = workspace
        self._place = place
        self._glob = glob
        self._ripgrep = ripgrep

    def describe(self) -> str:
        return f"Search {self._arguments.path} for {self._arguments.pattern}"

    def is_concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        matcher = Matcher(run, self._ripgrep)
        report = _Report(self._arguments.limit)
        try:
            await run_search(matcher, partial(self._search_files, matcher, report))
        except TimeoutError as error:
            raise ToolFailure(
                "timeout", f"{error}: simplify the pattern or narrow path", report.build_parts()
            ) from None
        return Result.from_text(report.build_text())

    def _search_files(self, matcher: Matcher, report: _Report) -> None:
        below = len(self._place) + 1 if self._place != "." else 0
        walk = Walk(self._workspace, self._place, include_ignored=self._arguments.include_ignored, stop=matcher.stopped)
        try:
            with closing(walk.list_entries()) as entries:
                chosen = (entry for entry in entries if self._is_wanted(entry, below))
                self._search_all(chosen, matcher, report)
        except OSError as error:
            message = f"{self._arguments.path!r} cannot be searched: {error.strerror or error}"
            raise ToolFailure("path_not_readable", message) from error
        report.notes += list_walk_notes(walk, self._arguments.path)

    def _is_wanted(self, entry: WalkEntry, below: int) -> bool:
        if entry.kind != "file":
            return False
        return self._glob is None or self._glob.matches(entry.path[below:] or entry.name)

    def _search_all(self, entries: Iterable[WalkEntry], matcher: Matcher, report: _Report) -> None:
        with closing(report.files.open_batches(entries)) as batches:
            for files in batches:
                with closing(matcher.find_hits(self._build_query(), tuple(files))) as hits:
                    self._take_hits(hits, files, report)
                if report.is_full or matcher.stopped.is_set():
                    return

    def _build_query(self) -> Query:
        wanted = self._arguments
        return Query(
            pattern=wanted.pattern,
            literal=wanted.literal,
            ignore_case=wanted.ignore_case,
            counting=wanted.output != "lines",
            most={"lines": wanted.limit + 1, "files": 1, "count": FILE_LIMIT}[wanted.output],
        )

    def _take_hits(self, hits: Iterator[Hit], files: dict[int, str], report: _Report) -> None:
        for file, group in groupby(hits, lambda hit: hit.file):
            taken = report.take_hits(group)
            if taken:
                report.add_groups(
                    self._build_blocks(format_path(files[file]), file, taken), separated=self._arguments.context > 0
                )
            if report.is_full:
                return

    def _build_blocks(self, path: str, file: int, hits: list[Hit]) -> Iterator[list[str]]:
        if self._arguments.output == "lines":
            return build_excerpts(path, read_descriptor(file), hits, self._arguments.context)
        return iter([[path if self._arguments.output == "files" else f"{path}:{hits[0].line}"]])


@dataclass
class _Report:
    """The lines that were found, and what was not searched."""

    limit: int
    matches: int = 0
    size: int = 0
    more: bool = False
    files: TextFiles = field(default_factory=TextFiles)
    blocks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.more or self.size > TEXT_LIMIT

    def take_hits(self, hits: Iterator[Hit]) -> list[Hit]:
        """The results that fit, and one more when there are more."""
        room = self.limit - self.matches
        found = list(islice(hits, room + 1))
        self.more = len(found) > room
        self.matches += len(found[:room])
        return found[:room]

    def add_groups(self, groups: Iterator[list[str]], *, separated: bool) -> None:
        """Groups of lines, with a separating line between groups that are not adjacent."""
        for lines in groups:
            if separated and self.blocks:
                self.blocks.append("--")
            self.blocks += lines
            self.size += sum(map(len, lines))
            if self.size > TEXT_LIMIT:
                return

    def build_text(self) -> str:
        return "\n".join([*(self.blocks or ["No matches."]), *self._list_remarks()])

    def build_parts(self) -> tuple[TextPart, ...]:
        return (TextPart(text="\n".join(self.blocks)),) if self.blocks else ()

    def _list_remarks(self) -> Iterator[str]:
        if self.more:
            yield f"(stopped at the limit of {self.limit:,}: there are more. Narrow the search, or raise limit)"
        elif self.is_full:
            yield f"(stopped after {self.size:,} characters: there may be more. Narrow the search)"
        if self.files.too_large:
            yield f"({self.files.too_large:,} files over {FILE_LIMIT:,} bytes were not searched)"
        if self.files.unreadable:
            yield f"({self.files.unreadable:,} files could not be read)"
        yield from self.notes
