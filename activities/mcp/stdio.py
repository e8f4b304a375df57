"""A server as a child process: JSON-RPC, one message a line, on its standard streams.

Ours in place of the `mcp` package's: a line is bounded, whatever is on it costs at most the connection, and nothing of
the process tree is left when it ends, also not what left its process group.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError
from mcp_types.jsonrpc import jsonrpc_message_adapter

from holdfast.activities.mcp.faults import Fault, marked
from holdfast.activities.mcp.hearing import Heard
from holdfast.activities.mcp.resolving import Resolved
from holdfast.activities.processes import MARKER, kill_tree, to_the_end
from holdfast.content import said
from holdfast.errors import BadInput

MESSAGE_LIMIT = 32_000_000
"""Bytes of one message."""
CHUNK = 262_144
EXIT_SECONDS = 2.0
"""What it gets to end by itself once nobody speaks to it any more."""
TELL_SECONDS = 0.5
"""How long its exit code is waited for once it is silent."""
END_KEPT = 200
"""Of a message that is too long: as much of either end as tells whose answer it was."""
_ID_FIRST = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_LOGGER = logging.getLogger(__name__)

Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def child(resolved: Resolved, key: str, gone: Callable[[str], None], heard: Heard) -> AsyncIterator[Streams]:
    """The streams of a server that is started here and ended with the block. `gone` is told when and why it ended.

    `key` marks everything it starts.
    """
    _check(resolved)
    process = await asyncio.create_subprocess_exec(
        *resolved.words,
        cwd=resolved.directory,
        env={**resolved.environment, MARKER: key},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin, "it has pipes"
    assert process.stdout, "it has pipes"
    assert process.stderr, "it has pipes"
    to_session, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process.stdout, to_session, heard))
    telling = asyncio.create_task(_tell(process, reading, heard, gone))
    writing = asyncio.create_task(_write(process.stdin, from_session, to_session))
    tasks = [reading, telling, writing, asyncio.create_task(_hear(process.stderr, heard))]
    try:
        yield incoming, outgoing
    finally:
        if reading.done():  # it ended by itself: that is why, and not what broke by it
            await to_the_end(asyncio.wait({telling}))
        await to_the_end(_end(process, key, tasks))
        for stream in (incoming, outgoing, to_session, from_session):
            stream.close()


def _check(resolved: Resolved) -> None:
    """BadInput for what the system would only tell as one missing file."""
    if not resolved.directory.is_dir():
        raise BadInput(f"its folder (`cwd`) is not there: {str(resolved.directory)!r}")
    program = resolved.words[0]
    if shutil.which(program, path=resolved.environment.get("PATH")) is None and not Path(program).exists():
        hint = "; the words after the first go into `args`" if " " in program and len(resolved.words) == 1 else ""
        raise BadInput(f"its command is not there: {resolved.secrets.hide(program)!r}{hint}")


async def _read(output: asyncio.StreamReader, to_session: MemoryObjectSendStream[Incoming], heard: Heard) -> None:
    """Pass on what it says until it ends, or nobody listens any more."""
    lines = Lines()
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        async with to_session:
            while data := await output.read(CHUNK):
                for line in lines.take(data):
                    message = parsed(line)
                    if message is None:
                        return
                    if isinstance(message, Exception):
                        heard.stray(line)
                    await to_session.send(message)


async def _write(
    input: asyncio.StreamWriter,
    from_session: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[Incoming],
) -> None:
    """Pass on what it is told. When it takes nothing any more, whoever waits for an answer learns that none comes."""
    try:
        async with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                input.write(text.encode() + b"\n")
                await input.drain()
    except (OSError, anyio.ClosedResourceError):
        to_session.close()


class Lines:
    """Bytes on their way to lines. Of a line that is too long only the two ends are kept."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._dropped = False

    def take(self, data: bytes) -> list[bytes | Oversized]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | Oversized] = []
        for piece in ended:
            self._add(piece)
            found.append(Oversized(bytes(self._held)) if self._dropped else bytes(self._held))
            self._held.clear()
            self._dropped = False
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self._held += piece
        if self._dropped or len(self._held) > self._limit:
            self._dropped = True
            del self._held[END_KEPT:-END_KEPT]


class Oversized(bytes):
    """The two ends of a line that was too long."""

    @property
    def id(self) -> int | None:
        """The request that it answered, if that can be told."""
        found = _ID_FIRST.search(self) or _ID_LAST.search(self)
        return int(found[1]) if found else None


def parsed(line: bytes | Oversized) -> Incoming | None:
    """A line as a message. None when the connection cannot go on: somebody waits for what was in it."""
    if isinstance(line, Oversized):
        if line.id is None:
            return None
        error = marked(Fault.UNREADABLE, f"it answered with over {MESSAGE_LIMIT:,} bytes")
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=line.id, error=error))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return ValueError("not a JSON-RPC message")


async def _hear(errors: asyncio.StreamReader, heard: Heard) -> None:
    with suppress(OSError):
        while data := await errors.read(CHUNK):
            heard.errors(data)
        heard.end()


async def _tell(
    process: asyncio.subprocess.Process, reading: asyncio.Task[None], heard: Heard, gone: Callable[[str], None]
) -> None:
    """Say when and why it ended."""
    await asyncio.wait({reading})
    await _exited(process, TELL_SECONDS)
    how = f"it {_how(process.returncode)}"
    heard.note(how)
    gone(f"{how}{heard.said()}")


async def _exited(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Wait so long for its end. `wait` would also wait for whoever else holds its streams."""
    deadline = asyncio.get_running_loop().time() + seconds
    while process.returncode is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _how(code: int | None) -> str:
    if code is None:
        return "says nothing more"
    return f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"


async def _end(process: asyncio.subprocess.Process, key: str, tasks: list[asyncio.Task[None]]) -> None:
    """Let it end by itself, then end what is left; everything it started as well."""
    try:
        if process.stdin:
            with suppress(OSError):
                process.stdin.close()
        await _exited(process, EXIT_SECONDS)
        await kill_tree(process.pid, key)
    except Exception as error:
        _LOGGER.warning("A server may not have ended: %s", said(error))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError, OSError):
            transport.close()  # it would stay open while a stranger holds a stream
