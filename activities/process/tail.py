"""The end of a growing text."""

from __future__ import annotations


class Tail:
    """The end of a growing text. Adding to it is cheap, however small the pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._held = 0
        self.total = 0

    def add(self, text: str) -> None:
        """Add to the end."""
        self._pieces.append(text[-self._limit :])
        self._held += len(self._pieces[-1])
        self.total += len(text)
        if self._held > 2 * self._limit or len(self._pieces) > 10_000:
            self._pieces = [self.text]
            self._held = len(self._pieces[0])

    @property
    def text(self) -> str:
        """The last characters, as many as are kept."""
        return "".join(self._pieces)[-self._limit :]
