"""Reading inputs of the command line: files of calls, files of scripted replies, text. Every error is one sentence.

    calls     [{"tool": "shell", "arguments": {"command": "date"}}]     or one object, or {"calls": [...]}
    script    [{"text": "Let me look.", "calls": [...]}, {"text": "Done."}]     or {"script": [...]}, and beside that
              {"delegated": {"a prompt": [...]}} for the turns that are delegated with it

`-` is standard input. The turn checks each call: whether its tool exists, and its arguments.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from holdfast.domain.calls.call import CallRequest
from holdfast.domain.conversation.messages import ScriptedReply
from holdfast.errors import BadInput
from holdfast.util.text import shorten_text, strip_controls

READ_LIMIT = 64 * 1024 * 1024
"""Bytes of a file."""
STDIN = "-"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TYPE_NAMES = {
    dict: "an object",
    list: "an array",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
_EXPECTED_TYPES = {
    "string_type": "text",
    "list_type": "an array",
    "tuple_type": "an array",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
}

M = TypeVar("M", bound=BaseModel)


class Script(NamedTuple):
    """The replies of a scripted model."""

    replies: tuple[ScriptedReply, ...]
    delegated: dict[str, tuple[ScriptedReply, ...]]
    """By the prompts of delegated turns."""


def read_calls(source: str) -> tuple[CallRequest, ...]:
    """The calls of a file."""
    name = _format_source(source)
    value = _parse_json(read_source(source), name)
    items = _list_items(
        value, "calls", name, single="tool" if isinstance(value, dict) and "name" not in value else "name"
    )
    return tuple(_parse_element(CallRequest, item, f"call {place}", name) for place, item in enumerate(items, start=1))


def read_script(source: str) -> Script:
    """The replies of a scripted model, and those of the turns that it delegates."""
    name = _format_source(source)
    value = _parse_json(read_source(source), name)
    delegated = value.pop("delegated", {}) if isinstance(value, dict) and "script" in value else {}
    if not isinstance(delegated, dict):
        raise BadInput(
            f"{name} holds {_describe_kind(delegated)} as `delegated`; an object of scripts by prompt is expected"
        )
    scripts = {prompt: _parse_replies(script, f"{name}, delegated") for prompt, script in delegated.items()}
    return Script(_parse_replies(value, name), scripts)


def _parse_replies(value: Any, name: str) -> tuple[ScriptedReply, ...]:
    single = "calls" if isinstance(value, dict) and "calls" in value else "text"
    items = _list_items(value, "script", name, single=single)
    return tuple(
        _parse_element(ScriptedReply, item, f"reply {place}", name) for place, item in enumerate(items, start=1)
    )


def read_text(value: str) -> str:
    """The value of an option that may be `-` for standard input."""
    return read_source(STDIN) if value == STDIN else value


def read_words(value: str) -> str:
    """The value of an option that may be `@FILE`, or `-` for standard input."""
    return read_source(value.removeprefix("@")) if value.startswith("@") else read_text(value)


def read_arguments(value: str) -> dict[str, Any]:
    """The arguments of one call, as JSON; `-` is standard input."""
    return parse_arguments(read_text(value), _format_source(value) if value == STDIN else "the value of --args")


def parse_arguments(text: str, name: str) -> dict[str, Any]:
    """The arguments of one call from JSON text; BadInput, with the `name` of the text, for anything else."""
    arguments = _parse_json(text, name)
    if not isinstance(arguments, dict):
        raise BadInput(f"{name} is {_TYPE_NAMES.get(type(arguments), 'null')}, and must be an object of arguments")
    return arguments


def _format_source(source: str) -> str:
    return "standard input" if source == STDIN else repr(source)


def read_source(source: str, encoding: str = "utf-8-sig") -> str:
    """The text of a file, or of standard input; BadInput when it cannot be read."""
    name = _format_source(source)
    try:
        if source == STDIN:
            data = sys.stdin.buffer.read(READ_LIMIT + 1)
        elif Path(source).is_dir():
            raise BadInput(f"{name} is a folder, not a file")
        else:
            with open(source, "rb") as file:
                data = file.read(READ_LIMIT + 1)
    except FileNotFoundError:
        raise BadInput(f"no file is called {name}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > READ_LIMIT:
        raise BadInput(f"{name} is over {READ_LIMIT // 1024**2} MB: split it")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not UTF-8 text: byte {error.start} cannot be read") from None


def _parse_json(text: str, name: str) -> Any:
    if not text.strip():
        raise BadInput(f"{name} is empty")

    def refuse_constant(constant: str) -> NoReturn:
        raise BadInput(f"{name} is not JSON: {constant} is not a JSON value")

    try:
        value = json.loads(text, parse_constant=refuse_constant)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise BadInput(f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise BadInput(f"{name} is nested too deeply") from None
    except UnicodeEncodeError:
        raise BadInput(f"{name} holds half a character: a \\ud800–\\udfff escape without its partner") from None
    except ValueError as error:
        raise BadInput(f"{name} cannot be read: {shorten_text(str(error), 200)}") from None
    return value


def _list_items(value: Any, key: str, name: str, *, single: str) -> list[Any]:
    """The elements: of an array, of an object's `key`, or one object alone."""
    if isinstance(value, dict):
        if isinstance(value.get(key), list) and set(value) == {key}:
            value = value[key]
        elif single in value:
            value = [value]
        else:
            fields = ", ".join(repr(shorten_text(strip_controls(field), 40)) for field in list(value)[:5]) or "nothing"
            raise BadInput(f"{name} holds an object with {fields}; an array of {_pluralize_key(key)} is expected")
    if not isinstance(value, list):
        raise BadInput(f"{name} holds {_describe_kind(value)}; an array of {_pluralize_key(key)} is expected")
    if not value:
        raise BadInput(f"{name} holds no {_pluralize_key(key)}: the array is empty")
    return value


def _pluralize_key(key: str) -> str:
    return "calls" if key == "calls" else "replies"


def _parse_element(model: type[M], item: Any, which: str, name: str) -> M:
    if not isinstance(item, dict):
        raise BadInput(f"{which} of {name} is {_describe_kind(item)}; an object is expected")
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise BadInput(f"{which} of {name} {explain_error(error)}") from None
    except RecursionError:
        raise BadInput(f"{which} of {name} is nested too deeply") from None


def explain_error(error: ValidationError) -> str:
    """The first problem as a phrase: `has no field 'tool'`."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(step + 1) if isinstance(step, int) else str(step) for step in problem["loc"])
    field = repr(shorten_text(strip_controls(field), 80))
    kind = problem["type"]
    if kind == "missing":
        return f"has no field {field}"
    if kind == "extra_forbidden":
        return f"has an unknown field {field}"
    if kind in _EXPECTED_TYPES:
        return f"has {_describe_kind(problem['input'])} in the field {field} where {_EXPECTED_TYPES[kind]} is expected"
    message = problem["msg"].removeprefix("Value error, ")
    return f"has an invalid field {field}: {shorten_text(strip_controls(message), 200)}"


def _describe_kind(value: Any) -> str:
    return "null" if value is None else _TYPE_NAMES.get(type(value), "something else")
