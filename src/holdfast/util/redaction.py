"""Text from tools, servers and users in logs. It is written only if `telemetry.content` allows that.

    _LOGGER.warning("Cannot clean up after call %s: %s", call_id, Redacted(error))

The log handlers of an application that uses Holdfast as a library get the redacted text too.
"""

from __future__ import annotations

WITHHELD = "(withheld: telemetry.content)"


class _LogContent:
    content = False


def allow_content(allowed: bool) -> None:
    """Set whether this process writes such text to its logs."""
    _LogContent.content = allowed


def is_content_allowed() -> bool:
    """May this process write such text to its logs?"""
    return _LogContent.content


class Redacted:
    """A text for a log line. Where content is not allowed, `known` is written instead, for an exception its type."""

    def __init__(self, text: object, known: str = "") -> None:
        self._text = text
        self._known = known or (type(text).__name__ if isinstance(text, BaseException) else "")

    def __str__(self) -> str:
        if is_content_allowed():
            text = str(self._text)
            return f"{self._known}: {text}" if isinstance(self._text, BaseException) else text
        return self._known or WITHHELD

    __repr__ = __str__
