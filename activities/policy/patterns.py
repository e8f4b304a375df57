"""Compares values, paths and hosts of a call with those of a rule.

Every entry of a table in a rule must hold; further entries of the call may be anything. Regular
expressions run on an engine that is linear in the length of the text, which a model chose. Hosts are normalised:
`EXAMPLE.com.` is `example.com`, and `2130706433` is `127.0.0.1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs
from pydantic import JsonValue

from holdfast.activities.policy.subject import Truth, is_inside, to_truth
from holdfast.util.globs import PathPattern

PATTERN_LIMIT = 2_000
"""Characters of a regular expression."""
MAX_DEPTH = 20
"""Levels of nested tables."""
_ABSENT = object()


class Expression:
    """A regular expression for a whole text. ValueError when it cannot be compiled."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LIMIT:
            raise ValueError(f"is over {PATTERN_LIMIT:,} characters")
        _compile_pattern(pattern)  # alone first: a surplus bracket must not close the group below
        self._validator = _compile_pattern(f"^(?:{pattern})$")

    def matches(self, text: str) -> Truth:
        """Does it match? MAYBE for a text with lone surrogates."""
        try:
            return to_truth(self._validator.is_valid(text))
        except ValueError:
            return Truth.MAYBE


def _compile_pattern(pattern: str) -> jsonschema_rs.Validator:
    schema = {"type": "string", "pattern": pattern}
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        raise ValueError(
            "is not a regular expression that can be used: mind brackets, and leave out look-around and references"
        ) from None


def compare_arguments(
    wanted: Mapping[str, Any], given: Mapping[str, JsonValue], test: Callable[[Any, Any], Truth]
) -> Truth:
    """Do all entries of a rule's table hold of the arguments? `test` compares values that are no tables."""
    found = Truth.YES
    for name, value in wanted.items():
        there: Any = given.get(name, _ABSENT)
        if isinstance(value, Mapping):
            found = min(found, compare_arguments(value, there, test) if isinstance(there, dict) else Truth.NO)
        else:
            found = min(found, test(value, there) if there is not _ABSENT else Truth.NO)
        if found is Truth.NO:
            return found
    return found


def compare_values(wanted: JsonValue, given: Any) -> Truth:
    """Are these the same JSON value? `1` is `1.0`, but not `true`."""
    return to_truth(_is_same(wanted, given))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    return bool(one == other)


def explain_unfit_value(value: Any, depth: int = MAX_DEPTH) -> str | None:
    """Explain why no argument can equal this value of a TOML file; None when one can."""
    if depth == 0:
        return "is nested too deeply"
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return next(filter(None, (explain_unfit_value(one, depth - 1) for one in inner)), None)
    if isinstance(value, float) and not math.isfinite(value):
        return "holds a number that JSON cannot say"
    return None if isinstance(value, str | int | float) else "holds a date or time, and an argument is never one"


_CHILD = "\N{REPLACEMENT CHARACTER}"
"""A name that no pattern spells out, for a file in a folder."""
_PLAIN = re.compile(r"[^*?\[{\\]*")


class PathTest:
    """A path pattern of a rule."""

    def __init__(self, pattern: str) -> None:
        self._pattern = PathPattern(pattern)
        self._inside = is_inside(pattern)
        start = _PLAIN.match(pattern)
        self._start = start[0] if start else ""
        """The text that every match begins with: it rules out most patterns of a large policy."""

    def covers_path(self, path: str) -> bool:
        """Does it match this path? Only a pattern that leads outside matches a path outside of the workspace."""
        return path.startswith(self._start) and self._inside == is_inside(path) and self._pattern.matches(path)

    def touches_path(self, path: str, child: str) -> bool:
        """Does it match this path or `child`, which stands for everything in it?"""
        if not (child.startswith(self._start) or path == self._start):
            return False
        return self._pattern.matches(path) or self._pattern.matches(child)


def is_one_file(pattern: str) -> bool:
    """Does a pattern match exactly one path?"""
    return _PLAIN.fullmatch(pattern) is not None


def build_child_path(path: str) -> str:
    """A path in a folder that stands for everything in it."""
    return _CHILD if path == "." else f"{path.rstrip('/')}/{_CHILD}"


ANY_HOST, BELOW_PREFIX = "*", "*."


def find_host(url: str) -> str | None:
    """The normalised host of a url; None when it is unknown."""
    import httpx2  # loaded with the first url

    try:
        return normalise_host(httpx2.URL(url.strip()).raw_host.decode("ascii"))
    except (httpx2.InvalidURL, ValueError, TypeError):
        return None


def normalise_host(host: str) -> str | None:
    """A host as a lower-case ASCII name or an address; None for anything else."""
    import httpx2

    from holdfast.config.address_rules import is_host, parse_literal

    try:
        text = host if ":" in host else httpx2.URL(scheme="http", host=host).raw_host.decode("ascii")
    except (httpx2.InvalidURL, ValueError):
        return None
    name = text.removesuffix(".").lower()
    if not name or not is_host(name):
        return None
    address = parse_literal(name)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address) if address else name


class HostPattern:
    """A host, `*.example.com` for all below it, or `*` for any. ValueError for anything else."""

    def __init__(self, pattern: str) -> None:
        self._any = pattern == ANY_HOST
        self._below = pattern.startswith(BELOW_PREFIX)
        name = None if self._any else normalise_host(pattern.removeprefix(BELOW_PREFIX))
        if name is None and not self._any:
            raise ValueError("must be a host, `*.example.com` for all below it, or `*`; without port or path")
        self._name = name or ""

    def matches(self, host: str | None) -> Truth:
        """Does it match this host? MAYBE for an unknown one."""
        if host is None:
            return Truth.MAYBE
        if self._below:
            return to_truth(host.endswith(f".{self._name}"))
        return to_truth(self._any or host == self._name)
