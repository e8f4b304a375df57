"""What calls of a turn run within, and what may change it for the calls after (S47). Data of the turn, nothing more."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, field_validator

from holdfast.domain.base import Data

Dependence = Literal["folder", "environment"]
"""What of the context a tool's calls go by."""
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,200}$")]
Folder = Annotated[str, StringConstraints(min_length=1, max_length=4_096)]
ToolName = Annotated[str, StringConstraints(max_length=300)]
ToolPattern = Annotated[str, StringConstraints(pattern=r"^[^\s,?\[\]]+$", max_length=300)]
"""The name of a tool, or names with `*` for any text: `github__*`."""
MAX_PATTERNS = 1_000

HOME = "."


class Context(Data):
    """What the next call runs within."""

    folder: str = HOME
    """Where commands run, in the workspace."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of commands, each by the name of the variable of the worker that has its value."""
    tools: tuple[str, ...] | None = None
    """The tools there are, if not all."""

    def has_tool(self, tool: str) -> bool:
        """Is this tool among those there are?"""
        return self.tools is None or tool in self.tools


def names_tool(patterns: Collection[str] | None, tool: str) -> bool:
    """Is this tool on a list of names and patterns? None is a list of all."""
    return patterns is None or any(fnmatchcase(tool, pattern) for pattern in patterns)


class ContextChange(Data):
    """What a call that ran alone leaves for the calls after it. What is left out stays as it was."""

    # A value that was given in place of a name must not get into an error, and by that into a history.
    model_config = ConfigDict(hide_input_in_errors=True)

    folder: Folder | None = None
    environment: dict[Variable, Variable | None] = Field(default_factory=dict, max_length=100)
    """Variables by reference; None takes one away."""
    tools: tuple[ToolName, ...] | Literal["all"] | None = None

    @field_validator("tools")
    @classmethod
    def _check_tool_count(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        if isinstance(value, tuple) and len(value) > 1_000:
            raise ValueError("at most 1,000 tools can be named")
        return value


def apply_context_change(context: Context, change: ContextChange) -> Context:
    """The context after a change."""
    environment = {**context.environment, **change.environment}
    return Context(
        folder=change.folder or context.folder,
        environment={name: source for name, source in environment.items() if source is not None},
        tools=context.tools if change.tools is None else None if change.tools == "all" else change.tools,
    )


def describe_context_change(before: Context, after: Context) -> str:
    """What changed, in a line."""
    said = [f"folder {after.folder}"] if after.folder != before.folder else []
    names = {name for name, _ in before.environment.items() ^ after.environment.items()}
    said += [f"environment {', '.join(sorted(names))}"] if names else []
    said += [f"tools {'all' if after.tools is None else len(after.tools)}"] if after.tools != before.tools else []
    return ", ".join(said)


def select_context(context: Context, depends_on: tuple[Dependence, ...]) -> dict[str, JsonValue]:
    """What of the context a tool's call goes by, as far as it is not what every turn begins with: for its digest."""
    parts: dict[str, JsonValue] = {}
    if "folder" in depends_on and context.folder != HOME:
        parts["folder"] = context.folder
    if "environment" in depends_on and context.environment:
        parts["environment"] = dict(context.environment)
    return parts
