"""The program that compiles and checks JSON schemas, in a process of its own (`json_schema.py` asks it).

A schema of two kilobytes can take hours to compile or to check, and blocks the interpreter meanwhile. Here that ends
the process. No reference is fetched from anywhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonschema_rs

from holdfast.activities.registry.argument_errors import MASK, describe_schema_errors, format_place, quote_value
from holdfast.util.text import shorten_text

MAX_KNOWN = 5_000
"""Compiled schemas that are kept."""
BACKTRACK_LIMIT = 100_000
_WORDS_LIMIT = 300


class _KnownSchema(NamedTuple):
    schema: dict[str, Any]
    validator: jsonschema_rs.Validator


_known_schemas: dict[str, _KnownSchema] = {}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: the `problems` of a value by the schema with this key, `unknown` when the schema must be sent
    again, or `unusable` with the reason.
    """
    key = request["key"]
    if "schema" in request:
        try:
            compiled = _compile_schema(request["schema"])
        except ValueError as error:
            return {"unusable": _describe_error(error)}
        if len(_known_schemas) >= MAX_KNOWN:
            _known_schemas.pop(next(iter(_known_schemas)))
        _known_schemas[key] = _KnownSchema(request["schema"], compiled)
    if key not in _known_schemas:
        return {"unknown": True}
    if "value" not in request:
        return {}
    return (
        _list_problems(_known_schemas[key], request["value"])
        if request["all"]
        else _find_problem(_known_schemas[key], request["value"])
    )


def _list_problems(known: _KnownSchema, arguments: Any) -> dict[str, Any]:
    """All problems of arguments, for a model."""
    errors = known.validator.iter_errors(arguments)
    return {"problems": [line for error in errors for line in describe_schema_errors(error, arguments, known.schema)]}


def _find_problem(known: _KnownSchema, value: Any) -> dict[str, Any]:
    """The first problem of a result, for a person."""
    error = next(iter(known.validator.iter_errors(value)), None)
    if error is None:
        return {"problems": []}
    if value is None:
        return {"problems": ["it holds no structured content"]}
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return {"problems": [shorten_text(f"{where.removeprefix('.') or 'the whole'}: {error.message}", _WORDS_LIMIT)]}


def _compile_schema(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, mask=MASK, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError:
        # Look-around needs the engine that backtracks; then with a limit.
        fancy = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
        return jsonschema_rs.validator_for(schema, offline=True, mask=MASK, pattern_options=fancy)


def _describe_error(error: ValueError) -> str:
    """The first line of the validator's message about a schema, and the place in the schema."""
    message = shorten_text(str(getattr(error, "message", None) or error).splitlines()[0], _WORDS_LIMIT)
    if not isinstance(error, jsonschema_rs.ValidationError) or not error.instance_path:
        return message
    return f"{quote_value(error.instance)} at {format_place(error.instance_path)}: {message}"
