"""What a rule looks at: one call, as values and never as text to be searched.

`Subject` is what the gate fills from a tool's own invocation. `build_call_subject` makes one from a tool's name and
arguments alone, for examples, expectations and the command line: the one place that knows what the built-in tools are
given.
"""

from __future__ import annotations

import os.path
import posixpath
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, JsonValue, field_validator

from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.util.mcp_names import build_prefix, build_tool_name


class CallKind(StrEnum):
    """What a person would be asked about (S20)."""

    EXEC = "exec"
    EDIT = "edit"
    MCP = "mcp"
    INFO = "info"
    QUESTION = "question"


class Subject(Data):
    """One call."""

    tool: str
    server: str | None = None
    own_name: str | None = None
    """Of a server's tool: what the server calls it."""
    effect: Effect
    kind: CallKind | None = None
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """As they will execute."""
    paths: tuple[str, ...] = ()
    """Files and folders it acts on, relative to the workspace; absolute, or beginning with `..`, when outside."""
    urls: tuple[str, ...] = ()
    command: str | None = None
    in_workspace: bool = True
    """Nothing it names is outside the workspace."""
    tainted: bool = False
    """The turn has taken in content from outside."""
    sends: bool = False
    """The call sends data out."""
    destructive: bool = False
    """Its tool says of itself that it destroys."""
    protected: dict[str, str] = Field(default_factory=dict)
    """The files it would change that decide what runs, each with the reason (see `protected`)."""
    doubts: tuple[str, ...] = ()
    """What its tool does not know of what its command would run, beside what the command itself leaves open."""

    @field_validator("paths")
    @classmethod
    def _normalise_paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        """A rule about `docs/a` is about `./docs/x/../a` as well."""
        return tuple(posixpath.normpath(path) for path in paths)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """What a rule on its server may call its tool: our name for it, or the server's own."""
        if self.server is None or self.own_name is None or self.own_name.startswith(build_prefix(self.server)):
            return (self.tool,)  # the last would be taken for our name of another tool
        return (self.tool, self.own_name)

    @property
    def sets_variables(self) -> bool:
        """Does the call change the environment that its command runs in?"""
        return self.command is not None and bool(self.arguments.get(VARIABLES_ARGUMENT))


class _ToolTraits(NamedTuple):
    """A built-in tool: its traits, and which of its arguments names what."""

    effect: Effect
    kind: CallKind | None = None
    path: str | None = None
    url: str | None = None
    command: str | None = None


BUILT_IN: Mapping[str, _ToolTraits] = {
    "read_file": _ToolTraits(Effect.READ, path="path"),
    "list_directory": _ToolTraits(Effect.READ, path="path"),
    "glob": _ToolTraits(Effect.READ, path="path"),
    "grep": _ToolTraits(Effect.READ, path="path"),
    "read_output": _ToolTraits(Effect.READ),
    "write_file": _ToolTraits(Effect.IDEMPOTENT, CallKind.EDIT, path="path"),
    "edit": _ToolTraits(Effect.ONCE, CallKind.EDIT, path="path"),
    "shell": _ToolTraits(Effect.ONCE, CallKind.EXEC, command="command"),
    "shell_output": _ToolTraits(Effect.READ),
    "shell_stop": _ToolTraits(Effect.IDEMPOTENT),
    "fetch": _ToolTraits(Effect.READ, CallKind.INFO, url="url"),
    "ask_user": _ToolTraits(Effect.READ, CallKind.QUESTION),
    "delegate": _ToolTraits(Effect.READ),
}
FOLDER_ARGUMENT, VARIABLES_ARGUMENT = "directory", "environment"
"""The arguments that say where a command runs, and what is added to its environment."""
DESCRIPTION_ARGUMENT = "description"
"""The argument in which a model says what a command is for: its own words, which no rule reads."""
_HERE = "."
"""What a path that is left out means."""


def build_call_subject(
    tool: str, arguments: Mapping[str, JsonValue], *, workspace: Path | None = None, **known: Any
) -> Subject:
    """The subject of a call of a built-in tool or, as far as that goes, of another, with fields that are `known`.

    A server's tool may go by the name that the server has for it.
    """
    if (server := known.get("server")) and "own_name" not in known:
        tool, known["own_name"] = _split_tool_name(server, tool)
    what = BUILT_IN.get(tool, _ToolTraits(Effect.ONCE, CallKind.MCP if known.get("server") else None))
    if what.command:
        arguments = {**arguments, FOLDER_ARGUMENT: arguments.get(FOLDER_ARGUMENT) or _HERE}
        arguments.pop(DESCRIPTION_ARGUMENT, None)
    paths = [_locate_path(arguments.get(what.path, _HERE), workspace)] if what.path else []
    folder = [_locate_path(arguments[FOLDER_ARGUMENT], workspace)] if what.command else []
    found: dict[str, Any] = {
        "effect": what.effect,
        "kind": what.kind,
        "paths": tuple(paths),
        "urls": _list_texts(arguments, what.url),
        "command": next(iter(_list_texts(arguments, what.command)), None),
        "in_workspace": all(map(is_inside, paths + folder)),
    }
    return Subject(tool=tool, arguments=dict(arguments), **{**found, **known})


def _split_tool_name(server: str, tool: str) -> tuple[str, str]:
    """Our name for a server's tool, and the server's own, by either."""
    prefix = build_prefix(server)
    return (tool, tool.removeprefix(prefix)) if tool.startswith(prefix) else (build_tool_name(server, tool), tool)


def is_inside(path: str) -> bool:
    """Is a path that was normalised one of the workspace?"""
    return not path.startswith("/") and path.split("/", 1)[0] != ".."


def _locate_path(path: JsonValue, workspace: Path | None) -> str:
    """A path as seen from the workspace. Links are not followed: the gate knows where they lead."""
    text = path if isinstance(path, str) and path else _HERE
    if not text.startswith("/") or workspace is None:
        return posixpath.normpath(text)
    seen = os.path.relpath(posixpath.normpath(text), os.path.abspath(workspace))
    return seen if is_inside(seen) else posixpath.normpath(text)


def _list_texts(arguments: Mapping[str, JsonValue], name: str | None) -> tuple[str, ...]:
    value = arguments.get(name) if name else None
    return (value,) if isinstance(value, str) else ()
