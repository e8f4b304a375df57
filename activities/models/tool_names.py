"""Tools as a model knows them: providers take letters, digits, `_` and `-`, and 64 of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

LIMIT = 64
_OTHERS = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """Our names and a model's, one for one. A name that it can say is left as it is."""

    def __init__(self, names: Iterable[str]) -> None:
        ours = sorted(set(names))
        self._theirs = {name: name for name in ours if _sayable(name)}
        self._theirs |= {name: _said(name) for name in ours if not _sayable(name)}
        self._ours = {theirs: name for name, theirs in self._theirs.items()}

    def theirs(self, name: str) -> str:
        """What a model calls a tool of ours. It may have called one that there is not: that gets a name it can say."""
        return self._theirs.get(name) or (name if _sayable(name) else _said(name))

    def ours(self, name: str) -> str:
        """What we call a tool of theirs; one that there is not keeps its name."""
        return self._ours.get(name, name)


def _sayable(name: str) -> bool:
    return 0 < len(name) <= LIMIT and _OTHERS.search(name) is None


def _said(name: str) -> str:
    """With a digest, so that no two names become the same."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_OTHERS.sub('_', name)[: LIMIT - 9]}_{digest}"
