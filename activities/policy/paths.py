"""Paths of a call against those of a rule."""

from __future__ import annotations

import re

from holdfast.activities.files.patterns import PathPattern
from holdfast.activities.policy.subjects import is_inside

_CHILD = "\N{REPLACEMENT CHARACTER}"
"""A name that no pattern spells out."""
_PLAIN = re.compile(r"[^*?\[{\\]*")


class PathTest:
    """One pattern of a rule."""

    def __init__(self, pattern: str) -> None:
        self._pattern = PathPattern(pattern)
        self._inside = is_inside(pattern)
        start = _PLAIN.match(pattern)
        self._start = start[0] if start else ""
        """What every path that is meant begins with: most patterns of a large policy are about other folders."""

    def covers_path(self, path: str) -> bool:
        """Is the path meant? What is outside the workspace only by a pattern that says so."""
        return path.startswith(self._start) and self._inside == is_inside(path) and self._pattern.matches(path)

    def touches_path(self, path: str, child: str) -> bool:
        """Is the path meant, or, if it is a folder, everything in it? `child` stands for that."""
        if not (child.startswith(self._start) or path == self._start):
            return False
        return self._pattern.matches(path) or self._pattern.matches(child)


def is_one_file(pattern: str) -> bool:
    """Does a pattern name one file, and no other?"""
    return _PLAIN.fullmatch(pattern) is not None


def build_child_path(path: str) -> str:
    """Something in a folder."""
    return _CHILD if path == "." else f"{path.rstrip('/')}/{_CHILD}"
