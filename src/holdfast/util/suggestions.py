"""Did you mean …? Names that are close to one that nobody has."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

MAX_SUGGESTIONS = 3
MIN_SIMILARITY = 0.5
NAME_LIMIT = 200
"""Characters of a name that are compared: nobody means a longer one."""


def suggest_names(
    name: str, names: Iterable[str], most: int = MAX_SUGGESTIONS, *, similar: float = MIN_SIMILARITY
) -> list[str]:
    """Up to three of `names` that are close to `name`, the closest first. `similar`: 1 for the same, 0 for nothing."""
    scorer = DamerauLevenshtein.normalized_similarity
    known = list(names)
    found = process.extract(name[:NAME_LIMIT], known, scorer=scorer, score_cutoff=similar, limit=most)
    near = [match for match, _, _ in found]
    longer = [other for other in known if len(name) > 2 and other.startswith(name) and other not in near]
    return [*near, *longer][:most]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question to put behind an error; empty when nothing is close."""
    found = " or ".join(f'"{near}"' for near in suggest_names(name, names))
    return f"Did you mean {found}?" if found else ""
