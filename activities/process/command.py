"""One command that ends with its worker: its output read as it comes, its time limited, its process tree killed.

A process tree is everything in the process group of the command, and everything that carries its mark: an environment
variable that children inherit, so that a process that left the group (setsid, double fork) is found as well. One that
also clears its environment is not found; only a PID namespace would hold that (`supervision.sandbox`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from holdfast.activities.process.proc import list_pids, read_state
from holdfast.config.provider_keys import MODEL_KEYS, OUR_PREFIXES
from holdfast.domain.calls.tool import ToolFailure

T = TypeVar("T")
Sink = Callable[[bytes], object]
"""Takes the output of a command, piece by piece."""

MARKER = "HOLDFAST_CALL"
"""The variable that marks every process of a call."""
TERM_SECONDS = 2.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.02
USUAL_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM")
"""Variables of the worker that a command gets even when it inherits none."""
CHUNK_SIZE = 65_536
READ_SECONDS = 5.0
"""How long output is read after the end of a command, while a process that cannot be found holds the pipe open."""
_WITHHELD_NAMES = set(MODEL_KEYS)
_KILL_THREADS = ThreadPoolExecutor(4, "holdfast-processes")
"""Not the default threads of the event loop: a stop must not wait behind slow files."""


@dataclass(frozen=True)
class Command:
    """A command: its words, its folder, its environment and its time limit."""

    words: Sequence[str]
    directory: Path
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)
    """The whole environment: nothing else is inherited."""
    input: bytes = b""
    follow: bool = False
    """The words report the final folder of the shell (`supervision.run_protocol`). Only a supervisor reads that."""


class ProbeResult(NamedTuple):
    """The exit code and the output of a probe."""

    code: int
    output: str
    errors: str


def withhold_variables(*names: str) -> None:
    """Keep these variables from all further commands of this process."""
    _WITHHELD_NAMES.update(names)


def is_withheld(name: str) -> bool:
    """Is this a variable that commands never get: one of Holdfast, a key of a model, or one that was withheld?"""
    return name.upper().startswith(OUR_PREFIXES) or name in _WITHHELD_NAMES


def build_environment(added: Mapping[str, str], *, inherit: bool = True) -> dict[str, str]:
    """The environment of a command: the worker's variables that are not withheld, then those that are `added`.

    Without `inherit`, only the usual ones of the worker.
    """
    names = [name for name in os.environ if not is_withheld(name)]
    inherited = {
        name: os.environ[name] for name in names if inherit or name in USUAL_VARIABLES or name.startswith("LC_")
    }
    return {**inherited, "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", **added}


async def run_command(
    command: Command, key: str, *, output: Sink, errors: Sink | None = None, on_start: Callable[[int], None]
) -> int:
    """Run a command to its end; its exit code, negative for a signal. Nothing of its process tree is left.

    Standard error goes to `errors`, or to `output` in the order of writing. Raises ToolFailure when the command could
    not start, TimeoutError when it ran too long.
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
            raise asyncio.CancelledError  # it was cancelled while the command was starting
        async with asyncio.timeout(command.seconds):
            return await process.wait()
    finally:
        # Not to be cancelled: a command that has ended keeps its result, also when a stop comes now.
        await run_to_end(_end_process(process, key, reading))


def describe_exit_code(code: int) -> str:
    """A sentence for an exit code other than 0; a negative one is a signal."""
    return f"The command was ended by signal {-code}" if code < 0 else f"The command exited with code {code}"


async def probe_program(*words: str, seconds: float) -> ProbeResult | None:
    """Run a short program of the system; None when it does not end in time. OSError when it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return ProbeResult(process.returncode or 0, *(data.decode("utf-8", "replace").strip() for data in (output, errors)))


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, however often this task is cancelled meanwhile. For cleaning up."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


async def kill_tree(group: int, key: str) -> None:
    """Send SIGTERM to a process tree, and SIGKILL to what is left after two seconds.

    Returns when nothing is left, or after five seconds of killing.
    """
    if not await _signal_until_gone(group, key, signal.SIGTERM, TERM_SECONDS):
        await _signal_until_gone(group, key, signal.SIGKILL, KILL_SECONDS)


class _Pipe:
    """A pipe of our own: with asyncio's, `wait` would last until every background child has closed it."""

    def __init__(self, sink: Sink) -> None:
        self.receiving, self.sending = os.pipe()
        self._sink = sink

    async def read(self) -> None:
        """Pass everything on to the sink, until the other end is closed."""
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
    # The input is a file, not a pipe: a command that does not read it cannot block the worker.
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
    """Kill the process tree, and read the output to its end."""
    await kill_tree(process.pid, key)
    await process.wait()
    _, late = await asyncio.wait(reading, timeout=READ_SECONDS)
    for task in late:
        task.cancel()
    for task in reading:
        if task.done() and not task.cancelled():
            task.result()


async def _signal_until_gone(group: int, key: str, number: signal.Signals, seconds: float) -> bool:
    """Send a signal to a process tree; whether all of it ended in time.

    SIGKILL is also sent to processes that appear meanwhile. SIGTERM is not: they may be how a command cleans up.
    """
    signalled: set[int] = set()
    deadline = time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    while members := await loop.run_in_executor(_KILL_THREADS, _list_members, group, key):
        if time.monotonic() > deadline:
            return False
        for pid in members - signalled if number == signal.SIGKILL or not signalled else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        signalled |= members
        await asyncio.sleep(POLL_SECONDS)
    return True


def _list_members(group: int, key: str) -> set[int]:
    """The living processes of the group or with the mark; without /proc, the group alone as one negative number."""
    if not Path("/proc/self/environ").exists():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, 0)
            return {-group}
        return set()
    mark, own = f"{MARKER}={key}".encode(), os.getpid()
    return {
        pid
        for pid in list_pids()
        if pid != own and read_state(pid) not in (None, "Z") and (_is_in_group(pid, group) or _has_mark(pid, mark))
    }


def _is_in_group(pid: int, group: int) -> bool:
    with suppress(OSError):
        return os.getpgid(pid) == group
    return False


def _has_mark(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
