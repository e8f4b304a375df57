"""Yes, no, or perhaps: what is said of a call of which not everything is known before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Truth(IntEnum):
    """Ordered, so that `min` is "and" and `max` is "or"."""

    NO = 0
    MAYBE = 1
    YES = 2


def to_truth(value: bool) -> Truth:
    """What is certain."""
    return Truth.YES if value else Truth.NO


def combine_all(values: Iterable[Truth]) -> Truth:
    """Of all of them. Of none it is NO: nothing was shown to be covered."""
    return min(values, default=Truth.NO)


def combine_any(values: Iterable[Truth]) -> Truth:
    """Of at least one of them."""
    return max(values, default=Truth.NO)
