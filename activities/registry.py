"""The catalogue of tools a worker has. Names are unique: a second tool of the same name is refused, not merged."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import process
from rapidfuzz.distance import DamerauLevenshtein

from holdfast.errors import BadInput
from holdfast.tools import Declaration, Tool

SUGGESTIONS = 3
SIMILAR = 0.5


class Registry:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Take a tool in; BadInput when its name is taken."""
        if tool.name in self._tools:
            other = type(self._tools[tool.name]).__qualname__
            raise BadInput(f"two tools are called {tool.name!r} ({other} and {type(tool).__qualname__}): rename one")
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        """The tool with this name."""
        return self._tools.get(name)

    def declarations(self) -> list[Declaration]:
        """What every tool says of itself, by name."""
        return [tool.declaration() for _, tool in sorted(self._tools.items())]

    def suggest(self, name: str) -> list[str]:
        """Up to three names that are close to a name nobody has (S5)."""
        scorer = DamerauLevenshtein.normalized_similarity
        found = process.extract(name[:200], list(self._tools), scorer=scorer, score_cutoff=SIMILAR, limit=SUGGESTIONS)
        return [match for match, _, _ in found]
