"""A TOML file validated by a pydantic model: all problems at once, each with its line. Nothing here knows settings.

The bytes are read once, so that what is hashed is what is parsed. `Document.get_value` raises the problems as one
error.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.config.toml_lines import Steps, find_lines
from holdfast.errors import BadInput
from holdfast.util.private_files import UnfitFile, read_regular_file
from holdfast.util.suggestions import suggest_names
from holdfast.util.text import escape_controls, shorten_text

FILE_LIMIT = 1_000_000
"""The largest file, in bytes."""
PROBLEMS_SHOWN = 20
"""The number of problems in one error."""
SENTENCE_ERROR = "sentence"
"""The error type of validators whose message is a whole sentence. Other messages follow the path of the key."""
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_KINDS = {
    dict: "a table",
    list: "an array",
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number with a fraction",
}
_WANTED = {
    "string_type": "text",
    "path_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "model_type": "a table",
    "mapping_type": "a table",
    "dict_type": "a table",
}

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class FileProblem:
    """A problem of a file. `line` is None for a problem of the whole file."""

    line: int | None
    path: str
    message: str


@dataclass(frozen=True)
class FileContent:
    """The bytes of a file, or the `problem` that prevented reading it."""

    file: Path
    data: bytes = b""
    problem: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Document(Generic[M]):
    """A parsed file: a value, or problems."""

    content: FileContent
    text: str
    value: M | None
    problems: tuple[FileProblem, ...] = ()

    def get_value(self) -> M:
        """Return the value. BadInput with every problem if there is none."""
        if self.value is None:
            raise BadInput(format_problems(self.content.file, self.problems))
        return self.value

    def find_line(self, *path: str | int) -> int:
        """Return the line of a key."""
        return find_lines(self.text, [path])[path]


def read_content(file: Path) -> FileContent:
    """Read a regular file that only its owner can write. Opening never blocks."""
    try:
        return FileContent(file, read_regular_file(file, FILE_LIMIT, partial(_check_writers, file)))
    except FileNotFoundError:
        return FileContent(file, problem="there is no such file")
    except UnfitFile as error:
        return FileContent(file, problem=str(error))


def _check_writers(file: Path, status: os.stat_result) -> str | None:
    ours = status.st_uid in (os.geteuid(), 0) and status.st_gid == os.getegid()
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not ours):
        return f"other users can write it, and it decides what runs: chmod go-w {_escape_line(str(file), 200)}"
    return None


def parse_document(content: FileContent, model: type[M], context: Mapping[str, Any] | None = None) -> Document[M]:
    """Parse the TOML, and validate it."""
    if content.problem:
        return Document(content, "", None, (FileProblem(None, "", content.problem),))
    try:
        text = content.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.data.count(b"\n", 0, error.start) + 1
        return Document(content, "", None, (FileProblem(line, "", f"byte {error.start} is not UTF-8 text"),))
    try:
        value = model.model_validate(tomllib.loads(text), context=dict(context or {}))
    except ValidationError as error:
        return Document(content, text, None, tuple(_list_problems(error, model, text)))
    except RecursionError:
        return Document(content, text, None, (FileProblem(None, "", "is nested too deeply"),))
    except ValueError as error:
        return Document(content, text, None, (_build_syntax_problem(str(error), text),))
    return Document(content, text, value)


def format_problems(file: Path, problems: Iterable[FileProblem]) -> str:
    """Format the problems in lines, the first twenty of them."""
    name = _escape_line(str(file), 4_096)
    lines = [f"{name}{f', line {item.line}' if item.line else ''}: {item.message}" for item in problems]
    more = len(lines) - PROBLEMS_SHOWN
    return "\n".join(
        [
            *lines[:PROBLEMS_SHOWN],
            *([f"{name}: and {more:,} more; --json lists all"] if more > 0 else []),
        ]
    )


def _build_syntax_problem(message: str, text: str) -> FileProblem:
    found = _PLACE.fullmatch(message)
    words = _escape_line(found[1] if found else message, 200)
    if not found or not found[2]:
        return FileProblem(
            text.rstrip().count("\n") + 1, "", f"is not TOML: {words}, at the end of the file" if found else words
        )
    return FileProblem(int(found[2]), "", f"is not TOML: {words}, column {found[3]}")


def _list_problems(error: ValidationError, model: type[BaseModel], text: str) -> list[FileProblem]:
    items = error.errors(include_url=False)
    paths = [tuple(step for step in item["loc"] if step != "[key]") for item in items]
    lines = find_lines(text, paths)
    found = [
        FileProblem(lines[at], _format_path(at), _describe_error(item, at, model))
        for item, at in zip(items, paths, strict=True)
    ]
    return sorted(found, key=lambda problem: problem.line or 0)


def _describe_error(item: ErrorDetails, path: Steps, model: type[BaseModel]) -> str:
    kind, value, bounds = item["type"], item["input"], item.get("ctx", {})
    if kind == SENTENCE_ERROR:
        return item["msg"]
    name = f"`{_format_path(path)}`"
    if kind == "missing":
        return f"`{_format_path(path[-1:])}` is missing" + (f" in `{_format_path(path[:-1])}`" if path[:-1] else "")
    if kind == "extra_forbidden":
        near = suggest_names(str(path[-1]), _list_names(model, path[:-1]), most=1)
        return f"{name} is not a setting" + (f"; did you mean `{near[0]}`?" if near else "")
    if kind in _WANTED:
        return f"{name} must be {_WANTED[kind]}, not {_describe_kind(value)}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = f"at least {bounds['ge']:,.0f}" if "ge" in bounds else f"at most {bounds['le']:,.0f}"
        return f"{name} must be {bound}, not {_format_value(value)}"
    if kind in ("enum", "literal_error"):
        return f"{name} must be {bounds['expected']}, not {_format_value(value)}"
    return f"{name} {_escape_line(item['msg'].removeprefix('Value error, '), 300)}"


def _list_names(model: type[BaseModel], path: Steps) -> list[str]:
    """List the fields of the model at a path."""
    here: Any = model
    for step in path:
        fields = getattr(here, "model_fields", None)
        inner = [fields[step].annotation] if fields and step in fields else get_args(here)
        here = next((one for one in reversed(inner) if one is not Ellipsis), None)
    fields = getattr(here, "model_fields", {})
    return [name for name, field in fields.items() if not field.exclude]


def _format_path(path: Steps) -> str:
    """Format a path for a person; places in arrays count from 1."""
    return _escape_line(".".join(str(step + 1) if isinstance(step, int) else step for step in path), 120)


def _describe_kind(value: object) -> str:
    return _KINDS.get(type(value), "a date or time")


def _format_value(value: object) -> str:
    """Format a value briefly; Python refuses to write very large numbers."""
    if isinstance(value, int) and value.bit_length() > 100:
        return "a very large number"
    return _escape_line(repr(value), 80) if isinstance(value, str | int | float) else _describe_kind(value)


def _escape_line(text: str, limit: int) -> str:
    """Shorten a text to one line, and escape its control characters."""
    return shorten_text(escape_controls(text).replace("\n", "␊").replace("\t", "␉"), limit)
