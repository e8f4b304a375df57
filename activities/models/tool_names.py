"""Tools as a model knows them: providers take letters, digits, `_` and `-`, and 64 of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

NAME_LIMIT = 64
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """Our names and a model's, one for one. A name that it can say is left as it is."""

    def __init__(self, names: Iterable[str]) -> None:
        ours = sorted(set(names))
        self._model_names = {name: name for name in ours if _is_valid_name(name)}
        self._model_names |= {name: _build_valid_name(name) for name in ours if not _is_valid_name(name)}
        self._own_names = {theirs: name for name, theirs in self._model_names.items()}

    def to_model_name(self, name: str) -> str:
        """What a model calls a tool of ours. It may have called one that there is not: that gets a name it can say."""
        return self._model_names.get(name) or (name if _is_valid_name(name) else _build_valid_name(name))

    def from_model_name(self, name: str) -> str:
        """What we call a tool of theirs; one that there is not keeps its name."""
        return self._own_names.get(name, name)


def _is_valid_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LIMIT and _INVALID_CHARACTER.search(name) is None


def _build_valid_name(name: str) -> str:
    """With a digest, so that no two names become the same."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_INVALID_CHARACTER.sub('_', name)[: NAME_LIMIT - 9]}_{digest}"
