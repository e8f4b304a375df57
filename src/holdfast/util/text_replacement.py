"""Replacing text in a file, as the tool `edit` does: applied to a content, and derived from an edited one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from pydantic import JsonValue

WHOLE_LIMIT = 100_000
"""Characters of a file that is shown whole to a person who edits the call; of a longer one, only the new text."""


def fit_line_endings(content: bytes, old_text: str, new_text: str) -> tuple[bytes, bytes]:
    """Both texts as bytes, with the line endings of the file unless they hold carriage returns themselves."""
    old, new = (text.encode("utf-8", "surrogatepass") for text in (old_text, new_text))
    returns, newlines = content.count(b"\r\n"), content.count(b"\n")
    if b"\r" in old + new or returns == 0 or (returns < newlines and old in content):
        return old, new
    return old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")


def apply_replacement(current: str, arguments: Mapping[str, JsonValue]) -> str:
    """The content of a file after a call of `edit` with these arguments."""
    content = current.encode()
    old, new = fit_line_endings(content, str(arguments["old_text"]), str(arguments["new_text"]))
    return content.replace(old, new).decode("utf-8", "replace")


def find_replacement(current: str, wanted: str) -> dict[str, JsonValue]:
    """The arguments of `edit` that turn `current` into `wanted`: whole lines, as few as occur exactly once.

    They do not apply any more when the file changes meanwhile.
    """
    old, new = current.splitlines(keepends=True), wanted.splitlines(keepends=True)
    pairs = list(zip(old, new, strict=False))
    before = len(list(takewhile(_is_alike, pairs)))
    rest = zip(old[before:][::-1], new[before:][::-1], strict=False)
    after = len(list(takewhile(_is_alike, rest)))
    while True:
        piece = "".join(old[before : len(old) - after])
        start = sum(map(len, old[:before]))
        once = bool(piece) and current.find(piece) == start and current.find(piece, start + 1) < 0
        if once or not before + after:
            break
        before, after = max(0, before - 1), max(0, after - 1)
    return {"old_text": piece, "new_text": "".join(new[before : len(new) - after]), "expected_count": 1}


def _is_alike(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]
