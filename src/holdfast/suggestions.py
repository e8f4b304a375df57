"""Did you mean …? Names that are close to one that nobody has."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

MOST = 3
SIMILAR = 0.5
NAME_LIMIT = 200
"""Characters of a name that are compared: nobody means a longer one."""


def suggest(name: str, names: Iterable[str], most: int = MOST) -> list[str]:
    """Up to three of `names` that are close to `name`, the closest first."""
    scorer = DamerauLevenshtein.normalized_similarity
    found = process.extract(name[:NAME_LIMIT], list(names), scorer=scorer, score_cutoff=SIMILAR, limit=most)
    return [match for match, _, _ in found]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question to put behind an error; empty when nothing is close."""
    found = " or ".join(f'"{near}"' for near in suggest(name, names))
    return f"Did you mean {found}?" if found else ""
