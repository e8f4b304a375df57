"""Background commands of `shell`, which go on after their call has ended: starting, reading and stopping one.

A handle is the name of the command's run, which is derived from its call: no model chooses it, and a second attempt at
the call comes to the same. It leads to commands of the same session alone: its turns, and those that they delegate.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field
from temporalio import activity

from holdfast.activities.process.command import Command, describe_exit_code, run_to_end
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.supervision.runs import NAME_PATTERN, Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.supervision.supervised_run import CommandOwner, RunEnd, SupervisedRun
from holdfast.domain.background_commands import READ_COMMAND, STOP_COMMAND, CommandState
from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, StrictParameters, Tool, ToolFailure
from holdfast.domain.content import Result, TextPart
from holdfast.domain.turn.ids import find_family
from holdfast.util.text import strip_controls

FIRST_SECONDS = 0.5
"""How long a call waits for the first output of the command that it starts."""
MAX_WAIT_SECONDS = 600.0
_NOTES_LENGTH = 700
"""Characters that are left for notes beside the output."""

Lifetime = Literal["session", "turn", "detached"]


@dataclass(frozen=True)
class BackgroundLimits:
    """The limits of background commands, from the settings."""

    ends_with: Lifetime
    most: int
    """Commands at the same time, in one session."""
    seconds: float
    """Seconds that one may run."""


async def start_command(
    command: Command, run: Run, runs: Runs, sandbox: Sandbox | None, outputs: OutputStore, background: BackgroundLimits
) -> Result:
    """Start a command, or find the one that an earlier attempt started; its handle, and its output so far.

    A stop that comes meanwhile stops it. ToolFailure when it cannot be started, or when too many run.
    """
    owner = _build_owner(run, background)
    async with runs.starting:
        if await runs.attach(run.effect_key) is None:
            await asyncio.to_thread(_check_room, runs, owner, background)
        found = await run_to_end(runs.supervise(command, run.effect_key, sandbox=sandbox, owner=owner))
    run.report_process(found.record.command)
    try:
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError  # it came while the command was starting
        await _follow_command(found, run, 0, FIRST_SECONDS)
    except asyncio.CancelledError:
        if not run.is_handing_over:
            await run_to_end(found.stop())
        raise
    handle = runs.derive_name(run.effect_key)
    ends = {"session": "its session", "turn": "its turn", "detached": ""}[background.ends_with]
    until = f"It is stopped when {ends} ends, and" if ends else "It is stopped"
    words = (
        f"Handle: {handle}\nThe command runs in the background: {READ_COMMAND} reads its output and waits for it, "
        f"{STOP_COMMAND} stops it. {until} after {command.seconds:g} seconds at the latest."
    )
    return _build_result(found, handle, outputs, start=None, before=words)


class ReadCommand(Tool):
    """Reads the output of a background command."""

    name = READ_COMMAND
    description = (
        "Read what a command says that shell has started in the background, and whether it still runs or how it ended; "
        "perhaps after waiting for more of it, or for its end."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    live_output = True
    on_host = True
    timeout_seconds = MAX_WAIT_SECONDS + 60
    heartbeat_seconds = 5

    class Parameters(StrictParameters):
        """Arguments."""

        handle: str = Field(description="Handle of the command, as the result of shell has it", max_length=100)
        wait_seconds: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS, description="Wait at most this long before")
        wait_for: Literal["end", "output"] = Field(
            default="end", description="What to wait for: the end of the command, or more output"
        )
        start: int | None = Field(
            default=None,
            ge=0,
            le=10**15,
            description="First byte to read, as the last answer says; the end of the output when left out",
        )

    def __init__(self, outputs: OutputStore, runs: Runs | None) -> None:
        self._outputs = outputs
        self._runs = runs

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to the handle of a command. ValueError when it is invalid."""
        return _ReadCommandInvocation(_CommandHandle(arguments.handle, self._runs), arguments, self._outputs)


class StopCommand(Tool):
    """Stops a background command."""

    name = STOP_COMMAND
    description = "Stop a command that shell has started in the background, with every process that it started."
    effect = Effect.IDEMPOTENT
    on_host = True
    timeout_seconds = 120
    heartbeat_seconds = 5

    class Parameters(StrictParameters):
        """Arguments."""

        handle: str = Field(description="Handle of the command, as the result of shell has it", max_length=100)

    def __init__(self, outputs: OutputStore, runs: Runs | None) -> None:
        self._outputs = outputs
        self._runs = runs

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to the handle of a command. ValueError when it is invalid."""
        return _StopCommandInvocation(_CommandHandle(arguments.handle, self._runs), self._outputs)


class _CommandHandle:
    """A call about a background command."""

    def __init__(self, text: str, runs: Runs | None) -> None:
        if not re.fullmatch(NAME_PATTERN, text):
            raise ValueError("`handle` is no handle: it is the 32 letters and digits that the result of shell gives")
        self.text = text
        self._runs = runs

    async def find(self, run: Run) -> SupervisedRun:
        """Find the command; ToolFailure when this session has none with this handle on this host."""
        found = await asyncio.to_thread(self._runs.find, self.text) if self._runs else None
        owner = found.record.owner if found else None
        if found is None or owner is None or not _may_use(owner, run):
            message = f"This session has no background command {self.text!r}: give the handle as shell has given it"
            raise ToolFailure("no_such_command", message)
        return found


class _ReadCommandInvocation(Invocation):
    def __init__(self, handle: _CommandHandle, arguments: ReadCommand.Parameters, outputs: OutputStore) -> None:
        self._handle = handle
        self._arguments = arguments
        self._outputs = outputs

    def describe(self) -> str:
        wait = f", after {self._arguments.wait_seconds:g} seconds at most" if self._arguments.wait_seconds else ""
        return f"Read the output of background command {self._handle.text}{wait}"

    def is_concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        found = await self._handle.find(run)
        wanted = self._arguments
        if wanted.wait_seconds:
            begin = found.size if wanted.start is None else wanted.start
            await _follow_command(found, run, begin, wanted.wait_seconds, until_output=wanted.wait_for == "output")
        return _build_result(found, self._handle.text, self._outputs, wanted.start)


class _StopCommandInvocation(Invocation):
    def __init__(self, handle: _CommandHandle, outputs: OutputStore) -> None:
        self._handle = handle
        self._outputs = outputs

    def describe(self) -> str:
        return f"Stop background command {self._handle.text}"

    async def execute(self, run: Run) -> Result:
        found = await self._handle.find(run)
        if found.is_alive:
            await run_to_end(found.stop())
        return _build_result(found, self._handle.text, self._outputs)


def _build_owner(run: Run, background: BackgroundLimits) -> CommandOwner:
    """The owner of a command that this call starts: its turn, and the session that the turn belongs to."""
    turn, info = _parse_turn_id(run), activity.info()
    workflow = {"session": find_family(turn), "turn": turn, "detached": ""}[background.ends_with]
    return CommandOwner(namespace=info.namespace, queue=info.task_queue, family=find_family(turn), workflow=workflow)


def _may_use(owner: CommandOwner, run: Run) -> bool:
    return (owner.namespace, owner.family) == (activity.info().namespace, find_family(_parse_turn_id(run)))


def _parse_turn_id(run: Run) -> str:
    return run.key.rpartition("/")[0]


def _check_room(runs: Runs, owner: CommandOwner, background: BackgroundLimits) -> None:
    owners = (found.record.owner for found in runs.list_owned().values() if found.is_alive)
    living = sum(one is not None and (one.namespace, one.family) == (owner.namespace, owner.family) for one in owners)
    if living >= background.most:
        message = (
            f"The command was not started: {living} commands of this session run in the background, and that is the "
            f"limit (tools.shell.background_commands). Stop one with {STOP_COMMAND}, or wait until one has ended"
        )
        raise ToolFailure("too_many_background_commands", message)


async def _follow_command(
    found: SupervisedRun, run: Run, start: int, seconds: float, *, until_output: bool = False
) -> None:
    """Copy output from byte `start` on to the live output, until the command ends or time is up.

    `until_output`: or until there is any output.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for data in found.stream_output(start):
                run.write(decoder.decode(data))
                if until_output:
                    return
            await found.wait_for_end()


def _build_result(
    found: SupervisedRun, handle: str, outputs: OutputStore, start: int | None = None, before: str | None = None
) -> Result:
    """The state of the command and its output: from a byte on, or the end of it."""
    state, ended = found.status.state, found.status.ended
    room, size = max(outputs.limit // 2, outputs.limit - _NOTES_LENGTH), found.size
    begin = max(0, size - room) if start is None else start
    text, end = _decode_output(found.read(begin, room), is_whole=begin + room >= size)
    lines = [*([before] if before else []), _describe_state(found, ended), *_describe_gaps(begin, size, start, ended)]
    lines.append(f"Output:\n{strip_controls(text)}" if text else "No output." if start is None else "No new output.")
    if begin + end < size:
        lines.append(f"[there is more: go on with start {begin + end}]")
    elif ended is None:
        lines.append(f"[what comes next is read with start {max(begin, size)}]")
    command = CommandState(handle=handle, running=state == "running")
    return Result(parts=(TextPart(text="\n".join(lines)),), command=command)


def _decode_output(data: bytes, *, is_whole: bool) -> tuple[str, int]:
    """Output as text, and the number of bytes of that: a character that is cut is left for the next read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=is_whole)
    return text, len(data) - (0 if is_whole else len(decoder.getstate()[0]))


def _describe_gaps(begin: int, size: int, start: int | None, ended: RunEnd | None) -> list[str]:
    """A note about output that is left out here."""
    missing = ended.bytes - ended.stored if ended else 0
    return [
        *([f"[the first {begin:,} bytes are left out: read them with start 0]"] if start is None and begin else []),
        *([f"[it ends before that: it has {size:,} bytes]"] if start is not None and start > size else []),
        *([f"[its last {missing:,} bytes were not kept]"] if missing > 0 else []),
    ]


def _describe_state(found: SupervisedRun, ended: RunEnd | None) -> str:
    """The state of the command, in a line."""
    if ended is None:
        return f"It runs, for {max(0.0, time.time() - found.record.started):.0f} seconds so far."
    took = f" after {ended.ended - ended.started:.0f} seconds" if ended.ended and ended.started else ""
    match ended.why:
        case "exited":
            return f"{describe_exit_code(ended.code or 0)}{took}."
        case "stopped":
            return f"The command was stopped{took}."
        case "timed_out":
            return f"The command was stopped{took}: it ran longer than it may."
        case "abandoned":
            return f"The command was stopped{took}: no worker came back for it in time."
        case "not_started":
            return f"The command could not start: {ended.error}"
        case "lost":
            return f"The state of the command is unknown: {ended.error}. It may have taken effect, in whole or in part."
