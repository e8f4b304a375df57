"""MCP over the standard input and output of a process.

Ours in place of the `mcp` package's: a line is bounded, whatever is on it costs at most the connection, and nothing of
the process tree is left when it ends, also not what left its process group.
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
from holdfast.activities.mcp.transport.dispatcher import IncomingStream, OutgoingStream, Traffic
from holdfast.activities.mcp.transport.faults import Failure, Fault
from holdfast.activities.mcp.transport.jsonrpc import END_KEPT, MESSAGE_LIMIT, Pace, encode_message, find_answered_id
from holdfast.activities.mcp.transport.server_log import ServerRemarks
from holdfast.activities.process.command import MARKER, kill_tree, run_to_end
from holdfast.errors import BadInput
from holdfast.util.redaction import Redacted


class LineBuffer:
    """Bytes on their way to lines. Of a line that is too long only the two ends are kept."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._dropped = False

    def add_data(self, data: bytes) -> list[bytes | OversizedLine]:
        """The lines that these bytes complete."""
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
        """The request that it answered, if that can be told."""
        return find_answered_id(self)


CHUNK_SIZE = 262_144
ERRORS_CHUNK_SIZE = 16_384
EXIT_SECONDS = 2.0
"""What it gets to end by itself once nobody speaks to it any more."""
TELL_SECONDS = 0.5
"""How long its exit code is waited for once it is silent."""
LOOK_SECONDS = 0.2
"""How often is looked whether it lives. Its silence does not tell: what it started may hold its streams."""
LAST_SECONDS = 2.0
"""How long is read on what it said before it ended, unless its streams end before."""
_LOGGER = logging.getLogger(__name__)


@asynccontextmanager
async def run_server_process(
    resolved: ResolvedServer, key: str, traffic: Traffic, on_end: Callable[[str], None], remarks: ServerRemarks
) -> AsyncIterator[tuple[IncomingStream, OutgoingStream]]:
    """The streams of a server that is started here and ended with the block. `on_end` is told when and why it ended.

    `key` marks everything it starts.
    """
    _check_program(resolved)
    process = await _start_process(resolved, key)
    assert process.stdin, "it has pipes"
    assert process.stdout, "it has pipes"
    assert process.stderr, "it has pipes"
    reading = asyncio.create_task(_read_output(process.stdout, traffic, remarks))
    hearing = asyncio.create_task(_read_errors(process.stderr, remarks))
    telling = asyncio.create_task(_report_end(process, reading, hearing, remarks, on_end))
    tasks = [reading, hearing, telling, asyncio.create_task(_write_input(process, process.stdin, traffic))]
    try:
        yield traffic.ends
    finally:
        if reading.done():  # it ended by itself: that is why, and not what broke by it
            await run_to_end(asyncio.wait({telling}))
        await run_to_end(_end_process(process, key, tasks))


async def _start_process(resolved: ResolvedServer, key: str) -> asyncio.subprocess.Process:
    """The process. Whoever does not wait for it leaves none behind."""
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
    """BadInput for what the system would only tell as one missing file."""
    if not resolved.directory.is_dir():
        raise BadInput(f"its folder (`cwd`) is not there: {str(resolved.directory)!r}")
    program = resolved.words[0]
    if shutil.which(program, path=resolved.environment.get("PATH")) is None and not Path(program).exists():
        hint = "; the words after the first go into `args`" if " " in program and len(resolved.words) == 1 else ""
        raise BadInput(f"its command is not there: {resolved.secrets.hide(program)!r}{hint}")


async def _read_output(output: asyncio.StreamReader, traffic: Traffic, remarks: ServerRemarks) -> None:
    """Pass on what it says until it ends, or nobody listens any more."""
    lines = LineBuffer()
    try:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while data := await output.read(CHUNK_SIZE):
                for line in lines.add_data(data):
                    if isinstance(line, OversizedLine):
                        if not await traffic.handle_overlong(line.id):
                            return
                    elif line.strip() and not await traffic.deliver_data(line):
                        remarks.add_stray_line(line)
    finally:
        traffic.end_exchanges()


async def _write_input(process: asyncio.subprocess.Process, input: asyncio.StreamWriter, traffic: Traffic) -> None:
    """Pass on what it is told. When it takes nothing any more, whoever waits for an answer learns that none comes."""
    try:
        async for _, item in traffic.take_messages():
            try:
                if process.returncode is not None:
                    raise Failure(Fault.NOT_SENT, "it has ended")
                input.write(encode_message(item.message) + b"\n")
            except Failure as failure:
                if isinstance(item.message, JSONRPCRequest):
                    await traffic.fail_exchange(traffic.get_exchange(item.message), failure)
            await input.drain()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        traffic.end_exchanges()


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
    """Say when and why it ended: it says nothing more, or its process is no more, whoever still holds its streams."""
    while process.returncode is None and not reading.done():
        await asyncio.wait({reading}, timeout=LOOK_SECONDS)
    await _wait_for_exit(process, TELL_SECONDS)
    await asyncio.wait({reading, hearing}, timeout=LAST_SECONDS)
    how = f"it {_describe_exit(process.returncode)}"
    remarks.add_note(how)
    on_end(f"{how}{remarks.describe_remarks()}")
    reading.cancel()


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Wait so long for its end. `wait` would also wait for whoever else holds its streams."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "says nothing more"
    return f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"


async def _end_process(process: asyncio.subprocess.Process, key: str, tasks: list[asyncio.Task[None]]) -> None:
    """Let it end by itself, then end what is left; everything it started as well."""
    try:
        if process.stdin:
            with suppress(OSError):
                process.stdin.close()
        await _wait_for_exit(process, EXIT_SECONDS)
        await kill_tree(process.pid, key)
    except Exception as error:
        _LOGGER.warning("A server may not have ended: %s", Redacted(error))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError, OSError):
            transport.close()  # it would stay open while a stranger holds a stream
