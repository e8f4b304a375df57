"""A span, and where it stands in its trace: ids that anybody finds again who knows the same facts.

A trace belongs to a turn, and its ids are digests: of the turn's id and its first run, of a call, of an event's number.
So whoever finishes a turn tells the same spans as whoever began it would have, and one that is told twice is one span.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

Attributes = Mapping[str, str | int | bool]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class SpanPlace(NamedTuple):
    """A span's own place: which trace, and which of its spans."""

    trace: str
    span: str

    def derive_place(self, *words: object) -> SpanPlace:
        """The place of a span within this one, by what makes it itself."""
        return SpanPlace(self.trace, _digest_words(self.trace, self.span, *words)[:16])

    def __str__(self) -> str:
        """As W3C's `traceparent` writes it."""
        return f"00-{self.trace}-{self.span}-01"


@dataclass(frozen=True)
class Span:
    """Something that took its time."""

    name: str
    place: SpanPlace
    start: datetime
    end: datetime
    parent: SpanPlace | None = None
    attributes: Attributes = field(default_factory=dict)
    failed: bool = False
    links: tuple[SpanPlace, ...] = ()


def derive_root_place(workflow_id: str, first_run: str, parent: SpanPlace | None = None) -> SpanPlace:
    """The place of a turn's or a session's own span; in the trace of whoever started it, if that told of one."""
    found = _digest_words("holdfast", workflow_id, first_run)
    return SpanPlace(parent.trace if parent else found[:32], found[32:48])


def parse_place(text: object) -> SpanPlace | None:
    """What a `traceparent` says; None when it says nothing."""
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanPlace(found[1], found[2])


def _digest_words(*words: object) -> str:
    return hashlib.sha256("\0".join(map(str, words)).encode("utf-8", "surrogatepass")).hexdigest()
