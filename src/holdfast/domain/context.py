"""The context of the calls of a turn: folder, environment and tools; and changes of it by calls (S47). Pure data."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, field_validator

from holdfast.domain.base import Data

Dependence = Literal["folder", "environment"]
"""A part of the context that the calls of a tool may depend on."""
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,200}$")]
Folder = Annotated[str, StringConstraints(min_length=1, max_length=4_096)]
ToolName = Annotated[str, StringConstraints(max_length=300)]
ToolPattern = Annotated[str, StringConstraints(pattern=r"^[^\s,?\[\]]+$", max_length=300)]
"""The name of a tool, or a pattern with `*` for any text: `github__*`."""
MAX_PATTERNS = 1_000

HOME = "."


class Context(Data):
    """The context of the next call of a turn: the folder and environment of commands, and the available tools."""

    folder: str = HOME
    """The folder of commands, relative to the workspace."""
    environment: dict[str, str] = Field(default_factory=dict)
    """The variables of commands: for each, the name of the worker's variable that has its value."""
    tools: tuple[str, ...] | None = None
    """The available tools; None for all."""

    def has_tool(self, tool: str) -> bool:
        """Is this tool available?"""
        return self.tools is None or tool in self.tools


def names_tool(patterns: Collection[str] | None, tool: str) -> bool:
    """Does a list of names and patterns contain this tool? None contains all."""
    return patterns is None or any(fnmatchcase(tool, pattern) for pattern in patterns)


class ContextChange(Data):
    """A change of the context by a call that ran alone. None leaves a field unchanged."""

    # A tool may give a secret value in place of a variable's name: it must not get into an error, and so a history.
    model_config = ConfigDict(hide_input_in_errors=True)

    folder: Folder | None = None
    environment: dict[Variable, Variable | None] = Field(default_factory=dict, max_length=100)
    """Variables by the names of the worker's; None removes one."""
    tools: tuple[ToolName, ...] | Literal["all"] | None = None

    @field_validator("tools")
    @classmethod
    def _check_tool_count(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        if isinstance(value, tuple) and len(value) > 1_000:
            raise ValueError("at most 1,000 tools can be named")
        return value


def apply_context_change(context: Context, change: ContextChange) -> Context:
    """Apply a change to a context."""
    environment = {**context.environment, **change.environment}
    return Context(
        folder=change.folder or context.folder,
        environment={name: source for name, source in environment.items() if source is not None},
        tools=context.tools if change.tools is None else None if change.tools == "all" else change.tools,
    )


def describe_context_change(before: Context, after: Context) -> str:
    """Describe what changed, in one line."""
    changes = [f"folder {after.folder}"] if after.folder != before.folder else []
    names = {name for name, _ in before.environment.items() ^ after.environment.items()}
    changes += [f"environment {', '.join(sorted(names))}"] if names else []
    changes += [f"tools {'all' if after.tools is None else len(after.tools)}"] if after.tools != before.tools else []
    return ", ".join(changes)


def select_context(context: Context, depends_on: tuple[Dependence, ...]) -> dict[str, JsonValue]:
    """Select the parts of the context for the digest of a call, without those that have their default."""
    parts: dict[str, JsonValue] = {}
    if "folder" in depends_on and context.folder != HOME:
        parts["folder"] = context.folder
    if "environment" in depends_on and context.environment:
        parts["environment"] = dict(context.environment)
    return parts
