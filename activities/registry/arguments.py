"""Checks arguments against a pydantic model or a JSON schema, with the same messages for both (S6).

A JSON schema must be of type object, and refer to nothing outside itself. It may come from a server that is not
trusted, and is checked in another process (`json_schema.py`); a model is code of Holdfast or of the worker's operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast.activities.registry.argument_errors import describe_model_errors, quote_value
from holdfast.activities.registry.json_schema import CHECK_EXECUTOR, CheckedSchema
from holdfast.domain.calls.tool import Declaration, Tool
from holdfast.errors import BadInput
from holdfast.util.json_values import is_json_value, is_too_deep
from holdfast.util.text import remove_invisible

PROBLEMS_SHOWN = 8
PARAMETERS_SHOWN = 40
NOT_JSON = "arguments: JSON cannot represent them: they hold NaN, infinity, a lone surrogate or too many levels"


class CheckedArguments(NamedTuple):
    """Arguments that fit: as they are recorded and shown, and as the tool is given them."""

    written: dict[str, JsonValue]
    given: Any


class InvalidArguments(ValueError):
    """Arguments do not fit. The message says what is wrong in words that a model can act on."""


class Schema(Protocol):
    """The schema of a tool's arguments."""

    def check(self, arguments: JsonValue) -> CheckedArguments:
        """Check arguments; InvalidArguments when they do not fit."""


def strip_invisible(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """A stranger's schema without the characters in its texts that a model reads and a person does not see."""
    return (
        dict(schema) if is_too_deep(dict(schema)) else {name: _strip_value(item, name) for name, item in schema.items()}
    )


def _strip_value(value: JsonValue, name: str = "") -> JsonValue:
    if isinstance(value, str):
        return remove_invisible(value) if name in ("title", "description") else value
    if isinstance(value, list):
        return [_strip_value(item) for item in value]
    return {name: _strip_value(item, name) for name, item in value.items()} if isinstance(value, dict) else value


def build_schema(tool: Tool, declaration: Declaration) -> Schema:
    """Build the schema of a declared tool; BadInput when it cannot be used.

    That of a server's tool is compiled when it is needed: there may be a thousand, and listing them has tried each.
    """
    if isinstance(tool.Parameters, type):
        return ModelSchema(tool.Parameters, declaration.parameters)
    schema = JsonSchema(declaration.parameters)
    if declaration.server is None:
        schema.compile()
    return schema


async def check_arguments(schema: Schema, arguments: JsonValue) -> CheckedArguments:
    """Check arguments without blocking the event loop.

    InvalidArguments when they do not fit, BadInput when the schema cannot be used.
    """
    if isinstance(schema, JsonSchema):
        return await asyncio.get_running_loop().run_in_executor(CHECK_EXECUTOR, schema.check, arguments)
    return schema.check(arguments)


class ModelSchema:
    """A pydantic model: it may convert what it is given (`"5"` to `5`) and check what no schema can say."""

    def __init__(self, model: type[BaseModel], parameters: Mapping[str, JsonValue]) -> None:
        self._model = model
        self._parameters = parameters

    def check(self, arguments: JsonValue) -> CheckedArguments:
        """Parse, serialise and parse again, so that what is shown is what would run.

        InvalidArguments when they do not fit; TypeError when the model does not survive being serialised.
        """
        try:
            # By either name: the executing worker parses what is serialised here; an alias may be for parsing alone.
            given = self._model.model_validate(arguments, by_alias=True, by_name=True)
            written = given.model_dump(mode="json", exclude_unset=True, by_alias=True)
            parsed = self._model.model_validate(written, by_alias=True, by_name=True)
        except ValidationError as error:
            problems = describe_model_errors(error, arguments, dict(self._parameters))
            raise InvalidArguments(_join_problems(problems, self._parameters)) from error
        except PydanticSerializationError as error:
            raise InvalidArguments(_join_problems([NOT_JSON], self._parameters)) from error
        if is_too_deep(written):
            raise InvalidArguments(_join_problems([NOT_JSON], self._parameters))
        if parsed != given:
            raise TypeError("its arguments do not survive being written down, so what is shown is not what would run")
        return CheckedArguments(written, parsed)


class JsonSchema:
    """A JSON schema, which converts nothing."""

    def __init__(self, parameters: Mapping[str, JsonValue]) -> None:
        """BadInput when the schema is not of type object."""
        self._parameters = dict(parameters)
        if self._parameters.get("type", "object") != "object":
            raise BadInput("the schema of a tool's parameters must be of type object")
        self._schema = CheckedSchema(self._parameters, "its parameters", all_problems=True)

    def compile(self) -> None:
        """Compile the schema; BadInput when it cannot be used. Blocks."""
        self._schema.compile()

    def check(self, arguments: JsonValue) -> CheckedArguments:
        """Check arguments; InvalidArguments with every problem. Blocks: see `check_arguments`."""
        problems = self._find_problems(arguments)
        if problems or not isinstance(arguments, dict):
            raise InvalidArguments(_join_problems(problems, self._parameters))
        return CheckedArguments(arguments, arguments)

    def _find_problems(self, arguments: JsonValue) -> list[str]:
        if not isinstance(arguments, dict):
            return [f"arguments: must be an object, not {quote_value(arguments)}"]
        return self._schema.find_problems(arguments) if is_json_value(arguments) else [NOT_JSON]


def _join_problems(problems: Iterable[str], parameters: Mapping[str, JsonValue]) -> str:
    found = list(dict.fromkeys(problems))
    more = f"; and {len(found) - PROBLEMS_SHOWN} more" if len(found) > PROBLEMS_SHOWN else ""
    message = f"{'; '.join(found[:PROBLEMS_SHOWN])}{more}"
    return f"{message}{'' if message.endswith('?') else '.'} Its parameters: {_format_signature(parameters)}."


def _format_signature(parameters: Mapping[str, JsonValue]) -> str:
    """The parameters in one line: `path (string, required), limit (integer)`."""
    required = parameters.get("required")
    needed = required if isinstance(required, list) else []
    known = list(_get_properties(parameters).items())
    words = [_format_parameter(name, spec, name in needed) for name, spec in known[:PARAMETERS_SHOWN]]
    return ", ".join(words + ["…"] * (len(known) > PARAMETERS_SHOWN)) or "none"


def _get_properties(parameters: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    found = parameters.get("properties")
    return found if isinstance(found, dict) else {}


def _format_parameter(name: str, spec: JsonValue, required: bool) -> str:
    kind = spec.get("type") if isinstance(spec, dict) else None
    words = [kind] if isinstance(kind, str) else []
    words += ["required"] if required else []
    return f"{name} ({', '.join(words)})" if words else name
