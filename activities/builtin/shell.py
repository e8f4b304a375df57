"""`shell`: one command, in a process tree that dies with its call."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from holdfast.activities.outputs import OutputStore, Spool
from holdfast.activities.processes import MARKER, kill_tree, to_the_end
from holdfast.activities.workspace import Workspace
from holdfast.approvals import Confirmation
from holdfast.content import Result, TextPart, plain
from holdfast.tools import Effect, Invocation, Run, Tool, ToolFailure

OURS = ("TEMPORAL_", "HOLDFAST_")
"""Variables a command does not inherit: they may hold our credentials."""
CHUNK = 65_536
READ_SECONDS = 5.0
"""How long output is still read after the end, when something we cannot find holds it open."""


class Shell(Tool):
    """Runs a command with bash."""

    name = "shell"
    description = (
        "Run a command with bash in the workspace and return its output. It gets no input, and nothing it starts "
        "outlives it."
    )
    effect = Effect.ONCE
    timeout_seconds = 3_600

    class Parameters(BaseModel):
        """Arguments."""

        model_config = ConfigDict(extra="forbid")

        command: str = Field(description="The command, as bash reads it", min_length=1)
        directory: str = Field(default=".", description="Working directory, relative to the workspace")
        timeout_seconds: float = Field(default=600, gt=0, le=3_600, description="Stop it after this long")

    def __init__(self, outputs: OutputStore) -> None:
        self._outputs = outputs

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to a working directory inside the workspace."""
        if not arguments.command.strip():
            raise ValueError("the command is blank")
        if "\0" in arguments.command:
            raise ValueError("a command holds no NUL character")
        directory = workspace.resolve() / Workspace(workspace).place(arguments.directory)
        if not directory.is_dir():
            raise ValueError(f"{arguments.directory!r} is not a folder of the workspace")
        return _Command(arguments, directory, self._outputs)


class _Command(Invocation):
    def __init__(self, arguments: Shell.Parameters, directory: Path, outputs: OutputStore) -> None:
        self._command = arguments.command
        self._seconds = arguments.timeout_seconds
        self._directory = directory
        self._outputs = outputs

    def describe(self) -> str:
        return f"Run {self._command}"

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(kind="exec", title=self.describe(), command=self._command, programs=programs(self._command))

    async def execute(self, run: Run) -> Result:
        spool = self._outputs.spool()
        try:
            return await self._run(run, spool)
        finally:
            spool.discard()

    async def _run(self, run: Run, spool: Spool) -> Result:
        # The pipe is our own: asyncio's would make `wait` last until every background child has closed it.
        receiving, sending = os.pipe()
        try:
            process = await to_the_end(self._begin(sending, run.key))
        except BaseException as error:
            os.close(receiving)
            if not isinstance(error, OSError):
                raise
            raise ToolFailure("command_not_started", f"The command could not start: {error}") from error
        finally:
            os.close(sending)
        run.started(process.pid)
        reading = asyncio.create_task(_read(receiving, run, spool))
        try:
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # it came while the command was starting
            async with asyncio.timeout(self._seconds):
                code = await process.wait()
        except TimeoutError:
            await to_the_end(_end(process, run, reading))
            message = f"The command was stopped: it ran longer than {self._seconds:g} seconds"
            raise ToolFailure("timeout", message, _parts(spool)) from None
        except asyncio.CancelledError:
            await to_the_end(_end(process, run, reading))
            raise
        # A stop that comes now comes too late: the command has ended, and keeps its result.
        await to_the_end(_end(process, run, reading))
        parts = _parts(spool)
        if code != 0:
            raise ToolFailure("command_failed", _how_it_ended(code), parts)
        return Result(parts=parts or (TextPart(text="(no output)"),))

    async def _begin(self, output: int, key: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            shutil.which("bash") or "/bin/sh",
            "-c",
            self._command,
            cwd=self._directory,
            env=_environment(key),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def programs(command: str) -> tuple[str, ...]:
    """The programs a command names at a glance. For a person to read, not for deciding what may run."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[str] = []
    expecting = True
    try:
        for word in lexer:
            if word and set(word) <= set("();<>|&\n"):
                expecting = not set(word) & set("<>")
            elif expecting and "=" not in word and not word.startswith("#"):
                found.append(word)
                expecting = False
    except ValueError:
        pass
    return tuple(dict.fromkeys(found))


async def _read(pipe: int, run: Run, spool: Spool) -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    try:
        while data := await reader.read(CHUNK):
            run.write(spool.write(data))
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process, run: Run, reading: asyncio.Task[None]) -> None:
    """Nothing of the command is left, and everything it said is read."""
    await kill_tree(process.pid, run.key)
    await process.wait()
    try:
        async with asyncio.timeout(READ_SECONDS):
            await reading
    except TimeoutError:
        reading.cancel()


def _environment(key: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, MARKER: key, "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def _parts(spool: Spool) -> tuple[TextPart, ...]:
    part = spool.part()
    return (part.model_copy(update={"text": plain(part.text)}),) if part.text else ()


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"The command was ended by signal {-code}"
    return f"The command exited with code {code}"
