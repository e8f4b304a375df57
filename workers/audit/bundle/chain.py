"""The chain of a bundle: a line for each record, and each line's link is over itself and the link before it.

A record is a line of a member (an event of a history, a decision) or a whole member (a payload, an output, a
definition). Whoever changes, removes, adds or moves one has to write every link after it anew, and the last one, the
head, is what the manifest and its signature are about. Pure: nothing here reads a file.

Why: docs/decisions/0026-audit-from-the-history.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.util.json_values import encode_canonical

FIRST_LINK = "0" * 64
"""The link before the first."""


@dataclass(frozen=True)
class Record:
    """One line of the chain."""

    kind: str
    file: str
    about: str
    """What it is, for whoever hears that it was changed."""
    sha256: str
    line: int | None = None
    """Of the member, from 1; None for all of it."""

    def as_json(self, number: int) -> dict[str, Any]:
        """What its link is over, beside the link before."""
        said = {"n": number, "kind": self.kind, "file": self.file, "about": self.about, "sha256": self.sha256}
        return said if self.line is None else {**said, "line": self.line}


@dataclass(frozen=True)
class Link:
    """A record as a bundle has it."""

    number: int
    record: Record
    link: str


def digest_bytes(data: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()


def build_link(before: str, number: int, record: Record) -> str:
    """The link of a record that comes after another."""
    return digest_bytes(before.encode() + b"\n" + encode_canonical(record.as_json(number)))


class Chain:
    """A chain that grows."""

    def __init__(self) -> None:
        self.head = FIRST_LINK
        self.length = 0
        self._lines: list[bytes] = []

    def add(self, record: Record) -> None:
        """One record more."""
        self.length += 1
        self.head = build_link(self.head, self.length, record)
        self._lines.append(encode_canonical({**record.as_json(self.length), "link": self.head}))

    def encode_lines(self) -> bytes:
        """As a member of the bundle."""
        return b"".join(line + b"\n" for line in self._lines)


def read_chain(lines: Iterable[bytes]) -> Iterator[Link | str]:
    """Every line as a link, or what is wrong with it."""
    for place, line in enumerate(lines, start=1):
        try:
            link = _parse_link(line)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield f"changed: line {place} of the chain cannot be read"
            continue
        exact = encode_canonical({**link.record.as_json(link.number), "link": link.link}) == line
        yield link if exact else f"changed: line {place} of the chain is not written as it was"


def _parse_link(line: bytes) -> Link:
    said = json.loads(line)
    number, place, texts = said.pop("n"), said.pop("line", None), [said.pop(name) for name in _TEXT_FIELDS]
    if (
        said
        or type(number) is not int
        or type(place) not in (int, type(None))
        or not all(type(x) is str for x in texts)
    ):
        raise TypeError("not a record")
    kind, file, about, sha256, link = texts
    return Link(number, Record(kind, file, about, sha256, place), link)


_TEXT_FIELDS = ("kind", "file", "about", "sha256", "link")


def find_chain_problems(links: Iterable[Link]) -> Iterator[str]:
    """What was done to the chain itself, at the places where it was done."""
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
