"""A server as a child process: JSON-RPC, one message a line, on its standard streams.

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

from holdfast.activities.mcp.faults import Failure, Fault
from holdfast.activities.mcp.hearing import Heard
from holdfast.activities.mcp.lines import Lines, Oversized
from holdfast.activities.mcp.messages import written
from holdfast.activities.mcp.pace import Pace
from holdfast.activities.mcp.resolving import Resolved
from holdfast.activities.mcp.streams import Incoming, Outgoing
from holdfast.activities.mcp.traffic import Traffic
from holdfast.activities.processes import MARKER, kill_tree, to_the_end
from holdfast.errors import BadInput
from holdfast.withheld import Words

CHUNK = 262_144
ERRORS_CHUNK = 16_384
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
async def child(
    resolved: Resolved, key: str, traffic: Traffic, gone: Callable[[str], None], heard: Heard
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The streams of a server that is started here and ended with the block. `gone` is told when and why it ended.

    `key` marks everything it starts.
    """
    _check(resolved)
    process = await _started(resolved, key)
    assert process.stdin, "it has pipes"
    assert process.stdout, "it has pipes"
    assert process.stderr, "it has pipes"
    reading = asyncio.create_task(_read(process.stdout, traffic, heard))
    hearing = asyncio.create_task(_hear(process.stderr, heard))
    telling = asyncio.create_task(_tell(process, reading, hearing, heard, gone))
    tasks = [reading, hearing, telling, asyncio.create_task(_write(process, process.stdin, traffic))]
    try:
        yield traffic.ends
    finally:
        if reading.done():  # it ended by itself: that is why, and not what broke by it
            await to_the_end(asyncio.wait({telling}))
        await to_the_end(_end(process, key, tasks))


async def _started(resolved: Resolved, key: str) -> asyncio.subprocess.Process:
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
        await to_the_end(_end_of(starting, key))
        raise


async def _end_of(starting: asyncio.Task[asyncio.subprocess.Process], key: str) -> None:
    with suppress(OSError):
        await _end(await starting, key, [])


def _check(resolved: Resolved) -> None:
    """BadInput for what the system would only tell as one missing file."""
    if not resolved.directory.is_dir():
        raise BadInput(f"its folder (`cwd`) is not there: {str(resolved.directory)!r}")
    program = resolved.words[0]
    if shutil.which(program, path=resolved.environment.get("PATH")) is None and not Path(program).exists():
        hint = "; the words after the first go into `args`" if " " in program and len(resolved.words) == 1 else ""
        raise BadInput(f"its command is not there: {resolved.secrets.hide(program)!r}{hint}")


async def _read(output: asyncio.StreamReader, traffic: Traffic, heard: Heard) -> None:
    """Pass on what it says until it ends, or nobody listens any more."""
    lines = Lines()
    try:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            while data := await output.read(CHUNK):
                for line in lines.take(data):
                    if isinstance(line, Oversized):
                        if not await traffic.overlong(line.id):
                            return
                    elif line.strip() and not await traffic.hear(line):
                        heard.stray(line)
    finally:
        traffic.end()


async def _write(process: asyncio.subprocess.Process, input: asyncio.StreamWriter, traffic: Traffic) -> None:
    """Pass on what it is told. When it takes nothing any more, whoever waits for an answer learns that none comes."""
    try:
        async for _, item in traffic.handed_over():
            try:
                if process.returncode is not None:
                    raise Failure(Fault.NOT_SENT, "it has ended")
                input.write(written(item.message) + b"\n")
            except Failure as failure:
                if isinstance(item.message, JSONRPCRequest):
                    await traffic.fail(traffic.exchange(item.message), failure)
            await input.drain()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        traffic.end()


async def _hear(errors: asyncio.StreamReader, heard: Heard) -> None:
    pace = Pace()
    with suppress(OSError):
        while data := await errors.read(ERRORS_CHUNK):
            began = time.perf_counter()
            heard.errors(data)
            await pace.spend(time.perf_counter() - began)
        heard.end()


async def _tell(
    process: asyncio.subprocess.Process,
    reading: asyncio.Task[None],
    hearing: asyncio.Task[None],
    heard: Heard,
    gone: Callable[[str], None],
) -> None:
    """Say when and why it ended: it says nothing more, or its process is no more, whoever still holds its streams."""
    while process.returncode is None and not reading.done():
        await asyncio.wait({reading}, timeout=LOOK_SECONDS)
    await _exited(process, TELL_SECONDS)
    await asyncio.wait({reading, hearing}, timeout=LAST_SECONDS)
    how = f"it {_how(process.returncode)}"
    heard.note(how)
    gone(f"{how}{heard.said()}")
    reading.cancel()


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
        _LOGGER.warning("A server may not have ended: %s", Words(error))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError, OSError):
            transport.close()  # it would stay open while a stranger holds a stream
