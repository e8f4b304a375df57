"""A call that is one command: its output is kept as it comes, and a failure is told with what it said."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from holdfast.activities.commands import Command, how_it_ended, run_command
from holdfast.activities.live import Tail
from holdfast.activities.outputs import OutputStore, Spool
from holdfast.activities.supervision.calling import run_supervised
from holdfast.activities.supervision.ended import Ended
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.content import Result, TextPart, plain
from holdfast.contexts import ContextChange
from holdfast.tools import OutcomeUnknown, Run, ToolFailure

ERRORS_KEPT = 4_000
"""The end of what was said on standard error, in characters, where it is kept apart."""


class Complaints:
    """What a command says on standard error, where that is no part of its result."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tail = Tail(ERRORS_KEPT)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes) -> None:
        """Keep the end of it, and show it to whoever watches."""
        text = self._decoder.decode(data)
        self._tail.add(text)
        self._run.write(text)

    def parts(self) -> tuple[TextPart, ...]:
        """For a failure."""
        said = plain(self._tail.text).strip()
        return (TextPart(text=f"On standard error:\n{said}"),) if said else ()


async def call_command(command: Command, run: Run, outputs: OutputStore, *, errors_apart: bool = False) -> Result:
    """What the command prints; ToolFailure when it runs too long or exits with anything but 0. It ends with us."""
    spool = outputs.spool()
    complaints = Complaints(run) if errors_apart else None
    apart = complaints.take if complaints else None
    try:
        code = await run_command(command, run.key, output=_taking(spool, run), errors=apart, started=run.started)
        return _result(code, spool, complaints)
    except TimeoutError:
        raise ToolFailure("timeout", _too_long(command), _said(spool, complaints)) from None
    finally:
        spool.discard()


async def call_supervised(
    command: Command, run: Run, outputs: OutputStore, runs: Runs, sandbox: Sandbox | None = None
) -> Result:
    """The same of a command that goes on without us; what an earlier attempt began is found again, not begun anew.

    OutcomeUnknown when its supervisor is gone, and nobody knows how far the command got.
    """
    spool = outputs.spool()
    try:
        ended = await run_supervised(
            runs,
            command,
            run.effect_key,
            output=_taking(spool, run),
            started=run.started,
            sandbox=sandbox,
            hand_over=lambda: run.handing_over,
        )
        return _ended(ended, command, spool)
    finally:
        spool.discard()


def _taking(spool: Spool, run: Run) -> Callable[[bytes], None]:
    return lambda data: run.write(spool.write(data))


def _ended(ended: Ended, command: Command, spool: Spool) -> Result:
    missing = ended.bytes - ended.kept
    if missing > 0:
        spool.write(
            f"\n… [the last {missing:,} bytes were not kept: {ended.error or 'there was no room'}] …\n".encode()
        )
    match ended.why:
        case "exited":
            return _in_folder(_result(ended.code or 0, spool), ended.directory)
        case "lost":
            message = f"The command was begun, but {ended.error}. It may have taken effect, in whole or in part."
            raise OutcomeUnknown(message, _said(spool))
        case "not_started":
            raise ToolFailure("command_not_started", f"The command could not start: {ended.error}")
        case "timed_out":
            raise ToolFailure("timeout", _too_long(command), _said(spool))
        case "abandoned":
            raise ToolFailure("abandoned", "The command was stopped: no worker came back for it in time", _said(spool))
        case "stopped":
            raise ToolFailure("command_stopped", "The command was stopped from outside", _said(spool))


def _result(code: int, spool: Spool, complaints: Complaints | None = None) -> Result:
    if code != 0:
        raise ToolFailure("command_failed", how_it_ended(code), _said(spool, complaints))
    return Result(parts=_said(spool) or (TextPart(text="(no output)"),))


def _in_folder(result: Result, directory: str) -> Result:
    """Where its shell ended, the calls after it go on, if that can be: see `context_changes`."""
    return result.model_copy(update={"context": ContextChange(folder=directory)}) if directory else result


def _too_long(command: Command) -> str:
    return f"The command was stopped: it ran longer than {command.seconds:g} seconds"


def _said(spool: Spool, complaints: Complaints | None = None) -> tuple[TextPart, ...]:
    part = spool.part()
    printed = (part.model_copy(update={"text": plain(part.text)}),) if part.text else ()
    return (*printed, *(complaints.parts() if complaints else ()))
