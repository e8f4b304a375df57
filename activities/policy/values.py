"""Arguments against what a rule says of them: equality of JSON values, and regular expressions over text.

A table in a rule is descended into: what it says must hold, what it does not say may be anything. Expressions run on
an engine that is linear in the text, since the text is a model's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs
from pydantic import JsonValue

from holdfast.activities.policy.truths import Truth, to_truth

PATTERN_LIMIT = 2_000
"""Characters of a regular expression."""
MAX_DEPTH = 20
"""Of tables in tables: a rule that needs more is a mistake."""
_ABSENT = object()


class Expression:
    """A regular expression that must match the whole of a text. ValueError when it cannot be read."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LIMIT:
            raise ValueError(f"is over {PATTERN_LIMIT:,} characters")
        _compile_pattern(pattern)  # by itself: a bracket too many must not close ours
        self._validator = _compile_pattern(f"^(?:{pattern})$")

    def matches(self, text: str) -> Truth:
        """Is the text meant? Text that is no text (half a character) perhaps is."""
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
    """Does every value of a rule's table hold of the arguments? `test` compares what is no table."""
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
    """Why an argument can never be this value of a TOML file; None when it can."""
    if depth == 0:
        return "is nested too deeply"
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return next(filter(None, (explain_unfit_value(one, depth - 1) for one in inner)), None)
    if isinstance(value, float) and not math.isfinite(value):
        return "holds a number that JSON cannot say"
    return None if isinstance(value, str | int | float) else "holds a date or time, and an argument is never one"
