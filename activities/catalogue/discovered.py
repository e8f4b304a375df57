"""A tool that a command runs: its name as the last argument, its arguments as JSON on standard input."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.activities.catalogue.schemas import strip_invisible
from holdfast.activities.command_calls import call_command
from holdfast.activities.commands import Command, build_environment
from holdfast.activities.outputs import OutputStore
from holdfast.approvals import Confirmation
from holdfast.content import Result, seen, shorten_text
from holdfast.tools import Effect, Invocation, Run, Tool

if TYPE_CHECKING:
    from holdfast.activities.catalogue.discovery import DiscoveredDeclaration
    from holdfast.configuration import DiscoverySettings


class DiscoveredTool(Tool):
    """Declared by one command, run by another."""

    checks_quickly = True

    live_output = True

    def __init__(self, settings: DiscoverySettings, declared: DiscoveredDeclaration, outputs: OutputStore) -> None:
        self.name = declared.name
        self.display_name = declared.display_name
        self.description = seen(declared.description or f"{declared.name}, a tool of {settings.name}")
        self.effect = declared.effect or settings.effect
        self.timeout_seconds = settings.call_timeout_seconds + 30
        self.Parameters = {"type": "object", **strip_invisible(declared.parameters)}
        self._settings = settings
        self._outputs = outputs

    def build(self, arguments: dict[str, Any], workspace: Path) -> Invocation:
        """Bind the arguments."""
        command = Command(
            words=(*self._settings.call_command, self.name),
            directory=Path(self._settings.folder),
            seconds=self._settings.call_timeout_seconds,
            environment=build_environment(self._settings.environment),
            input=json.dumps(arguments).encode(),
        )
        return _CommandInvocation(self, arguments, command, self._outputs)


class _CommandInvocation(Invocation):
    def __init__(self, tool: DiscoveredTool, arguments: dict[str, Any], command: Command, outputs: OutputStore) -> None:
        self._tool = tool
        self._arguments = arguments
        self._command = command
        self._outputs = outputs

    def describe(self) -> str:
        return f"{self._tool.display_name or self._tool.name} {shorten_text(json.dumps(self._arguments), 200)}"

    def is_concurrency_safe(self) -> bool:
        return self._tool.effect is Effect.READ

    async def should_confirm(self) -> Confirmation | None:
        if self._tool.effect is Effect.READ:
            return None
        return Confirmation(kind="exec", title=self.describe(), command=shlex.join(self._command.words))

    async def execute(self, run: Run) -> Result:
        return await call_command(self._command, run, self._outputs, errors_apart=True)
