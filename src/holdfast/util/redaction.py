"""Words of others in our logs: of tools, servers, people and their requests. They are written where that is allowed.

    _LOGGER.warning("What call %s left is still there: %s", call_id, Words(error))

A handler of somebody else's, who uses Holdfast as a library, sees as little as our own.
"""

from __future__ import annotations

WITHHELD = "(withheld: telemetry.content)"


class _LogContent:
    content = False


def allow_content(allowed: bool) -> None:
    """From now on, such words are written in this process, or are not."""
    _LogContent.content = allowed


def is_content_allowed() -> bool:
    """Are they?"""
    return _LogContent.content


class Redacted:
    """What somebody or something else said. Of an exception its type is told in any case, and `known` of the rest."""

    def __init__(self, text: object, known: str = "") -> None:
        self._said = text
        self._known = known or (type(text).__name__ if isinstance(text, BaseException) else "")

    def __str__(self) -> str:
        if is_content_allowed():
            said = str(self._said)
            return f"{self._known}: {said}" if isinstance(self._said, BaseException) else said
        return self._known or WITHHELD

    __repr__ = __str__
