"""The values of one server that nobody is told: wherever the server repeats one, its name stands instead.

Everything that a server says passes through here before anything else is done with it, being cut above all: of a
secret that was cut in two, neither half would be known again. What it is found in is in `disguises`, which values are
secret in `detect`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from pydantic import JsonValue

from holdfast.activities.mcp.secrets.encodings import LONGEST_WORD, SHORTEST_SECRET, Disguise, list_disguises
from holdfast.util.text import has_invisible, strip_controls

UNCUT = sys.maxsize
"""As the limit of what is cut once it is without secrets."""
LATER_LIMIT = 20
"""How many that came later are remembered."""
_SPLITTING = ("\\u00", "\\b", "\\f")
"""What JSON writes for characters that nobody sees."""


class Secret(NamedTuple):
    """A value that nobody is told, and what stands for it."""

    name: str
    value: str
    line: bool = False
    """One of several of another secret, as which it is found in base64."""


class _Needle(NamedTuple):
    """What is looked for, and the secret in one of its disguises that is there if it is."""

    text: str
    name: str
    disguise: Disguise


class _Span(NamedTuple):
    """Where something is in a text, and what stands for it."""

    start: int
    end: int
    name: str


class Secrets:
    """The values of one server that nobody is told."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._given = _drop_duplicates(secrets)
        self._later: list[Secret] = []
        self._needles_by_secret: dict[Secret, list[_Needle]] = {}
        self._build_needles()

    def add(self, secrets: Iterable[Secret]) -> None:
        """Such as came later: tokens, which change. The last of them are remembered, old ones too."""
        known = {one.value for one in self._needles_by_secret}
        new = [one for one in _drop_duplicates(secrets) if len(one.value) >= SHORTEST_SECRET and one.value not in known]
        if new:
            self._later = [*self._later, *new][-LATER_LIMIT:]
            self._build_needles()

    def _build_needles(self) -> None:
        known = [*self._given, *self._later]
        self._needles_by_secret = {one: self._needles_by_secret.get(one) or _list_needles(one) for one in known}
        self._needles = [each for one in known for each in self._needles_by_secret[one]]

    def hide(self, text: str, *, cut: bool = False) -> str:
        """A text with names in the place of secrets. One that was `cut` may be a piece of one, or begin or end so."""
        shown = self._cover_text(text, self._needles, cut=cut)
        if not self._needles or not has_invisible(shown):
            return shown
        bare = strip_controls(shown)  # in the middle of a secret it would keep that from being found
        covered = self._cover_text(bare, self._needles, cut=cut)
        return shown if covered == bare else covered

    def hide_value(self, value: JsonValue) -> JsonValue:
        """The same for everything in a value."""
        if not self._needles:
            return value
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (ValueError, RecursionError):  # a number that is too long, or too many levels
            return _walk_value(value, cache(self.hide))
        if has_invisible(text) or any(one in text for one in _SPLITTING):
            return _walk_value(value, cache(self.hide))
        found = [one for one in self._needles if one.text in text]
        return _walk_value(value, cache(lambda text: self._cover_text(text, found))) if found else value

    def hide_bytes(self, data: bytes) -> bytes:
        """The same for bytes, be they a text or not."""
        try:
            text, encoding = data.decode(), "utf-8"
        except UnicodeDecodeError:
            text, encoding = data.decode("latin-1"), "latin-1"
        shown = self._cover_text(text, self._needles)
        return data if shown == text else shown.encode(encoding, "replace")

    def _cover_text(self, text: str, needles: Sequence[_Needle], *, cut: bool = False) -> str:
        found = {id(one.disguise): one for one in needles if one.text in text}
        spans = [
            _Span(*match.span(), one.name) for one in found.values() for match in one.disguise.pattern.finditer(text)
        ]
        if cut:
            each = {id(one.disguise): one for one in needles}.values()
            spans += [span for one in each for span in _find_cut_spans(text, one.name, one.disguise.written)]
        return _replace_spans(text, spans) if spans else text


def _drop_duplicates(secrets: Iterable[Secret]) -> list[Secret]:
    """One of each value, the first. Blanks around one are not what is secret about it."""
    found: dict[str, Secret] = {}
    for one in secrets:
        if value := one.value.strip():
            found.setdefault(value, one._replace(value=value))
    return list(found.values())


def _list_needles(secret: Secret) -> list[_Needle]:
    disguises = list_disguises(secret.value)
    return [
        _Needle(text, secret.name, one) for one in (disguises[:1] if secret.line else disguises) for text in one.needles
    ]


def _walk_value(value: JsonValue, hide: Callable[[str], str]) -> JsonValue:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_walk_value(item, hide) for item in value]
    if isinstance(value, dict):
        return {hide(key): _walk_value(item, hide) for key, item in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = _format_number(value)
        return value if (shown := hide(text)) == text else shown
    return value


def _format_number(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # too long to be any of ours
        return ""


def _find_cut_spans(text: str, name: str, written: str) -> Iterator[_Span]:
    """What a text has of a secret that was cut: half of it at either end, or as much as is known again.

    Not of an address, which begins like many others: what is secret in it is known by itself.
    """
    if "://" in written:
        return
    least = min(SHORTEST_SECRET, max(SHORTEST_SECRET // 2, len(written) // 2))
    at_end = _measure_overlap(text[-len(written) :], written, least)
    at_begin = _measure_overlap(text[: len(written)][::-1], written[::-1], least)
    within = len(text) if len(text) >= SHORTEST_SECRET and text in written else 0
    for start, end in ((len(text) - at_end, len(text)), (0, at_begin), (0, within)):
        if start < end and not (text[start:end].isalpha() and end - start <= LONGEST_WORD):
            yield _Span(start, end, name)


def _measure_overlap(text: str, value: str, least: int) -> int:
    """With how many characters of a value's begin a text ends."""
    at = text.find(value[:least])
    while at >= 0 and not value.startswith(text[at:]):
        at = text.find(value[:least], at + 1)
    return len(text) - at if at >= 0 else 0


def _replace_spans(text: str, spans: Iterable[_Span]) -> str:
    """A text with names in the place of what is there. Where several overlap, all of it goes by the first's name."""
    made: list[str] = []
    done = 0
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if span.start >= done:
            made += [text[done : span.start], f"[{span.name}]"]
        done = max(done, span.end)
    return "".join([*made, text[done:]])
