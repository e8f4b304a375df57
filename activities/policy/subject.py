"""The subject of a rule: one call, as values and never as text to be searched; and `Truth`, the result of every test.

The gate fills a `Subject` from the tool's own invocation. `build_call_subject` makes one from a tool's name and
arguments alone, for examples, expectations and the command line; only it knows the arguments of the built-in tools.
"""

from __future__ import annotations

import os.path
import posixpath
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, JsonValue, field_validator

from holdfast.domain.base import Data
from holdfast.domain.calls.tool import Effect
from holdfast.util.mcp_names import build_prefix, build_tool_name


class Truth(IntEnum):
    """Whether a condition holds of a call of which not everything is known. `min` is "and", `max` is "or"."""

    NO = 0
    MAYBE = 1
    YES = 2


def to_truth(value: bool) -> Truth:
    """YES or NO."""
    return Truth.YES if value else Truth.NO


def combine_all(values: Iterable[Truth]) -> Truth:
    """Do all of them hold? NO for none: nothing was shown to be covered."""
    return min(values, default=Truth.NO)


def combine_any(values: Iterable[Truth]) -> Truth:
    """Does at least one of them hold?"""
    return max(values, default=Truth.NO)


class CallKind(StrEnum):
    """The kind of question that a call would raise (S20)."""

    EXEC = "exec"
    EDIT = "edit"
    MCP = "mcp"
    INFO = "info"
    QUESTION = "question"


class Subject(Data):
    """One call, as rules see it."""

    tool: str
    server: str | None = None
    own_name: str | None = None
    """The server's own name for its tool."""
    effect: Effect
    kind: CallKind | None = None
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments as they will execute."""
    paths: tuple[str, ...] = ()
    """Files and folders that it acts on, relative to the workspace; absolute or with a leading `..` when outside."""
    urls: tuple[str, ...] = ()
    command: str | None = None
    in_workspace: bool = True
    """All paths that it names are inside of the workspace."""
    tainted: bool = False
    """The turn has taken in content from outside."""
    sends: bool = False
    """The call sends data out."""
    destructive: bool = False
    """Its tool declares itself destructive."""
    protected: dict[str, str] = Field(default_factory=dict)
    """The files that it would change and that decide what runs, each with the reason (`protected_files`)."""
    doubts: tuple[str, ...] = ()
    """Doubts of its tool about its command, beside those that the command itself leaves."""

    @field_validator("paths")
    @classmethod
    def _normalise_paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        """A rule about `docs/a` is also about `./docs/x/../a`."""
        return tuple(posixpath.normpath(path) for path in paths)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names by which a rule with a server may know its tool: ours, and the server's own."""
        if self.server is None or self.own_name is None or self.own_name.startswith(build_prefix(self.server)):
            return (self.tool,)  # the last would be taken for our name of another tool
        return (self.tool, self.own_name)

    @property
    def sets_variables(self) -> bool:
        """Does the call add variables to the environment of its command?"""
        return self.command is not None and bool(self.arguments.get(VARIABLES_ARGUMENT))


class _ToolTraits(NamedTuple):
    """The traits of a built-in tool, and the names of the arguments that hold a path, a url or a command."""

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
"""The arguments of a command for its folder and its additional variables."""
DESCRIPTION_ARGUMENT = "description"
"""The argument in which a model describes its command: no rule reads it."""
_HERE = "."
"""The meaning of a path that is left out."""


def build_call_subject(
    tool: str, arguments: Mapping[str, JsonValue], *, workspace: Path | None = None, **known: Any
) -> Subject:
    """The subject of a call, from its arguments and the fields that are `known`.

    Complete for built-in tools; for others, only what is known. A server's tool may go by the server's own name.
    """
    if (server := known.get("server")) and "own_name" not in known:
        tool, known["own_name"] = _split_tool_name(server, tool)
    traits = BUILT_IN.get(tool, _ToolTraits(Effect.ONCE, CallKind.MCP if known.get("server") else None))
    if traits.command:
        arguments = {**arguments, FOLDER_ARGUMENT: arguments.get(FOLDER_ARGUMENT) or _HERE}
        arguments.pop(DESCRIPTION_ARGUMENT, None)
    paths = [_locate_path(arguments.get(traits.path, _HERE), workspace)] if traits.path else []
    folder = [_locate_path(arguments[FOLDER_ARGUMENT], workspace)] if traits.command else []
    found: dict[str, Any] = {
        "effect": traits.effect,
        "kind": traits.kind,
        "paths": tuple(paths),
        "urls": _list_texts(arguments, traits.url),
        "command": next(iter(_list_texts(arguments, traits.command)), None),
        "in_workspace": all(map(is_inside, paths + folder)),
    }
    return Subject(tool=tool, arguments=dict(arguments), **{**found, **known})


def is_inside(path: str) -> bool:
    """Is a normalised path inside of the workspace?"""
    return not path.startswith("/") and path.split("/", 1)[0] != ".."


def _split_tool_name(server: str, tool: str) -> tuple[str, str]:
    """Our name for a server's tool and the server's own, from either of them."""
    prefix = build_prefix(server)
    return (tool, tool.removeprefix(prefix)) if tool.startswith(prefix) else (build_tool_name(server, tool), tool)


def _locate_path(path: JsonValue, workspace: Path | None) -> str:
    """A path relative to the workspace. Links are not resolved: only the gate knows where they lead."""
    text = path if isinstance(path, str) and path else _HERE
    if not text.startswith("/") or workspace is None:
        return posixpath.normpath(text)
    seen = os.path.relpath(posixpath.normpath(text), os.path.abspath(workspace))
    return seen if is_inside(seen) else posixpath.normpath(text)


def _list_texts(arguments: Mapping[str, JsonValue], name: str | None) -> tuple[str, ...]:
    value = arguments.get(name) if name else None
    return (value,) if isinstance(value, str) else ()
