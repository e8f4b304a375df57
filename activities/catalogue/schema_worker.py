"""JSON schemas, compiled and checked in a process of their own (`schemas.py` asks it).

A schema of two kilobytes can take hours to compile or to check, and the interpreter cannot be used meanwhile. Here
that ends the process. Nothing here fetches anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonschema_rs

from holdfast.activities.catalogue.complaints import MASK, of_schema, place, quoted
from holdfast.content import shorten

MOST_KNOWN = 5_000
"""Compiled schemas that are remembered."""
BACKTRACK_LIMIT = 100_000
_WORDS = 300


class _Known(NamedTuple):
    schema: dict[str, Any]
    validator: jsonschema_rs.Validator


_known: dict[str, _Known] = {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a value, by the schema of this key; `unknown` when that has to be told again."""
    key = request["key"]
    if "schema" in request:
        try:
            compiled = _compiled(request["schema"])
        except ValueError as error:
            return {"unusable": _reason(error)}
        if len(_known) >= MOST_KNOWN:
            _known.pop(next(iter(_known)))
        _known[key] = _Known(request["schema"], compiled)
    if key not in _known:
        return {"unknown": True}
    if "value" not in request:
        return {}
    return _problems(_known[key], request["value"]) if request["all"] else _problem(_known[key], request["value"])


def _problems(known: _Known, arguments: Any) -> dict[str, Any]:
    """Everything that is wrong with arguments, for a model."""
    errors = known.validator.iter_errors(arguments)
    return {"problems": [line for error in errors for line in of_schema(error, arguments, known.schema)]}


def _problem(known: _Known, value: Any) -> dict[str, Any]:
    """The first thing that is wrong with a result, for a person."""
    error = next(iter(known.validator.iter_errors(value)), None)
    if error is None:
        return {"problems": []}
    if value is None:
        return {"problems": ["it holds no structured content"]}
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return {"problems": [shorten(f"{where.removeprefix('.') or 'the whole'}: {error.message}", _WORDS)]}


def _compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, mask=MASK, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError:
        # Look-around needs the engine that backtracks; then with a limit.
        fancy = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
        return jsonschema_rs.validator_for(schema, offline=True, mask=MASK, pattern_options=fancy)


def _reason(error: ValueError) -> str:
    """The first line of what the validator says of a schema, and where in the schema it is."""
    message = shorten(str(getattr(error, "message", None) or error).splitlines()[0], _WORDS)
    if not isinstance(error, jsonschema_rs.ValidationError) or not error.instance_path:
        return message
    return f"{quoted(error.instance)} at {place(error.instance_path)}: {message}"
