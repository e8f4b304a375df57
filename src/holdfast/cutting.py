"""Cutting what is too long for a question, so that nothing is hidden behind its beginning. Pure.

Both ends of everything stay: of a list of lines, and of every run of removed or added lines of a diff.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

LINE_LIMIT = 1_000
"""Characters of one line."""


def cut_lines(lines: Sequence[str], limit: int) -> list[str]:
    """The two ends of the lines, each of them bounded; a line between says how many are missing."""
    return [_cut_line(line) for line in _ends(list(lines), limit)]


def cut_diff(lines: Sequence[str], limit: int) -> list[str]:
    """A diff of about `limit` lines: every run of alike lines is cut in its middle; with too many runs, the whole."""
    runs = [[line for _, line in run] for _, run in groupby(_kinds(lines), key=lambda item: item[0])]
    for share in range(limit, 1, -1):
        if sum(min(len(run), share) for run in runs) <= limit:
            return [_cut_line(line) for run in runs for line in _ends(run, share)]
    return cut_lines(lines, limit)


def count_changes(lines: Sequence[str]) -> str:
    """`+3 −450`."""
    kinds = [kind for kind, _ in _kinds(lines)]
    return f"+{kinds.count('+'):,} −{kinds.count('-'):,}"


def _kinds(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each line with what it is. After the first hunk's head, `---` is a removed line that looks like a file's head."""
    within = False
    for line in lines:
        within = within or line.startswith("@@")
        yield line[0] if line[:1] in ("+", "-") and within else "@" if line.startswith("@@") else " ", line


def _ends(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    head = (limit + 1) // 2
    tail = limit - head
    left_out = f"… {len(lines) - limit:,} lines left out"
    return [*lines[:head], left_out, *lines[len(lines) - tail :]]


def _cut_line(line: str) -> str:
    if len(line) <= LINE_LIMIT:
        return line
    half = LINE_LIMIT // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters left out … {line[-half:]}"
