"""Words of others in our logs: of tools, servers, people and their requests. They are written where that is allowed.

    _LOGGER.warning("The result of call %s is not kept: %s", call_id, Words(error))

A handler of somebody else's, who uses Holdfast as a library, sees as little as our own.
"""

from __future__ import annotations

WITHHELD = "(withheld: see telemetry.content)"


class _Allowed:
    content = False


def allow_content(allowed: bool) -> None:
    """From now on, such words are written in this process, or are not."""
    _Allowed.content = allowed


def content_allowed() -> bool:
    """Are they?"""
    return _Allowed.content


class Words:
    """What somebody or something else said; an exception is told by its type at least."""

    def __init__(self, said: object) -> None:
        self._said = said

    def __str__(self) -> str:
        said = self._said
        if isinstance(said, BaseException):
            kind = type(said).__name__
            return f"{kind}: {said}" if content_allowed() else kind
        return str(said) if content_allowed() else WITHHELD

    __repr__ = __str__
