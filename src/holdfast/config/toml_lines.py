"""The line numbers of values in a TOML text, which `tomllib` does not report.

A scanner for text that `tomllib` has parsed: it follows headers, keys, arrays and inline tables, and checks nothing.
One pass finds all paths. In text that is not TOML it stops at the first error, and returns what it has found so far.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from contextlib import suppress

Steps = tuple[str | int, ...]
"""The path of a value: keys, and places in arrays counted from 0."""

_GAP = re.compile(r"[ \t\n]*(?:#[^\n]*[ \t\n]*)*")
_PART = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"'.=\[\]{},#]+)"""
_KEY = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*")
_TEXT = r'''"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\\n]|\\.)*"'''
_LITERAL = r"""'''.*?'{3,5}|'[^'\n]*'"""
_SCALAR = re.compile(rf"{_TEXT}|{_LITERAL}|[^,\]}}\n#]+", re.DOTALL)


def find_lines(text: str, paths: Iterable[Steps]) -> dict[Steps, int]:
    """Find the line on which each path begins; for a missing path, that of its nearest ancestor."""
    wanted = dict.fromkeys(paths)
    found = _Scanner(text, {path[:depth] for path in wanted for depth in range(len(path) + 1)}).scan()
    return {path: _find_nearest(found, path) for path in wanted}


def _find_nearest(found: dict[Steps, int], path: Steps) -> int:
    while path and path not in found:
        path = path[:-1]
    return found.get(path, 1)


class _NotToml(Exception):
    """The text is not TOML."""


class _Scanner:
    """The position in the text, and the lines of the wanted paths so far."""

    def __init__(self, text: str, wanted: set[Steps]) -> None:
        self._text = text.replace("\r\n", "\n")
        self._wanted = wanted
        self._depth = max(map(len, wanted), default=0)
        self._at = self._counted = 0
        self._line = 1
        self._found: dict[Steps, int] = {}
        self._lengths: dict[Steps, int] = {}
        """The lengths of arrays of tables so far."""

    def scan(self) -> dict[Steps, int]:
        with suppress(_NotToml, RecursionError):
            table: Steps = ()
            while self._skip_blanks():
                if self._take_mark("[["):
                    table = self._scan_header(array=True)
                elif self._take_mark("["):
                    table = self._scan_header(array=False)
                else:
                    self._scan_pair(table)
        return self._found

    def _scan_header(self, *, array: bool) -> Steps:
        self._skip_blanks()
        keys = self._scan_key()
        path: Steps = ()
        for place, key in enumerate(keys, start=1):
            path = self._note_step(path, key)
            if array and place == len(keys):
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                path = self._note_step(path, self._lengths[path] - 1)
        self._need_mark("]")
        if array:
            self._need_mark("]")
        return path

    def _scan_pair(self, table: Steps) -> None:
        path = table
        for key in self._scan_key():
            path = self._note_step(path, key)
        self._need_mark("=")
        self._scan_value(path)

    def _scan_value(self, path: Steps) -> None:
        self._skip_blanks()
        if self._take_mark("["):
            self._scan_array(path)
        elif self._take_mark("{"):
            self._scan_inline_table(path)
        else:
            self._match_pattern(_SCALAR)

    def _scan_array(self, path: Steps) -> None:
        place = 0
        while not self._take_end("]"):
            self._scan_value(self._note_step(path, place))
            place += 1
            self._take_separator("]")

    def _scan_inline_table(self, path: Steps) -> None:
        while not self._take_end("}"):
            self._scan_pair(path)
            self._take_separator("}")

    def _scan_key(self) -> list[str]:
        raw = self._match_pattern(_KEY)
        if '"' not in raw and "'" not in raw:
            return [part.strip() for part in raw.split(".")]
        keys: list[str] = []
        try:
            value: object = tomllib.loads(f"{raw} = 0")
        except ValueError:
            raise _NotToml from None
        while isinstance(value, dict):
            [(key, value)] = value.items()
            keys.append(key)
        return keys

    def _note_step(self, parent: Steps, step: str | int) -> Steps:
        """Extend the path by a step, and record its line if it is wanted and new. No deeper than any wanted path."""
        if len(parent) > self._depth:
            return parent
        path = (*parent, step)
        if path in self._wanted and path not in self._found:
            self._line += self._text.count("\n", self._counted, self._at)
            self._counted = self._at
            self._found[path] = self._line
        return path

    def _skip_blanks(self) -> str:
        """Skip blanks and comments. Returns the character that follows, empty at the end."""
        gap = _GAP.match(self._text, self._at)
        assert gap
        self._at = gap.end()
        return self._text[self._at : self._at + 1]

    def _match_pattern(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if not found:
            raise _NotToml
        self._at = found.end()
        return found[0]

    def _take_mark(self, mark: str) -> bool:
        taken = self._text.startswith(mark, self._at)
        self._at += len(mark) if taken else 0
        return taken

    def _need_mark(self, mark: str) -> None:
        self._skip_blanks()
        if not self._take_mark(mark):
            raise _NotToml

    def _take_end(self, mark: str) -> bool:
        if not self._skip_blanks():
            raise _NotToml
        return self._take_mark(mark)

    def _take_separator(self, end: str) -> None:
        if self._skip_blanks() != end:
            self._need_mark(",")
