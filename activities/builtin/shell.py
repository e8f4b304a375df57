"""`shell`: one command, in a process tree that ends with its call and outlives its worker.

It runs under a supervisor (`activities.supervision`) where the system supports one: the command goes on when its worker
dies, and the next worker on the host attaches to it. Elsewhere it ends with its worker, runs without a sandbox, and its
`cd` is not followed.

It runs in the folder where the last command ended, with the variables that its turn names (S47): by reference, so that
their values are only in the environments of the worker and of the command.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from holdfast.activities.builtin.shell_background import BackgroundLimits, start_command
from holdfast.activities.files.workspace import Workspace
from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.git_configuration import find_git_doubts
from holdfast.activities.policy.git_environment import guard_git, guard_git_unasked
from holdfast.activities.process.command import Command, build_environment, is_withheld, run_to_end
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.supervision.command_call import call_command, call_supervised_command
from holdfast.activities.supervision.run_protocol import add_folder_report, may_move
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.domain.approvals.approval import Confirmation
from holdfast.domain.calls.tool import Effect, Invocation, Run, StrictParameters, Tool
from holdfast.domain.content import Result
from holdfast.domain.context import HOME, Context, Dependence
from holdfast.util.text import elide_middle, shorten_text

DEFAULT_SECONDS = 600.0
"""Seconds that a command may run when its call gives no limit."""
COMMAND_SHOWN = 170
BACKGROUND_SHOWN = 125
FOLDER_SHOWN = 100
"""Characters of a title."""


class Shell(Tool):
    """Runs a command with bash in the workspace."""

    name = "shell"
    description = (
        "Run a command with bash in the workspace and return its output. It gets no input, and nothing it starts "
        "outlives it. The folder that it goes to with cd is the one that the next command runs in. With "
        "background the call answers at once with a handle, and the command goes on: shell_output reads its output, "
        "shell_stop stops it."
    )
    effect = Effect.ONCE
    aborts_siblings = "streaming"
    live_output = True
    timeout_seconds = 3_600
    heartbeat_seconds = 5
    edits = "command"
    on_host = True
    depends_on = ("folder", "environment")

    class Parameters(StrictParameters):
        """Arguments."""

        command: str = Field(description="The command, as bash reads it", min_length=1)
        directory: str | None = Field(
            default=None,
            description="Working directory, relative to the workspace; where the last command left off when left out",
        )
        environment: dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
            default_factory=dict, description="Environment variables to add", max_length=100
        )
        timeout_seconds: float | None = Field(default=None, gt=0, le=3_600, description="Stop it after this long")
        description: str | None = Field(
            default=None,
            max_length=500,
            description="What it is for, in one line, for whoever is asked to approve it",
        )
        background: bool = Field(
            default=False,
            description="Answer with a handle while the command goes on: for servers, watchers and long builds",
        )

    def __init__(
        self,
        outputs: OutputStore,
        *,
        environment: Mapping[str, str] | None = None,
        inherit: bool = True,
        seconds: float = DEFAULT_SECONDS,
        runs: Runs | None = None,
        sandbox: Sandbox | None = None,
        background: BackgroundLimits | None = None,
    ) -> None:
        """Without `runs` commands end with their worker; without `background` none may go on after its call."""
        assert runs or not sandbox, "a command is closed in by its supervisor"
        self._outputs = outputs
        self._environment = dict(environment or {})
        self._inherit = inherit
        self._seconds = seconds
        self._runs = runs
        self._sandbox = sandbox
        self._background = background

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to the given folder of the workspace, or to its top. ValueError when that is not possible."""
        return self.build_in(arguments, workspace, Context())

    def build_in(self, arguments: Parameters, workspace: Path, context: Context) -> Invocation:
        """Bind to the given folder, else to that of the context, and to the context's variables."""
        if not arguments.command.strip():
            raise ValueError("the command is blank")
        _check_text(arguments.command, *arguments.environment, *arguments.environment.values())
        _check_names(arguments.environment)
        folder = _resolve_folder(arguments.directory, workspace, context)
        bash = shutil.which("bash")
        background = self._get_background() if arguments.background else None
        follow = bool(bash and self._runs) and may_move(arguments.command) and not background
        added = {**self._environment, **_resolve_references(context.environment), **arguments.environment}
        command = Command(
            words=(bash or "/bin/sh", "-c", add_folder_report(arguments.command) if follow else arguments.command),
            directory=workspace.resolve() / folder,
            seconds=arguments.timeout_seconds or (background.seconds if background else self._seconds),
            environment=guard_git(build_environment(added, inherit=self._inherit)),
            follow=follow,
        )
        if self._runs is None:
            return _ShellInvocation(arguments, folder, command, self._outputs, workspace)
        sandbox = replace(self._sandbox, workspace=workspace) if self._sandbox else None
        return _SupervisedInvocation(
            arguments, folder, command, self._outputs, workspace, self._runs, sandbox, background
        )

    def _get_background(self) -> BackgroundLimits:
        """The limits of a background command; ValueError where none may run."""
        if self._background is None:
            raise ValueError("`background` is not available: tools.shell.background is off")
        if self._runs is None:
            raise ValueError("`background` is not available: commands end with their worker on this system")
        return self._background


@dataclass
class _ShellInvocation(Invocation):
    _arguments: Shell.Parameters
    _folder: str
    _command: Command
    _outputs: OutputStore
    _workspace: Path

    def describe(self) -> str:
        run = "Run in the background, beyond this call:" if self._arguments.background else "Run"
        if self._folder == HOME:
            return f"{run} {self._arguments.command}"
        # Short enough that where it runs is never what is cut.
        most = BACKGROUND_SHOWN if self._arguments.background else COMMAND_SHOWN
        return f"{run} {shorten_text(self._arguments.command, most)} (in {elide_middle(self._folder, FOLDER_SHOWN)})"

    def list_dependences(self) -> tuple[Dependence, ...]:
        return ("environment",) if self._arguments.directory is not None else ("folder", "environment")

    async def should_confirm(self) -> Confirmation | None:
        command = self._arguments.command
        reading = CommandReading(command)
        within = (self._command.directory, self._workspace, self._command.environment)
        git_doubts = await asyncio.to_thread(find_git_doubts, command, *within)
        return Confirmation(
            kind="exec",
            title=self.describe(),
            command=command,
            programs=reading.program_names,
            doubts=reading.doubts + git_doubts,
            told=("command", "description"),
            description=self._arguments.description,
        )

    async def execute(self, run: Run) -> Result:
        return await call_command(await self._build_guarded(run), run, self._outputs)

    async def _build_guarded(self, run: Run) -> Command:
        """The command; where no person was asked, with a git that runs only programs that the user configured."""
        if not run.is_unasked:
            return self._command
        command = self._command
        guarded = await asyncio.to_thread(guard_git_unasked, command.environment, command.directory)
        return replace(command, environment=guarded)


@dataclass
class _SupervisedInvocation(_ShellInvocation):
    _runs: Runs
    _sandbox: Sandbox | None
    _background: BackgroundLimits | None = None

    @property
    def is_resumable(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        command = await self._build_guarded(run)
        if self._background is None:
            return await call_supervised_command(command, run, self._outputs, self._runs, self._sandbox)
        return await start_command(command, run, self._runs, self._sandbox, self._outputs, self._background)

    async def stop(self, run: Run) -> bool:
        found = await self._runs.attach(run.effect_key)
        if found is None:
            return False
        await run_to_end(found.stop())
        return True

    async def clean_up(self, run: Run) -> None:
        if self._background is None:  # else it goes on, and is read later
            await self._runs.remove_run(run.effect_key)


def _resolve_folder(directory: str | None, workspace: Path, context: Context) -> str:
    """The folder that the command runs in, relative to the workspace, with links followed."""
    try:
        return _locate_folder(context.folder if directory is None else directory, workspace)
    except ValueError as error:
        if directory is not None or context.folder == HOME:
            raise
        advice = "the last command left off there: say in `directory` where this one is to run"
        raise ValueError(f"{error}; {advice}") from error


def _locate_folder(folder: str, workspace: Path) -> str:
    place = Workspace(workspace).resolve_path(folder)
    if not (workspace / place).is_dir():
        raise ValueError(f"{folder!r} is not a folder of the workspace")
    return place


def _resolve_references(environment: Mapping[str, str]) -> dict[str, str]:
    """Replace references by the values of the worker's variables. ValueError for one that the worker does not have."""
    _check_names(environment)
    _check_names(environment.values())
    if missing := [name for name, source in environment.items() if source not in os.environ]:
        source = environment[missing[0]]
        problem = f"the variable {missing[0]!r} of this turn takes its value from {source!r} of the worker"
        raise ValueError(f"{problem}, which is not set: set it where the worker is started")
    return {name: os.environ[source] for name, source in environment.items()}


def _check_names(names: Iterable[str]) -> None:
    if ours := [name for name in names if is_withheld(name)]:
        raise ValueError(f"the variable {ours[0]!r} is not for commands")


def _check_text(*texts: str) -> None:
    if any("\0" in text for text in texts):
        raise ValueError("a command and its environment hold no NUL character")
