"""Bytes on their way to lines, of which none takes more room than a message may."""

from __future__ import annotations

from holdfast.activities.mcp.messages import END_KEPT, MESSAGE_LIMIT, find_answered_id


class LineBuffer:
    """Bytes on their way to lines. Of a line that is too long only the two ends are kept."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._dropped = False

    def add_data(self, data: bytes) -> list[bytes | OversizedLine]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | OversizedLine] = []
        for piece in ended:
            self._add_piece(piece)
            found.append(OversizedLine(bytes(self._held)) if self._dropped else bytes(self._held))
            self._held.clear()
            self._dropped = False
        self._add_piece(rest)
        return found

    def _add_piece(self, piece: bytes) -> None:
        self._held += piece
        if self._dropped or len(self._held) > self._limit:
            self._dropped = True
            del self._held[END_KEPT:-END_KEPT]


class OversizedLine(bytes):
    """The two ends of a line that was too long."""

    @property
    def id(self) -> int | None:
        """The request that it answered, if that can be told."""
        return find_answered_id(self)
