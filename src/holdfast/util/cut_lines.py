"""Cutting what is too long for a question, so that nothing is hidden behind its beginning. Pure.

Both ends of everything stay: of a list of lines, and of every run of removed or added lines of a diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby

from holdfast.util.text import elide_middle

LINE_LIMIT = 1_000
"""Characters of one line."""
_LEFT_OUT = "… {:,} lines left out"
_LEFT_OUT_LINE = re.compile(r"… ([\d,]+) lines left out")
"""A line of a diff that was cut before: no other line of one begins so."""


def cut_lines(lines: Sequence[str], limit: int) -> list[str]:
    """The two ends of the lines, each of them bounded; a line between says how many are missing."""
    return [_cut_line(line) for line in _elide_lines(list(lines), limit)]


def cut_diff(lines: Sequence[str], limit: int) -> list[str]:
    """A diff of about `limit` lines: every run of alike lines is cut in its middle; with too many runs, the whole."""
    runs = [[line for _, line in run] for _, run in groupby(_classify_lines(lines), key=lambda item: item[0])]
    for share in range(limit, 1, -1):
        if sum(min(len(run), share) for run in runs) <= limit:
            return [_cut_line(line) for run in runs for line in _elide_lines(run, share)]
    return cut_lines(lines, limit)


def shorten_diff(text: str, limit: int) -> str:
    """A diff of about so many characters: whole lines of both its ends, and between them how many are missing."""
    if len(text) <= limit:
        return text
    lines = text.removesuffix("\n").split("\n")
    room = max(0, limit - len(_LEFT_OUT.format(len(lines))) - 1) // 2
    lines = [elide_middle(line, room // 2) for line in lines]
    head, tail = (
        sum(size <= room for size in accumulate(len(line) + 1 for line in side)) for side in (lines, lines[::-1])
    )
    if not head or not tail:
        return elide_middle(text, limit)
    if head + tail >= len(lines):
        return "\n".join(lines)
    return "\n".join([*lines[:head], _LEFT_OUT.format(len(lines) - head - tail), *lines[len(lines) - tail :]])


def count_changes(lines: Sequence[str]) -> str:
    """`+3 −450`; of a diff that was not cut."""
    kinds = [kind for kind, _ in _classify_lines(lines)]
    return f"+{kinds.count('+'):,} −{kinds.count('-'):,}"


def _classify_lines(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each line with what it is. After the first hunk's head, `---` is a removed line that looks like a file's head."""
    within = False
    for line in lines:
        within = within or line.startswith("@@")
        yield line[0] if line[:1] in ("+", "-") and within else "@" if line.startswith("@@") else " ", line


def _elide_lines(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    head = (limit + 1) // 2
    tail = limit - head
    left_out = sum(map(_count_lines, lines[head : len(lines) - tail]))
    return [*lines[:head], _LEFT_OUT.format(left_out), *lines[len(lines) - tail :]]


def _count_lines(line: str) -> int:
    """How many lines of a diff this one stands for."""
    found = _LEFT_OUT_LINE.fullmatch(line)
    return int(found[1].replace(",", "")) if found else 1


def _cut_line(line: str) -> str:
    if len(line) <= LINE_LIMIT:
        return line
    half = LINE_LIMIT // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} characters left out … {line[-half:]}"
