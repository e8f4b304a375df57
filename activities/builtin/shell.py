"""`shell`: one command, in a process tree that ends with its call and outlives its worker.

It runs under a supervisor (`activities.supervision`), where the system has what that needs: a worker that dies leaves
it running, and the next one on the host finds it again. Elsewhere it ends with its worker, and cannot be closed in.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from holdfast.activities.command_calls import call_command, call_supervised
from holdfast.activities.commands import OURS, Command, environment
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.outputs import OutputStore
from holdfast.activities.policy.commands import told_of
from holdfast.activities.processes import to_the_end
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.approvals import Confirmation
from holdfast.content import Result
from holdfast.tools import Effect, Invocation, Run, Strict, Tool

SECONDS = 600.0
"""How long a command may run that says nothing else."""


class Shell(Tool):
    """Runs a command with bash."""

    name = "shell"
    description = (
        "Run a command with bash in the workspace and return its output. It gets no input, and nothing it starts "
        "outlives it."
    )
    effect = Effect.ONCE
    aborts_siblings = "streaming"
    live_output = True
    timeout_seconds = 3_600
    heartbeat_seconds = 5
    edits = "command"
    on_host = True

    class Parameters(Strict):
        """Arguments."""

        command: str = Field(description="The command, as bash reads it", min_length=1)
        directory: str = Field(default=".", description="Working directory, relative to the workspace")
        environment: dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
            default_factory=dict, description="Environment variables to add", max_length=100
        )
        timeout_seconds: float | None = Field(default=None, gt=0, le=3_600, description="Stop it after this long")

    def __init__(
        self,
        outputs: OutputStore,
        *,
        environment: Mapping[str, str] | None = None,
        inherit: bool = True,
        seconds: float = SECONDS,
        runs: Runs | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        assert runs or not sandbox, "a command is closed in by its supervisor"
        self._outputs = outputs
        self._environment = dict(environment or {})
        self._inherit = inherit
        self._seconds = seconds
        self._runs = runs
        self._sandbox = sandbox

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a working directory inside the workspace."""
        if not arguments.command.strip():
            raise ValueError("the command is blank")
        _check_text(arguments.command, *arguments.environment, *arguments.environment.values())
        if ours := [name for name in arguments.environment if name.upper().startswith(OURS)]:
            raise ValueError(f"the variable {ours[0]!r} is not for commands")
        directory = workspace.resolve() / Workspace(workspace).place(arguments.directory)
        if not directory.is_dir():
            raise ValueError(f"{arguments.directory!r} is not a folder of the workspace")
        command = Command(
            words=(shutil.which("bash") or "/bin/sh", "-c", arguments.command),
            directory=directory,
            seconds=arguments.timeout_seconds or self._seconds,
            environment=environment({**self._environment, **arguments.environment}, inherit=self._inherit),
        )
        if self._runs is None:
            return _Running(arguments, command, self._outputs)
        sandbox = replace(self._sandbox, workspace=workspace) if self._sandbox else None
        return _Supervised(arguments, command, self._outputs, self._runs, sandbox)


@dataclass
class _Running(Invocation):
    _arguments: Shell.Parameters
    _command: Command
    _outputs: OutputStore

    def describe(self) -> str:
        return f"Run {self._arguments.command}"

    async def should_confirm(self) -> Confirmation | None:
        command = self._arguments.command
        programs, doubts = told_of(command)
        return Confirmation(
            kind="exec",
            title=self.describe(),
            command=command,
            programs=programs,
            doubts=doubts,
            told=("command",),
        )

    async def execute(self, run: Run) -> Result:
        return await call_command(self._command, run, self._outputs)


@dataclass
class _Supervised(_Running):
    _runs: Runs
    _sandbox: Sandbox | None

    @property
    def resumable(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        return await call_supervised(self._command, run, self._outputs, self._runs, self._sandbox)

    async def stop(self, run: Run) -> bool:
        found = await self._runs.attach(run.effect_key)
        if found is None:
            return False
        await to_the_end(found.stop())
        return True

    async def forget(self, run: Run) -> None:
        await self._runs.forget(run.effect_key)


def _check_text(*texts: str) -> None:
    if any("\0" in text for text in texts):
        raise ValueError("a command and its environment hold no NUL character")
