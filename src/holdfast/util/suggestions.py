"""Known names that are close to an unknown one: `Did you mean …?`"""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

MAX_SUGGESTIONS = 3
MIN_SIMILARITY = 0.5
NAME_LIMIT = 200
"""Characters of a name that are compared."""


def suggest_names(
    name: str, names: Iterable[str], most: int = MAX_SUGGESTIONS, *, similar: float = MIN_SIMILARITY
) -> list[str]:
    """Up to `most` of the `names` that are close to `name`, the closest first. `similar` is between 0 and 1."""
    scorer = DamerauLevenshtein.normalized_similarity
    known = list(names)
    found = process.extract(name[:NAME_LIMIT], known, scorer=scorer, score_cutoff=similar, limit=most)
    near = [match for match, _, _ in found]
    longer = [other for other in known if len(name) > 2 and other.startswith(name) and other not in near]
    return [*near, *longer][:most]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The question to append to an error; empty when no name is close."""
    found = " or ".join(f'"{near}"' for near in suggest_names(name, names))
    return f"Did you mean {found}?" if found else ""
