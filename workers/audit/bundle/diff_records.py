"""What was done to the records of a member: changed, removed, added, moved. Pure, over their digests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from holdfast.workers.audit.bundle.chain import Record

ALIGN_LIMIT = 2_000
"""So many lines are put side by side; where more are not as they were, the rest is told by what there is of each."""


def find_differences(expected: Sequence[Record], found: Sequence[str], file: str) -> Iterator[str]:
    """Each record that is not where the chain has it, and each line that no record is about."""
    wanted = [record.sha256 for record in expected]
    first = _count_common(wanted, found)
    last = _count_common(wanted[first:][::-1], found[first:][::-1])
    records = expected[first : len(expected) - last]
    rows = found[first : len(found) - last]
    if len(records) > ALIGN_LIMIT or len(rows) > ALIGN_LIMIT:
        yield from _compare_unaligned(records, rows, file)
    elif records or rows:
        yield from _compare_aligned(records, rows, file, first)


def _count_common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many are the same from the beginning."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _compare_aligned(records: Sequence[Record], rows: Sequence[str], file: str, before: int) -> Iterator[str]:
    wanted = [record.sha256 for record in records]
    there, lacking = Counter(rows), Counter(wanted)
    for kind, first, last, start, end in SequenceMatcher(None, wanted, list(rows), autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for place in range(first, last):
            if there[wanted[place]]:
                yield f"moved: {records[place].about} is not in its place"
        gone = [place for place in range(first, last) if not there[wanted[place]]]
        come = [place for place in range(start, end) if not lacking[rows[place]]]
        yield from (f"changed: {records[place].about}" for place, _ in zip(gone, come, strict=False))
        yield from (f"missing: {records[place].about}" for place in gone[len(come) :])
        yield from (f"added: line {before + place + 1} of {file}" for place in come[len(gone) :])
        for place in range(start, end):
            if 0 < lacking[rows[place]] < there[rows[place]]:
                yield f"added: line {before + place + 1} of {file} is there twice"


def _compare_unaligned(records: Sequence[Record], rows: Sequence[str], file: str) -> Iterator[str]:
    there, wanted = Counter(rows), Counter(record.sha256 for record in records)
    moved = sum((there & wanted).values())
    yield from (f"changed or missing: {record.about}" for record in records if not there[record.sha256])
    if added := sum((there - wanted).values()):
        yield f"added or changed: {added:,} lines of {file}"
    if moved:
        yield f"moved, perhaps: {moved:,} lines of {file}"
