"""A rule as TOML, one key a line: what `tomllib` reads of it is the rule again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from holdfast.activities.policy.rules import Rule


def format_rule(rule: Rule) -> str:
    """The rule as it stands in a file, with its header. ValueError for what TOML cannot say (null)."""
    return "\n".join(["[[rule]]", *_format_lines(rule)]) + "\n"


def _format_lines(rule: Rule) -> Iterator[str]:
    for name, value in rule.model_dump(exclude_unset=True, exclude_none=True).items():
        if name == "server" and value == ("",):
            value = False
        yield f"{name} = {_format_value(value)}"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_format_text(key)} = {_format_value(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return _format_text(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value, allow_nan=False)
    raise ValueError(f"{value!r} cannot be said in TOML")


def _format_text(text: str) -> str:
    """JSON and TOML quote alike, but for DEL, and for what is no text at all."""
    text.encode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
