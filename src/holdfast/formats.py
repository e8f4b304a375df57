"""Formats that a form may want of a text: a date, a moment, a mail address, an address.

As strict as helps whoever types: what is plainly something else is refused, and the server has the last word. Every
pattern is linear, as the check is part of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, time
from typing import NamedTuple

MAIL_LIMIT = 254
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}"
_MOMENT = re.compile(rf"({_DATE})[Tt]({_CLOCK}):([0-9]{{2}})(?:\.[0-9]+)?(?:[Zz]|[+-]({_CLOCK}))")
_LABEL = r"[^\W_](?:[^\W_]|-)*"
_MAIL = re.compile(rf"[^\s@.,:;<>()\[\]\\\"]+(?:\.[^\s@.,:;<>()\[\]\\\"]+)*@{_LABEL}(?:\.{_LABEL})+")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):([^\x00-\x20\x7f\s<>\"{}|\\^`]+)")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"//(?:[^/?#@]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::[0-9]{0,5})?(?:[/?#].*)?")
_WEB = ("http", "https", "ws", "wss", "ftp")
"""Schemes of addresses that name a host."""


class Format(NamedTuple):
    """What a text is to be."""

    words: str
    """With an example."""
    fits: Callable[[str], bool]


def _is_date(text: str) -> bool:
    if not re.fullmatch(_DATE, text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_moment(text: str) -> bool:
    found = _MOMENT.fullmatch(text)
    if found is None or not _is_date(found[1]):
        return False
    try:
        time.fromisoformat(found[2])
        time.fromisoformat(found[4] or "00:00")
    except ValueError:
        return False
    return int(found[3]) <= 60  # a leap second is one


def _is_mail(text: str) -> bool:
    if len(text) > MAIL_LIMIT or not _MAIL.fullmatch(text):
        return False
    return not any(label.endswith("-") for label in text.rpartition("@")[2].split("."))


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    if found is None or _BAD_ESCAPE.search(text):
        return False
    return found[1].lower() not in _WEB or _HOST.fullmatch(found[2]) is not None


FORMATS = {
    "date": Format("a date, as 2026-05-31", _is_date),
    "date-time": Format("a date with its time and zone, as 2026-05-31T14:30:00Z", _is_moment),
    "email": Format("a mail address, as ana@example.org", _is_mail),
    "uri": Format("an address, as https://example.org/page", _is_address),
}
"""Those that forms may name. Others are not looked at."""
