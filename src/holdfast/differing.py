"""What differs between two sets of arguments, in words short enough for a model to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from holdfast.content import shorten_text

VALUE_LIMIT = 2_000
"""Characters of one value that are repeated."""


def describe_changes(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> str:
    """Each argument that is another, with its new value; empty when none is."""
    return "; ".join(_list_changes(before, after))


def _list_changes(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield f"{name} was left out"
        elif name not in before or _format_value(before[name]) != _format_value(after[name]):
            yield f"{name} is now {shorten_text(_format_value(after[name]), VALUE_LIMIT)}"


def _format_value(value: JsonValue) -> str:
    """As JSON, where 1 is not true."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
