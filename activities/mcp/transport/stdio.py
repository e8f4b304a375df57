"""MCP over the standard input and output of a process.

In place of the `mcp` package's: a line is bounded, an invalid line costs at most the connection, and nothing of the
process tree outlives it, also not what left its process group. See `transport/__init__.py`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from mcp_types import JSONRPCRequest

from holdfast.activities.mcp.resolve import ResolvedServer
from holdfast.activities.mcp.transport.dispatcher import Dispatcher, IncomingStream, OutgoingStream
from holdfast.activities.mcp.transport.faults import Failure, Fault
from holdfast.activities.mcp.transport.jsonrpc import END_KEPT, MESSAGE_LIMIT, Pace, encode_message, find_answered_id
from holdfast.activities.mcp.transport.server_log import ServerRemarks
from holdfast.activities.process.command import MARKER, kill_tree, run_to_end
from holdfast.errors import BadInput
from holdfast.util.redaction import Redacted


class LineBuffer:
    """Collects bytes into lines. Of a line that is too long only the two ends are kept."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._dropped = False

    def add_data(self, data: bytes) -> list[bytes | OversizedLine]:
        """Add bytes and return the lines that they complete."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | OversizedLine] = []
        for piece in ended:
            self._add_piece(piece)
            found.append(OversizedLine(bytes(self._held)) if self._dropped else bytes(self._held))
            self._held.clear()
            self._dropped = False
        self._add_piece(rest)
        return found

    def _add_piece(self, piece: bytes) -> None:
        self._held += piece
        if self._dropped or len(self._held) > self._limit:
            self._dropped = True
            del self._held[END_KEPT:-END_KEPT]


class OversizedLine(bytes):
    """The two ends of a line that was too long."""

    @property
    def id(self) -> int | None:
        """The id of the request that it answers, if that can be told."""
        return find_answered_id(self)


CHUNK_SIZE = 262_144
ERRORS_CHUNK_SIZE = 16_384
EXIT_SECONDS = 2.0
"""How long the process may take to exit after its standard input is closed."""
TELL_SECONDS = 0.5
"""How long to wait for the exit code after its output has ended."""
LOOK_SECONDS = 0.2
"""How often to check whether it lives. Its output does not tell: a child may hold the streams open."""
LAST_SECONDS = 2.0
"""How long its output is read after it has exited, unless the streams end before."""
_LOGGER = logging.getLogger(__name__)


@asynccontextmanager
async def run_server_process(
    resolved: ResolvedServer, key: str, dispatcher: Dispatcher, on_end: Callable[[str], None], remarks: ServerRemarks
) -> AsyncIterator[tuple[IncomingStream, OutgoingStream]]:
    """Start a server and yield its streams; it is ended with the block. `on_end` is called when it ends, with the
    reason.

    `key` marks everything that it starts, so that it can be found and ended.
    """
    _check_program(resolved)
    process = await _start_process(resolved, key)
    assert process.stdin, "it has pipes"
    assert process.stdout, "it has pipes"
    assert process.stderr, "it has pipes"
    reading = asyncio.create_task(_read_output(process.stdout, dispatcher, remarks))
    hearing = asyncio.create_task(_read_errors(process.stderr, remarks))
    telling = asyncio.create_task(_report_end(process, reading, hearing, remarks, on_end))
    tasks = [reading, hearing, telling, asyncio.create_task(_write_input(process, process.stdin, dispatcher))]
    try:
        yield dispatcher.ends
    finally:
        if reading.done():  # it ended by itself: report that, and not what broke because of it
            await run_to_end(asyncio.wait({telling}))
        await run_to_end(_end_process(process, key, tasks))


async def _start_process(resolved: ResolvedServer, key: str) -> asyncio.subprocess.Process:
    """Start the process. A cancelled start leaves no process behind."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *resolved.words,
            cwd=resolved.directory,
            env={**resolved.environment, MARKER: key},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await run_to_end(_end_started(starting, key))
        raise


async def _end_started(starting: asyncio.Task[asyncio.subprocess.Process], key: str) -> None:
    with suppress(OSError):
        await _end_process(await starting, key, [])


def _check_program(resolved: ResolvedServer) -> None:
    """BadInput for a missing folder or program: the system reports both as one missing file."""
    if not resolved.directory.is_dir():
        raise BadInput(f"its folder (`cwd`) does not exist: {str(resolved.directory)!r}")
    program = resolved.words[0]
    if shutil.which(program, path=resolved.environment.get("PATH")) is None and not Path(program).exists():
        hint = "; put its arguments into `args`" if " " in program and len(resolved.words) == 1 else ""
        raise BadInput(f"its command does not exist: {resolved.secrets.hide(program)!r}{hint}")


async def _read_output(output: asyncio.StreamReader, dispatcher: Dispatcher, remarks: ServerRemarks) -> None:
    """Deliver its output until it ends or the session is gone."""
    lines = LineBuffer()
    try:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while data := await output.read(CHUNK_SIZE):
                for line in lines.add_data(data):
                    if isinstance(line, OversizedLine):
                        if not await dispatcher.handle_overlong(line.id):
                            return
                    elif line.strip() and not await dispatcher.deliver_data(line):
                        remarks.add_stray_line(line)
    finally:
        dispatcher.end_exchanges()


async def _write_input(
    process: asyncio.subprocess.Process, input: asyncio.StreamWriter, dispatcher: Dispatcher
) -> None:
    """Send what the session writes. When the process takes nothing more, every open request fails."""
    try:
        async for _, item in dispatcher.take_messages():
            try:
                if process.returncode is not None:
                    raise Failure(Fault.NOT_SENT, "it has ended")
                input.write(encode_message(item.message) + b"\n")
            except Failure as failure:
                if isinstance(item.message, JSONRPCRequest):
                    await dispatcher.fail_exchange(dispatcher.get_exchange(item.message), failure)
            await input.drain()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        dispatcher.end_exchanges()


async def _read_errors(errors: asyncio.StreamReader, remarks: ServerRemarks) -> None:
    pace = Pace()
    with suppress(OSError):
        while data := await errors.read(ERRORS_CHUNK_SIZE):
            began = time.perf_counter()
            remarks.add_error_data(data)
            await pace.spend(time.perf_counter() - began)
        remarks.end_errors()


async def _report_end(
    process: asyncio.subprocess.Process,
    reading: asyncio.Task[None],
    hearing: asyncio.Task[None],
    remarks: ServerRemarks,
    on_end: Callable[[str], None],
) -> None:
    """Report when and why it ended: its output ended, or its process did while others hold its streams."""
    while process.returncode is None and not reading.done():
        await asyncio.wait({reading}, timeout=LOOK_SECONDS)
    await _wait_for_exit(process, TELL_SECONDS)
    await asyncio.wait({reading, hearing}, timeout=LAST_SECONDS)
    how = f"it {_describe_exit(process.returncode)}"
    remarks.add_note(how)
    on_end(f"{how}{remarks.describe_remarks()}")
    reading.cancel()


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Wait for its exit. `process.wait` would also wait for others that hold its streams."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "has closed its output"
    return f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"


async def _end_process(process: asyncio.subprocess.Process, key: str, tasks: list[asyncio.Task[None]]) -> None:
    """Let it exit, then kill what is left of it and of everything that it started."""
    try:
        if process.stdin:
            with suppress(OSError):
                process.stdin.close()
        await _wait_for_exit(process, EXIT_SECONDS)
        await kill_tree(process.pid, key)
    except Exception as error:
        _LOGGER.warning("An MCP server may not have been ended: %s", Redacted(error))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError, OSError):
            transport.close()  # it would stay open while another process holds a stream
