"""Calls that run a command: one that ends with its worker, or one under a supervisor that outlives it."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable

from holdfast.activities.process.command import Command, Sink, describe_exit_code, run_command, run_to_end
from holdfast.activities.process.output_store import OutputStore, Spool
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.activities.supervision.supervised_run import RunEnd, SupervisedRun
from holdfast.domain.calls.tool import OutcomeUnknown, Run, ToolFailure
from holdfast.domain.content import Result, TextPart
from holdfast.domain.context import ContextChange
from holdfast.util.text import Tail, strip_controls


async def run_supervised(
    runs: Runs,
    command: Command,
    key: str,
    *,
    output: Sink,
    on_start: Callable[[int], None],
    digest: str = "",
    sandbox: Sandbox | None = None,
    hand_over: Callable[[], bool] = lambda: False,
) -> RunEnd:
    """Run a command to its end, or follow the run that an earlier attempt began. ToolFailure when it cannot start.

    When this is cancelled, the command is stopped, and CancelledError raised unless it had ended by itself. If
    `hand_over` is true then, it goes on instead, for the next worker.
    """
    run = await run_to_end(runs.supervise(command, key, digest=digest, sandbox=sandbox))
    on_start(run.record.command)
    read = 0

    def take_data(data: bytes) -> None:
        nonlocal read
        read += len(data)
        output(data)

    try:
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError  # it was cancelled while the command was starting
        await _follow_output(run, 0, take_data)
        return await run.wait_for_end()
    except asyncio.CancelledError:
        if hand_over():
            raise
        ended = await run_to_end(run.stop())
        await run_to_end(_follow_output(run, read, take_data))
        if ended.why != "exited":
            raise
        return ended


async def _follow_output(run: SupervisedRun, offset: int, take: Callable[[bytes], None]) -> None:
    async for data in run.stream_output(offset):
        take(data)


ERRORS_KEPT = 4_000
"""Characters of standard error that are kept apart from the result."""


class ErrorOutput:
    """Standard error of a command, where it is no part of the result."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tail = Tail(ERRORS_KEPT)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add_data(self, data: bytes) -> None:
        """Keep the end of it, and show it as live output."""
        text = self._decoder.decode(data)
        self._tail.add(text)
        self._run.write(text)

    def build_parts(self) -> tuple[TextPart, ...]:
        """The parts of a failure; none without output."""
        text = strip_controls(self._tail.text).strip()
        return (TextPart(text=f"On standard error:\n{text}"),) if text else ()


async def call_command(command: Command, run: Run, outputs: OutputStore, *, errors_apart: bool = False) -> Result:
    """The output of a command that ends with this worker. ToolFailure for a timeout or an exit code other than 0."""
    spool = outputs.open_spool()
    complaints = ErrorOutput(run) if errors_apart else None
    apart = complaints.add_data if complaints else None
    try:
        code = await run_command(
            command, run.key, output=_build_sink(spool, run), errors=apart, on_start=run.report_process
        )
        return _build_result(code, spool, complaints)
    except TimeoutError:
        raise ToolFailure("timeout", _describe_timeout(command), _build_output_parts(spool, complaints)) from None
    finally:
        spool.discard()


async def call_supervised_command(
    command: Command, run: Run, outputs: OutputStore, runs: Runs, sandbox: Sandbox | None = None
) -> Result:
    """The output of a supervised command; a second attempt follows the run of the first.

    ToolFailure as in `call_command`, OutcomeUnknown when the supervisor was killed.
    """
    spool = outputs.open_spool()
    try:
        ended = await run_supervised(
            runs,
            command,
            run.effect_key,
            output=_build_sink(spool, run),
            on_start=run.report_process,
            sandbox=sandbox,
            hand_over=lambda: run.is_handing_over,
        )
        return _build_supervised_result(ended, command, spool)
    finally:
        spool.discard()


def _build_sink(spool: Spool, run: Run) -> Callable[[bytes], None]:
    return lambda data: run.write(spool.write(data))


def _build_supervised_result(ended: RunEnd, command: Command, spool: Spool) -> Result:
    missing = ended.bytes - ended.stored
    if missing > 0:
        spool.write(
            f"\n… [the last {missing:,} bytes were not kept: {ended.error or 'there was no room'}] …\n".encode()
        )
    match ended.why:
        case "exited":
            return _add_folder_change(_build_result(ended.code or 0, spool), ended.directory)
        case "lost":
            message = f"The command was begun, but {ended.error}. It may have taken effect, in whole or in part."
            raise OutcomeUnknown(message, _build_output_parts(spool))
        case "not_started":
            raise ToolFailure("command_not_started", f"The command could not start: {ended.error}")
        case "timed_out":
            raise ToolFailure("timeout", _describe_timeout(command), _build_output_parts(spool))
        case "abandoned":
            raise ToolFailure(
                "abandoned", "The command was stopped: no worker came back for it in time", _build_output_parts(spool)
            )
        case "stopped":
            raise ToolFailure("command_stopped", "The command was stopped from outside", _build_output_parts(spool))


def _build_result(code: int, spool: Spool, complaints: ErrorOutput | None = None) -> Result:
    if code != 0:
        raise ToolFailure("command_failed", describe_exit_code(code), _build_output_parts(spool, complaints))
    return Result(parts=_build_output_parts(spool) or (TextPart(text="(no output)"),))


def _add_folder_change(result: Result, directory: str) -> Result:
    """The result with the final folder of the shell as a change of the turn's context (S47)."""
    return result.model_copy(update={"context": ContextChange(folder=directory)}) if directory else result


def _describe_timeout(command: Command) -> str:
    return f"The command was stopped: it ran longer than {command.seconds:g} seconds"


def _build_output_parts(spool: Spool, complaints: ErrorOutput | None = None) -> tuple[TextPart, ...]:
    part = spool.build_part()
    printed = (part.model_copy(update={"text": strip_controls(part.text)}),) if part.text else ()
    return (*printed, *(complaints.build_parts() if complaints else ()))
