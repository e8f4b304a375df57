"""The rules of a .gitignore file: which paths they ignore, exactly as git reads them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.util.globs import PatternError, Pieces, compile_name, compile_path, is_match


class IgnoreRules:
    """The rules of one file."""

    def __init__(self, text: str) -> None:
        rules = [_parse_rule(line) for line in text.removeprefix("\ufeff").split("\n")]
        self._rules = tuple(rule for rule in reversed(rules) if rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find_verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Is `path`, relative to the folder of the file, ignored? None when no rule matches it.

        Not to be asked about anything in an ignored folder: that is ignored, whatever the rules say.
        """
        for rule in self._rules:
            if rule.matches(path, is_folder=is_folder):
                return not rule.negated
        return None


@dataclass(frozen=True)
class _IgnoreRule:
    negated: bool
    folders_only: bool
    name: Callable[[str], bool] | None
    """The test of a rule for names in every folder."""
    start: str = ""
    rest: Pieces[str] = ()
    """Git compares what is before the first wildcard literally, and splits only the rest into names: `a/b**` matches
    across folders."""

    def matches(self, path: str, *, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if self.name:
            return self.name(path[path.rfind("/") + 1 :])
        return path.startswith(self.start) and is_match(self.rest, path[len(self.start) :].split("/"))


def _parse_rule(line: str) -> _IgnoreRule | None:
    """The rule in a line; None for a comment, a blank line, or a pattern that git cannot read."""
    if line.startswith("#"):
        return None
    line = _strip_spaces(line.removesuffix("\r"))
    pattern = line.removeprefix("!")
    negated = pattern != line
    body = pattern.removesuffix("/")
    if not body:
        return None
    try:
        return _build_rule(body, negated=negated, folders_only=body != pattern)
    except PatternError:
        return None


def _build_rule(body: str, *, negated: bool, folders_only: bool) -> _IgnoreRule:
    if "/" not in body:
        return _IgnoreRule(negated, folders_only, compile_name(body))
    body = body.removeprefix("/")
    wild = next((index for index, character in enumerate(body) if character in "*?[\\"), len(body))
    return _IgnoreRule(negated, folders_only, None, body[:wild], compile_path(body[wild:]))


def _strip_spaces(line: str) -> str:
    """The line without blanks at its end, save an escaped one."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and bare != line else bare
