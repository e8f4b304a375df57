"""The parameters of a function as a pydantic model: from its signature, its types and its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from holdfast.domain.calls.tool import Run
from holdfast.errors import BadInput

Function = Callable[..., Any]


class FunctionSignature(NamedTuple):
    """The signature of a function as a tool: description, parameters, and parameters that get the `Run`."""

    description: str
    parameters: type[BaseModel]
    """The parameters that a model fills. The alias of each field is the name of the parameter."""
    runs: tuple[str, ...]
    """The names of the parameters that get the `Run`."""


def read_signature(function: Function) -> FunctionSignature:
    """Read the signature of a function. BadInput when it cannot be that of a tool."""
    documented = _parse_docstring(inspect.getdoc(function) or "")
    parameters, runs = _build_parameters(function, documented)
    return FunctionSignature(_join_description(documented), parameters, runs)


def _parse_docstring(text: str) -> docstring_parser.Docstring:
    """Parse a docstring. One that the parser fails on is all description."""
    try:
        return docstring_parser.parse(text)
    except Exception:
        found = docstring_parser.Docstring()
        found.short_description = text
        return found


def _join_description(documented: docstring_parser.Docstring) -> str:
    return "\n\n".join(filter(None, (documented.short_description, documented.long_description)))


def _build_parameters(
    function: Function, documented: docstring_parser.Docstring
) -> tuple[type[BaseModel], tuple[str, ...]]:
    """The model of the parameters, and the names of those that get the `Run`."""
    described = {item.arg_name: item.description or "" for item in documented.params}
    hints = _resolve_hints(function)
    fields: dict[str, Any] = {}
    runs: list[str] = []
    for name, parameter in _inspect_function(function).parameters.items():
        _check_parameter(function, parameter, hints)
        if _is_run(hints[name]):
            runs.append(name)
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        words: dict[str, Any] = (
            {"description": described[name]} if described.get(name) and not _has_description(hints[name]) else {}
        )
        # The alias is the parameter's name, which may be an attribute of pydantic models (`copy`, `schema`). The
        # field's own name is one that no parameter can have, since pydantic also accepts fields by name.
        fields[f"given {name}"] = (hints[name], Field(default, alias=name, **words))
    try:
        model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except Exception as error:
        raise BadInput(f"no schema can be made for {function.__name__!r}: {error}") from error
    return model, tuple(runs)


def _inspect_function(function: Function) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise BadInput(f"{function.__name__!r} cannot be a tool: {error}") from error


def _resolve_hints(function: Function) -> dict[str, Any]:
    """The types of the parameters. The return type may be known only to a type checker."""
    written = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=written), known, include_extras=True)
    except Exception as error:
        raise BadInput(f"the types of {function.__name__!r} cannot be read: {error}") from error


def _is_run(hint: object) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is Run or (get_origin(hint) in (Union, UnionType) and Run in get_args(hint))


def _has_description(hint: object) -> bool:
    return get_origin(hint) is Annotated and any(
        isinstance(extra, FieldInfo) and extra.description for extra in get_args(hint)[1:]
    )


def _check_parameter(function: Function, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise BadInput(f"{function.__name__!r} cannot be a tool: parameter {parameter.name!r} is not given by name")
    if parameter.name not in hints:
        raise BadInput(f"{function.__name__!r} cannot be a tool: parameter {parameter.name!r} has no type")
