"""The messages about invalid arguments, one line per problem: `limit: must be a whole number, not "ten"`.

The same words whether pydantic or a JSON schema found it. Values are cut: a model that sent a megabyte does not need
it back.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind
from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from holdfast.util.suggestions import did_you_mean
from holdfast.util.text import shorten_text

VALUE_LIMIT = 80
MESSAGE_LIMIT = 300
PLACE_LIMIT = 200
OPTIONS_SHOWN = 20
FORMS_LIMIT = 100
WHOLE_NAME = "arguments"
MASK = "it"
"""The placeholder for the value in the validator's own messages."""

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_WANTED_TYPES = {
    "string_type": "string",
    "bytes_type": "string",
    "int_type": "integer",
    "int_parsing": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "float_parsing": "number",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
    "list_type": "array",
    "tuple_type": "array",
    "set_type": "array",
    "frozen_set_type": "array",
    "dict_type": "object",
    "mapping_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "dataclass_type": "object",
    "none_required": "null",
}
_PYDANTIC_PREFIX = re.compile(r"^(?:Value error, |(?:Input|Value|String|Bytes|List|Set|Tuple|Dictionary|Data) should )")


def describe_model_errors(error: ValidationError, arguments: JsonValue, parameters: JsonValue) -> Iterator[str]:
    """One line per problem that pydantic found. Several types that a value may have are one problem."""
    wanted: dict[str, list[str]] = {}
    lines: dict[str, str] = {}
    for item in error.errors(include_url=False):
        path = _resolve_path(item, arguments)
        where, given = format_place(path), quote_value(item["input"])
        if kind := _WANTED_TYPES.get(item["type"]):
            kinds = wanted.setdefault(where, [])
            kinds += [kind] if kind not in kinds else []
            lines[f"{where} type"] = f"{where}: must be {_join_types(kinds)}, not {given}"
        else:
            words = _describe_item(item, path, given, parameters)
            lines[f"{where} {words}"] = f"{where}: {words}"
    yield from lines.values()


def describe_schema_errors(
    error: jsonschema_rs.ValidationError, arguments: JsonValue, parameters: JsonValue
) -> Iterator[str]:
    """One line or more for a problem that the validator of JSON schemas found."""
    path = _resolve_keys(error.instance_path, arguments)
    where = format_place(path)
    match error.kind:
        case Kind.Required(name):
            yield f"{format_place((*path, str(name)))}: is required"
        case Kind.AdditionalProperties(names) | Kind.UnevaluatedProperties(names):
            for name in names:
                yield f"{format_place((*path, name))}: {_describe_unexpected((*path, name), parameters)}"
        case Kind.Enum(options):
            yield f"{where}: {_describe_options(options if isinstance(options, list) else [options], error.instance)}"
        case Kind.Constant(value):
            yield f"{where}: {_describe_options([value], error.instance)}"
        case Kind.Type(types):
            yield f"{where}: must be {_join_types(types)}, not {quote_value(error.instance)}"
        case Kind.AnyOf(branches) | Kind.OneOfNotValid(branches):
            yield from _describe_alternatives(error, branches, arguments, parameters)
        case _:
            yield f"{where}: {_describe_kind(error)}, got {quote_value(error.instance)}"


def format_place(path: Iterable[str | int]) -> str:
    """A place in the arguments: `edits[2].path`. Of a long path its end."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{shorten_text(step, 100)}" for step in path)
    text = text.removeprefix(".") or WHOLE_NAME
    return text if len(text) <= PLACE_LIMIT else f"…{text[-PLACE_LIMIT:]}"


def quote_value(value: object) -> str:
    """A value as JSON, cut."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} too deep to show"
    return text if len(text) <= VALUE_LIMIT else f"{text[:VALUE_LIMIT]}…"


def _describe_item(item: ErrorDetails, path: Sequence[str | int], given: str, parameters: JsonValue) -> str:
    kind, context = item["type"], item.get("ctx") or {}
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return _describe_unexpected(path, parameters)
    if kind in ("literal_error", "enum"):
        options = _parse_options(str(context.get("expected")))
        return (
            _describe_options(options, item["input"]) if options else f"must be {context.get('expected')}, not {given}"
        )
    if kind in ("too_short", "too_long"):
        most = "min_length" if kind == "too_short" else "max_length"
        return (
            f"must have at {'least' if kind == 'too_short' else 'most'} {_format_count(context[most], 'item')}, "
            f"got {given}"
        )
    words = _PYDANTIC_PREFIX.sub(lambda found: "must " if found[0].endswith("should ") else "", item["msg"])
    return f"{shorten_text(words, MESSAGE_LIMIT)}, got {given}"


def _describe_kind(error: jsonschema_rs.ValidationError) -> str:
    """A problem in the words that pydantic has for it, else in the validator's own."""
    match error.kind:
        case Kind.Minimum(limit):
            return f"must be greater than or equal to {limit}"
        case Kind.ExclusiveMinimum(limit):
            return f"must be greater than {limit}"
        case Kind.Maximum(limit):
            return f"must be less than or equal to {limit}"
        case Kind.ExclusiveMaximum(limit):
            return f"must be less than {limit}"
        case Kind.MultipleOf(number):
            return f"must be a multiple of {number}"
        case Kind.Pattern(pattern):
            return f"must match pattern '{shorten_text(pattern, MESSAGE_LIMIT)}'"
        case Kind.MinLength(limit):
            return f"must have at least {_format_count(limit, 'character')}"
        case Kind.MaxLength(limit):
            return f"must have at most {_format_count(limit, 'character')}"
        case Kind.MinItems(limit) | Kind.MinProperties(limit):
            return f"must have at least {_format_count(limit, 'item')}"
        case Kind.MaxItems(limit) | Kind.MaxProperties(limit):
            return f"must have at most {_format_count(limit, 'item')}"
        case Kind.UniqueItems():
            return "must not hold the same item twice"
        case Kind.FalseSchema():
            return "must not be given"
        case Kind.OneOfMultipleValid():
            return "fits more than one of the forms it may have"
    return shorten_text(error.message, MESSAGE_LIMIT)


def _format_count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _describe_unexpected(path: Sequence[str | int], parameters: JsonValue) -> str:
    hint = did_you_mean(str(path[-1]), _list_known(parameters, path[:-1])) if path else ""
    return f"is not a parameter. {hint}".removesuffix(". ")


def _describe_options(options: Sequence[object], given: object) -> str:
    shown = ", ".join(quote_value(option) for option in options[:OPTIONS_SHOWN])
    more = f" or {len(options) - OPTIONS_SHOWN} others" if len(options) > OPTIONS_SHOWN else ""
    words = [option for option in options if isinstance(option, str)]
    hint = f". {did_you_mean(given, words)}" if isinstance(given, str) and did_you_mean(given, words) else ""
    one_of = "one of " if len(options) > 1 else ""
    return f"must be {one_of}{shown}{more}, not {quote_value(given)}{hint}"


def _parse_options(expected: str) -> list[object]:
    """The values in pydantic's list of what is expected, `'a', 'b' or 3`; empty when it cannot be parsed."""
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        found = ast.literal_eval(f"[{', '.join(expected.rsplit(' or ', 1))}]")
        return list(found)
    return []


def _join_types(types: Iterable[str]) -> str:
    return " or ".join(_TYPES.get(name, name) for name in types)


def _describe_alternatives(
    error: jsonschema_rs.ValidationError, branches: Any, arguments: JsonValue, parameters: JsonValue
) -> Iterator[str]:
    """The problems of the alternative with the fewest; the wanted types when all alternatives are only about these."""
    where, given = format_place(_resolve_keys(error.instance_path, arguments)), quote_value(error.instance)
    missed = [list(branch) for branch in branches if branch]
    types = [[kind for problem in branch for kind in _list_wanted_types(problem, error)] for branch in missed]
    if missed and all(types):
        yield f"{where}: must be {_join_types(dict.fromkeys(kind for kinds in types for kind in kinds))}, not {given}"
        return
    right_type = [branch for branch, kinds in zip(missed, types, strict=True) if not kinds]
    if not right_type:
        yield f"{where}: fits none of the {len(missed)} forms it may have, got {given}"
        return
    for problem in min(right_type, key=lambda branch: (any(map(_is_other_kind, branch)), len(branch))):
        yield from describe_schema_errors(problem, arguments, parameters)


def _list_wanted_types(problem: jsonschema_rs.ValidationError, whole: jsonschema_rs.ValidationError) -> list[str]:
    """The types that the whole value should have had; empty for a problem of something inside it."""
    match problem.kind:
        case Kind.Type(types) if len(problem.instance_path) == len(whole.instance_path):
            return list(types)
    return []


def _is_other_kind(problem: jsonschema_rs.ValidationError) -> bool:
    """Is this about a value that discriminates between alternatives (`"kind": "circle"`)? Then another was meant."""
    return isinstance(problem.kind, Kind.Constant | Kind.Enum)


def _resolve_path(item: ErrorDetails, arguments: JsonValue) -> tuple[str | int, ...]:
    """The path of a problem in the arguments: pydantic's own also names the alternatives that it tried."""
    path: list[str | int] = []
    value: Any = arguments
    for step in item["loc"]:
        if step in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
            value = value[step]
            path.append(step)
    if item["type"] == "missing":
        path.append(item["loc"][-1])
    return tuple(path) or item["loc"]


def _resolve_keys(path: Iterable[str | int], arguments: JsonValue) -> tuple[str | int, ...]:
    """The path of a problem in the arguments: the validator takes a key made of digits for an index."""
    steps: list[str | int] = []
    value: Any = arguments
    for step in path:
        steps.append(str(step) if isinstance(value, dict) else step)
        try:
            value = value[steps[-1]]
        except (LookupError, TypeError):
            value = None
    return tuple(steps)


def _list_known(parameters: JsonValue, path: Iterable[str | int]) -> list[str]:
    """The properties that the value at this place may have, in any of its alternatives."""
    forms = _list_forms([parameters], parameters)
    for step in path:
        forms = _list_forms([_find_below(form, step) for form in forms], parameters)
    return list(dict.fromkeys(name for form in forms for name in _to_dict(form.get("properties"))))


def _find_below(form: dict[str, Any], step: str | int) -> object:
    if isinstance(step, int):
        return form.get("items")
    return _to_dict(form.get("properties")).get(step, form.get("additionalProperties"))


def _list_forms(schemas: list[Any], root: JsonValue) -> list[dict[str, Any]]:
    """These schemas, and those that they refer to or choose between."""
    found: list[dict[str, Any]] = []
    for schema in schemas:
        if not isinstance(schema, dict) or any(schema is known for known in found) or len(found) > FORMS_LIMIT:
            continue
        found.append(schema)
        for key in ("allOf", "anyOf", "oneOf"):
            schemas += schema[key] if isinstance(schema.get(key), list) else []
        if isinstance(schema.get("$ref"), str):
            schemas.append(_resolve_reference(schema["$ref"], root))
    return found


def _resolve_reference(reference: str, root: Any) -> object:
    start, *steps = reference.split("/")
    for step in steps:
        root = _to_dict(root).get(step.replace("~1", "/").replace("~0", "~"))
    return root if start == "#" else None


def _to_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
