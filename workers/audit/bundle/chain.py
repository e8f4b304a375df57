"""The hash chain of a bundle: a line for each record, linked to the line before it.

A record is a line of a member (an event of a history, a decision) or a whole member (a payload, an output, a
definition). Changing, removing, adding or moving one changes every link after it, and the last link, the head, is in
the signed manifest. Nothing here reads a file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from holdfast.util.json_values import encode_canonical

FIRST_LINK = "0" * 64
"""The link before the first record."""


@dataclass(frozen=True)
class Record:
    """One record of the chain."""

    kind: str
    file: str
    about: str
    """What it is, for people."""
    sha256: str
    line: int | None = None
    """The line of the member, from 1; None for the whole member."""

    def as_json(self, number: int) -> dict[str, Any]:
        """The JSON that its link is over, beside the link before."""
        value = {"n": number, "kind": self.kind, "file": self.file, "about": self.about, "sha256": self.sha256}
        return value if self.line is None else {**value, "line": self.line}


@dataclass(frozen=True)
class Link:
    """A record with its link, as a bundle has it."""

    number: int
    record: Record
    link: str


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


def build_link(before: str, number: int, record: Record) -> str:
    """Build the link of a record from the link before it."""
    return digest_bytes(before.encode() + b"\n" + encode_canonical(record.as_json(number)))


class Chain:
    """A chain that is being written."""

    def __init__(self) -> None:
        self.head = FIRST_LINK
        self.length = 0
        self._lines: list[bytes] = []

    def add(self, record: Record) -> None:
        """Append a record."""
        self.length += 1
        self.head = build_link(self.head, self.length, record)
        self._lines.append(encode_canonical({**record.as_json(self.length), "link": self.head}))

    def encode_lines(self) -> bytes:
        """Encode the chain as a member."""
        return b"".join(line + b"\n" for line in self._lines)


def read_chain(lines: Iterable[bytes]) -> Iterator[Link | str]:
    """Yield every line as a link, or what is wrong with it."""
    for place, line in enumerate(lines, start=1):
        try:
            link = _parse_link(line)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield f"changed: line {place} of the chain cannot be read"
            continue
        exact = encode_canonical({**link.record.as_json(link.number), "link": link.link}) == line
        yield link if exact else f"changed: line {place} of the chain is not canonical JSON"


def _parse_link(line: bytes) -> Link:
    value = json.loads(line)
    number, place, texts = value.pop("n"), value.pop("line", None), [value.pop(name) for name in _TEXT_FIELDS]
    if (
        value
        or type(number) is not int
        or type(place) not in (int, type(None))
        or not all(type(x) is str for x in texts)
    ):
        raise TypeError("not a record")
    kind, file, about, sha256, link = texts
    return Link(number, Record(kind, file, about, sha256, place), link)


_TEXT_FIELDS = ("kind", "file", "about", "sha256", "link")


def find_chain_problems(links: Iterable[Link]) -> Iterator[str]:
    """Yield what was done to the chain itself, and where."""
    before, number = FIRST_LINK, 0
    for one in links:
        what = _describe_gap(number + 1, one.number)
        if what:
            yield what
        elif build_link(before, one.number, one.record) != one.link:
            yield f"changed: record {one.number} of the chain, {one.record.about}: its link does not hold"
        before, number = one.link, max(one.number, number)


def _describe_gap(expected: int, found: int) -> str | None:
    if found == expected:
        return None
    if found < expected:
        return f"moved: record {found} of the chain comes after record {expected - 1}, or twice"
    gone = f"record {expected}" if found == expected + 1 else f"records {expected} to {found - 1}"
    return f"missing: {gone} of the chain, or moved behind record {found}"


ALIGN_LIMIT = 2_000
"""Lines that are aligned; of more differences only the numbers are reported."""


def find_differences(expected: Sequence[Record], found: Sequence[str], file: str) -> Iterator[str]:
    """Yield what was done to the records of a member: changed, removed, added, moved."""
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
    """The length of the common beginning."""
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
