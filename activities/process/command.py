"""Running one command: its output read as it comes, its time limited, its process tree dead before we return."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.activities.process.process_tree import MARKER, kill_tree, run_to_end
from holdfast.config.provider_keys import MODEL_KEYS, OUR_PREFIXES
from holdfast.domain.calls.tool import ToolFailure

_WITHHELD_NAMES = set(MODEL_KEYS)
"""Others that it does not: they are for asking models, and what the settings refer to (`withhold_variables`)."""
USUAL_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM")
"""Variables a command gets that inherits none of the others."""
CHUNK_SIZE = 65_536
READ_SECONDS = 5.0
"""How long output is still read after the end, when something we cannot find holds it open."""

Sink = Callable[[bytes], object]


@dataclass(frozen=True)
class Command:
    """What to run, and where."""

    words: Sequence[str]
    directory: Path
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)
    """All of it: nothing else is inherited."""
    input: bytes = b""
    follow: bool = False
    """Its shell tells where it ended (`supervision.working_directory`). Only a supervisor hears that."""


def withhold_variables(*names: str) -> None:
    """Let no command of this process inherit these variables."""
    _WITHHELD_NAMES.update(names)


def is_withheld(name: str) -> bool:
    """Is this a variable that commands do not get?"""
    return name.upper().startswith(OUR_PREFIXES) or name in _WITHHELD_NAMES


def build_environment(added: Mapping[str, str], *, inherit: bool = True) -> dict[str, str]:
    """What a command finds in its environment: ours without what is only ours, and what was added."""
    names = [name for name in os.environ if not is_withheld(name)]
    kept = {name: os.environ[name] for name in names if inherit or name in USUAL_VARIABLES or name.startswith("LC_")}
    return {**kept, "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", **added}


async def run_command(
    command: Command, key: str, *, output: Sink, errors: Sink | None = None, on_start: Callable[[int], None]
) -> int:
    """Its exit code, negative for a signal. TimeoutError when it ran too long; nothing of it is left in any case.

    What it says on standard error goes to `errors`, or to `output` in the order it was said.
    """
    pipes = [_Pipe(output)] + ([_Pipe(errors)] if errors else [])
    try:
        process = await run_to_end(_start_process(command, key, pipes))
    except BaseException as error:
        for pipe in pipes:
            os.close(pipe.receiving)
        if not isinstance(error, OSError | ValueError):
            raise
        raise ToolFailure("command_not_started", f"The command could not start: {error}") from error
    finally:
        for pipe in pipes:
            os.close(pipe.sending)
    on_start(process.pid)
    reading = [asyncio.create_task(pipe.read()) for pipe in pipes]
    try:
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError  # it came while the command was starting
        async with asyncio.timeout(command.seconds):
            return await process.wait()
    finally:
        # However it ended; and a stop that comes now comes too late, for a command that has ended keeps its result.
        await run_to_end(_end_process(process, key, reading))


class _Pipe:
    """A pipe of our own: asyncio's would make `wait` last until every background child has closed it."""

    def __init__(self, sink: Sink) -> None:
        self.receiving, self.sending = os.pipe()
        self._sink = sink

    async def read(self) -> None:
        """Give everything to the sink."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.receiving, "rb", buffering=0)
        )
        try:
            while data := await reader.read(CHUNK_SIZE):
                self._sink(data)
        finally:
            transport.close()


async def _start_process(command: Command, key: str, pipes: Sequence[_Pipe]) -> asyncio.subprocess.Process:
    # Input comes from a file: a command that does not read it cannot make us wait.
    with tempfile.TemporaryFile() as input:
        input.write(command.input)
        input.seek(0)
        return await asyncio.create_subprocess_exec(
            *command.words,
            cwd=command.directory,
            env={**command.environment, MARKER: key},
            stdin=input if command.input else asyncio.subprocess.DEVNULL,
            stdout=pipes[0].sending,
            stderr=pipes[-1].sending,
            start_new_session=True,
        )


async def _end_process(process: asyncio.subprocess.Process, key: str, reading: Sequence[asyncio.Task[None]]) -> None:
    """Nothing of the command is left, and everything it said is read."""
    await kill_tree(process.pid, key)
    await process.wait()
    _, late = await asyncio.wait(reading, timeout=READ_SECONDS)
    for task in late:
        task.cancel()
    for task in reading:
        if task.done() and not task.cancelled():
            task.result()


def describe_exit_code(code: int) -> str:
    """An exit code in words."""
    return f"The command was ended by signal {-code}" if code < 0 else f"The command exited with code {code}"
