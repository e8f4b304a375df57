"""Diffs for people who decide on a change: every changed line is shown, however large the file is."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from operator import eq

DIFF_LIMIT = 200_000
"""Characters of either side that may differ; above, no diff is made."""
CONTEXT_LINES = 3
COMPARE_LIMIT = 1_000_000
"""Pairs of equal lines that difflib compares; above, all old lines are shown before all new ones."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HUNK = re.compile(r"^@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def build_diff(path: str, before: bytes | None, after: bytes) -> str:
    """The unified diff of a changed file, or a remark in brackets when there is none. None before: a new file."""
    if before == after:
        return "(no change)"
    if before is None and not after:
        return "(a new, empty file)"
    if before is not None and b"\0" in before:
        return f"(a binary file of {len(before):,} bytes becomes one of {len(after):,})"
    old, new = _split_lines(before or b""), _split_lines(after)
    start, end = _count_common(old, new)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    sizes = [sum(map(len, side)) for side in (old, new)]
    if max(sizes) > DIFF_LIMIT:
        return f"(too long for a diff: {sizes[0]:,} characters become {sizes[1]:,}, from line {start + 1:,} on)"
    path = path.replace("\n", "␊")  # with a line break, a name could imitate a diff
    names = ("/dev/null" if before is None else f"a/{path}", f"b/{path}")
    compare = _build_replaced if _count_pairs(old, new) > COMPARE_LIMIT else difflib.unified_diff
    lines = (_shift_line(line, start) for line in compare(old, new, *names, n=CONTEXT_LINES))
    return "".join(map(_format_line, lines))


def _split_lines(content: bytes) -> list[str]:
    """Lines as editors and `grep` count them, with every byte kept."""
    return _LINE.findall(content.decode("utf-8", "surrogateescape"))


def _format_line(line: str) -> str:
    """A line of a diff as text, with visible carriage returns and bytes that are no UTF-8."""
    text = line.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace("\r", "␍")
    return text if text.endswith("\n") else f"{text}\n\\ No newline at end of file\n"


def _build_replaced(old: list[str], new: list[str], before: str, after: str, *, n: int) -> Iterator[str]:
    """A diff that removes all old lines and adds all new ones."""
    yield from (f"--- {before}\n", f"+++ {after}\n", f"@@ -1,{len(old)} +1,{len(new)} @@\n")
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _count_pairs(old: list[str], new: list[str]) -> int:
    """The number of pairs of equal lines, which is what difflib's search costs."""
    here, there = Counter(old), Counter(new)
    return sum(count * there[line] for line, count in here.items()) + len(old) + len(new)


def _count_common(old: list[str], new: list[str]) -> tuple[int, int]:
    """The numbers of equal lines at the start and at the end that are not needed as context."""
    start = sum(1 for _ in takewhile(bool, map(eq, old, new)))
    end = sum(1 for _ in takewhile(bool, map(eq, reversed(old[start:]), reversed(new[start:]))))
    return max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)


def _shift_line(line: str, by: int) -> str:
    """A line of the diff of a part, with the line numbers of the whole file."""
    hunk = _HUNK.match(line) if by else None
    if hunk is None:
        return line
    return f"@@ -{int(hunk[1]) + by}{hunk[2]} +{int(hunk[3]) + by}{hunk[4]} @@{line[hunk.end() :]}"
