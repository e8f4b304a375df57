"""`read_output`: the saved output of a call, of which the model got only a part (S33, S34).

An output is read from where all workers share it, so the call may run on any host. Names are digests that the engine
made, and lead only to outputs of the same session: its turns, and those that they delegate. So a delegated turn can be
told by its parent to read an output, and names one of its own in its answer.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import dropwhile, islice, takewhile
from pathlib import Path

from pydantic import Field

from holdfast.activities.files.media_types import MediaKind
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.search.excerpts import build_excerpts
from holdfast.activities.search.ripgrep import Hit, Matcher, Query, run_search
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import READ_OUTPUT, BlobPart, Result
from holdfast.errors import HoldfastError
from holdfast.payloads.bucket_store import ObjectNotFound
from holdfast.payloads.shared_outputs import SHARED_BYTES, SharedOutput

_NAME = re.compile(r"(?:.*/)?([0-9a-f]{32})(?:[0-9a-f]{32}\.[a-z0-9]{2,4})?")
"""The name of an output: as a result gives it, or the name of the file of saved bytes."""
_MAX_MATCHES = 1_000_000
"""Matching lines that are looked at, at most."""
_NOTES_LENGTH = 500
"""Characters that are left for notes beside the text."""


class ReadOutput(Tool):
    """Reads a saved output, or a part of it."""

    name = READ_OUTPUT
    description = (
        "Read an output of this conversation that was saved because it was too long to be shown whole, by the name "
        "that the result gives: from a line or a character on, or the lines that match a pattern. An image or another "
        "binary result is given again as it is, by the file that its description names."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    timeout_seconds = 120

    class Parameters(StrictParameters):
        """Arguments."""

        name: str = Field(description="Name of the output, as the result has it", min_length=1, max_length=1_000)
        start_line: int | None = Field(default=None, ge=1, description="First line to read, counted from 1")
        line_count: int | None = Field(default=None, ge=1, description="How many lines to read, as far as they fit")
        start_character: int | None = Field(
            default=None, ge=1, description="First character to read, counted from 1; for lines that are very long"
        )
        character_count: int | None = Field(default=None, ge=1, description="How many characters, as far as they fit")
        pattern: str | None = Field(
            default=None,
            description="Regular expression: only lines that match, with their numbers",
            min_length=1,
            max_length=5_000,
        )
        ignore_case: bool = Field(default=False, description="For the pattern, take upper and lower case for the same")
        context: int = Field(default=0, ge=0, le=20, description="Lines to show before and after each match")

    def __init__(self, outputs: OutputStore) -> None:
        self._outputs = outputs

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to the name of an output. ValueError when the name or the combination of arguments is invalid."""
        found = _NAME.fullmatch(arguments.name)
        if not found:
            raise ValueError("`name` is no name of an output: it is the 32 letters and digits that the result gives")
        characters = arguments.start_character or arguments.character_count
        if characters and (arguments.start_line or arguments.line_count or arguments.pattern):
            raise ValueError("a range of characters goes with neither lines nor a pattern: leave one of them out")
        if arguments.pattern and any(character in arguments.pattern for character in "\0\n"):
            raise ValueError("the pattern is for one line: it holds no line break and no NUL character")
        return _ReadOutputInvocation(arguments, found[1], self._outputs)


class _ReadOutputInvocation(Invocation):
    def __init__(self, arguments: ReadOutput.Parameters, name: str, outputs: OutputStore) -> None:
        self._arguments = arguments
        self._name = name
        self._outputs = outputs

    def describe(self) -> str:
        return f"Read the saved output {self._name}"

    def is_concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        output = await self._fetch_output(run)
        if not MediaKind(output.media_type.partition(";")[0].strip().lower()).is_text:
            return Result(parts=(BlobPart.from_bytes(output.data, output.media_type),))
        if self._arguments.pattern:
            text = await self._search_output(run, output.data)
        else:
            text = await asyncio.to_thread(self._select_range, output.data)
        note = f"\n[only the first {SHARED_BYTES:,} bytes of this output can be read]" if output.incomplete else ""
        return Result.from_text(text + note)

    async def _fetch_output(self, run: Run) -> SharedOutput:
        try:
            if self._outputs.shared_outputs is None:  # a tool that is tried without an engine
                raise ObjectNotFound
            return await self._outputs.shared_outputs.read(run.key.rpartition("/")[0], self._name)
        except ObjectNotFound:
            message = f"This conversation has no saved output {self._name!r}: give the name as the result has it"
            raise ToolFailure("no_such_output", message) from None
        except HoldfastError as error:
            raise ToolFailure("output_not_readable", f"The output {self._name!r} cannot be read: {error}") from error

    async def _search_output(self, run: Run, data: bytes) -> str:
        matcher = Matcher(run)
        try:
            return await run_search(matcher, partial(self._search_data, matcher, data))
        except TimeoutError as error:
            raise ToolFailure("timeout", f"{error}: simplify the pattern") from None

    @property
    def _character_limit(self) -> int:
        """Characters of a result at most: a longer one would be cut, and saved as an output again."""
        return max(self._outputs.limit // 2, self._outputs.limit - _NOTES_LENGTH)

    def _select_range(self, data: bytes) -> str:
        """The requested lines or characters that fit, and where to continue."""
        wanted, text = self._arguments, data.decode("utf-8", "replace")
        by_characters = wanted.start_character or wanted.character_count
        if by_characters:
            start = (wanted.start_character or 1) - 1
            stop = start + wanted.character_count if wanted.character_count else len(text)
        else:
            start = _find_line_start(text, wanted.start_line or 1)
            stop = (
                _find_line_start(text, (wanted.start_line or 1) + wanted.line_count) if wanted.line_count else len(text)
            )
        if start >= len(text):
            size = f"{text.count(chr(10)):,} lines and {len(text):,} characters"
            raise ToolFailure("no_such_place", f"The output {self._name!r} ends before that: it has {size}")
        if stop - start <= self._character_limit:
            return text[start:stop]
        stop = start + self._character_limit
        line_end = text.rfind("\n", start, stop) + 1
        if by_characters or line_end <= start:
            return f"{text[start:stop]}\n[there is more: go on with start_character {stop + 1}]"
        line = (wanted.start_line or 1) + text.count("\n", start, line_end)
        return f"{text[start:line_end]}[there is more: go on with start_line {line}]"

    def _search_data(self, matcher: Matcher, data: bytes) -> str:
        wanted = self._arguments
        assert wanted.pattern
        query = Query(wanted.pattern, literal=False, ignore_case=wanted.ignore_case, counting=False, most=_MAX_MATCHES)
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(data)
            file.seek(0)
            with closing(matcher.find_hits(query, (file.fileno(),))) as hits:
                found = list(islice(self._select_hits(hits), self._character_limit))
        shown: list[str] = []
        room = self._character_limit
        for group in build_excerpts("", data, found, wanted.context) if found else ():
            for line in [*(["--"] if shown else []), *(line[1:] for line in group)]:
                room -= len(line) + 1
                if room < 0:
                    start = re.match(r"\d*", line)
                    more = f"[there are more matches: go on with start_line {start[0] if start else ''}]"
                    return "\n".join([*shown, more])
                shown.append(line)
        return "\n".join(shown) or "No matches."

    def _select_hits(self, hits: Iterator[Hit]) -> Iterator[Hit]:
        """The matches in the requested lines."""
        start, count = self._arguments.start_line or 1, self._arguments.line_count
        later = dropwhile(lambda hit: hit.line < start, hits)
        return later if count is None else takewhile(lambda hit: hit.line < start + count, later)


def _find_line_start(text: str, line: int) -> int:
    """The offset at which a line begins, counted from 1; the end of the text when it has fewer lines."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if start == 0:
            return len(text)
    return start
