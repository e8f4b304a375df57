"""Diffs for people who decide on them: nothing that changes is left unsaid, however large the file around it."""

from __future__ import annotations

import difflib
import re
from itertools import takewhile
from operator import eq

DIFF_LIMIT = 200_000
"""Characters of either side that may differ; above, no diff is drawn."""
CONTEXT = 3
_HUNK = re.compile(r"^@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def difference(path: str, before: bytes | None, after: bytes) -> str:
    """What replacing a file's content would change."""
    if before == after:
        return "(no change)"
    if before is None and not after:
        return "(a new, empty file)"
    if before is not None and b"\0" in before:
        return f"(a binary file of {len(before):,} bytes becomes one of {len(after):,})"
    old, new = _lines(before or b""), _lines(after)
    start, end = _common(old, new)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    sizes = [sum(map(len, side)) for side in (old, new)]
    if max(sizes) > DIFF_LIMIT:
        return f"(too long for a diff: {sizes[0]:,} characters become {sizes[1]:,}, from line {start + 1:,} on)"
    names = ("/dev/null" if before is None else f"a/{path}", f"b/{path}")
    lines = (_moved(line, start) for line in difflib.unified_diff(old, new, *names, n=CONTEXT))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(content: bytes) -> list[str]:
    """Lines whose endings can be told apart: a carriage return is part of its line."""
    text = content.decode("utf-8", "backslashreplace")
    return text.replace("\r\n", "␍\n").replace("\r", "␍").splitlines(keepends=True)


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines at the start and at the end are the same and not needed as context."""
    start = sum(1 for _ in takewhile(bool, map(eq, old, new)))
    end = sum(1 for _ in takewhile(bool, map(eq, reversed(old[start:]), reversed(new[start:]))))
    return max(0, start - CONTEXT), max(0, end - CONTEXT)


def _moved(line: str, by: int) -> str:
    """A diff of a part of a file, with the line numbers of the whole."""
    hunk = _HUNK.match(line) if by else None
    if hunk is None:
        return line
    return f"@@ -{int(hunk[1]) + by}{hunk[2]} +{int(hunk[3]) + by}{hunk[4]} @@{line[hunk.end() :]}"
